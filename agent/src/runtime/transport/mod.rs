//! Datagrams between members, by address: UDP ([`udp`]) or Unix datagrams ([`unix`]).
//!
//! Sending never blocks. Whatever the kernel refuses (a full queue, a peer that is not there, no
//! route) is the same as a datagram lost on the way: counted, and repaired by the links. What
//! arrives from no member's address, or larger than any datagram of ours, is dropped here, before
//! the core sees it.

mod faults;
pub(crate) mod place;
mod udp;
mod unix;
mod who;

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use socket2::{SockAddr, SockRef, Socket};

pub use faults::Faults;
use faults::Injector;
use place::{PlaceError, SocketFile};

use super::address::Address;
use super::durable::advice;
use crate::protocol::NodeId;

/// Room for what arrives while the agent is busy: a few thousand small datagrams. The kernel may
/// grant less.
const SOCKET_BUFFER: usize = 1 << 20;

/// This member's socket and everybody's addresses.
#[derive(Debug)]
pub(crate) struct Transport {
    me: NodeId,
    medium: Medium,
    peers: BTreeMap<NodeId, SockAddr>,
    faults: Option<Injector>,
    counters: TransportCounters,
    _file: Option<SocketFile>,
}

/// The socket, and which member has which address.
#[derive(Debug)]
enum Medium {
    Udp {
        socket: UdpSocket,
        sources: BTreeMap<SocketAddr, NodeId>,
    },
    Unix {
        socket: UnixDatagram,
        sources: BTreeMap<PathBuf, NodeId>,
    },
}

/// What the sockets have seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransportCounters {
    /// Datagrams given to the kernel.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Datagrams the kernel did not take: a full queue, nobody there, no route.
    pub send_lost: u64,
    /// Datagrams received from members.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Datagrams dropped because no member has the address they came from.
    pub dropped_foreign: u64,
    /// Datagrams dropped because they were longer than any of ours.
    pub dropped_truncated: u64,
    /// Errors while receiving, other than that there was nothing.
    pub receive_errors: u64,
}

/// What one look at the socket gave.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// A datagram of this member, the first so many bytes of the buffer.
    Datagram { from: NodeId, len: usize },
    /// A datagram that was dropped and counted.
    Dropped,
    /// Nothing is there.
    Empty,
}

impl Transport {
    /// Room for the longest UDP datagram, and the byte that tells a longer one.
    pub(crate) const BUFFER: usize = 65_536;

    /// Binds the address of `me`.
    pub(crate) fn bind(
        me: NodeId,
        members: &BTreeMap<NodeId, Address>,
        faults: Option<Faults>,
    ) -> Result<Self, BindError> {
        let own = &members[&me];
        let others = || members.iter().filter(|(id, _)| **id != me);
        if let Some((_, other)) = others().find(|(_, other)| !can_reach(own, other)) {
            return Err(BindError::Mixed {
                own: own.clone(),
                other: other.clone(),
            });
        }
        let sources = BTreeMap::new();
        let (medium, file) = match own {
            Address::Udp(own) => {
                let socket = udp::bind(*own)?;
                (Medium::Udp { socket, sources }, None)
            }
            Address::Unix(own) => {
                let sources = BTreeMap::new();
                let (socket, file) = unix::bind(own)?;
                (Medium::Unix { socket, sources }, Some(file))
            }
        };
        let faults = faults.map(Injector::new);
        let mut transport = Self {
            me,
            medium,
            peers: BTreeMap::new(),
            faults,
            counters: Default::default(),
            _file: file,
        };
        transport.read(members);
        Ok(transport)
    }

    /// These are the members from now on, this one among them.
    pub(crate) fn read(&mut self, members: &BTreeMap<NodeId, Address>) {
        let others = members.iter().filter(|(id, _)| **id != self.me);
        self.peers.clear();
        match &mut self.medium {
            Medium::Udp { sources, .. } => {
                sources.clear();
                for (&id, address) in others {
                    if let Address::Udp(address) = address {
                        self.peers.insert(id, SockAddr::from(*address));
                        sources.insert(*address, id);
                    }
                }
            }
            Medium::Unix { sources, .. } => {
                sources.clear();
                for (&id, address) in others {
                    // That it is no path of a socket was refused when it was read.
                    if let Address::Unix(path) = address
                        && let Ok(to) = SockAddr::unix(path)
                    {
                        self.peers.insert(id, to);
                        sources.insert(path.clone(), id);
                    }
                }
            }
        }
    }

    pub(crate) fn counters(&self) -> TransportCounters {
        self.counters
    }

    /// Sends `bytes` to member `to`, or loses them.
    pub(crate) fn send(&mut self, to: NodeId, bytes: &[u8]) {
        if let Some(injector) = &mut self.faults {
            for copy in injector.suffer(bytes) {
                self.send_once(to, &copy);
            }
        } else {
            self.send_once(to, bytes);
        }
    }

    fn send_once(&mut self, to: NodeId, bytes: &[u8]) {
        let Some(address) = self.peers.get(&to) else {
            debug_assert!(false, "the core sent to {to}, who is no other member");
            return;
        };
        let socket = match &self.medium {
            Medium::Udp { socket, .. } => SockRef::from(socket),
            Medium::Unix { socket, .. } => SockRef::from(socket),
        };
        loop {
            match socket.send_to_with_flags(bytes, address, libc::MSG_NOSIGNAL) {
                Ok(_) => {
                    self.counters.sent += 1;
                    self.counters.sent_bytes += bytes.len() as u64;
                    return;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.counters.send_lost += 1;
                    tracing::trace!("lost a datagram to member {to}: {error}");
                    return;
                }
            }
        }
    }

    /// Takes one datagram off the socket, if there is one. The kernel cuts what is longer than
    /// `buffer`, so one that fills it counts as too long.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> Received {
        let received = match &self.medium {
            Medium::Udp { socket, sources } => socket
                .recv_from(buffer)
                .map(|(len, from)| (len, sources.get(&udp::spelled(from)).copied())),
            Medium::Unix { socket, sources } => socket.recv_from(buffer).map(|(len, from)| {
                // A sender without a path of its own is no member.
                let path = from.as_pathname();
                (len, path.and_then(|path| sources.get(path)).copied())
            }),
        };
        match received {
            Ok((len, _)) if len == buffer.len() => {
                self.counters.dropped_truncated += 1;
                Received::Dropped
            }
            Ok((len, Some(from))) => {
                self.counters.received += 1;
                self.counters.received_bytes += len as u64;
                Received::Datagram { from, len }
            }
            Ok((_, None)) => {
                self.counters.dropped_foreign += 1;
                Received::Dropped
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Received::Empty,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Received::Dropped,
            Err(error) => {
                // An error that was queued for an earlier send: taken off the socket by this.
                self.counters.receive_errors += 1;
                tracing::debug!("receiving failed: {error}");
                Received::Dropped
            }
        }
    }
}

impl AsRawFd for Transport {
    fn as_raw_fd(&self) -> RawFd {
        match &self.medium {
            Medium::Udp { socket, .. } => socket.as_raw_fd(),
            Medium::Unix { socket, .. } => socket.as_raw_fd(),
        }
    }
}

/// Whether datagrams can go from one address to the other at all.
pub(super) fn can_reach(own: &Address, other: &Address) -> bool {
    match (own, other) {
        (Address::Udp(own), Address::Udp(other)) => own.is_ipv4() == other.is_ipv4(),
        (Address::Unix(_), Address::Unix(_)) => true,
        _ => false,
    }
}

/// Sizes the buffers. A smaller buffer than asked for is no error: it loses more under load.
fn size_buffers(socket: &Socket) {
    let sized = socket
        .set_recv_buffer_size(SOCKET_BUFFER)
        .and_then(|()| socket.set_send_buffer_size(SOCKET_BUFFER));
    if let Err(error) = sized {
        tracing::debug!("the socket's buffers keep their size: {error}");
    }
}

/// Why a member cannot have its address, or an agent its socket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Another process has it.
    #[error(
        "{address} is in use by {}: end that process, or choose another address",
        process(*pid)
    )]
    InUse {
        /// The address.
        address: String,
        /// The process, where it could be found.
        pid: Option<u32>,
    },
    /// The system forbids it.
    #[error("{address} is forbidden ({source}): {advice}")]
    Permission {
        /// The address.
        address: String,
        /// What the system says.
        source: io::Error,
        /// What to do.
        advice: &'static str,
    },
    /// No interface of this host has the address.
    #[error(
        "this host does not have the address {address}: give the id of this host's member, or \
         correct the member's address"
    )]
    NotHere {
        /// The address.
        address: String,
    },
    /// The directory of a Unix socket is missing.
    #[error("the directory of {address} does not exist: create it, or choose another path")]
    NoDirectory {
        /// The address.
        address: String,
    },
    /// There is a file that is no socket.
    #[error("{address} is a file, and no socket: remove it, or choose another path")]
    NotASocket {
        /// The address.
        address: String,
    },
    /// A dead process of another user left a socket there.
    #[error("{address} belongs to user {uid}: let that user remove it, or choose another path")]
    NotOurs {
        /// The address.
        address: String,
        /// The user.
        uid: u32,
    },
    /// Members whose addresses are of two kinds cannot reach each other.
    #[error(
        "{own} cannot send to {other}: give all members addresses of one kind (UDP over IPv4, UDP \
         over IPv6, or Unix)"
    )]
    Mixed {
        /// This member's address.
        own: Address,
        /// Another member's.
        other: Address,
    },
    /// The system refused for another reason.
    #[error("cannot open {address}: {source}{}", advice(source))]
    Io {
        /// The address.
        address: String,
        /// What the system says.
        source: io::Error,
    },
}

impl BindError {
    pub(super) fn io(address: impl ToString, source: io::Error) -> Self {
        Self::Io {
            address: address.to_string(),
            source,
        }
    }

    /// What went wrong with the Unix socket called `address`.
    pub(super) fn place(address: String, error: PlaceError) -> Self {
        match error {
            PlaceError::InUse { pid } => Self::InUse { address, pid },
            PlaceError::NotASocket => Self::NotASocket { address },
            PlaceError::NotOurs { uid } => Self::NotOurs { address, uid },
            PlaceError::Io(source) => match source.kind() {
                io::ErrorKind::NotFound => Self::NoDirectory { address },
                io::ErrorKind::PermissionDenied => Self::Permission {
                    address,
                    source,
                    advice: "run as the user who owns the directory, or choose another path",
                },
                _ => Self::Io { address, source },
            },
        }
    }
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(
        || "another process".to_owned(),
        |pid| format!("process {pid}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(id: u16) -> NodeId {
        NodeId::new(id).unwrap()
    }

    /// Members 1 and 2 over UDP on loopback; nobody has the second address.
    fn udp_pair(any_port: &str) -> (Transport, SocketAddr, SocketAddr) {
        let sockets = [(); 2].map(|()| UdpSocket::bind(any_port).unwrap());
        let [first, second] = sockets.map(|socket| socket.local_addr().unwrap());
        let members = [(id(1), first), (id(2), second)];
        let members = members.map(|(id, address)| (id, Address::udp(address).unwrap()));
        let transport = Transport::bind(id(1), &BTreeMap::from(members), None).unwrap();
        (transport, first, second)
    }

    fn unix_pair(directory: &std::path::Path) -> (Transport, PathBuf, PathBuf) {
        let [first, second] = ["1", "2"].map(|name| directory.join(name));
        let members = [(id(1), &first), (id(2), &second)];
        let members = members.map(|(id, path)| (id, Address::unix(path).unwrap()));
        let transport = Transport::bind(id(1), &BTreeMap::from(members), None).unwrap();
        (transport, first, second)
    }

    /// Both kinds deliver before `send` returns on this host.
    fn receive(transport: &mut Transport, room: usize) -> Received {
        transport.receive(&mut vec![0; room + 1])
    }

    #[test]
    fn only_members_are_heard_over_udp() {
        let (mut transport, own, other) = udp_pair("127.0.0.1:0");
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        stranger.send_to(b"hello", own).unwrap();
        assert_eq!(receive(&mut transport, 64), Received::Dropped);
        assert_eq!(transport.counters().dropped_foreign, 1);
        let member = UdpSocket::bind(other).unwrap();
        member.send_to(b"hello", own).unwrap();
        let heard = Received::Datagram {
            from: id(2),
            len: 5,
        };
        assert_eq!(receive(&mut transport, 64), heard);
        assert_eq!(receive(&mut transport, 64), Received::Empty);
    }

    #[test]
    fn members_are_heard_over_ipv6() {
        if UdpSocket::bind("[::1]:0").is_err() {
            assert_ne!(
                std::env::var("DISTLOCK_TESTS").as_deref(),
                Ok("all"),
                "this host has no IPv6"
            );
            eprintln!("SKIPPED: this host has no IPv6");
            return;
        }
        let (mut transport, own, other) = udp_pair("[::1]:0");
        let member = UdpSocket::bind(other).unwrap();
        member.send_to(b"hello", own).unwrap();
        let heard = Received::Datagram {
            from: id(2),
            len: 5,
        };
        assert_eq!(receive(&mut transport, 64), heard);
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
        let heard = Received::Datagram {
            from: id(2),
            len: 5,
        };
        assert_eq!(receive(&mut transport, 64), heard);
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
        let heard = Received::Datagram {
            from: id(2),
            len: 64,
        };
        assert_eq!(receive(&mut transport, 64), heard);

        let (mut transport, own, other) = udp_pair("127.0.0.1:0");
        UdpSocket::bind(other)
            .unwrap()
            .send_to(&[0; 65], own)
            .unwrap();
        assert_eq!(receive(&mut transport, 64), Received::Dropped);
        assert_eq!(transport.counters().dropped_truncated, 1);
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
        let refused = Transport::bind(id(1), &members, None).unwrap_err();
        assert!(matches!(refused, BindError::Mixed { .. }), "{refused}");
    }
}
