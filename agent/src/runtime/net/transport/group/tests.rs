//! Members on one host that hear each other by multicast over its loopback.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

use super::*;
use crate::protocol::wire::merged::report;
use crate::protocol::wire::{Frame, Header, Kind, Route, encode_frames};
use crate::protocol::{Epoch, Incarnation};
use crate::runtime::net::address::Address;
use crate::runtime::net::transport::{BindError, Received, Transport};

const GROUP: &str = "shop";

fn node(id: u16) -> NodeId {
    NodeId::new(id).unwrap()
}

/// A multicast address that no other test has, nor another process of them.
fn address() -> MulticastAddress {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let ip = Ipv4Addr::new(239, high, low, NEXT.fetch_add(1, Ordering::Relaxed));
    MulticastAddress::new((ip, 7400).into()).unwrap()
}

struct World {
    address: MulticastAddress,
    members: BTreeMap<NodeId, Address>,
}

impl World {
    fn new(size: u16) -> Self {
        let sockets: Vec<_> = (0..size)
            .map(|_| UdpSocket::bind("127.0.0.1:0").unwrap())
            .collect();
        let members = (1..).zip(&sockets).map(|(id, socket)| {
            let address = socket.local_addr().unwrap();
            (node(id), Address::udp(address).unwrap())
        });
        Self {
            address: address(),
            members: members.collect(),
        }
    }

    fn bind(&self, id: u16) -> Transport {
        let multicast = Some((GroupId::of(GROUP), self.address));
        Transport::bind(node(id), &self.members, multicast, None, None).unwrap()
    }

    /// All members, each of which knows that it reaches all others.
    fn bind_all(&self) -> Vec<Transport> {
        let mut all: Vec<_> = self
            .members
            .keys()
            .map(|id| self.bind(id.as_u16()))
            .collect();
        // The second time they tell whom they have heard the first time.
        for _ in 0..2 {
            all.iter_mut().for_each(Transport::report);
            for transport in &mut all {
                assert_eq!(take(transport), []);
            }
            thread::sleep(Duration::from_millis(120));
        }
        for transport in &all {
            assert_eq!(transport.multicast().unwrap().reached.len(), all.len() - 1);
        }
        all
    }

    /// A socket at the address of member `id`, which sends as that does.
    fn forger(&self, id: u16) -> UdpSocket {
        let Address::Udp(address) = self.members[&node(id)] else {
            unreachable!("all are UDP")
        };
        UdpSocket::bind(address).unwrap()
    }

    fn send(&self, from: &UdpSocket, bytes: &[u8]) {
        let to = self.address.socket_addr();
        SockRef::from(from)
            .set_multicast_if_v4(&Ipv4Addr::LOCALHOST)
            .unwrap();
        from.send_to(bytes, to).unwrap();
    }
}

/// What there is at the sockets: loopback delivers before sending returns.
fn take(transport: &mut Transport) -> Vec<(NodeId, Vec<u8>)> {
    let mut buffer = vec![0; Transport::BUFFER];
    let mut taken = Vec::new();
    loop {
        match transport.receive(&mut buffer) {
            Received::Datagram { from, at } => taken.push((from, buffer[at].to_vec())),
            Received::Dropped => {}
            Received::Empty => return taken,
        }
    }
}

/// The `first`th datagram on the link of members 1 and `to`.
fn datagram(to: u16, first: u64, body: u8) -> Vec<u8> {
    let header = Header {
        kind: Kind::Frames,
        ping: false,
        route: Route::Direct,
        deaf: false,
        from: node(1),
        to: node(to),
        epoch: Epoch::new(1).unwrap(),
        from_incarnation: Incarnation(1),
        to_incarnation: Incarnation(1),
        acknowledged: u64::from(to),
        selective: 0,
        first,
    };
    let frame = Frame {
        more: false,
        prompt: true,
        // Whose request it answers, and what is said: of different lengths.
        bytes: [vec![to as u8], vec![body; 43 + usize::from(body)]].concat(),
    };
    encode_frames(GroupId::of(GROUP), &header, [&frame].into_iter())
}

/// Has the first of `all` send; how many datagrams it took, and how many of them by multicast.
fn say(all: &mut [Transport], said: &[(u16, u64, u8)]) -> (u64, u64) {
    let before = all[0].counters();
    for &(to, first, body) in said {
        all[0].post(node(to), datagram(to, first, body));
    }
    all[0].flush();
    for transport in &mut all[1..] {
        let me = transport.me.as_u16();
        let own = said.iter().filter(|(to, ..)| *to == me);
        let own: Vec<_> = own
            .map(|&(to, first, body)| (node(1), datagram(to, first, body)))
            .collect();
        assert_eq!(take(transport), own, "member {me}");
    }
    assert_eq!(take(&mut all[0]), []);
    let after = all[0].counters();
    let by_multicast = after.multicast_sent - before.multicast_sent;
    (after.sent - before.sent, by_multicast)
}

#[test]
fn what_is_alike_goes_out_once_and_arrives_as_it_would_alone() {
    let mut all = World::new(4).bind_all();
    let received = all[0].counters().multicast_received;
    assert_eq!(say(&mut all, &[(2, 1, 7), (3, 1, 7), (4, 1, 7)]), (1, 1));
    assert_eq!(all[0].counters().multicast_merged, 3);
    // Nobody hears itself.
    assert_eq!(all[0].counters().multicast_received, received);
    // Two of three are most; one has something else said.
    assert_eq!(say(&mut all, &[(2, 2, 7), (3, 2, 8), (4, 2, 7)]), (2, 1));
    assert_eq!(say(&mut all, &[(2, 3, 7), (3, 3, 8), (4, 3, 9)]), (3, 0));
}

#[test]
fn what_is_for_few_of_many_wakes_no_others() {
    let mut all = World::new(6).bind_all();
    assert_eq!(say(&mut all, &[(2, 1, 7), (3, 1, 7)]), (2, 0));
    assert_eq!(say(&mut all, &[(2, 2, 7), (3, 2, 7), (4, 2, 7)]), (1, 1));
}

#[test]
fn what_is_repeated_goes_to_each_alone() {
    let mut all = World::new(3).bind_all();
    assert_eq!(say(&mut all, &[(2, 1, 7), (3, 1, 7)]), (1, 1));
    assert_eq!(say(&mut all, &[(2, 1, 7), (3, 1, 7)]), (2, 0));
    // Nor is multicast trusted with what is new, until they report again.
    assert_eq!(say(&mut all, &[(2, 2, 7), (3, 2, 7)]), (2, 0));
    let told = all[0].multicast().unwrap();
    assert_eq!((told.reached, told.lost), (Vec::new(), 2));
    thread::sleep(Duration::from_millis(1_010));
    all.iter_mut().for_each(Transport::report);
    all.iter_mut().for_each(|transport| drop(take(transport)));
    assert_eq!(say(&mut all, &[(2, 3, 7), (3, 3, 7)]), (1, 1));
}

#[test]
fn who_does_not_listen_is_sent_to_directly() {
    let world = World::new(4);
    let mut all = Vec::from([1, 2, 3].map(|id| world.bind(id)));
    all.push(Transport::bind(node(4), &world.members, None, None, None).unwrap());
    for _ in 0..2 {
        all.iter_mut().for_each(Transport::report);
        all.iter_mut().for_each(|transport| drop(take(transport)));
        thread::sleep(Duration::from_millis(120));
    }
    assert_eq!(say(&mut all, &[(2, 1, 7), (3, 1, 7), (4, 1, 7)]), (2, 1));
    assert_eq!(all[3].multicast(), None);
}

#[test]
fn what_is_forged_or_makes_no_sense_does_nothing() {
    let world = World::new(3);
    let mut transport = world.bind(2);
    let [first, second] = [2, 3].map(|to| datagram(to, 1, 7));
    let mut merger = Merger::new(Mergeable::new(&first).unwrap());
    assert!(merger.add(Mergeable::new(&second).unwrap()));
    let merged = merger.encode();
    let hears_you = report(GroupId::of(GROUP), node(1), &[node(2)]);
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    for bytes in [&merged, &hears_you] {
        world.send(&stranger, bytes);
    }
    assert_eq!(take(&mut transport), []);
    assert_eq!(transport.counters().dropped_foreign, 0, "by the kernel");
    assert_eq!(transport.multicast().unwrap().reached, [0; 0]);

    // From a member's address, but not by that member, not for this group, or cut, or too long.
    let other = world.forger(3);
    let other_group = report(GroupId::of("other"), node(3), &[node(2)]);
    let cut = &merged[..merged.len() - 1];
    let long = vec![3; 60_000];
    for bytes in [&merged[..], &hears_you, &other_group, cut, &long, b"", b"x"] {
        world.send(&other, bytes);
    }
    assert_eq!(take(&mut transport), []);
    // The filter passes nothing that is too short for a sender's number.
    let counters = transport.counters();
    let dropped = (counters.dropped_multicast, counters.dropped_truncated);
    assert_eq!(dropped, (4, 1));
    assert_eq!(transport.multicast().unwrap().reached, [0; 0]);

    let member = world.forger(1);
    world.send(&member, &merged);
    world.send(&member, &hears_you);
    assert_eq!(take(&mut transport), [(node(1), datagram(2, 1, 7))]);
    assert_eq!(transport.multicast().unwrap().reached, [1]);
}

#[test]
fn a_flood_by_multicast_leaves_room_for_the_rest() {
    let world = World::new(2);
    let mut transport = world.bind(2);
    let member = world.forger(1);
    for _ in 0..200 {
        world.send(&member, b"garbage");
    }
    let mut buffer = vec![0; Transport::BUFFER];
    for _ in 0..LOOKS {
        assert_eq!(transport.receive(&mut buffer), Received::Dropped);
    }
    let Address::Udp(own) = world.members[&node(2)] else {
        unreachable!("all are UDP")
    };
    member.send_to(b"hello", own).unwrap();
    let is_heard = |received| matches!(received, Received::Datagram { at, .. } if at.len() == 5);
    let heard_at = (0..200).find(|_| is_heard(transport.receive(&mut buffer)));
    assert!(heard_at.is_some_and(|at| at <= LOOKS), "{heard_at:?}");
}

#[test]
fn as_many_go_out_together_as_fit() {
    let said: Vec<_> = (2..102).map(|to| (node(to), datagram(to, 1, 7))).collect();
    let sizes = |reachability| -> Vec<_> {
        let runs = runs(&said, reachability).into_values();
        runs.map(|(places, _)| places.len()).collect()
    };
    let [most, next, rest] = sizes(2)[..] else {
        unreachable!("three datagrams for a hundred");
    };
    assert_eq!((most, next, rest), (most, most, 100 - 2 * most));
    // A datagram that wakes all for the sake of a few does not go out.
    assert_eq!(sizes(2 * rest), [most, most]);
    assert_eq!(sizes(100), [0; 0]);
}

#[test]
fn a_group_of_another_kind_is_refused() {
    let world = World::new(2);
    let ipv6 = "udp:[ff05::4d01]:7400".parse().unwrap();
    let id = GroupId::of(GROUP);
    let refused =
        Transport::bind(node(1), &world.members, Some((id, ipv6)), None, None).unwrap_err();
    assert!(
        matches!(refused, BindError::MulticastKind { .. }),
        "{refused}"
    );
}
