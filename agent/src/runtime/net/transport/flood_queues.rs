//! A queue of its own for each member's address that a flood comes from.
//!
//! What the members send waits in one queue, that of this member's socket, until the agent takes it.
//! Who can send with the address of one of them can fill it; then what the others send finds no room,
//! and leases run out for want of it. So an address from which much comes that is dropped gets a
//! queue of its own, as in the fair queueing of Nagle (RFC 970): a second socket at this member's
//! address, connected to that one. The kernel gives it what comes from there, and nothing else.
//! That it is full harms nobody who does not need that very member.
//!
//! No event wakes the agent for such a queue. It looks there by the clock, for half of its time at
//! most: else a flood would keep it busy all the time, and a thread that is always busy waits for a
//! processor like any other when something comes that matters.
//!
//! Where there is no flood there is no such socket: one costs less to look at than many, and tells
//! when something comes. When the flood is over, it goes.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use super::udp;
use crate::protocol::{NodeId, Time};

/// A member of whose address so many more are dropped than are taken in [`WHILE`] floods this one.
/// Links repeat a few a second to one that does not understand them, what a network doubles is
/// taken as often as it is dropped, and a hundred addresses that send as many as this fill no
/// queue.
const FLOOD: u32 = 256;
const WHILE: Duration = Duration::from_secs(1);
/// A flood is over when there was none for so long.
const QUIET: Duration = Duration::from_secs(2);
/// So many addresses have queues of their own at most, so that those of a large group do not use up
/// the memory that the kernel has for UDP: they take 32 MiB. The others share the first queue, as
/// without a flood.
const MOST: usize = 64;
/// How often they are looked at, at most: what the member says whose address it is comes later by
/// that, and by what a timer of the system takes longer.
const EVERY: Duration = Duration::from_millis(1);
/// So many datagrams are taken from all of them in one look: about as many small ones as have
/// [`ROOM`].
const IN_A_LOOK: u32 = 512;
/// After a look that took longer than [`EVERY`] it rests as long: so half of the time is left,
/// whatever comes. One that has lasted this long was interrupted, as the process stood still,
/// waited for its disk, or was not driven: it ends, and for that there is no rest.
const LONGEST: Duration = Duration::from_millis(50);
/// One of so many times what is here comes before what the shared queue has, however much that is.
const TURNS: u8 = 4;
/// How often it is told of one member, so that what anybody can send fills no log.
const TOLD_EVERY: Duration = Duration::from_secs(3_600);

/// The queues of flooded addresses, and how much of what came was dropped.
#[derive(Debug, Default)]
pub(super) struct FloodQueues {
    queues: Vec<Queue>,
    /// Which was looked at last.
    last: usize,
    /// When the look that goes on has begun, and how many it may take yet.
    began: Time,
    left: u32,
    /// When the next begins.
    next: Time,
    turns: u8,
    /// There is a place for each other member from the start, so that what anybody can send allocates
    /// nothing.
    sources: BTreeMap<NodeId, Source>,
    /// Whether a source wants a queue.
    is_wanted: bool,
    /// How many the kernel dropped at queues that are no more.
    dropped_by_kernel: u64,
}

#[derive(Debug)]
struct Queue {
    member: NodeId,
    address: SocketAddr,
    socket: UdpSocket,
    /// Whether nothing was there in this look.
    is_drained: bool,
    /// Whether nothing more comes there, and it goes when it is drained.
    is_let_go: bool,
}

/// What comes from a member's address.
#[derive(Debug)]
struct Source {
    address: SocketAddr,
    /// How many were dropped and taken since when.
    dropped: u32,
    taken: u32,
    since: Time,
    /// When there was a flood last.
    flooded: Option<Time>,
    wants_queue: bool,
    /// When it was tried last to open one.
    tried: Option<Time>,
    /// When it was told of it, and whether that was opened.
    told: Option<(Time, bool)>,
}

impl FloodQueues {
    /// These are the other members from now on.
    pub(super) fn set_members(&mut self, others: impl Iterator<Item = (NodeId, SocketAddr)>) {
        let mut before = std::mem::take(&mut self.sources);
        let source = |(id, address)| {
            let before = before.remove(&id);
            let same = before.filter(|source| source.address == address);
            (id, same.unwrap_or_else(|| Source::new(address)))
        };
        self.sources = others.map(source).collect();
        let sources = &self.sources;
        let is_gone = |queue: &mut Queue| {
            let source = sources.get(&queue.member);
            source.is_none_or(|source| source.address != queue.address)
        };
        for mut queue in self.queues.extract_if(.., is_gone) {
            queue.let_go();
            self.dropped_by_kernel += udp::dropped_by_kernel(&queue.socket);
        }
        if self.is_empty() {
            self.left = 0;
        }
    }

    /// Whether there are no queues.
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Whether it is the turn of these queues to come before the shared one.
    pub(super) fn take_turn(&mut self) -> bool {
        self.turns = self.turns.wrapping_add(1);
        self.turns.is_multiple_of(TURNS)
    }

    /// When to look here, if something may be here.
    pub(super) fn next_look(&self) -> Option<Time> {
        let at = if self.left > 0 { self.began } else { self.next };
        (!self.is_empty()).then_some(at)
    }

    /// The next datagram, from each queue in turn. `None` if there is none, or it is not yet time.
    pub(super) fn receive(&mut self, buffer: &mut [u8], now: Time) -> Option<(usize, SocketAddr)> {
        if self.left > 0 && self.began + LONGEST <= now {
            self.began = now;
            self.rest(now);
        }
        if self.left == 0 {
            if now < self.next {
                return None;
            }
            (self.began, self.left) = (now, IN_A_LOOK);
            for queue in &mut self.queues {
                queue.is_drained = false;
            }
        }
        for _ in 0..self.queues.len() {
            self.last = (self.last + 1) % self.queues.len();
            let queue = &mut self.queues[self.last];
            if queue.is_drained {
                continue;
            }
            let received = queue.receive(buffer);
            if received.is_some() {
                self.left -= 1;
                if self.left == 0 {
                    self.rest(now);
                }
                return received;
            }
        }
        self.rest(now);
        None
    }

    /// Ends the look.
    fn rest(&mut self, now: Time) {
        self.left = 0;
        self.next = now + now.since(self.began).max(EVERY);
        let sources = &self.sources;
        let is_over = |queue: &mut Queue| {
            if queue.is_drained && queue.is_let_go {
                return true;
            }
            let source = sources.get(&queue.member);
            if queue.is_drained && !source.is_some_and(|source| source.is_flooded(now)) {
                queue.let_go();
            }
            false
        };
        for queue in self.queues.extract_if(.., is_over) {
            tracing::debug!("the flood from {} is over", queue.address);
            self.dropped_by_kernel += udp::dropped_by_kernel(&queue.socket);
        }
    }

    /// Something from the address of member `from` was taken.
    pub(super) fn note_taken(&mut self, from: NodeId) {
        if let Some(source) = self.sources.get_mut(&from) {
            source.taken = source.taken.saturating_add(1);
        }
    }

    /// Something from the address of member `from` was dropped. If that is a flood, what comes from
    /// there is to have a queue of its own.
    pub(super) fn note_drop(&mut self, from: NodeId, now: Time) {
        let Some(source) = self.sources.get_mut(&from) else {
            return;
        };
        if !source.is_flood(now) || is_within(QUIET, source.tried, now) {
            return;
        }
        let mut queues = self.queues.iter();
        if !queues.any(|queue| queue.address == source.address && !queue.is_let_go) {
            source.wants_queue = true;
            self.is_wanted = true;
        }
    }

    /// Opens the queues that are wanted, beside that of `shared`. Not where that is found out: that
    /// may be a thread of the program, which may do less than the agent.
    pub(super) fn open_wanted(&mut self, shared: &UdpSocket, now: Time) {
        if !std::mem::take(&mut self.is_wanted) {
            return;
        }
        for (&member, source) in &mut self.sources {
            if !std::mem::take(&mut source.wants_queue) {
                continue;
            }
            let address = source.address;
            source.tried = Some(now);
            let opened = match self.queues.len() {
                MOST => Err(io::Error::other("there are too many already")),
                _ => udp::bind_connected(shared, address),
            };
            source.tell(member, now, opened.as_ref().err());
            if let Ok(socket) = opened {
                self.queues.push(Queue {
                    member,
                    address,
                    socket,
                    is_drained: false,
                    is_let_go: false,
                });
            }
        }
    }

    /// How many datagrams found no room.
    pub(super) fn dropped_by_kernel(&self) -> u64 {
        let queues = self.queues.iter();
        let now: u64 = queues
            .map(|queue| udp::dropped_by_kernel(&queue.socket))
            .sum();
        self.dropped_by_kernel + now
    }

    /// The members from whose addresses floods come.
    pub(super) fn flooded(&self, now: Time) -> impl Iterator<Item = NodeId> {
        let flooded = self.sources.iter();
        let flooded = flooded.filter(move |(_, source)| source.is_flooded(now));
        flooded.map(|(&id, _)| id)
    }
}

impl Queue {
    fn receive(&mut self, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
        // Before what has come, a connected socket is told by ICMP that what was sent there found
        // nobody. The links know without; and as anybody can say so, it is asked once more only.
        for _ in 0..2 {
            match self.socket.recv_from(buffer) {
                Ok(received) => {
                    self.is_drained = false;
                    return Some(received);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_drained = true;
                    return None;
                }
                Err(error) => tracing::trace!("told of what was sent to {}: {error}", self.address),
            }
        }
        None
    }

    /// Has what comes from there wait in the shared queue again. What is here is still to be taken.
    fn let_go(&mut self) {
        if let Err(error) = udp::let_go(&self.socket) {
            tracing::warn!(
                event = "flood-queue-failed",
                "what comes from {} stays in a queue of its own, which closes: {error}",
                self.address
            );
        }
        (self.is_let_go, self.is_drained) = (true, false);
    }
}

impl Source {
    fn new(address: SocketAddr) -> Self {
        Self {
            address,
            dropped: 0,
            taken: 0,
            since: Time::ZERO,
            flooded: None,
            wants_queue: false,
            tried: None,
            told: None,
        }
    }

    /// One more was dropped; whether that is a flood.
    fn is_flood(&mut self, now: Time) -> bool {
        if self.dropped == 0 || self.since + WHILE < now {
            (self.dropped, self.taken, self.since) = (0, 0, now);
        }
        self.dropped += 1;
        if self.dropped < FLOOD.saturating_add(self.taken) {
            return false;
        }
        self.dropped = 0;
        self.flooded = Some(now);
        true
    }

    /// Warns that `member`, whose address this is, has a queue of its own, or why it has none.
    fn tell(&mut self, member: NodeId, now: Time, failed: Option<&io::Error>) {
        let is_opened = failed.is_none();
        let lately = self.told.filter(|(at, _)| now <= *at + TOLD_EVERY);
        if lately.is_some_and(|(_, was_opened)| was_opened == is_opened) {
            return;
        }
        self.told = Some((now, is_opened));
        match failed {
            None => tracing::warn!(
                event = "flood",
                member = member.as_u16(),
                "a flood comes from the address of member {member}: more of it is dropped than is taken. \
                 It waits in a queue of its own, so that the others are heard; the status says what it \
                 is; find out who sends it, and keep it from this member by a firewall"
            ),
            Some(why) => tracing::warn!(
                event = "flood",
                member = member.as_u16(),
                "a flood comes from the address of member {member}, which cannot have a queue of its \
                 own ({why}): other members may not be heard meanwhile, and leases run out; keep it \
                 from this member by a firewall"
            ),
        }
    }

    fn is_flooded(&self, now: Time) -> bool {
        is_within(QUIET, self.flooded, now)
    }
}

fn is_within(time: Duration, at: Option<Time>, now: Time) -> bool {
    at.is_some_and(|at| now <= at + time)
}

#[cfg(test)]
mod tests;
