//! One member's transport, and sockets that speak to it as members, strangers and other users.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

use super::*;
use crate::protocol::wire::merged;
use crate::runtime::skipped::{is_root, skipped};

fn id(id: u16) -> NodeId {
    NodeId::new(id).unwrap()
}

/// Members 1 and 2 over UDP on loopback; nobody has the second address.
fn udp_pair(any_port: &str) -> (Transport, SocketAddr, SocketAddr) {
    let sockets = [(); 2].map(|()| UdpSocket::bind(any_port).unwrap());
    let [first, second] = sockets.map(|socket| socket.local_addr().unwrap());
    let members = [(id(1), first), (id(2), second)];
    let members = members.map(|(id, address)| (id, Address::udp(address).unwrap()));
    let transport = Transport::bind(id(1), &BTreeMap::from(members), None, None, None).unwrap();
    (transport, first, second)
}

fn unix_pair(directory: &Path) -> (Transport, PathBuf, PathBuf) {
    let [first, second] = ["1", "2"].map(|name| directory.join(name));
    let members = [(id(1), &first), (id(2), &second)];
    let members = members.map(|(id, path)| (id, Address::unix(path).unwrap()));
    let transport = Transport::bind(id(1), &BTreeMap::from(members), None, None, None).unwrap();
    (transport, first, second)
}

/// Sends a datagram, and `with` it.
fn send_with(from: &UnixDatagram, to: &Path, with: ControlMessage<'_>) {
    let (from, to) = (from.as_raw_fd(), UnixAddr::new(to).unwrap());
    let bytes = [io::IoSlice::new(b"hello")];
    sendmsg(from, &bytes, &[with], MsgFlags::empty(), Some(&to)).unwrap();
}

/// Both kinds deliver before `send` returns on this host.
fn receive(transport: &mut Transport, room: usize) -> Received {
    transport.receive(&mut vec![0; room + 1])
}

/// So many bytes of member 2.
fn heard(len: usize) -> Received {
    Received::Datagram {
        from: id(2),
        at: 0..len,
    }
}

#[test]
fn only_members_are_heard_over_udp() {
    let (mut transport, own, other) = udp_pair("127.0.0.1:0");
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.send_to(b"hello", own).unwrap();
    let filtered = receive(&mut transport, 64);
    assert_eq!(filtered, Received::Empty, "by the kernel");
    assert_eq!(transport.counters().dropped_by_kernel, 1);
    // Where that does not filter.
    let Medium::Udp { socket, .. } = &transport.medium else {
        unreachable!()
    };
    SockRef::from(socket).detach_filter().unwrap();
    stranger.send_to(b"hello", own).unwrap();
    assert_eq!(receive(&mut transport, 64), Received::Dropped);
    assert_eq!(transport.counters().dropped_foreign, 1);
    let member = UdpSocket::bind(other).unwrap();
    member.send_to(b"hello", own).unwrap();
    assert_eq!(receive(&mut transport, 64), heard(5));
    assert_eq!(receive(&mut transport, 64), Received::Empty);
}

/// What strangers send to the group's address, beside what this member hears of itself there; and
/// what a member sends there that makes no sense.
#[test]
fn what_comes_by_multicast_and_is_dropped_is_counted() {
    let [own, other] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let other_at = other.local_addr().unwrap();
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let to: SocketAddr = ([239, high, low, 250], 7400).into();
    let members = [(id(1), own.local_addr().unwrap()), (id(2), other_at)];
    let members = members.map(|(id, address)| (id, Address::udp(address).unwrap()));
    drop((own, other));
    let multicast = (GroupId::of("test"), MulticastAddress::new(to).unwrap());
    let members = BTreeMap::from(members);
    let mut transport = Transport::bind(id(1), &members, Some(multicast), None, None).unwrap();
    let mut buffer = vec![0; Transport::BUFFER];

    let bytes = merged::report(multicast.0, id(1), &[]);
    for _ in 0..3 {
        assert!(transport.send_to_group(&bytes));
    }
    assert_eq!(transport.receive(&mut buffer), Received::Empty);
    assert_eq!(transport.counters().dropped_by_kernel, 0, "its own");
    let say_from = |address: SocketAddr| {
        let socket = UdpSocket::bind(address).unwrap();
        let SocketAddr::V4(at) = address else {
            unreachable!()
        };
        SockRef::from(&socket).set_multicast_if_v4(at.ip()).unwrap();
        socket.send_to(b"hello, all of you", to).unwrap();
    };
    say_from("127.0.0.1:0".parse().unwrap());
    assert_eq!(transport.receive(&mut buffer), Received::Empty);
    say_from(other_at);
    assert_eq!(transport.receive(&mut buffer), Received::Dropped);
    let counters = transport.counters();
    // It was received, and so counts with what is received and dropped after all.
    assert_eq!((counters.received, counters.dropped_multicast), (1, 1));
    assert_eq!(counters.dropped_malformed, 0);
}

#[test]
fn members_are_heard_over_ipv6() {
    if UdpSocket::bind("[::1]:0").is_err() {
        return skipped("this host has no IPv6");
    }
    let (mut transport, own, other) = udp_pair("[::1]:0");
    let stranger = UdpSocket::bind("[::1]:0").unwrap();
    stranger.send_to(b"hello", own).unwrap();
    let filtered = receive(&mut transport, 64);
    assert_eq!(filtered, Received::Empty, "by the kernel");
    let member = UdpSocket::bind(other).unwrap();
    member.send_to(b"hello", own).unwrap();
    assert_eq!(receive(&mut transport, 64), heard(5));
    transport.send(id(2), b"hello yourself");
    let mut answer = [0; 64];
    assert_eq!(member.recv_from(&mut answer).unwrap(), (14, own));
}

#[test]
fn only_members_are_heard_over_unix_datagrams() {
    let directory = tempfile::tempdir().unwrap();
    let (mut transport, own, other) = unix_pair(directory.path());
    let unbound = UnixDatagram::unbound().unwrap();
    unbound.send_to(b"hello", &own).unwrap();
    assert_eq!(receive(&mut transport, 64), Received::Dropped);
    let stranger = UnixDatagram::bind(directory.path().join("3")).unwrap();
    stranger.send_to(b"hello", &own).unwrap();
    assert_eq!(receive(&mut transport, 64), Received::Dropped);
    assert_eq!(transport.counters().dropped_foreign, 2);
    let member = UnixDatagram::bind(other).unwrap();
    member.send_to(b"hello", &own).unwrap();
    assert_eq!(receive(&mut transport, 64), heard(5));
}

/// Who could put a socket there would be sent what is for the member.
#[test]
fn nothing_is_sent_where_others_can_put_sockets() {
    let directory = tempfile::tempdir().unwrap();
    let open = tempfile::tempdir().unwrap();
    std::fs::set_permissions(open.path(), PermissionsExt::from_mode(0o1777)).unwrap();
    let [own, planted] = [directory.path().join("1"), open.path().join("2")];
    let address = |path: &PathBuf| Address::unix(path).unwrap();
    let both = BTreeMap::from([(id(1), address(&own)), (id(2), address(&planted))]);
    let refused = Transport::bind(id(1), &both, None, None, None).unwrap_err();
    let BindError::Unsafe { address: told, .. } = &refused else {
        panic!("{refused}");
    };
    assert!(told.ends_with("/2"), "{refused}");

    // One that is added later.
    let alone = BTreeMap::from([(id(1), address(&own))]);
    let mut transport = Transport::bind(id(1), &alone, None, None, None).unwrap();
    transport.read(&both);
    let stranger = UnixDatagram::bind(&planted).unwrap();
    stranger.set_nonblocking(true).unwrap();
    transport.send(id(2), b"not for you");
    assert!(stranger.recv(&mut [0; 64]).is_err());
    assert_eq!(transport.counters().send_lost, 1);
    stranger.send_to(b"nor from you", &own).unwrap();
    assert_eq!(receive(&mut transport, 64), Received::Dropped);
}

/// Who could make the directory meanwhile would be sent it all.
#[test]
fn nothing_is_sent_to_where_others_can_make_the_directory() {
    let directory = tempfile::tempdir().unwrap();
    let open = tempfile::tempdir().unwrap();
    std::fs::set_permissions(open.path(), PermissionsExt::from_mode(0o1777)).unwrap();
    let own = directory.path().join("1");
    let [safe, unsafe_] = [directory.path().join("a/2"), open.path().join("a/2")];
    let address = |path: &PathBuf| Address::unix(path).unwrap();
    let with = |other| BTreeMap::from([(id(1), address(&own)), (id(2), address(other))]);
    let bind = |other| Transport::bind(id(1), &with(other), None, None, None);
    let refused = bind(&unsafe_).unwrap_err();
    assert!(matches!(refused, BindError::Unsafe { .. }), "{refused}");
    assert!(refused.to_string().contains("does not exist"), "{refused}");
    let mut transport = bind(&safe).unwrap();
    for (other, is_sent) in [(&unsafe_, false), (&safe, true)] {
        transport.read(&with(other));
        std::fs::create_dir(other.parent().unwrap()).unwrap();
        let socket = UnixDatagram::bind(other).unwrap();
        socket.set_nonblocking(true).unwrap();
        transport.send(id(2), b"hello");
        assert_eq!(socket.recv(&mut [0; 64]).is_ok(), is_sent);
    }
}

/// Should somebody have widened the socket's mode. Root may say that it is another user.
#[test]
fn other_users_are_not_heard_whatever_their_address() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (mut transport, own, other) = unix_pair(directory.path());
    let member = UnixDatagram::bind(other).unwrap();
    let mut say_as = |uid| {
        let pid = std::process::id().cast_signed();
        let sender = libc::ucred { pid, uid, gid: 0 }.into();
        send_with(&member, &own, ControlMessage::ScmCredentials(&sender));
        receive(&mut transport, 64)
    };
    assert_eq!(say_as(12_345), Received::Dropped);
    assert!(matches!(say_as(0), Received::Datagram { .. }));
    assert_eq!(transport.counters().dropped_foreign, 1);
}

/// Descriptors that travel with a datagram would stay open for ever.
#[test]
fn what_travels_with_a_datagram_is_not_taken() {
    let directory = tempfile::tempdir().unwrap();
    let (mut transport, own, other) = unix_pair(directory.path());
    let member = UnixDatagram::bind(other).unwrap();
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let sent = [member.as_raw_fd(); 50];
    send_with(&member, &own, ControlMessage::ScmRights(&sent));
    let before = count();
    assert_eq!(receive(&mut transport, 64), Received::Dropped);
    // Other tests of this process open some meanwhile.
    assert!(count() < before + 40);
}

#[test]
fn what_does_not_fit_is_dropped_whole() {
    let directory = tempfile::tempdir().unwrap();
    let (mut transport, own, other) = unix_pair(directory.path());
    let member = UnixDatagram::bind(other).unwrap();
    member.send_to(&[0; 65], &own).unwrap();
    member.send_to(&[0; 64], &own).unwrap();
    assert_eq!(receive(&mut transport, 64), Received::Dropped);
    assert_eq!(transport.counters().dropped_truncated, 1);
    assert_eq!(receive(&mut transport, 64), heard(64));

    let (mut transport, own, other) = udp_pair("127.0.0.1:0");
    UdpSocket::bind(other)
        .unwrap()
        .send_to(&[0; 65], own)
        .unwrap();
    assert_eq!(receive(&mut transport, 64), Received::Dropped);
    assert_eq!(transport.counters().dropped_truncated, 1);
}

/// More than one call takes off a socket, more than one turn receives, and more than a Unix socket keeps.
#[test]
fn a_burst_is_received_whole_and_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let (mut over_unix, path, other) = unix_pair(directory.path());
    let from_unix = UnixDatagram::bind(other).unwrap();
    from_unix.set_nonblocking(true).unwrap();
    let (mut over_udp, address, other) = udp_pair("127.0.0.1:0");
    let from_udp = UdpSocket::bind(other).unwrap();
    for limit in [1, 7, 8, 9, 64] {
        expect_burst(&mut over_udp, limit, |bytes| {
            from_udp.send_to(bytes, address).is_ok()
        });
        expect_burst(&mut over_unix, limit, |bytes| {
            from_unix.send_to(bytes, &path).is_ok()
        });
    }
}

/// Has member 2 send as many datagrams as `send` can, and receives them, at most `limit` in a turn.
fn expect_burst(transport: &mut Transport, limit: usize, send: impl Fn(&[u8]) -> bool) {
    const COUNT: usize = 200;
    // So that none is taken for another; and none for a sealed one, whose first byte is greater.
    let datagram = |number: usize| vec![number as u8 % 64; number];
    let mut buffer = vec![0; Transport::BUFFER];
    let (mut sent, mut received) = (0, 0);
    while sent < COUNT {
        let before = sent;
        while sent < COUNT && send(&datagram(sent + 1)) {
            sent += 1;
        }
        assert!(sent > before.max(8), "more than one call takes");
        let mut more = true;
        while more {
            transport.begin_turn();
            for _ in 0..limit {
                let got = transport.receive(&mut buffer);
                more = got != Received::Empty;
                if !more {
                    break;
                }
                received += 1;
                assert_eq!(got, heard(received), "of a turn of {limit}");
                assert_eq!(buffer[..received], datagram(received));
            }
        }
        assert_eq!(received, sent, "of a turn of {limit}");
    }
}

/// A member that is not there, or does not read, costs its datagrams and nothing else.
#[test]
fn what_the_kernel_refuses_is_lost_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let (mut transport, _, other) = unix_pair(directory.path());
    transport.send(id(2), b"nobody there yet");
    assert_eq!(transport.counters().send_lost, 1);
    let deaf = UnixDatagram::bind(&other).unwrap();
    while transport.counters().send_lost == 1 {
        transport.send(id(2), &[0; 1_000]);
    }
    assert!(transport.counters().sent > 0, "until its queue was full");
    drop(deaf);
    transport.send(id(2), b"gone again");
    assert_eq!(transport.counters().send_lost, 3);

    let (mut transport, ..) = udp_pair("127.0.0.1:0");
    transport.send(id(2), b"nobody there");
    assert_eq!(receive(&mut transport, 64), Received::Empty);
}

#[test]
fn members_of_two_kinds_are_refused() {
    let members = BTreeMap::from([
        (id(1), "udp:127.0.0.1:7400".parse().unwrap()),
        (id(2), "unix:/run/nowhere".parse().unwrap()),
    ]);
    let refused = Transport::bind(id(1), &members, None, None, None).unwrap_err();
    assert!(matches!(refused, BindError::Mixed { .. }), "{refused}");
}
