//! A queue apart for each member's address that a flood comes from.
//!
//! What the members send waits in one queue, that of this member's socket, until the agent takes it.
//! Who can send with the address of one of them can fill it; then what the others send finds no room,
//! and leases run out for want of it. So an address from which much comes that is dropped gets a queue
//! of its own, as in the fair queueing of Nagle (RFC 970): a second socket at this member's address,
//! connected to that one. The kernel gives it what comes from there, and nothing else. That it is full
//! harms nobody but the member whose address that is.
//!
//! No event wakes the agent for such a queue. It looks there by the clock, for half of its time at most:
//! else a flood would keep it busy all the time, and a thread that is always busy waits for a processor
//! like any other when something comes that matters.
//!
//! Where there is no flood there is no such socket: one costs less to look at than many. When the flood
//! is over, it goes.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use super::udp;
use crate::protocol::{NodeId, Time};

/// Who sends so many in [`WHILE`] that are dropped floods this member: hundreds of times what links
/// repeat to one that does not understand them, and a hundredth of what it takes to keep a queue full.
const FLOOD: u32 = 1_000;
const WHILE: Duration = Duration::from_secs(1);
/// A flood is over when there was none for so long.
const QUIET: Duration = Duration::from_secs(10);
/// So many addresses have queues apart at most, each with a descriptor and up to
/// [`SOCKET_BUFFER`](super::SOCKET_BUFFER). Those of larger groups share one again: who can send with
/// the addresses of so many members is where all that they send goes through.
const MOST: usize = 64;
/// How often they are looked at, at most: what the member says whose address it is comes later by that.
/// And after a look that took longer it rests as long: so half of the time is left, whatever comes.
const EVERY: Duration = Duration::from_millis(1);
/// So many datagrams are taken from all of them in one look: about what a queue holds that has the
/// kernel's usual size.
const IN_A_LOOK: u32 = 512;
/// One of so many times what is here comes before what the shared queue has, however much that is.
const TURNS: u8 = 4;

/// The queues apart, and how much of what came was dropped.
#[derive(Debug, Default)]
pub(super) struct Apart {
    queues: Vec<Queue>,
    /// Which is looked at first.
    first: usize,
    /// When the look that goes on has begun, and how many it may take yet.
    began: Time,
    left: u32,
    /// When the next begins.
    next: Time,
    turns: u8,
    /// Since when how many were dropped of each member. There is a place for each from the start, so
    /// that what anybody can send allocates nothing.
    dropped: BTreeMap<NodeId, (Time, u32)>,
    /// How many the kernel dropped at queues that are no more.
    dropped_by_kernel: u64,
    /// Whether it was told that there can be no more.
    told_missing: bool,
}

#[derive(Debug)]
struct Queue {
    member: NodeId,
    address: SocketAddr,
    socket: UdpSocket,
    /// When it was found last that a flood comes from there.
    flooded: Time,
}

impl Apart {
    /// These are the other members from now on.
    pub(super) fn read(&mut self, others: impl Iterator<Item = NodeId>) {
        let mut before = std::mem::take(&mut self.dropped);
        self.dropped = others
            .map(|id| (id, before.remove(&id).unwrap_or_default()))
            .collect();
    }

    /// Whether no flood comes from anywhere.
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Whether it is the turn of these queues to come before the shared one.
    pub(super) fn is_first(&mut self) -> bool {
        self.turns = self.turns.wrapping_add(1);
        self.turns.is_multiple_of(TURNS)
    }

    /// When to look here, if something may be here.
    pub(super) fn next_look(&self) -> Option<Time> {
        let at = if self.left > 0 { self.began } else { self.next };
        (!self.is_empty()).then_some(at)
    }

    /// The next datagram, from each queue in turn. As from a socket at which nothing is, if there is none
    /// or it is not yet time.
    pub(super) fn receive(
        &mut self,
        buffer: &mut [u8],
        now: Time,
    ) -> io::Result<(usize, SocketAddr)> {
        if self.left == 0 {
            if now < self.next {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            (self.began, self.left) = (now, IN_A_LOOK);
        }
        for _ in 0..self.queues.len() {
            self.first = (self.first + 1) % self.queues.len();
            match self.queues[self.first].socket.recv_from(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // What was sent there found nobody. Only a connected socket is told, and the links know
                // without.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                received => {
                    self.left -= 1;
                    if self.left == 0 {
                        self.rest(now);
                    }
                    return received;
                }
            }
        }
        self.rest(now);
        self.close_quiet(now);
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Ends the look.
    fn rest(&mut self, now: Time) {
        self.left = 0;
        self.next = now + EVERY.max(now.since(self.began));
    }

    /// Something from the address of this member was dropped; whether that is a flood by now.
    pub(super) fn is_flood(&mut self, from: NodeId, now: Time) -> bool {
        let Some((since, dropped)) = self.dropped.get_mut(&from) else {
            return false;
        };
        if *since + WHILE < now {
            (*since, *dropped) = (now, 0);
        }
        *dropped += 1;
        if *dropped < FLOOD {
            return false;
        }
        (*since, *dropped) = (now, 0);
        true
    }

    /// A flood comes from `address`, which is that of `member`: what comes from there has a queue apart
    /// from that of `shared` from now on, if it had none.
    pub(super) fn open(
        &mut self,
        member: NodeId,
        address: SocketAddr,
        shared: &UdpSocket,
        now: Time,
    ) {
        let mut queues = self.queues.iter_mut();
        if let Some(queue) = queues.find(|queue| queue.address == address) {
            queue.flooded = now;
            return;
        }
        let opened = match self.queues.len() {
            MOST => Err(format!("{MOST} others have one already")),
            _ => udp::bind_apart(shared, address).map_err(|error| error.to_string()),
        };
        match opened {
            Ok(socket) => {
                tracing::warn!(
                    "a flood comes from the address of member {member}: of what came from there, \
                     {FLOOD} datagrams were dropped within a second. It has a queue of its own until \
                     that is over, so that the other members are heard; find out who sends it, and \
                     keep it from this member by a firewall"
                );
                self.queues.push(Queue {
                    member,
                    address,
                    socket,
                    flooded: now,
                });
            }
            Err(why) if !std::mem::replace(&mut self.told_missing, true) => tracing::warn!(
                "a flood comes from the address of member {member}, which cannot have a queue of its \
                 own ({why}): other members may not be heard meanwhile, and leases run out; keep it \
                 from this member by a firewall"
            ),
            Err(_) => {}
        }
    }

    /// Closes the queues whose floods are over; nothing is in any.
    fn close_quiet(&mut self, now: Time) {
        let is_over = |queue: &mut Queue| queue.flooded + QUIET < now;
        for queue in self.queues.extract_if(.., is_over) {
            tracing::info!(
                "the flood from the address of member {} is over",
                queue.member
            );
            if let Err(error) = udp::let_go(&queue.socket) {
                tracing::warn!("a queue's socket does not let go of its address: {error}");
            }
            self.dropped_by_kernel += udp::dropped_by_kernel(&queue.socket);
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
    pub(super) fn members(&self) -> impl Iterator<Item = NodeId> {
        self.queues.iter().map(|queue| queue.member)
    }
}

#[cfg(test)]
mod tests;
