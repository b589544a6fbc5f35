//! Messages an entry costs, over real UDP and counted by the agents themselves, against the
//! algorithms' own figures.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use distlock_agent::protocol::Algorithm;
use distlock_agent::runtime::Agent;

use crate::support::{Group, Kind, enter, lock};

/// Messages that engines have sent so far, of all kinds or of one.
fn sent(agents: &[Agent], kind: Option<&str>) -> usize {
    let messages = agents
        .iter()
        .flat_map(|agent| agent.counters().node.engine_messages);
    let of_kind = messages.filter(|((_, of), _)| kind.is_none_or(|kind| kind == *of));
    of_kind
        .map(|(_, count)| usize::try_from(count).unwrap())
        .sum()
}

fn datagrams(agents: &[Agent]) -> u64 {
    agents
        .iter()
        .map(|agent| agent.counters().transport.sent)
        .sum()
}

/// Members in an order in which each follows each, itself too, exactly once: a de Bruijn sequence
/// of order 2. What depends on the last holder and the next one is then met in its true mean.
fn each_after_each(size: usize) -> Vec<usize> {
    let tail = |first: usize| (first + 1..size).flat_map(move |second| [first, second]);
    (0..size)
        .flat_map(|first| std::iter::once(first).chain(tail(first)))
        .collect()
}

/// Entries one at a time; the messages of all of them.
fn light(algorithm: Algorithm, size: u16) -> usize {
    let group = Group::by(algorithm, Kind::Udp, size);
    let agents = group.start_all();
    let name = lock("printer");
    let order = each_after_each(agents.len());
    drop(enter(&agents[order[order.len() - 1]], &name));
    let (before, datagrams_before) = (sent(&agents, None), datagrams(&agents));
    for &member in &order {
        enter(&agents[member], &name).release().unwrap();
    }
    let messages = sent(&agents, None) - before;
    let on_wire = datagrams(&agents) - datagrams_before;
    let entries = order.len();
    println!(
        "{algorithm}, {size} members, light: {entries} entries, {messages} messages, {on_wire} datagrams"
    );
    messages
}

#[test]
fn light_load_costs_what_the_papers_say() {
    for size in [3u16, 5] {
        let n = usize::from(size);
        let entries = n * n;
        // Exact for each entry.
        assert_eq!(
            light(Algorithm::RicartAgrawala, size),
            entries * 2 * (n - 1)
        );
        assert_eq!(light(Algorithm::Bakery, size), entries * 6 * (n - 1));
        // Exact in the mean over all members: the server asks itself for nothing.
        assert_eq!(light(Algorithm::Semaphore, size), entries * 3 * (n - 1) / n);
        assert_eq!(light(Algorithm::TokenRingRequests, size), entries * (n - 1));
    }
}

/// What a closed loop cost: each member asks again the instant it releases.
struct Heavy {
    /// Between two looks in the midst of it: entries and messages.
    entries: usize,
    messages: usize,
    /// From the start to the end: entries of each member, and messages by kind.
    all_entries: Vec<usize>,
    agents: Vec<Agent>,
    _group: Group,
}

/// `inside` is how long each entry lasts.
fn heavy(algorithm: Algorithm, size: u16, inside: Duration) -> Heavy {
    const THREADS: usize = 3;
    const WARM_UP: usize = 50;
    const ENTRIES: usize = 1_000;
    let group = Group::by(algorithm, Kind::Udp, size);
    let agents = group.start_all();
    let name = lock("printer");
    let (stop, entered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (first, last) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let by_member: Vec<_> = agents.iter().map(|_| AtomicUsize::new(0)).collect();
    thread::scope(|scope| {
        for (agent, count) in agents.iter().zip(&by_member) {
            // Several threads, so that the next request is there at the release of the last.
            for _ in 0..THREADS {
                scope.spawn(|| {
                    while !stop.load(Ordering::SeqCst) {
                        let grant = enter(agent, &name);
                        count.fetch_add(1, Ordering::SeqCst);
                        match entered.fetch_add(1, Ordering::SeqCst) {
                            WARM_UP => first.store(sent(&agents, None), Ordering::SeqCst),
                            at if at == WARM_UP + ENTRIES => {
                                last.store(sent(&agents, None), Ordering::SeqCst);
                                stop.store(true, Ordering::SeqCst);
                            }
                            _ => {}
                        }
                        if !inside.is_zero() {
                            thread::sleep(inside);
                        }
                        grant.release().unwrap();
                    }
                });
            }
        }
    });
    let messages = last.into_inner() - first.into_inner();
    println!("{algorithm}, {size} members, heavy: {ENTRIES} entries, {messages} messages");
    Heavy {
        entries: ENTRIES,
        messages,
        all_entries: by_member.into_iter().map(AtomicUsize::into_inner).collect(),
        agents,
        _group: group,
    }
}

impl Heavy {
    /// Within 3 % of `per_entry` messages an entry, in the midst of the loop.
    fn assert_mean(&self, per_entry: f64) {
        let mean = self.messages as f64 / self.entries as f64;
        assert!(
            (mean / per_entry - 1.0).abs() <= 0.03,
            "{mean} messages, not {per_entry}"
        );
    }

    fn assert_all(&self, kind: Option<&str>, messages: usize) {
        assert_eq!(sent(&self.agents, kind), messages, "{kind:?}");
    }
}

#[test]
fn heavy_load_costs_what_the_papers_say() {
    for size in [3u16, 5] {
        let n = usize::from(size);

        let ricart_agrawala = heavy(Algorithm::RicartAgrawala, size, Duration::ZERO);
        let entries: usize = ricart_agrawala.all_entries.iter().sum();
        ricart_agrawala.assert_all(Some("REQUEST"), entries * (n - 1));
        ricart_agrawala.assert_all(Some("REPLY"), entries * (n - 1));
        ricart_agrawala.assert_mean(3.0 * (n - 1) as f64);

        let bakery = heavy(Algorithm::Bakery, size, Duration::ZERO);
        bakery.assert_all(None, bakery.all_entries.iter().sum::<usize>() * 6 * (n - 1));

        // All but the server's own entries cost three messages; one member serves this lock.
        let semaphore = heavy(Algorithm::Semaphore, size, Duration::ZERO);
        let total = sent(&semaphore.agents, None);
        let entries: usize = semaphore.all_entries.iter().sum();
        assert!(
            semaphore
                .all_entries
                .iter()
                .any(|of_server| total == 3 * (entries - of_server)),
            "{total} messages for {:?} entries",
            semaphore.all_entries
        );

        heavy(Algorithm::TokenRing, size, Duration::ZERO).assert_mean(1.0);
        // The token stays while nobody is known to want it: entries must last longer than the
        // requests take.
        let inside = Duration::from_millis(1);
        heavy(Algorithm::TokenRingRequests, size, inside).assert_mean(2.0);
        // So does the manager's. It says nothing to itself: neither its requests nor who is next.
        heavy(Algorithm::Manager, size, inside).assert_mean(3.0 - 2.0 / n as f64);
    }
}
