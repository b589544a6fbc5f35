//! Datagrams between members, by address: UDP ([`udp`]) or Unix datagrams ([`unix`]).
//!
//! Sending never blocks. Whatever the kernel refuses (a full queue, a peer that is not there, no
//! route) is the same as a datagram lost on the way: counted, and repaired by the links. What
//! arrives from no member's address, or larger than any datagram of ours, is dropped here, before
//! the core sees it. What comes from a member's address that is flooded waits in a queue of
//! its own ([`flood_queues`]).
//!
//! Where there is a multicast address, what goes to several members alike goes there as one
//! datagram ([`multicast`]), to those who are known to be reached so ([`reachability`]). The core
//! knows nothing of it.

mod buffers;
mod counters;
mod error;
mod faults;
mod filter;
mod flood_queues;
mod group;
mod inspection;
mod multicast;
mod reachability;
mod sealed;
mod sealing;
mod sender_faults;
pub(crate) mod socket_file;
mod socket_owner;
#[cfg(test)]
mod tests;
mod udp;
mod unix;

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};

use nix::sys::socket::UnixAddr;
use socket2::{SockAddr, SockRef};

pub use counters::TransportCounters;
pub use error::BindError;
pub use faults::Faults;
use faults::Injector;
use flood_queues::FloodQueues;
use group::Group;
pub use inspection::{DATAGRAM, RECEIVE_BUFFER, SocketHolder, holder_of, try_filter};
use sealing::Sealing;
use socket_file::SocketFile;
use unix::Mailbox;

use self::sender_faults::SenderFaults;
use crate::protocol::wire::GroupId;
use crate::protocol::{NodeId, Time};
use crate::runtime::net::address::{Address, MulticastAddress};
use crate::runtime::net::aead::{self, Destination, Seals};
use crate::runtime::os::clock;

/// This member's socket and everybody's addresses.
#[derive(Debug)]
pub(crate) struct Transport {
    me: NodeId,
    medium: Medium,
    peers: BTreeMap<NodeId, SockAddr>,
    group: Option<Box<Group>>,
    sealing: Option<Box<Sealing>>,
    sender_faults: SenderFaults,
    faults: Option<Injector>,
    counters: TransportCounters,
    /// Whether it was told that the kernel does not filter what comes. Once: each view would say it
    /// again.
    told_unfiltered: bool,
    _file: Option<SocketFile>,
}

/// The socket, and which member has which address.
#[derive(Debug)]
enum Medium {
    Udp {
        socket: UdpSocket,
        sources: BTreeMap<SocketAddr, NodeId>,
        flood_queues: FloodQueues,
    },
    Unix {
        mailbox: Mailbox,
        sources: BTreeMap<PathBuf, NodeId>,
    },
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
    /// Room for the longest datagram of ours, and the byte that tells a longer one: of that the
    /// kernel copies no more.
    pub(crate) const BUFFER: usize = buffers::BUFFER;

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
                let flood_queues = FloodQueues::default();
                let medium = Medium::Udp {
                    socket,
                    sources,
                    flood_queues,
                };
                (medium, None)
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
            sender_faults: SenderFaults::default(),
            faults,
            counters: Default::default(),
            told_unfiltered: false,
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
            .for_each(|group| group.reachability.read(ids.clone()));
        self.peers.clear();
        match &mut self.medium {
            Medium::Udp {
                socket,
                sources,
                flood_queues,
            } => {
                sources.clear();
                for (&id, address) in others {
                    if let Address::Udp(address) = address {
                        self.peers.insert(id, SockAddr::from(*address));
                        sources.insert(*address, id);
                    }
                }
                flood_queues.set_members(sources.iter().map(|(&address, &id)| (id, address)));
                let mut attached = filter::attach((&*socket).into(), sources.keys(), None);
                if let Some(group) = &self.group {
                    // Several agents of one host hear each other by the loop, and so would each
                    // itself.
                    let by_multicast =
                        filter::attach((&group.socket).into(), sources.keys(), Some(self.me));
                    attached = attached.and(by_multicast);
                }
                if let Err(why) = attached
                    && !std::mem::replace(&mut self.told_unfiltered, true)
                {
                    warn_of_floods(&why);
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
        // Not of the socket for multicast: it gets back, and drops, what this member sends there
        // itself, and nobody can tell that from what others sent.
        let dropped_by_kernel = match &self.medium {
            Medium::Udp {
                socket,
                flood_queues,
                ..
            } => udp::dropped_by_kernel(socket) + flood_queues.dropped_by_kernel(),
            Medium::Unix { .. } => 0,
        };
        TransportCounters {
            dropped_by_kernel,
            ..self.counters
        }
    }

    /// Sends `bytes` to member `to`, by themselves.
    fn send(&mut self, to: NodeId, bytes: &[u8]) {
        let Some(address) = self.peers.get(&to).cloned() else {
            // Its address was refused, and that was told.
            debug_assert!(to != self.me, "the core sent to its own member");
            self.counters.send_lost += 1;
            return;
        };
        self.transmit(Destination::Member(to), &address, bytes);
    }

    /// Sends `bytes`, sealed where this group has a key; whether the kernel took all.
    fn transmit(&mut self, to: Destination, address: &SockAddr, bytes: &[u8]) -> bool {
        let Some(sealing) = &mut self.sealing else {
            return self.send_out(address, bytes);
        };
        let sealed = sealing.seal(to, bytes);
        let is_sent = self.send_out(address, &sealed);
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
        if let Medium::Udp { flood_queues, .. } = &mut self.medium
            && flood_queues.take_turn()
            && let received @ (Received::Datagram { .. } | Received::Dropped) =
                self.receive_flooded(buffer)
        {
            return received;
        }
        match self.receive_shared(buffer) {
            Received::Empty => self.receive_flooded(buffer),
            received => received,
        }
    }

    /// From the sockets that all members send to.
    fn receive_shared(&mut self, buffer: &mut [u8]) -> Received {
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
            Medium::Udp {
                socket, sources, ..
            } => socket
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
        self.take(received, buffer)
    }

    /// From the queues of members' addresses that are flooded.
    fn receive_flooded(&mut self, buffer: &mut [u8]) -> Received {
        let Medium::Udp {
            sources,
            flood_queues,
            ..
        } = &mut self.medium
        else {
            return Received::Empty;
        };
        if flood_queues.is_empty() {
            return Received::Empty;
        }
        let Some((len, from)) = flood_queues.receive(buffer, clock::now()) else {
            return Received::Empty;
        };
        let from = sources.get(&udp::spelled(from)).copied();
        self.take(Ok((len, from)), buffer)
    }

    /// What came directly into `buffer`.
    fn take(
        &mut self,
        received: io::Result<(usize, Option<NodeId>)>,
        buffer: &mut [u8],
    ) -> Received {
        let sender = received.as_ref().ok().and_then(|(_, from)| *from);
        let received = self.note(received, buffer.len());
        let received = self.unseal(received, false, buffer);
        if let (Some(from), Medium::Udp { flood_queues, .. }) = (sender, &mut self.medium) {
            match received {
                Received::Datagram { .. } => flood_queues.note_taken(from),
                _ => flood_queues.note_drop(from, clock::now()),
            }
        }
        if let (Some(group), Received::Datagram { from, .. }) = (&mut self.group, &received) {
            group.reachability.heard_directly(*from);
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
    /// The sockets at which something may arrive: one, or two where there is multicast.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = RawFd> + use<> {
        let own = match &self.medium {
            Medium::Udp { socket, .. } => socket.as_raw_fd(),
            Medium::Unix { mailbox, .. } => mailbox.socket.as_raw_fd(),
        };
        let group = self.group.as_ref().map(|group| group.socket.as_raw_fd());
        [Some(own), group].into_iter().flatten()
    }

    /// Opens what is needed apart from them.
    pub(crate) fn open_wanted(&mut self) {
        if let Medium::Udp {
            socket,
            flood_queues,
            ..
        } = &mut self.medium
        {
            flood_queues.open_wanted(socket, clock::now());
        }
    }

    /// When something may be there of which no socket of these tells.
    pub(crate) fn next_look(&self) -> Option<Time> {
        match &self.medium {
            Medium::Udp { flood_queues, .. } => flood_queues.next_look(),
            Medium::Unix { .. } => None,
        }
    }

    /// The members from whose addresses floods come.
    pub(crate) fn flooded(&self) -> impl Iterator<Item = NodeId> {
        let flood_queues = match &self.medium {
            Medium::Udp { flood_queues, .. } => Some(flood_queues),
            Medium::Unix { .. } => None,
        };
        let now = clock::now();
        flood_queues
            .into_iter()
            .flat_map(move |flood_queues| flood_queues.flooded(now))
    }
}

/// The kernel does not drop for this member what no member sent.
fn warn_of_floods(why: &str) {
    tracing::warn!(
        event = "no-filter",
        "the kernel does not filter what comes to this member ({why}): whoever can send to its port \
         can fill its queue, so that members are not heard, and leases run out; let a firewall pass \
         nothing there but what members send, or raise the sysctl net.core.optmem_max if \
         the filter is out of memory, and start this agent again"
    );
}

/// Whether datagrams can go from one address to the other at all.
pub(crate) fn can_reach(own: &Address, other: &Address) -> bool {
    match (own, other) {
        (Address::Udp(own), Address::Udp(other)) => own.is_ipv4() == other.is_ipv4(),
        (Address::Unix(_), Address::Unix(_)) => true,
        _ => false,
    }
}

/// Whether nobody else can have put a socket at `path`, where member `id` is that came to the group
/// while it runs. Tells of it if somebody can.
fn is_safe(id: NodeId, path: &Path) -> bool {
    let Err(why) = socket_file::check_other_directory(path) else {
        return true;
    };
    tracing::warn!(
        event = "address-unsafe",
        member = id.as_u16(),
        "nothing is sent to member {id}, as others could put a socket of theirs at its address: \
         {why}; {}",
        why.advice()
    );
    false
}
