//! Two members' addresses, in the test's hands, and the queue of a third. Loopback delivers before
//! sending returns.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use socket2::{Domain, Socket, Type};

use super::super::{Received, Transport};
use super::*;
use crate::runtime::net::address::Address;
use crate::runtime::skipped::{is_root, skipped};

fn id(id: u16) -> NodeId {
    NodeId::new(id).unwrap()
}

fn at(ms: u64) -> Time {
    Time::from_nanos(1) + Duration::from_millis(ms)
}

fn socket(any_port: &str) -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind(any_port).unwrap();
    socket.set_nonblocking(true).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// The queues of a member whose own socket this is. The others are members from 2 on, at the
/// addresses of these sockets, and what comes from the first of them was a flood a moment ago.
fn flood_queues_from(shared: &UdpSocket, others: &[&UdpSocket]) -> FloodQueues {
    let mut flood_queues = FloodQueues::default();
    let addresses = others.iter().map(|other| other.local_addr().unwrap());
    flood_queues.set_members((2..).map(id).zip(addresses));
    flood(&mut flood_queues, 2, at(0), shared);
    assert_eq!(flood_queues.flooded(at(0)).collect::<Vec<_>>(), [id(2)]);
    assert_eq!(flood_queues.queues.len(), 1);
    flood_queues
}

/// So many of a member are dropped that it is a flood.
fn flood(flood_queues: &mut FloodQueues, from: u16, now: Time, shared: &UdpSocket) {
    for _ in 0..FLOOD {
        flood_queues.note_drop(id(from), now);
    }
    flood_queues.open_wanted(shared, now);
}

/// How many are taken in a look at this time. All are of this address.
fn look(flood_queues: &mut FloodQueues, from: SocketAddr, now: Time) -> u32 {
    let mut taken = 0;
    while let Some(one) = flood_queues.receive(&mut [0; 64], now) {
        assert_eq!(one, (5, from));
        taken += 1;
    }
    taken
}

/// The same while that sends one after the other.
fn look_under_flood(
    flood_queues: &mut FloodQueues,
    flooder: &UdpSocket,
    own: SocketAddr,
    now: Time,
) -> u32 {
    let mut taken = 0;
    loop {
        send(1, flooder, own);
        match flood_queues.receive(&mut [0; 64], now) {
            Some(_) => taken += 1,
            None => return taken,
        }
    }
}

fn send(times: u32, from: &UdpSocket, to: SocketAddr) {
    for _ in 0..times {
        assert_eq!(from.send_to(b"hello", to).unwrap(), 5);
    }
}

/// How many are in the shared queue.
fn shared_has(shared: &UdpSocket) -> usize {
    std::iter::from_fn(|| shared.recv(&mut [0; 64]).ok()).count()
}

/// All the families that this host has.
fn families(test: impl Fn(&str)) {
    test("127.0.0.1:0");
    if UdpSocket::bind("[::1]:0").is_ok() {
        return test("[::1]:0");
    }
    skipped("this host has no IPv6");
}

#[test]
fn who_floods_fills_no_queue_but_its_own() {
    families(|any_port| {
        let [(shared, own), (second, from), (third, _)] = [(); 3].map(|()| socket(any_port));
        send(2, &second, own);
        let mut flood_queues = flood_queues_from(&shared, &[&second, &third]);
        send(5_000, &second, own);
        send(3, &third, own);
        assert_eq!(shared_has(&shared), 2 + 3, "of before, and of the third");
        assert!(flood_queues.dropped_by_kernel() > 1_000);
        let taken = look(&mut flood_queues, from, at(1));
        assert!((100..=IN_A_LOOK).contains(&taken), "{taken}");
    });
}

/// A millisecond after the last, and more if that took long; but not if it did because nobody came to
/// look.
#[test]
fn it_is_looked_there_for_a_part_of_the_time() {
    let [(shared, own), (second, from)] = [(); 2].map(|()| socket("127.0.0.1:0"));
    let mut flood_queues = flood_queues_from(&shared, &[&second]);
    assert!(flood_queues.next_look().unwrap() <= at(0));
    assert_eq!(look(&mut flood_queues, from, at(0)), 0);
    assert_eq!(flood_queues.next_look(), Some(at(1)));

    send(1, &second, own);
    assert_eq!(flood_queues.receive(&mut [0; 64], at(0)), None, "not yet");
    assert!(flood_queues.receive(&mut [0; 64], at(5)).is_some());
    let more = flood_queues.next_look();
    assert_eq!(more, Some(at(5)), "there may be more of this look");
    let taken = look_under_flood(&mut flood_queues, &second, own, at(7));
    assert_eq!(taken, IN_A_LOOK - 1);
    assert_eq!(flood_queues.next_look(), Some(at(9)), "that took two");
    assert_eq!(look(&mut flood_queues, from, at(8)), 0);
    assert_eq!(
        look(&mut flood_queues, from, at(9)),
        1,
        "the last of that flood"
    );
    assert_eq!(flood_queues.next_look(), Some(at(10)));

    let long = 8 * 3_600_000;
    send(2, &second, own);
    assert!(flood_queues.receive(&mut [0; 64], at(10)).is_some());
    assert_eq!(look(&mut flood_queues, from, at(long)), 0);
    assert_eq!(flood_queues.next_look(), Some(at(long + 1)));
    assert_eq!(look(&mut flood_queues, from, at(long + 1)), 1);
}

#[test]
fn each_queue_has_its_turn() {
    let [(shared, own), (second, _), (third, from)] = [(); 3].map(|()| socket("127.0.0.1:0"));
    let mut flood_queues = flood_queues_from(&shared, &[&second, &third]);
    flood(&mut flood_queues, 3, at(0), &shared);
    send(100, &second, own);
    send(3, &third, own);
    let next = |_| flood_queues.receive(&mut [0; 64], at(1)).unwrap().1;
    let first: Vec<_> = (0..6).map(next).collect();
    let of_third = first.iter().filter(|&&address| address == from);
    assert_eq!(of_third.count(), 3, "{first:?}");
}

/// And what comes from there is in the shared queue again, also if a process that was forked
/// meanwhile has the other still. Another flood changes nothing of that.
#[test]
fn when_the_flood_is_over_the_queue_goes() {
    families(|any_port| {
        let [(shared, own), (second, from), (third, _)] = [(); 3].map(|()| socket(any_port));
        let mut flood_queues = flood_queues_from(&shared, &[&second, &third]);
        send(5_000, &second, own);
        let dropped = flood_queues.dropped_by_kernel();
        let mut now = at(0);
        while look(&mut flood_queues, from, now) > 0 {
            now = flood_queues.next;
        }
        assert!(now < at(1_000));
        let forked = flood_queues.queues[0].socket.try_clone().unwrap();
        // Somewhat later there is another, and with it the time begins anew.
        flood(&mut flood_queues, 2, at(1_500), &shared);
        look(&mut flood_queues, from, at(3_000));
        assert_eq!(flood_queues.flooded(at(3_000)).count(), 1);
        // It is over: first what comes goes elsewhere, and then nothing is left here.
        flood(&mut flood_queues, 3, at(3_400), &shared);
        assert_eq!(flood_queues.queues.len(), 2);
        send(3, &second, own);
        for (ms, taken) in [(3_501, 3), (3_502, 0)] {
            let mut came = 0;
            send(2, &third, own);
            while let Some((_, address)) = flood_queues.receive(&mut [0; 64], at(ms)) {
                came += u32::from(address == from);
            }
            assert_eq!(came, taken);
        }
        send(3, &second, own);
        assert_eq!(shared_has(&shared), 3);
        while flood_queues.receive(&mut [0; 64], at(3_510)).is_some() {}
        assert_eq!(flood_queues.queues.len(), 1, "that of the other");
        assert_eq!(flood_queues.flooded(at(3_510)).collect::<Vec<_>>(), [id(3)]);
        assert_eq!(
            flood_queues.dropped_by_kernel(),
            dropped,
            "they are not forgotten"
        );

        send(3, &second, own);
        assert_eq!(shared_has(&shared), 3);
        assert!(forked.recv(&mut [0; 64]).is_err());
    });
}

/// It is not a member's any more, or another's.
#[test]
fn with_its_member_a_queue_goes() {
    let [(shared, own), (second, from), (third, other)] = [(); 3].map(|()| socket("127.0.0.1:0"));
    for others in [vec![(3, other)], vec![(2, other)], vec![(3, from)]] {
        let mut flood_queues = flood_queues_from(&shared, &[&second, &third]);
        let others = others
            .into_iter()
            .map(|(member, address)| (id(member), address));
        flood_queues.set_members(others);
        assert!(flood_queues.is_empty() && flood_queues.next_look().is_none());
        assert_eq!(flood_queues.flooded(at(0)).count(), 0);
        send(1, &second, own);
        assert_eq!(shared_has(&shared), 1);
    }
    let mut flood_queues = flood_queues_from(&shared, &[&second, &third]);
    flood_queues.set_members([(id(2), from)].into_iter());
    assert!(!flood_queues.is_empty());
}

/// Its address stays this user's alone, also with others that would share it, and while a queue is
/// opened: this thread opens and closes some, and another, which is of another user, is at it all the
/// time. And who does not ask for it shares nothing: so another agent of this user is refused.
#[test]
fn nobody_else_can_have_the_address() {
    const TIMES: u64 = 5_000;
    let [(shared, own), (second, _)] = [(); 2].map(|()| socket("127.0.0.1:0"));
    let take = |shares: bool| {
        let other = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
        other.set_reuse_address(true)?;
        other.set_reuse_port(shares)?;
        other.bind(&own.into())
    };
    let _flood_queues = flood_queues_from(&shared, &[&second]);
    assert_eq!(take(false).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    if !is_root() {
        return;
    }
    let (is_over, tried) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let thief = scope.spawn(|| {
            // Of this thread alone: by it sockets are made.
            nix::unistd::setfsuid(12_345.into());
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(take(true).unwrap_err().kind(), io::ErrorKind::AddrInUse);
                tried.fetch_add(1, Ordering::Relaxed);
            }
        });
        while !thief.is_finished() && tried.load(Ordering::Relaxed) < TIMES {
            let queue = udp::bind_connected(&shared, second.local_addr().unwrap()).unwrap();
            udp::let_go(&queue).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

/// The kernel tells a connected socket, and no other, that what was sent found nobody.
#[test]
fn that_nobody_is_there_hides_nothing_that_came() {
    let [(shared, own), (second, from)] = [(); 2].map(|()| socket("127.0.0.1:0"));
    let mut flood_queues = flood_queues_from(&shared, &[&second]);
    send(2, &second, own);
    drop(second);
    send(1, &shared, from);
    assert_eq!(look(&mut flood_queues, from, at(1)), 2);
    assert_eq!(flood_queues.next_look(), Some(at(2)));
}

#[test]
fn a_flood_is_more_at_once_than_is_taken() {
    let (shared, own) = socket("127.0.0.1:0");
    let mut flood_queues = FloodQueues::default();
    let other = SocketAddr::from(([127, 0, 1, 1], 7));
    flood_queues.set_members([(id(2), own), (id(3), other)].into_iter());
    for number in 0..10 * FLOOD {
        // Somewhat fewer, all the time.
        let now = at(u64::from(number * 1_001 / (FLOOD - 1)));
        flood_queues.note_drop(id(2), now);
        // All that a member says comes twice.
        flood_queues.note_taken(id(3));
        flood_queues.note_drop(id(3), at(0));
        // And of no member.
        flood_queues.note_drop(id(4), at(0));
        flood_queues.open_wanted(&shared, now);
        assert_eq!(flood_queues.flooded(now).count(), 0, "{number}");
        assert!(flood_queues.is_empty());
    }
    let later = at(100_000);
    let mut drop = |times| {
        (0..times).for_each(|_| flood_queues.note_drop(id(3), later));
        flood_queues.flooded(later).collect::<Vec<_>>()
    };
    assert_eq!(drop(FLOOD - 1), []);
    assert_eq!(drop(1), [id(3)]);
}

/// Who has none counts as flooded all the same.
#[test]
fn there_are_so_many_queues_and_no_more() {
    let (shared, _) = socket("127.0.0.1:0");
    let address = |last| SocketAddr::from(([127, 0, 1, last], 7));
    let mut flood_queues = FloodQueues::default();
    flood_queues.set_members((0..100).map(|last| (id(last + 1), address(last as u8))));
    for _again in 0..2 {
        (1..=100).for_each(|member| flood(&mut flood_queues, member, at(0), &shared));
    }
    assert_eq!(flood_queues.queues.len(), MOST);
    assert_eq!(flood_queues.flooded(at(0)).count(), 100);
    let told = flood_queues
        .sources
        .values()
        .filter(|source| source.told.is_some());
    assert_eq!(told.count(), 100);
}

/// The whole: a member sends what is dropped, until that waits in a queue of its own, and is heard
/// as before when it says something else; another one is heard all the time.
#[test]
fn who_floods_is_found_out_and_still_heard() {
    let sockets = [(); 3].map(|()| socket("127.0.0.1:0"));
    let members = (1..).map(id).zip(&sockets);
    let members = members.map(|(id, (_, address))| (id, Address::udp(*address).unwrap()));
    let members: BTreeMap<_, _> = members.collect();
    let [(shared, own), (second, _), (third, _)] = sockets;
    drop(shared);
    let mut transport = Transport::bind(id(1), &members, None, None, None).unwrap();
    let mut buffer = vec![0; Transport::BUFFER];
    let too_long = vec![0; Transport::BUFFER];
    let mut sent = 0;
    while transport.flooded().next().is_none() {
        second.send_to(&too_long, own).unwrap();
        sent += 1;
        assert_eq!(transport.receive(&mut buffer), Received::Dropped);
        assert_eq!(transport.receive(&mut buffer), Received::Empty);
    }
    assert_eq!(transport.next_look(), None);
    transport.open_wanted();
    assert!(sent >= FLOOD, "{sent}");
    assert!(transport.next_look().is_some());
    assert_eq!(transport.flooded().collect::<Vec<_>>(), [id(2)]);

    for _ in 0..5_000 {
        second.send_to(&too_long, own).unwrap();
    }
    send(1_000, &third, own);
    let (mut of_third, mut dropped) = (0, 0);
    while of_third < 200 {
        match transport.receive(&mut buffer) {
            Received::Datagram { from, .. } if from == id(3) => of_third += 1,
            Received::Dropped => dropped += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(0 < dropped && dropped < of_third, "{dropped}");
    assert!(transport.counters().dropped_by_kernel > 1_000);

    let mut heard = false;
    while !heard {
        send(1, &second, own);
        let received = transport.receive(&mut buffer);
        heard = matches!(received, Received::Datagram { from, .. } if from == id(2));
    }
}
