//! Datagrams between members, by address: UDP ([`udp`]) or Unix datagrams ([`unix`]).
//!
//! Sending never blocks. Whatever the kernel refuses (a full queue, a peer that is not there, no
//! route) is the same as a datagram lost on the way: counted, and repaired by the links. What
//! arrives from no member's address, or larger than any datagram of ours, is dropped here, before
//! the core sees it.
//!
//! Where there is a multicast address, what goes to several members alike goes there as one
//! datagram ([`multicast`]), to those who are known to be reached so ([`audience`]). The core knows
//! nothing of it.

mod audience;
mod error;
mod faults;
mod filter;
mod group;
mod multicast;
pub(crate) mod place;
mod sealed;
mod udp;
mod unix;
mod who;

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};

use nix::sys::socket::UnixAddr;
use nix::sys::stat::fstat;
use socket2::{SockAddr, SockRef, Socket};

pub use error::BindError;
pub use faults::Faults;
use faults::Injector;
use group::Group;
use place::SocketFile;
use sealed::Sealing;
use unix::Mailbox;

use super::address::{Address, MulticastAddress};
use super::seal::{Seals, Way};
use crate::protocol::NodeId;
use crate::protocol::wire::GroupId;

/// Room for what arrives while the agent is busy: a few thousand small datagrams. The kernel may
/// grant less.
const SOCKET_BUFFER: usize = 1 << 20;

/// This member's socket and everybody's addresses.
#[derive(Debug)]
pub(crate) struct Transport {
    me: NodeId,
    medium: Medium,
    peers: BTreeMap<NodeId, SockAddr>,
    group: Option<Box<Group>>,
    sealing: Option<Box<Sealing>>,
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
        mailbox: Mailbox,
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
    /// Datagrams dropped because no member has the address they came from; of Unix datagrams also
    /// those of other users than root and this process's.
    pub dropped_foreign: u64,
    /// Datagrams dropped because they were longer than any of ours.
    pub dropped_truncated: u64,
    /// Datagrams dropped because they were nothing that is sealed, or sealed for another member, or
    /// because what came by multicast made no sense, or was of another group.
    pub dropped_malformed: u64,
    /// Datagrams dropped because they were not sealed, in a group that has a key.
    pub dropped_unsealed: u64,
    /// Datagrams dropped because they were sealed, in a group without a key.
    pub dropped_sealed: u64,
    /// Datagrams dropped because they were sealed with a key that this member does not have.
    pub dropped_unknown_key: u64,
    /// Datagrams dropped because they were not sealed by the member that they name, or were changed
    /// on their way.
    pub dropped_forged: u64,
    /// Datagrams dropped because they came before.
    pub dropped_replayed: u64,
    /// Datagrams dropped because the life that sealed them had not shown yet that it is there. They
    /// were answered by a challenge.
    pub dropped_unproven: u64,
    /// Datagrams dropped because they answered no challenge that was open, or challenged another life
    /// of this member.
    pub dropped_stale: u64,
    /// Datagrams dropped because too many came in one turn, from one address, of lives that had not
    /// shown that they are there.
    pub dropped_strange: u64,
    /// Challenges that were answered, and answers that were right.
    pub handshakes: u64,
    /// Of those sent: by multicast, for several members each.
    pub multicast_sent: u64,
    /// How many datagrams those have replaced.
    pub multicast_merged: u64,
    /// Of those received: by multicast, for this member or for others.
    pub multicast_received: u64,
    /// How many times a member was found not to be reached by multicast any more.
    pub multicast_lost: u64,
    /// Errors while receiving, other than that there was nothing.
    pub receive_errors: u64,
}

/// What one look at the socket gave.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// A datagram of this member, in this part of the buffer.
    Datagram { from: NodeId, at: Range<usize> },
    /// A datagram that was dropped and counted.
    Dropped,
    /// Nothing is there.
    Empty,
}

impl Transport {
    /// Room for the longest UDP datagram, and the byte that tells a longer one.
    pub(crate) const BUFFER: usize = 65_536;

    /// Binds the address of `me`, and joins the multicast group, if there is one.
    pub(crate) fn bind(
        me: NodeId,
        members: &BTreeMap<NodeId, Address>,
        multicast: Option<(GroupId, MulticastAddress)>,
        seals: Option<Seals>,
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
                let others = others().filter_map(|(_, other)| other.as_path());
                let (mailbox, file) = unix::bind(own, others)?;
                (Medium::Unix { mailbox, sources }, Some(file))
            }
        };
        let group = multicast
            .map(|(id, address)| multicast::join(id, me, address, own, &medium))
            .transpose()?;
        let faults = faults.map(Injector::new);
        let mut transport = Self {
            me,
            medium,
            peers: BTreeMap::new(),
            group: group.map(Box::new),
            sealing: seals.map(|seals| Box::new(Sealing::new(seals))),
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
        let ids = others.clone().map(|(&id, _)| id);
        self.group
            .iter_mut()
            .for_each(|group| group.audience.read(ids.clone()));
        self.peers.clear();
        match &mut self.medium {
            Medium::Udp { socket, sources } => {
                sources.clear();
                for (&id, address) in others {
                    if let Address::Udp(address) = address {
                        self.peers.insert(id, SockAddr::from(*address));
                        sources.insert(*address, id);
                    }
                }
                filter::attach((&*socket).into(), sources.keys(), None);
                if let Some(group) = &self.group {
                    // Several agents of one host hear each other by the loop, and so would each
                    // itself.
                    filter::attach((&group.socket).into(), sources.keys(), Some(self.me));
                }
            }
            Medium::Unix { sources, .. } => {
                sources.clear();
                for (&id, address) in others {
                    // That it is no path of a socket was refused when it was read.
                    if let Address::Unix(path) = address
                        && let Ok(to) = SockAddr::unix(path)
                        && is_safe(id, path)
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

    /// Sends `bytes` to member `to`, by themselves.
    fn send(&mut self, to: NodeId, bytes: &[u8]) {
        let Some(address) = self.peers.get(&to).cloned() else {
            // Its address was refused, and that was told.
            debug_assert!(to != self.me, "the core sent to its own member");
            self.counters.send_lost += 1;
            return;
        };
        self.transmit(Way::Directly(to), &address, bytes);
    }

    /// Sends `bytes`, sealed where this group has a key; whether the kernel took all.
    fn transmit(&mut self, way: Way, to: &SockAddr, bytes: &[u8]) -> bool {
        let Some(sealing) = &mut self.sealing else {
            return self.send_out(to, bytes);
        };
        let sealed = sealing.seal(way, bytes);
        let is_sent = self.send_out(to, &sealed);
        if let Some(sealing) = &mut self.sealing {
            sealing.give_back(sealed);
        }
        is_sent
    }

    /// Sends `bytes`, once or as a test has it; whether the kernel took all.
    fn send_out(&mut self, to: &SockAddr, bytes: &[u8]) -> bool {
        match &mut self.faults {
            Some(injector) => {
                let copies = injector.suffer(bytes);
                copies.iter().all(|copy| self.send_once(to, copy))
            }
            None => self.send_once(to, bytes),
        }
    }

    fn send_once(&mut self, to: &SockAddr, bytes: &[u8]) -> bool {
        let socket = match &self.medium {
            Medium::Udp { socket, .. } => SockRef::from(socket),
            Medium::Unix { mailbox, .. } => SockRef::from(&mailbox.socket),
        };
        loop {
            match socket.send_to_with_flags(bytes, to, libc::MSG_NOSIGNAL) {
                Ok(_) => {
                    self.counters.sent += 1;
                    self.counters.sent_bytes += bytes.len() as u64;
                    return true;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.counters.send_lost += 1;
                    tracing::trace!("lost a datagram: {error}");
                    return false;
                }
            }
        }
    }

    /// Takes one datagram off the sockets, if there is one. The kernel cuts what is longer than
    /// `buffer`, so one that fills it counts as too long.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> Received {
        let Some(group) = &mut self.group else {
            return self.receive_directly(buffer);
        };
        if group.is_first() {
            match self.receive_by_multicast(buffer) {
                Received::Empty => self.receive_directly(buffer),
                received => received,
            }
        } else {
            match self.receive_directly(buffer) {
                Received::Empty => self.receive_by_multicast(buffer),
                received => received,
            }
        }
    }

    fn receive_directly(&mut self, buffer: &mut [u8]) -> Received {
        let received = match &mut self.medium {
            Medium::Udp { socket, sources } => socket
                .recv_from(buffer)
                .map(|(len, from)| (len, sources.get(&udp::spelled(from)).copied())),
            Medium::Unix { mailbox, sources } => {
                unix::receive(mailbox, buffer).map(|(len, from)| {
                    // A sender without a path of its own is no member.
                    let path = from.as_ref().and_then(UnixAddr::path);
                    (len, path.and_then(|path| sources.get(path)).copied())
                })
            }
        };
        let received = self.note(received, buffer.len());
        let received = self.unseal(received, false, buffer);
        if let (Some(group), Received::Datagram { from, .. }) = (&mut self.group, &received) {
            group.audience.heard_directly(*from);
        }
        received
    }

    /// Sorts what came into a buffer of so many bytes, and counts what is dropped of it.
    fn note(&mut self, received: io::Result<(usize, Option<NodeId>)>, room: usize) -> Received {
        match received {
            Ok((len, _)) if len == room => {
                self.counters.dropped_truncated += 1;
                Received::Dropped
            }
            Ok((len, Some(from))) => Received::Datagram { from, at: 0..len },
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

impl Transport {
    /// How many datagrams the kernel dropped before they were read, because no member has the address
    /// that they came from, or because the queue was full; as far as the system tells.
    pub(crate) fn dropped_by_kernel(&self) -> u64 {
        let Medium::Udp { socket, .. } = &self.medium else {
            return 0;
        };
        // Not of the one for multicast, which drops what this member sends there itself.
        let inode = fstat(socket).ok().map(|stat| stat.st_ino);
        inode.and_then(who::drops).unwrap_or_default()
    }

    /// The sockets at which something may arrive: one, or two where there is multicast.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = RawFd> + use<> {
        let own = match &self.medium {
            Medium::Udp { socket, .. } => socket.as_raw_fd(),
            Medium::Unix { mailbox, .. } => mailbox.socket.as_raw_fd(),
        };
        let group = self.group.as_ref().map(|group| group.socket.as_raw_fd());
        [Some(own), group].into_iter().flatten()
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

/// Whether nobody else can have put a socket at `path`, where member `id` is that came to the group
/// while it runs. Tells of it if somebody can.
fn is_safe(id: NodeId, path: &Path) -> bool {
    let Err(why) = place::check_other_directory(path) else {
        return true;
    };
    tracing::warn!(
        "nothing is sent to member {id}, as others could put a socket of theirs at its address: \
         {why}; {}",
        why.advice()
    );
    false
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixDatagram;

    use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
    use nix::unistd::geteuid;

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

    /// Both kinds deliver before `send` returns on this host.
    fn receive(transport: &mut Transport, room: usize) -> Received {
        transport.receive(&mut vec![0; room + 1])
    }

    #[test]
    fn only_members_are_heard_over_udp() {
        let (mut transport, own, other) = udp_pair("127.0.0.1:0");
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        stranger.send_to(b"hello", own).unwrap();
        assert_eq!(
            receive(&mut transport, 64),
            Received::Empty,
            "by the kernel"
        );
        assert_eq!(transport.dropped_by_kernel(), 1);
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
        let heard = Received::Datagram {
            from: id(2),
            at: 0..5,
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
        let stranger = UdpSocket::bind("[::1]:0").unwrap();
        stranger.send_to(b"hello", own).unwrap();
        assert_eq!(
            receive(&mut transport, 64),
            Received::Empty,
            "by the kernel"
        );
        let member = UdpSocket::bind(other).unwrap();
        member.send_to(b"hello", own).unwrap();
        let heard = Received::Datagram {
            from: id(2),
            at: 0..5,
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
            at: 0..5,
        };
        assert_eq!(receive(&mut transport, 64), heard);
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
        if !geteuid().is_root() {
            let all = std::env::var("DISTLOCK_TESTS");
            assert_ne!(all.as_deref(), Ok("all"), "this test needs root");
            eprintln!("SKIPPED: this test needs root");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let (mut transport, own, other) = unix_pair(directory.path());
        let member = UnixDatagram::bind(other).unwrap();
        let to = UnixAddr::new(&own).unwrap();
        let mut say_as = |uid| {
            let pid = std::process::id().cast_signed();
            let sender = libc::ucred { pid, uid, gid: 0 }.into();
            let with = [ControlMessage::ScmCredentials(&sender)];
            let bytes = [io::IoSlice::new(b"hello")];
            sendmsg(
                member.as_raw_fd(),
                &bytes,
                &with,
                MsgFlags::empty(),
                Some(&to),
            )
            .unwrap();
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
        let (to, sent) = (UnixAddr::new(&own).unwrap(), [member.as_raw_fd(); 50]);
        let with = [ControlMessage::ScmRights(&sent)];
        let bytes = [io::IoSlice::new(b"hello")];
        sendmsg(
            member.as_raw_fd(),
            &bytes,
            &with,
            MsgFlags::empty(),
            Some(&to),
        )
        .unwrap();
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
        let heard = Received::Datagram {
            from: id(2),
            at: 0..64,
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
        let refused = Transport::bind(id(1), &members, None, None, None).unwrap_err();
        assert!(matches!(refused, BindError::Mixed { .. }), "{refused}");
    }
}
