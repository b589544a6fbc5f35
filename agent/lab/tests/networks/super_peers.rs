//! Super-peers by identifier.

use std::collections::BTreeSet;

use distlock_lab::choices::Choices;
use distlock_lab::networks::super_peers::IdentifierSpace;

/// S1: m = 8, k = 3: the node responsible for K and 11100000.
#[test]
fn lecture_eight_bits_of_which_three_are_reserved() {
    let space = IdentifierSpace::new(8, 3).unwrap();
    assert_eq!(space.pattern(0b1011_0110), 0b1010_0000);
    let patterns: BTreeSet<u64> = (0..256).map(|key| space.pattern(key)).collect();
    assert_eq!(patterns.len(), 8);
    let nodes = BTreeSet::from([0b0000_0100, 0b1010_0000, 0b1010_0001, 0b1100_1000]);
    assert_eq!(space.super_peer(0b1011_0110, &nodes), Some(0b1010_0000));
    assert_eq!(space.super_peer(0b1000_0001, &nodes), Some(0b1010_0000));
    assert_eq!(space.super_peer(0b1100_0000, &nodes), Some(0b1100_1000));
    // Round the ring.
    assert_eq!(space.super_peer(0b1111_1111, &nodes), Some(0b0000_0100));
    assert_eq!(space.super_peer(7, &BTreeSet::new()), None);
}

/// The design, section 4: read as "the node responsible", at most 2^k, whatever N; read as "ends in
/// zeros", 2^(k-m) N in the mean.
#[test]
fn the_two_readings_differ() {
    let space = IdentifierSpace::new(16, 3).unwrap();
    let mut choices = Choices::new(1);
    let (mut most, mut reserved) = (0, 0);
    for _ in 0..200 {
        let nodes: BTreeSet<u64> = (0..500).map(|_| choices.below(1 << 16)).collect();
        most = most.max(space.super_peers(&nodes).len());
        reserved += nodes
            .iter()
            .filter(|node| space.is_reserved(**node))
            .count();
    }
    assert_eq!(most, 8);
    // 200 · 500 / 2^13 = 12.
    assert!((4..25).contains(&reserved), "{reserved}");
}

/// Going from pattern to pattern finds the same as asking for every key.
#[test]
fn all_super_peers_are_those_of_all_keys() {
    for seed in 0..2_000 {
        let mut choices = Choices::new(seed);
        let bits = choices.within(1..=8) as u32;
        let space = IdentifierSpace::new(bits, choices.within(0..=bits.into()) as u32).unwrap();
        let count = choices.below(10);
        let nodes: BTreeSet<u64> = (0..count).map(|_| choices.below(1 << bits)).collect();
        let keys = 0..1_u64 << bits;
        let expected: BTreeSet<u64> = keys
            .filter_map(|key| space.super_peer(key, &nodes))
            .collect();
        assert_eq!(
            space.super_peers(&nodes),
            expected,
            "seed {seed}: {space:?} {nodes:?}"
        );
    }
}

#[test]
fn identifiers_have_1_to_64_bits() {
    assert_eq!(IdentifierSpace::new(0, 0), None);
    assert_eq!(IdentifierSpace::new(65, 3), None);
    assert_eq!(IdentifierSpace::new(8, 9), None);
    let all = IdentifierSpace::new(64, 64).unwrap();
    assert_eq!(all.pattern(u64::MAX), u64::MAX);
    let none = IdentifierSpace::new(64, 0).unwrap();
    assert_eq!(none.pattern(u64::MAX), 0);
    let nodes = BTreeSet::from([5, u64::MAX]);
    assert_eq!(all.super_peers(&nodes), nodes);
    assert_eq!(none.super_peers(&nodes), BTreeSet::from([5]));
}
