//! Two members' addresses, in the test's hands, and the queue of a third. Loopback delivers before
//! sending returns.

use socket2::{Domain, Socket, Type};

use super::super::{Received, Transport};
use super::*;
use crate::runtime::address::Address;

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

/// The queues of a member whose own socket this is, one of which is for what comes from there, which
/// is member 2's.
fn apart_from(shared: &UdpSocket, flooder: &UdpSocket) -> Apart {
    let mut apart = Apart::default();
    apart.read([2, 3].map(id).into_iter());
    apart.open(id(2), flooder.local_addr().unwrap(), shared, at(0));
    assert_eq!(apart.members().collect::<Vec<_>>(), [id(2)]);
    apart
}

/// How many are taken in a look at this time. All are of this address.
fn look(apart: &mut Apart, from: SocketAddr, now: Time) -> u32 {
    let mut taken = 0;
    while let Ok(one) = apart.receive(&mut [0; 64], now) {
        assert_eq!(one, (5, from));
        taken += 1;
    }
    taken
}

/// The same while that sends one after the other.
fn look_under_flood(apart: &mut Apart, flooder: &UdpSocket, own: SocketAddr, now: Time) -> u32 {
    let mut taken = 0;
    loop {
        send(1, flooder, own);
        match apart.receive(&mut [0; 64], now) {
            Ok(_) => taken += 1,
            Err(_) => return taken,
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
    eprintln!("SKIPPED: this host has no IPv6");
    assert_ne!(std::env::var("DISTLOCK_TESTS").as_deref(), Ok("all"));
}

#[test]
fn who_floods_fills_no_queue_but_its_own() {
    families(|any_port| {
        let [(shared, own), (second, from), (third, _)] = [(); 3].map(|()| socket(any_port));
        send(2, &second, own);
        let mut apart = apart_from(&shared, &second);
        send(5_000, &second, own);
        send(3, &third, own);
        assert_eq!(shared_has(&shared), 2 + 3, "of before, and of the third");
        assert!(apart.dropped_by_kernel() > 1_000);
        let taken = look(&mut apart, from, at(1));
        assert!((100..=IN_A_LOOK).contains(&taken), "{taken}");
    });
}

/// A millisecond after the last, and more if that took long.
#[test]
fn it_is_looked_there_for_a_part_of_the_time() {
    let [(shared, own), (second, from)] = [(); 2].map(|()| socket("127.0.0.1:0"));
    let mut apart = apart_from(&shared, &second);
    assert!(apart.next_look().unwrap() <= at(0));
    assert_eq!(look(&mut apart, from, at(0)), 0);
    assert_eq!(apart.next_look(), Some(at(1)));

    send(1, &second, own);
    assert!(apart.receive(&mut [0; 64], at(0)).is_err(), "not yet");
    assert!(apart.receive(&mut [0; 64], at(5)).is_ok());
    assert_eq!(
        apart.next_look(),
        Some(at(5)),
        "there may be more of this look"
    );
    let taken = look_under_flood(&mut apart, &second, own, at(7));
    assert_eq!(taken, IN_A_LOOK - 1);
    assert_eq!(apart.next_look(), Some(at(9)), "that took two");
    assert_eq!(look(&mut apart, from, at(8)), 0);
    assert_eq!(look(&mut apart, from, at(9)), 1, "the last of that flood");
    assert_eq!(apart.next_look(), Some(at(10)));
}

#[test]
fn each_queue_has_its_turn() {
    let [(shared, own), (second, _), (third, _)] = [(); 3].map(|()| socket("127.0.0.1:0"));
    let mut apart = apart_from(&shared, &second);
    apart.open(id(3), third.local_addr().unwrap(), &shared, at(0));
    send(1_000, &second, own);
    send(3, &third, own);
    let from = |_| apart.receive(&mut [0; 64], at(1)).unwrap().1;
    let first: Vec<_> = (0..6).map(from).collect();
    let of_third = first
        .iter()
        .filter(|&&from| from == third.local_addr().unwrap());
    assert_eq!(of_third.count(), 3, "{first:?}");
}

/// And what comes from there is in the shared queue again, also if a process that was forked meanwhile
/// has the other still.
#[test]
fn when_the_flood_is_over_the_queue_goes() {
    families(|any_port| {
        let [(shared, own), (second, from), (third, _)] = [(); 3].map(|()| socket(any_port));
        let mut apart = apart_from(&shared, &second);
        send(5_000, &second, own);
        let dropped = apart.dropped_by_kernel();
        let mut now = at(0);
        while look(&mut apart, from, now) > 0 {
            now = apart.next;
        }
        let forked = apart.queues[0].socket.try_clone().unwrap();
        // Somewhat later there is another flood, and with it the time begins anew.
        apart.open(id(2), from, &shared, at(8_000));
        for ms in [10_001, 18_000] {
            look(&mut apart, from, at(ms));
            assert!(!apart.is_empty(), "after {ms} ms");
        }
        // As long as there is something it stays.
        look_under_flood(&mut apart, &second, own, at(19_000));
        assert!(!apart.is_empty());
        assert_eq!(look(&mut apart, from, at(20_000)), 1);
        assert!(apart.is_empty());
        assert_eq!(apart.next_look(), None);
        assert_eq!(apart.dropped_by_kernel(), dropped, "they are not forgotten");

        send(3, &second, own);
        send(3, &third, own);
        assert_eq!(shared_has(&shared), 6);
        assert!(forked.recv(&mut [0; 64]).is_err());
    });
}

/// Its address stays this member's alone, also with others that would share it.
#[test]
fn nobody_else_can_have_the_address() {
    let [(shared, own), (second, _)] = [(); 2].map(|()| socket("127.0.0.1:0"));
    let _apart = apart_from(&shared, &second);
    let other = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
    other.set_reuse_address(true).unwrap();
    let refused = other.bind(&own.into()).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
}

/// The kernel tells a connected socket, and no other, that what was sent found nobody.
#[test]
fn a_member_that_is_not_there_is_no_error() {
    let [(shared, _), (second, from)] = [(); 2].map(|()| socket("127.0.0.1:0"));
    let mut apart = apart_from(&shared, &second);
    drop(second);
    send(1, &shared, from);
    let nothing = apart.receive(&mut [0; 64], at(1)).unwrap_err();
    assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn a_flood_is_many_at_once() {
    let mut apart = Apart::default();
    apart.read([2, 3].map(id).into_iter());
    for ms in 0..u64::from(10 * FLOOD) {
        // Somewhat fewer, all the time.
        assert!(!apart.is_flood(id(2), at(ms * 11 / 10)));
    }
    let later = at(100_000);
    let mut is_flood = |from| apart.is_flood(id(from), later);
    assert!((1..FLOOD).all(|_| !is_flood(2)));
    assert!(!is_flood(3), "that is another");
    assert!(is_flood(2));
    assert!(!is_flood(2), "that was said");
    assert!((0..2 * FLOOD).all(|_| !is_flood(4)), "of no member");
}

#[test]
fn there_are_so_many_queues_and_no_more() {
    let (shared, _) = socket("127.0.0.1:0");
    let mut apart = Apart::default();
    for last in 0..100 {
        for _again in 0..2 {
            let address = SocketAddr::from(([127, 0, 1, last], 7));
            apart.open(id(2), address, &shared, at(0));
        }
    }
    assert_eq!(apart.members().count(), MOST);
    assert!(apart.told_missing);
}

/// The whole: a member sends what is dropped, until that waits apart, and is heard as before when it
/// says something else; another one is heard all the time.
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
