//! Ricart and Agrawala 1981 (CACM 24(1)), with the negative acknowledgement of Jones's lecture.
//!
//! To enter, ask everybody, with a Lamport stamp; who is not ahead of you replies, who is ahead
//! keeps the reply until its own exit. An idle member's word costs nothing and is not exclusive:
//! what excludes is that of two who overlap, the later one lacks the earlier one's reply.
//!
//! Messages: `REQUEST(r, s)`; `REPLY(r)`; `DEFERRED(r)`, "I got it, and cannot reply yet".
//!
//! Invariant: of two requests that overlap, the one with the later stamp lacks the other's REPLY.
//! It rests on stamps: a request made after a reply to another is stamped later than that other.
//! No other priority does that (least frequent or least recent use, a static rank), so none is
//! offered here; with permissions that are conserved any is safe
//! (`carvalho_roucairol.rs`).
//!
//! Cost: 2(N-1) messages, plus one DEFERRED for each deferral (3(N-1) under heavy load);
//! response 2T+E; synchronisation delay T. N-1 replies are needed: one silent member stops all.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::clock::Stamp;
use crate::ids::{NodeId, RequestId};
use crate::lock::engine::{Effects, Engine, Rebuild};
use crate::lock::request::{Release, Request};

/// What the members say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// May I enter?
    Request { id: RequestId, stamp: Stamp },
    /// You may, as far as I am concerned.
    Reply { id: RequestId },
    /// I got it, and cannot reply yet.
    Deferred { id: RequestId },
}

impl Message {
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Request { .. } => "REQUEST",
            Self::Reply { .. } => "REPLY",
            Self::Deferred { .. } => "DEFERRED",
        }
    }

    pub(crate) const fn is_request(&self) -> bool {
        matches!(self, Self::Request { .. })
    }
}

#[derive(Clone, Debug, Hash)]
pub(crate) struct RicartAgrawala {
    others: Vec<NodeId>,
    phase: Phase,
    /// Whose replies this member keeps until its exit, and to which request.
    deferred: BTreeMap<NodeId, RequestId>,
    /// The newest request seen from each member (G1).
    newest: BTreeMap<NodeId, u64>,
    /// Who may be inside: it has this member's reply, and has not been heard outside since.
    admitted: BTreeSet<NodeId>,
}

#[derive(Clone, Debug, Hash)]
enum Phase {
    Idle,
    /// `missing`: who has not replied. A set, so that a reply that comes twice counts once.
    Waiting {
        request: Request,
        missing: BTreeSet<NodeId>,
    },
    Held {
        id: RequestId,
    },
}

impl RicartAgrawala {
    /// The holder is inside; every waiter asks anew, with its old stamp.
    pub(crate) fn new(from: &Rebuild<'_>, out: &mut Effects<Message>) -> Self {
        let mut engine = Self {
            others: from.others().collect(),
            phase: Phase::Idle,
            deferred: BTreeMap::new(),
            newest: BTreeMap::new(),
            admitted: from.holders_elsewhere(),
        };
        if let Some(id) = from.my_holder() {
            engine.phase = Phase::Held { id };
        } else if let Some(request) = from.my_waiter() {
            engine.acquire(request, out);
        }
        engine
    }

    /// Is this member's own claim ahead of `stamp`?
    fn is_ahead_of(&self, stamp: Stamp) -> bool {
        match &self.phase {
            Phase::Idle => false,
            Phase::Waiting { request, .. } => request.stamp < stamp,
            Phase::Held { .. } => true,
        }
    }

    fn on_request(
        &mut self,
        from: NodeId,
        id: RequestId,
        stamp: Stamp,
        out: &mut Effects<Message>,
    ) {
        let newest = self.newest.entry(from).or_insert(id.seq);
        if id.seq < *newest {
            return;
        }
        *newest = id.seq;
        // Who asks is not inside.
        self.admitted.remove(&from);
        if self.is_ahead_of(stamp) {
            // A later request of the same member replaces the earlier one, which was cancelled.
            self.deferred.insert(from, id);
            out.send(from, Message::Deferred { id });
        } else {
            self.deferred.remove(&from);
            self.admitted.insert(from);
            out.send(from, Message::Reply { id });
        }
    }

    fn on_reply(&mut self, from: NodeId, id: RequestId, out: &mut Effects<Message>) {
        let Phase::Waiting { request, missing } = &mut self.phase else {
            return;
        };
        if request.id == id {
            missing.remove(&from);
            // It is outside, and stays there until it has a reply to its next request.
            self.admitted.remove(&from);
            self.enter_if_agreed(out);
        }
    }

    fn enter_if_agreed(&mut self, out: &mut Effects<Message>) {
        if let Phase::Waiting { request, missing } = &self.phase
            && missing.is_empty()
        {
            let id = request.id;
            self.phase = Phase::Held { id };
            out.grant(id);
        }
    }

    fn become_idle(&mut self, out: &mut Effects<Message>) {
        self.phase = Phase::Idle;
        for (node, id) in core::mem::take(&mut self.deferred) {
            self.admitted.insert(node);
            out.send(node, Message::Reply { id });
        }
    }
}

impl Engine<Message> for RicartAgrawala {
    fn acquire(&mut self, request: Request, out: &mut Effects<Message>) {
        debug_assert!(matches!(self.phase, Phase::Idle), "one request at a time");
        // The claim stands before anybody hears of it: a request that crosses ours meets it.
        self.phase = Phase::Waiting {
            request,
            missing: self.others.iter().copied().collect(),
        };
        let Request { id, stamp, .. } = request;
        out.send_to_all(&self.others, Message::Request { id, stamp });
        self.enter_if_agreed(out);
    }

    fn release(&mut self, id: RequestId, _how: Release, out: &mut Effects<Message>) {
        if matches!(self.phase, Phase::Held { id: held } if held == id) {
            self.become_idle(out);
        }
    }

    fn cancel(&mut self, id: RequestId, out: &mut Effects<Message>) {
        if matches!(&self.phase, Phase::Waiting { request, .. } if request.id == id) {
            self.become_idle(out);
        }
    }

    fn may_be_inside(&self, node: NodeId) -> bool {
        self.admitted.contains(&node)
    }

    fn asks(&self) -> &[NodeId] {
        &self.others
    }

    fn receive(&mut self, from: NodeId, message: &Message, out: &mut Effects<Message>) {
        match *message {
            Message::Request { id, stamp } => {
                self.on_request(from, id, stamp, out);
            }
            Message::Reply { id } => self.on_reply(from, id, out),
            Message::Deferred { id } => {
                if let Phase::Waiting { request, missing } = &self.phase
                    && request.id == id
                    && missing.contains(&from)
                {
                    out.busy = Some(id);
                }
            }
        }
    }
}
