//! What arrives is not always what was sent, nor sent by a member.

use std::time::Duration;

use distlock_protocol::checksum::crc_32c;
use distlock_protocol::wire::Drop;
use distlock_protocol::{Algorithm, Input, NodeId, Wait};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::group::{Group, node};

/// Datagrams of a group at work: greetings, views, and turns.
fn harvest(algorithm: Algorithm) -> Vec<(NodeId, NodeId, Vec<u8>)> {
    let mut group = Group::new(3, algorithm);
    group.start(2);
    for ticket in 1..=30 {
        group.acquire(1 + (ticket % 3) as u16, ticket, Wait::Cancelled);
    }
    for _ in 0..400 {
        group.run(Duration::from_millis(10));
        for ticket in 1..=30 {
            if group.granted(ticket).is_some() {
                group.release(1 + (ticket % 3) as u16, ticket);
            }
        }
    }
    assert!(group.sent.len() > 100, "there is something to work with");
    group.sent
}

/// Puts a right checksum under whatever the bytes have become.
fn reseal(bytes: &mut [u8]) {
    let end = bytes.len() - 4;
    let checksum = crc_32c(&bytes[..end]);
    bytes[end..].copy_from_slice(&checksum.to_be_bytes());
}

/// Enters and leaves once with each member, whatever came before.
fn takes_turns(group: &mut Group) {
    for id in 1..=3_u16 {
        let ticket = 1_000 + u64::from(id);
        group.acquire(id, ticket, Wait::Cancelled);
        group.run(Duration::from_secs(5));
        assert!(group.granted(ticket).is_some(), "member {id} enters");
        group.release(id, ticket);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// Noise of any kind is dropped and counted, and changes nothing.
    #[test]
    fn noise_is_dropped_and_counted(
        noise in proptest::collection::vec(
            (0_u16..3, proptest::collection::vec(any::<u8>(), 0..200)), 1..50),
        cuts in proptest::collection::vec((any::<Index>(), any::<Index>()), 1..50),
    ) {
        let harvest = harvest(Algorithm::RicartAgrawala);
        let mut group = Group::new(3, Algorithm::RicartAgrawala);
        let dropped = |group: &Group| -> u64 {
            group.nodes.values().flat_map(|node| node.counters().dropped.values()).sum()
        };
        let before = dropped(&group);
        for (to, bytes) in &noise {
            let from = node(1 + (to + 1) % 3);
            group.input(node(to + 1), Input::Datagram { from, bytes });
        }
        for (which, at) in &cuts {
            let (from, to, bytes) = which.get(&harvest);
            let cut = &bytes[..at.index(bytes.len())];
            group.input(*to, Input::Datagram { from: *from, bytes: cut });
        }
        prop_assert_eq!(dropped(&group) - before, (noise.len() + cuts.len()) as u64);
        takes_turns(&mut group);
    }

    /// Damage that a checksum cannot show, as it was made to fit: nobody panics. (Who forges what
    /// members say can break a lock: that takes sealed datagrams.)
    #[test]
    fn forged_datagrams_break_no_member(
        algorithm in proptest::sample::select(&Algorithm::ALL[..]),
        forgeries in proptest::collection::vec(
            (any::<Index>(), proptest::collection::vec((any::<Index>(), any::<u8>()), 1..6)),
            1..60),
    ) {
        let harvest = harvest(algorithm);
        let mut group = Group::new(3, algorithm);
        for (ticket, (which, changes)) in (1..).zip(&forgeries) {
            let (from, to, mut bytes) = which.get(&harvest).clone();
            for (place, byte) in changes {
                // The header's length, kind and version are looked at elsewhere.
                let place = 4 + place.index(bytes.len() - 4);
                bytes[place] = *byte;
            }
            reseal(&mut bytes);
            group.input(to, Input::Datagram { from, bytes: &bytes });
            group.acquire(1 + (ticket % 3) as u16, ticket, Wait::Lease);
            group.run(Duration::from_millis(50));
        }
    }
}

#[test]
fn a_datagram_for_another_member_or_from_another_address_is_dropped() {
    let (from, to, bytes) = harvest(Algorithm::Bakery).pop().unwrap();
    let mut group = Group::new(3, Algorithm::Bakery);
    let other = (1..=3)
        .map(node)
        .find(|id| *id != from && *id != to)
        .unwrap();
    group.input(
        other,
        Input::Datagram {
            from,
            bytes: &bytes,
        },
    );
    group.input(
        to,
        Input::Datagram {
            from: other,
            bytes: &bytes,
        },
    );
    for id in [other, to] {
        assert_eq!(group.nodes[&id].counters().dropped[&Drop::Address], 1);
    }
}
