//! Lamport 1978 (CACM 21(7)): everybody has the queue of all requests, in the order of their
//! stamps, with the first optimisation of Murray's lecture (3.4).
//!
//! To enter, tell everybody your request and its stamp. You are first when no earlier request is in
//! your queue and you have heard from everybody since: whatever they ask from then on is stamped
//! later. Whoever leaves tells everybody, and is taken out of all queues.
//!
//! Messages: `REQUEST(s)`; `ACK`, "I have your request, and ask for nothing earlier any more";
//! `RELEASE(s)`. Each says when it was sent. A member whose pending request is later than `s` does
//! not send the ACK: its own REQUEST says as much. One that is ahead sends it, though its RELEASE
//! will say as much: a caller that only tries learns so that it is not first.
//!
//! Links must keep the order of messages ([`Algorithm::needs_order`](super::Algorithm)): what was
//! sent later proves that nothing earlier is on its way. Messages may come twice.
//!
//! Invariant: who is inside has heard from each other member something that was sent after its own
//! request was made, by the senders' stamps, and so has every earlier request in its queue; none
//! was there.
//!
//! Cost: 3(N-1) messages under light load and in a closed loop, where the newest request is always
//! the last in the queue; 2.5(N-1) in a burst, as of every two that cross one is not acknowledged.
//! Response 2T+E; synchronisation delay T. All others are needed: one silent member stops all.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::clock::Stamp;
use crate::ids::{NodeId, RequestId};
use crate::lock::engine::{Effects, Engine, Rebuild};
use crate::lock::request::{Release, Request};

/// What the members say to each other. `clock`: the sender's clock, with which all that it asks
/// for later is stamped later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// I want to enter. The stamp of the request is the time of sending.
    Request { clock: u64 },
    /// I know what you ask for.
    Ack { clock: u64 },
    /// My request stamped `request` is over.
    Release { request: u64, clock: u64 },
}

impl Message {
    pub(crate) const fn kind(self) -> &'static str {
        match self {
            Self::Request { .. } => "REQUEST",
            Self::Ack { .. } => "ACK",
            Self::Release { .. } => "RELEASE",
        }
    }

    pub(crate) const fn is_request(self) -> bool {
        matches!(self, Self::Request { .. })
    }

    const fn clock(self) -> u64 {
        match self {
            Self::Request { clock } | Self::Ack { clock } | Self::Release { clock, .. } => clock,
        }
    }
}

#[derive(Clone, Debug, Hash)]
pub(crate) struct Lamport {
    me: NodeId,
    others: Vec<NodeId>,
    /// The part of the queue that is the others', and what they were told.
    peers: BTreeMap<NodeId, Peer>,
    /// This member's own part of the queue.
    claim: Option<Claim>,
    /// The highest clock in the messages of this lock, counted on by one with each that comes. The
    /// member's own clock, of which requests get their stamps, is never behind.
    clock: u64,
}

/// This member's request.
#[derive(Clone, Copy, Debug, Hash)]
struct Claim {
    id: RequestId,
    stamp: Stamp,
    is_inside: bool,
}

/// Another member. All are times on Lamport clocks; 0 is before everything.
#[derive(Clone, Copy, Debug, Default, Hash)]
struct Peer {
    /// The stamp of its request, until that is over.
    claim: Option<u64>,
    /// The stamp of its newest request that is over (G5).
    over: u64,
    /// When the newest of its messages was sent.
    known: u64,
    /// When the newest message to it was sent.
    told: u64,
}

impl Lamport {
    /// Everybody has the same queue: the holder, with a stamp before all others, and the waiters,
    /// who ask anew with their old stamps to hear from everybody in this epoch.
    pub(crate) fn new(from: &Rebuild<'_>, out: &mut Effects<Message>) -> Self {
        let mut peers: BTreeMap<_, _> = from.others().map(|node| (node, Peer::default())).collect();
        for node in from.holders_elsewhere() {
            peers.entry(node).or_default().claim = Some(0);
        }
        for request in from.waiters.iter().filter(|its| its.id.node != from.me) {
            peers.entry(request.id.node).or_default().claim = Some(request.stamp.clock);
        }
        let mut engine = Self {
            me: from.me,
            others: from.others().collect(),
            peers,
            claim: None,
            clock: 0,
        };
        if let Some(id) = from.my_holder() {
            let (clock, node) = (0, from.me);
            engine.claim = Some(Claim {
                id,
                stamp: Stamp { clock, node },
                is_inside: true,
            });
        } else if let Some(request) = from.my_waiter() {
            engine.acquire(request, out);
        }
        engine
    }

    fn send(&mut self, to: NodeId, message: Message, out: &mut Effects<Message>) {
        if let Some(peer) = self.peers.get_mut(&to) {
            peer.told = message.clock();
            out.send(to, message);
        }
    }

    fn send_to_all(&mut self, message: Message, out: &mut Effects<Message>) {
        for peer in self.peers.values_mut() {
            peer.told = message.clock();
        }
        out.send_to_all(&self.others, message);
    }

    /// Is this member's own claim ahead of `stamp`?
    fn is_ahead_of(&self, stamp: Stamp) -> bool {
        self.claim.is_some_and(|claim| claim.stamp < stamp)
    }

    fn on_request(&mut self, stamp: Stamp, out: &mut Effects<Message>) {
        let Some(peer) = self.peers.get_mut(&stamp.node) else {
            return;
        };
        if stamp.clock > peer.over {
            peer.claim = Some(stamp.clock);
        }
        // The first optimisation: a later claim of this member was sent there, and tells as much.
        if self.claim.is_none_or(|claim| claim.stamp < stamp) {
            let ack = Message::Ack { clock: self.clock };
            self.send(stamp.node, ack, out);
        }
    }

    fn on_release(&mut self, from: NodeId, request: u64) {
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.over = peer.over.max(request);
            peer.claim.take_if(|claim| *claim == request);
        }
    }

    /// Enters, if this member's claim is first among all, those on their way included.
    fn enter_if_first(&mut self, out: &mut Effects<Message>) {
        let Some(claim) = &mut self.claim else { return };
        let stamped = |clock, node| Stamp { clock, node };
        let mut peers = self.peers.iter();
        if claim.is_inside || !peers.all(|(&node, peer)| stamped(peer.known, node) > claim.stamp) {
            return;
        }
        let mut claims = self
            .peers
            .iter()
            .filter_map(|(&node, peer)| Some(stamped(peer.claim?, node)));
        if claims.all(|other| claim.stamp < other) {
            claim.is_inside = true;
            out.grant(claim.id);
        } else {
            out.busy = Some(claim.id);
        }
    }

    /// This member's claim is over, also if it was never inside.
    fn give_up(&mut self, id: RequestId, out: &mut Effects<Message>) {
        if let Some(claim) = self.claim.take_if(|claim| claim.id == id) {
            let (request, clock) = (claim.stamp.clock, self.clock);
            self.send_to_all(Message::Release { request, clock }, out);
        }
    }
}

impl Engine<Message> for Lamport {
    fn acquire(&mut self, request: Request, out: &mut Effects<Message>) {
        debug_assert!(self.claim.is_none(), "one request at a time");
        let Request { id, stamp, .. } = request;
        self.claim = Some(Claim {
            id,
            stamp,
            is_inside: false,
        });
        let clock = stamp.clock;
        self.clock = self.clock.max(clock);
        self.send_to_all(Message::Request { clock }, out);
        self.enter_if_first(out);
    }

    fn release(&mut self, id: RequestId, _how: Release, out: &mut Effects<Message>) {
        self.give_up(id, out);
    }

    fn cancel(&mut self, id: RequestId, out: &mut Effects<Message>) {
        self.give_up(id, out);
    }

    fn receive(&mut self, from: NodeId, message: &Message, out: &mut Effects<Message>) {
        let clock = message.clock();
        self.clock = self.clock.max(clock).saturating_add(1);
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.known = peer.known.max(clock);
        }
        match *message {
            Message::Request { clock } => self.on_request(Stamp { clock, node: from }, out),
            Message::Ack { .. } => {}
            Message::Release { request, .. } => self.on_release(from, request),
        }
        self.enter_if_first(out);
    }

    /// It is not if this member's claim is ahead of whatever it may have asked for; nor if it has
    /// asked for nothing, and has not been told anything since that it would need to enter.
    fn may_be_inside(&self, node: NodeId) -> bool {
        let Some(peer) = self.peers.get(&node) else {
            return false;
        };
        let clock = peer.claim.unwrap_or(peer.known.saturating_add(1));
        let may_have_asked = peer.claim.is_some() || peer.told > peer.known;
        may_have_asked && !self.is_ahead_of(Stamp { clock, node })
    }

    fn asks(&self) -> &[NodeId] {
        &self.others
    }
}
