//! The wireless election of the best.

use std::collections::BTreeMap;

use distlock_lab::choices::Choices;
use distlock_lab::networks::best_capacity::{BestCapacity, Candidate, Message, Sends};
use distlock_lab::networks::topology::Topology;
use distlock_lab::networks::wireless::elect;
use distlock_protocol::NodeId;

use crate::id;

/// Node a is 1, and so on.
fn named(name: u8) -> NodeId {
    id(u16::from(name - b'a') + 1)
}

/// S1, Figure 6.22: a is the source and has the neighbours b and j; g is a child of b and has the
/// children e and h; f and i are the last to be reached; h, with 8, is the best. The text has no
/// more of the figure; the other links and capacities are made to fit it.
#[test]
fn lecture_figure_6_22_h_is_elected() {
    let mut topology = Topology::default();
    for link in [
        "ab", "aj", "bc", "bg", "cd", "ce", "df", "ef", "ge", "gh", "gj", "hi", "fi",
    ] {
        let ends = link.as_bytes();
        topology.link(named(ends[0]), named(ends[1]));
    }
    let worth = [4, 6, 3, 2, 1, 4, 2, 8, 5, 4];
    let capacities: BTreeMap<NodeId, u64> = (b'a'..).map(named).zip(worth).collect();
    let (counts, leader) = elect(&topology, &capacities, named(b'a'), 1).unwrap();
    let capacity = 8;
    assert_eq!(
        leader,
        Candidate {
            capacity,
            node: named(b'h')
        }
    );
    // |E| = 13, N = 10.
    assert_eq!(counts["ELECTION"], 2 * 13 - 10 + 1);
    assert_eq!(counts.values().sum::<u64>(), 4 * 13 - 10 + 1);
}

/// The design, section 4: 2|E|-N+1 ELECTIONs, as many ACKs, N-1 LEADERs; 4|E|-N+1 in all. Whatever
/// the delays, the source and the links.
#[test]
fn one_election_takes_4_e_minus_n_plus_1() {
    for seed in 0..300 {
        let mut choices = Choices::new(seed);
        let size = choices.within(1..=25) as u16;
        let extra = choices.below(60) as u16;
        let topology = Topology::connected(size, extra, &mut choices);
        let capacities = topology
            .nodes()
            .map(|node| (node, choices.below(5)))
            .collect();
        let source = id(choices.within(1..=size.into()) as u16);
        let (counts, leader) = elect(&topology, &capacities, source, seed).unwrap();
        let (n, e) = (u64::from(size), topology.links().len() as u64);
        let of = |kind: &str| counts.get(kind).copied().unwrap_or_default();
        assert_eq!(of("ELECTION"), 2 * e + 1 - n, "seed {seed}");
        assert_eq!(of("ACK"), 2 * e + 1 - n, "seed {seed}");
        assert_eq!(of("LEADER"), n - 1, "seed {seed}");
        assert_eq!(counts.values().sum::<u64>(), 4 * e + 1 - n, "seed {seed}");
        // Of several with the highest capacity the highest id.
        let best = capacities
            .iter()
            .map(|(node, capacity)| (*capacity, *node))
            .max();
        assert_eq!(Some((leader.capacity, leader.node)), best, "seed {seed}");
    }
}

fn node(node: u16, neighbours: &[u16]) -> BestCapacity {
    let (capacity, node) = (1, id(node));
    BestCapacity::new(
        Candidate { capacity, node },
        neighbours.iter().copied().map(id),
    )
}

/// A copy of the parent's ELECTION must not be answered by "no child".
#[test]
fn a_copy_makes_no_child_a_stranger() {
    let (mut source, mut leaf) = (node(1, &[2]), node(2, &[1]));
    let (mut sent, mut answers) = (Sends::new(), Sends::new());
    source.start(&mut sent);
    for _ in 0..2 {
        leaf.receive(id(1), sent[0].1, &mut answers);
    }
    let [(_, Message::Ack { best, .. })] = answers[..] else {
        panic!("{answers:?}");
    };
    assert_eq!(best.map(|best| best.node), Some(id(2)));
}

/// S1: "each node will decide to join only one election, the election with the highest identifier".
#[test]
fn lecture_the_highest_of_two_elections_is_joined() {
    let (mut one, mut two, mut middle) = (node(1, &[3]), node(2, &[3]), node(3, &[1, 2]));
    let [mut from_one, mut from_two, mut out] = [(); 3].map(|()| Sends::new());
    one.start(&mut from_one);
    two.start(&mut from_two);
    middle.receive(id(2), from_two[0].1, &mut out);
    let joined = out.clone();
    middle.receive(id(1), from_one[0].1, &mut out);
    // The lower is not even answered: 1 gets the higher one from here.
    assert_eq!(out, joined);
    assert_eq!(out, [(id(1), from_two[0].1)]);
}

/// The lecture leaves out that nodes move.
#[test]
fn who_loses_its_parent_begins_anew() {
    let (mut source, mut child) = (node(1, &[2]), node(2, &[1, 3]));
    let (mut sent, mut out) = (Sends::new(), Sends::new());
    source.start(&mut sent);
    child.receive(id(1), sent[0].1, &mut out);
    out.clear();
    child.lose(id(1), &mut out);
    let [(to, Message::Election { index })] = out[..] else {
        panic!("{out:?}");
    };
    let Message::Election { index: old } = sent[0].1 else {
        panic!("{sent:?}");
    };
    assert!(to == id(3) && index > old);
    // 3 has gone too: nobody is left to wait for.
    child.lose(id(3), &mut out);
    assert_eq!(child.leader().map(|leader| leader.node), Some(id(2)));
}
