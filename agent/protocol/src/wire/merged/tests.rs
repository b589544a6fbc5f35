//! What goes to many comes to each as if it had gone to that one alone.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec;

use proptest::prelude::*;

use super::*;
use crate::ids::{Epoch, Incarnation};
use crate::wire::{Frame, Header, Kind, Route, encode_frames};

fn node(id: u16) -> NodeId {
    NodeId::new(id).unwrap()
}

fn group() -> GroupId {
    GroupId::of("shop")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn frame(bytes: &[u8]) -> Frame {
    Frame {
        more: false,
        prompt: true,
        bytes: bytes.to_vec(),
    }
}

/// What a link says, all of it following from `number`.
fn header(to: u16, number: u64) -> Header {
    Header {
        kind: Kind::Frames,
        ping: number % 2 == 1,
        route: Route::Direct,
        deaf: number % 3 == 1,
        from: node(1),
        to: node(to),
        epoch: Epoch::new(5).unwrap(),
        from_incarnation: Incarnation(6),
        to_incarnation: Incarnation(number),
        acknowledged: number ^ 0x11,
        selective: number ^ 0x22,
        first: number ^ 0x33,
    }
}

/// The bodies differ in their first byte, which is from `number`.
fn datagrams(receivers: &BTreeMap<u16, u64>, body: &[u8]) -> BTreeMap<u16, Vec<u8>> {
    let encode = |(&to, &number): (&u16, &u64)| {
        let frame = frame(&[&[number as u8], body].concat());
        let bytes = encode_frames(group(), &header(to, number), [&frame].into_iter());
        (to, bytes)
    };
    receivers.iter().map(encode).collect()
}

fn merged(receivers: &BTreeMap<u16, u64>, body: &[u8]) -> Vec<u8> {
    let datagrams = datagrams(receivers, body);
    let mut parts = datagrams.values().map(|it| Mergeable::new(it).unwrap());
    let mut merger = Merger::new(parts.next().unwrap());
    assert!(parts.all(|part| merger.add(part)));
    assert_eq!(merger.count(), datagrams.len());
    merger.encode()
}

fn read_as(me: u16, bytes: &[u8]) -> Result<Multicast, Drop> {
    read(group(), node(1), node(me), bytes)
}

#[test]
fn a_merged_datagram_is_golden() {
    let bytes = merged(&BTreeMap::from([(2, 3), (0x0405, 4)]), &[0xaa, 0xbb]);
    let expected = "05030002\
        00010000\
        842add7b70d72e01\
        00000005\
        0000000000000006\
        00030100\
        01000200000000000000030000000000000012000000000000002100000000000000\
        3003\
        08040500000000000000040000000000000015000000000000002600000000000000\
        3704\
        020003aabb\
        f0fa3480";
    assert_eq!(hex(&bytes), expected);
}

#[test]
fn a_report_is_golden() {
    let bytes = report(group(), node(1), &[node(2), node(0x0304)]);
    let expected = "0504000000010002842add7b70d72e010002030491d0db9c";
    assert_eq!(hex(&bytes), expected);
    let hears_me = |me| read_as(me, &bytes).unwrap();
    assert_eq!(hears_me(0x0304), Multicast::Report { hears_me: true });
    assert_eq!(hears_me(3), Multicast::Report { hears_me: false });
    let nobody = report(group(), node(1), &[]);
    let read = read_as(2, &nobody).unwrap();
    assert_eq!(read, Multicast::Report { hears_me: false });
}

#[test]
fn the_longest_report_fits_and_is_read() {
    let all: Vec<_> = (2..).take(MAX_REPORTED).map(node).collect();
    let bytes = report(group(), node(1), &all);
    assert!(bytes.len() <= MAX_DATAGRAM);
    let last = all.last().unwrap().as_u16();
    let read = read_as(last, &bytes).unwrap();
    assert_eq!(read, Multicast::Report { hears_me: true });
}

#[test]
fn only_new_frames_on_the_direct_way_are_merged() {
    let frame = frame(&[1]);
    let encode = |header: &Header| encode_frames(group(), header, [&frame].into_iter());
    let direct = header(2, 0);
    assert!(Mergeable::new(&encode(&direct)).is_some());
    for route in [Route::PassOn, Route::Passed] {
        let relayed = Header { route, ..direct };
        assert!(Mergeable::new(&encode(&relayed)).is_none());
    }
    for kind in [Kind::Greeting, Kind::Notice] {
        let other = Header { kind, ..direct };
        assert!(Mergeable::new(&encode(&other)).is_none());
    }
    let bare = encode_frames(group(), &direct, [].into_iter());
    assert!(Mergeable::new(&bare).is_none());
}

/// One after the other until one is refused.
fn fill(body: &[u8]) -> (usize, Vec<u8>) {
    let receivers: BTreeMap<u16, u64> = (2..200).zip(0..).collect();
    let datagrams = datagrams(&receivers, body);
    let mut parts = datagrams.values().map(|it| Mergeable::new(it).unwrap());
    let mut merger = Merger::new(parts.next().unwrap());
    assert!(!parts.all(|part| merger.add(part)));
    (merger.count(), merger.encode())
}

#[test]
fn as_many_as_fit_and_no_more() {
    for len in [1, 100, 1000, 1200] {
        let (count, bytes) = fill(&vec![7; len]);
        assert!(count >= 2 && bytes.len() <= MAX_DATAGRAM);
        assert!(
            bytes.len() + RECEIVER + 1 > MAX_DATAGRAM,
            "{count} of {len}"
        );
    }
    assert_eq!(fill(&[7; 30]).0, 35);
    assert_eq!(fill(&[7; 1300]).0, 1);
}

/// A member that leaves and asks again at once: a reply, to each one's own request, and a request, as agents
/// of `ricart-agrawala` have sent them.
#[test]
fn replies_with_a_request_behind_them_go_as_one() {
    let sent = |to, reply: &str, clocks: [u8; 2]| {
        let lock = |clock: u8| {
            let head = b"\x01\x0fricart-agrawala\x01\x00";
            [&head[..], &[clock, 0x2b, 0xd9, 0x04, 0, 2]].concat()
        };
        let reply = [lock(clocks[0]), reply.as_bytes().to_vec()].concat();
        let request = [lock(clocks[1]), b"\0\x01 request 1: 5545".to_vec()].concat();
        let frames = [reply, request].map(|bytes| frame(&bytes));
        encode_frames(group(), &header(to, 0), frames.iter())
    };
    let first = sent(2, "your request 79", [0xa4, 0xa9]);
    let second = sent(3, "your request 81", [0xa5, 0xaa]);
    let mut merger = Merger::new(Mergeable::new(&first).unwrap());
    assert!(merger.add(Mergeable::new(&second).unwrap()));
    let bytes = merger.encode();
    assert_eq!(read_as(3, &bytes), Ok(Multicast::Part(second)));
}

#[test]
fn what_is_too_different_is_not_merged() {
    let encode = |to, body: &[u8]| {
        let frame = frame(body);
        encode_frames(group(), &header(to, 0), [&frame].into_iter())
    };
    let mut other = vec![7; 100];
    let first = encode(2, &other);
    let adds = |bytes: &[u8]| {
        Merger::new(Mergeable::new(&first).unwrap()).add(Mergeable::new(bytes).unwrap())
    };
    assert!(adds(&encode(3, &other)));
    assert!(!adds(&encode(2, &other)), "the same receiver");
    assert!(!adds(&encode(3, &[7; 99])), "another length");
    other[10] = 8;
    other[10 + MAX_DIFFERENCE - 1] = 8;
    assert!(adds(&encode(3, &other)));
    other[10 + MAX_DIFFERENCE] = 8;
    assert!(!adds(&encode(3, &other)));
}

#[test]
fn what_is_foreign_is_told_apart() {
    let bytes = merged(&BTreeMap::from([(2, 3), (4, 5)]), &[1]);
    assert_eq!(read_as(3, &bytes), Ok(Multicast::ForOthers));
    let other_group = read(GroupId::of("other"), node(1), node(2), &bytes);
    assert_eq!(other_group, Err(Drop::Group));
    let other_sender = read(group(), node(3), node(2), &bytes);
    assert_eq!(other_sender, Err(Drop::Address));
    let mut other_version = bytes.clone();
    other_version[0] += 1;
    assert_eq!(read_as(2, &other_version), Err(Drop::Version));
    // What is for one member alone does not come by multicast.
    let alone = datagrams(&BTreeMap::from([(2, 3)]), &[1]);
    assert_eq!(read_as(2, &alone[&2]), Err(Drop::Malformed));
}

/// The checksum is right each time, as whoever forges a datagram can see to.
#[test]
fn what_is_malformed_is_dropped_whole() {
    let good = merged(&BTreeMap::from([(2, 3), (4, 5)]), &[1]);
    let sealed = &good[..good.len() - CHECKSUM];
    let second = COMMON + RECEIVER + 1;
    let changes = [
        (1, 5),
        (2, 1),
        (3, 0),
        (3, 3),
        (3, 255),
        (TO, 1),
        // Where it differs: beyond the end, in too much, or in all.
        (TO_INCARNATION, 1),
        (TO_INCARNATION + 1, 5),
        (TO_INCARNATION + 2, 33),
        (TO_INCARNATION + 2, 255),
        (TO_INCARNATION + 3, 1),
        (COMMON, 2),
        (second, 0x10),
        // The second receiver's number: the first's again.
        (second + 2, 2),
    ];
    for (at, byte) in changes {
        let mut bytes = sealed.to_vec();
        bytes[at] = byte;
        let read = read_as(2, &seal(bytes));
        assert_eq!(read, Err(Drop::Malformed), "byte {at} is {byte}");
    }
    for len in 0..second + RECEIVER {
        let read = read_as(2, &seal(sealed[..len].to_vec()));
        assert!(matches!(read, Err(Drop::Length | Drop::Malformed)), "{len}");
    }
    let long = [sealed, &[0; MAX_DATAGRAM]].concat();
    assert_eq!(read_as(2, &seal(long)), Err(Drop::Length));

    let good = report(group(), node(1), &[node(2), node(4)]);
    let sealed = &good[..good.len() - CHECKSUM];
    for (at, byte) in [(2, 1), (3, 1), (7, 1), (7, 3), (17, 5), (17, 4)] {
        let mut bytes = sealed.to_vec();
        bytes[at] = byte;
        let read = read_as(2, &seal(bytes));
        assert_eq!(read, Err(Drop::Malformed), "byte {at} is {byte}");
    }
}

proptest! {
    /// Each receiver gets the very bytes that it would have been sent, and nobody else anything.
    #[test]
    fn each_takes_its_own_out_of_it(
        receivers in proptest::collection::btree_map(2..u16::MAX, any::<u64>(), 1..26),
        body in proptest::collection::vec(any::<u8>(), 0..300),
        other in 2..u16::MAX,
    ) {
        let bytes = merged(&receivers, &body);
        prop_assert!(bytes.len() <= MAX_DATAGRAM);
        for (to, datagram) in datagrams(&receivers, &body) {
            prop_assert_eq!(read_as(to, &bytes), Ok(Multicast::Part(datagram)));
        }
        if !receivers.contains_key(&other) {
            prop_assert_eq!(read_as(other, &bytes), Ok(Multicast::ForOthers));
        }
    }

    /// A report tells of those that are listed, and of no others.
    #[test]
    fn a_report_tells_who_is_listed(
        heard in proptest::collection::btree_set(1..u16::MAX, 0..100),
        other in 1..u16::MAX,
    ) {
        let listed: Vec<_> = heard.iter().copied().map(node).collect();
        let bytes = report(group(), node(1), &listed);
        let others = BTreeSet::from([other]);
        for &me in heard.union(&others) {
            let hears_me = heard.contains(&me);
            prop_assert_eq!(read_as(me, &bytes), Ok(Multicast::Report { hears_me }));
        }
    }

    /// Whatever arrives, with the right checksum and the right sender or not, is answered.
    #[test]
    fn any_bytes_are_answered(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..1600),
        kind in 2..6_u8,
    ) {
        let _ = read_as(2, &bytes);
        if bytes.len() >= REPORT_HEADER {
            bytes[..REPORT_HEADER].copy_from_slice(&report(group(), node(1), &[])[..REPORT_HEADER]);
            bytes[1] = kind;
            let _ = read_as(2, &seal(bytes));
        }
    }

    /// Up to three flipped bits are found.
    #[test]
    fn damage_is_found(
        receivers in proptest::collection::btree_map(2..u16::MAX, any::<u64>(), 1..20),
        flips in proptest::collection::vec(any::<proptest::sample::Index>(), 1..4),
    ) {
        let mut bytes = merged(&receivers, &[1, 2, 3]);
        let bits: BTreeSet<_> = flips.iter().map(|flip| flip.index(bytes.len() * 8)).collect();
        for bit in bits {
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        prop_assert!(matches!(read_as(2, &bytes), Err(Drop::Checksum | Drop::Version)));
    }
}
