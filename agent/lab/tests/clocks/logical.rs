//! Lamport and vector clocks.

use std::collections::{BTreeMap, BTreeSet};

use distlock_lab::choices::Choices;
use distlock_protocol::NodeId;
use distlock_protocol::clock::{Causality, ImpossibleStamp, LamportClock, Stamp, VectorClock};

use crate::id;

fn vector(counts: [u64; 3]) -> VectorClock {
    (1..).map(id).zip(counts).collect()
}

/// S1, 6.2, Figure 6.13(a): m1 goes from P2 to P1, m2 from P1 to P3, m3 from P1 to P2 after an
/// event, m4 from P2 to P3.
#[test]
fn lecture_figure_6_13_a_may_precede() {
    let [p1, p2, p3] = [1, 2, 3].map(id);
    let [mut clock1, mut clock2, mut clock3] = [(); 3].map(|()| VectorClock::new());
    clock2.tick(&p2);
    let m1 = clock2.clone();
    assert_eq!(m1, vector([0, 1, 0]));
    clock1.receive(&p1, &m1).unwrap();
    assert_eq!(clock1, vector([1, 1, 0]));
    clock1.tick(&p1);
    let m2 = clock1.clone();
    assert_eq!(m2, vector([2, 1, 0]));
    clock1.tick(&p1);
    clock1.tick(&p1);
    let m3 = clock1.clone();
    assert_eq!(m3, vector([4, 1, 0]));
    clock2.receive(&p2, &m3).unwrap();
    clock2.tick(&p2);
    let m4 = clock2.clone();
    assert_eq!(m4, vector([4, 3, 0]));
    assert_eq!(m2.compare(&m4), Causality::Before);
    assert_eq!(m4.compare(&m2), Causality::After);
    clock3.receive(&p3, &m2).unwrap();
    clock3.receive(&p3, &m4).unwrap();
    assert_eq!(clock3, vector([4, 3, 2]));
}

/// S1, 6.2, Figure 6.13(b): m2 is delayed until m3 and the event before it have been.
#[test]
fn lecture_figure_6_13_b_may_conflict() {
    let (m2, m4) = (vector([4, 1, 0]), vector([2, 3, 0]));
    assert_eq!(m2.compare(&m4), Causality::Concurrent);
    assert_eq!(m2.partial_cmp(&m4), None);
}

/// S1, 6.2: of P1 itself ts - 1 events precede its event; of P2 as many as the entry says.
#[test]
fn lecture_6_2_the_entry_of_another_process_counts_as_it_is() {
    let mut clock = VectorClock::new();
    clock.receive(&id(1), &vector([0, 1, 0])).unwrap();
    // The receipt is P1's first event, and P2's only event precedes it.
    assert_eq!((clock.count(&id(1)) - 1, clock.count(&id(2))), (0, 1));
}

#[test]
fn a_stamp_from_an_earlier_incarnation_is_refused() {
    let mut clock = vector([1, 1, 0]);
    let before = clock.clone();
    let (claimed, known) = (4, 1);
    let refused = clock.receive(&id(1), &vector([4, 9, 0]));
    assert_eq!(refused, Err(ImpossibleStamp { claimed, known }));
    assert_eq!(clock, before);
}

/// The design, 5.2: a member that has gone stays in the clocks until all know all of it.
#[test]
fn a_process_is_forgotten_when_nobody_is_behind() {
    let gone = id(3);
    let (mut ahead, mut behind) = (vector([5, 1, 2]), vector([1, 7, 1]));
    assert!(!ahead.is_settled(&gone, [&ahead, &behind]));
    behind.receive(&id(2), &ahead).unwrap();
    assert!(ahead.is_settled(&gone, [&ahead, &behind]));
    ahead.forget(&gone);
    behind.forget(&gone);
    assert_eq!(ahead.compare(&behind), Causality::Before);
    assert_eq!(ahead.count(&gone), 0);
}

/// Zeros and absence are the same, also of what another program wrote.
#[test]
fn a_clock_comes_back_from_its_words() {
    let clock = vector([2, 0, 7]);
    let words = serde_json::to_string(&clock).unwrap();
    assert_eq!(words, r#"{"1":2,"3":7}"#);
    assert_eq!(serde_json::from_str::<VectorClock>(&words).unwrap(), clock);
    let with_zero = r#"{"1":2,"2":0,"3":7}"#;
    let read: VectorClock = serde_json::from_str(with_zero).unwrap();
    assert_eq!(read, clock);
    assert_eq!(read.to_string(), "{1:2, 3:7}");
}

/// One event of a random execution, with what the clocks say and what is true.
struct Event {
    stamp: Stamp,
    vector: VectorClock,
    /// The event itself and all that happened before it, by number: the definition itself.
    history: BTreeSet<usize>,
}

#[derive(Default)]
struct Process {
    lamport: LamportClock,
    vector: VectorClock,
    history: BTreeSet<usize>,
}

/// `length` events of `size` processes, which send, receive in any order, and do things.
fn execution(seed: u64, size: u16, length: usize) -> Vec<Event> {
    let mut choices = Choices::new(seed);
    let mut processes: BTreeMap<NodeId, Process> = (1..=size)
        .map(|node| (id(node), Process::default()))
        .collect();
    let mut events: Vec<Event> = Vec::new();
    let mut under_way: Vec<(NodeId, usize)> = Vec::new();
    while events.len() < length {
        let mut node = id(choices.within(1..=u64::from(size)) as u16);
        let receives = !under_way.is_empty() && choices.chance(450);
        let message = receives.then(|| under_way.swap_remove(choices.index(under_way.len())));
        if let Some((to, _)) = message {
            node = to;
        }
        let process = processes.get_mut(&node).unwrap();
        let clock = match message {
            Some((_, sent)) => {
                let sent = &events[sent];
                process.vector.receive(&node, &sent.vector).unwrap();
                process.history.extend(&sent.history);
                process.lamport.receive(sent.stamp.clock).unwrap()
            }
            None => {
                process.vector.tick(&node);
                process.lamport.tick()
            }
        };
        process.history.insert(events.len());
        if message.is_none() && choices.chance(700) {
            let to = id(choices.within(1..=u64::from(size)) as u16);
            if to != node {
                under_way.push((to, events.len()));
            }
        }
        events.push(Event {
            stamp: Stamp { clock, node },
            vector: process.vector.clone(),
            history: process.history.clone(),
        });
    }
    events
}

/// Lamport: what happened before has the lower clock, and all stamps differ. Mattern: vectors are
/// ordered if and only if the events are. Both against the histories, in 200 random executions.
#[test]
fn clocks_agree_with_what_happened_before() {
    let (mut ordered, mut concurrent, mut misleading) = (0, 0, 0);
    for seed in 0..200 {
        let events = execution(seed, 2 + (seed % 5) as u16, 60);
        for (place, one) in events.iter().enumerate() {
            for (other_place, other) in events.iter().enumerate() {
                let before = place != other_place && other.history.contains(&place);
                let after = place != other_place && one.history.contains(&other_place);
                let expected = match (place == other_place, before, after) {
                    (true, ..) => Causality::Equal,
                    (_, true, _) => Causality::Before,
                    (_, _, true) => Causality::After,
                    _ => Causality::Concurrent,
                };
                assert_eq!(one.vector.compare(&other.vector), expected, "seed {seed}");
                assert_eq!(
                    one.stamp == other.stamp,
                    place == other_place,
                    "seed {seed}"
                );
                if before {
                    assert!(one.stamp.clock < other.stamp.clock, "seed {seed}");
                    ordered += 1;
                } else if expected == Causality::Concurrent {
                    concurrent += 1;
                    misleading += u32::from(one.stamp.clock < other.stamp.clock);
                }
            }
        }
    }
    // The converse does not hold: many a lower clock has caused nothing.
    assert!(ordered > 50_000 && concurrent > 50_000 && misleading > 20_000);
}
