//! Carvalho and Roucairol 1983 (CACM 26(2)): Ricart and Agrawala's, where a permission once given
//! stays good until it is asked back, with the four tie-breaks of Jones's lecture.
//!
//! Of each two members there is one permission, which one of them has, or which is on its way to
//! the other. To enter, get those that are not here: the last member to enter has all of them, and
//! says nothing. A member that is asked keeps the permission while it is inside, or wants to enter
//! and is ahead; else it gives it, and asks for it again if it wants to enter itself. Published
//! code often forgets to ask again, and waits for ever.
//!
//! Messages: `ASK(n, rank)`; `PERM(hop)`; `BUSY(n)`, "I am ahead", only for callers that want to
//! know.
//!
//! Invariant: a permission is in one place, and the holder of the lock has those of all its pairs.
//! That does not rest on the order of the requests, so that any [`Priority`] is safe that is frozen
//! when the request is made and unique by the id. Each is fair in its own way: with Lamport stamps
//! and least recent use everybody is let in once all others have been, at most; with least frequent
//! use, once all have been as often; with static ranks perhaps never. What was used how often or
//! how recently is counted in one epoch: the next view begins anew, for all alike.
//!
//! Cost: 2 messages for each permission that is not here, none for the last holder: N-1 in the mean
//! under light load, 2(N-1) under heavy load; response at most 2T+E; synchronisation delay T. All
//! others are needed whose permissions are not here.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::token::Hops;
use crate::ids::{NodeId, RequestId};
use crate::lock::Priority;
use crate::lock::engine::{Effects, Engine, Rebuild};
use crate::lock::request::{Release, Request};

/// What the members say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// May I have the permission? My request of this number has this rank: the lower, the sooner.
    /// `tries`: tell me if you are ahead.
    Ask { number: u64, rank: u64, tries: bool },
    /// Here it is. `turn`: how many entries I know of in this epoch.
    Perm { hop: u64, turn: u64 },
    /// I am ahead of your request of this number.
    Busy { number: u64 },
}

impl Message {
    pub(crate) const fn kind(self) -> &'static str {
        match self {
            Self::Ask { .. } => "ASK",
            Self::Perm { .. } => "PERM",
            Self::Busy { .. } => "BUSY",
        }
    }

    pub(crate) const fn is_request(self) -> bool {
        matches!(self, Self::Ask { .. })
    }
}

#[derive(Clone, Debug, Hash)]
pub(crate) struct CarvalhoRoucairol {
    me: NodeId,
    priority: Priority,
    phase: Phase,
    /// With whom this member does not have the permission, by id: it is there, or on its way.
    missing: Vec<NodeId>,
    pairs: BTreeMap<NodeId, Pair>,
    /// How often this member has entered in this epoch.
    entries: u64,
    /// How many entries of all members it knows of: each is told of all before by the permissions.
    turn: u64,
    /// Which of them was its own last; 0 if there was none.
    last_turn: u64,
}

#[derive(Clone, Copy, Debug, Hash)]
enum Phase {
    Idle,
    /// The rank is frozen when the request is made.
    Waiting {
        request: Request,
        rank: u64,
    },
    Held {
        id: RequestId,
    },
}

/// What concerns one other member.
#[derive(Clone, Copy, Debug, Default, Hash)]
struct Pair {
    /// How often the permission has moved (G3).
    hops: Hops,
    /// What it asked for, and was not given.
    wish: Option<Wish>,
    /// Its newest request (G1).
    newest: u64,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Wish {
    number: u64,
    rank: u64,
    tries: bool,
}

impl CarvalhoRoucairol {
    /// The holder has the permissions of all its pairs, and of other pairs the lower id. Waiters
    /// ask.
    pub(crate) fn new(priority: Priority, from: &Rebuild<'_>, out: &mut Effects<Message>) -> Self {
        let inside = from.holders_elsewhere();
        let mine = from.my_holder();
        // The holder's entry counts as this epoch's first.
        let entries = u64::from(mine.is_some());
        let is_there = |node: &NodeId| mine.is_none() && (inside.contains(node) || *node < from.me);
        let mut engine = Self {
            me: from.me,
            priority,
            phase: mine.map_or(Phase::Idle, |id| Phase::Held { id }),
            missing: from.others().filter(is_there).collect(),
            pairs: from.others().map(|node| (node, Pair::default())).collect(),
            entries,
            turn: entries,
            last_turn: entries,
        };
        if let Some(request) = from.my_waiter() {
            engine.acquire(request, out);
        }
        engine
    }

    fn rank(&self, request: &Request) -> u64 {
        match self.priority {
            Priority::Lamport => request.stamp.clock,
            Priority::Static => 0,
            Priority::LeastFrequent => self.entries,
            Priority::LeastRecent => self.last_turn,
        }
    }

    fn ask(&self, node: NodeId, out: &mut Effects<Message>) {
        if let Phase::Waiting { request, rank } = self.phase {
            let ask = Message::Ask {
                number: request.id.seq,
                rank,
                tries: request.tries,
            };
            out.send(node, ask);
        }
    }

    /// Is this member's own claim ahead of a wish of `node`?
    fn is_ahead_of(&self, node: NodeId, wish: Wish) -> bool {
        match self.phase {
            Phase::Idle => false,
            Phase::Waiting { rank, .. } => (rank, self.me) < (wish.rank, node),
            Phase::Held { .. } => true,
        }
    }

    /// Gives `node` the permission that it wished for, if it is here and this member not ahead.
    fn decide(&mut self, node: NodeId, out: &mut Effects<Message>) {
        let Err(place) = self.missing.binary_search(&node) else {
            // It is on its way here, and the wish waits for it.
            return;
        };
        let Some(wish) = self.pairs.get(&node).and_then(|pair| pair.wish) else {
            return;
        };
        if self.is_ahead_of(node, wish) {
            if wish.tries {
                let number = wish.number;
                out.send(node, Message::Busy { number });
            }
            return;
        }
        let pair = self.pairs.entry(node).or_default();
        pair.wish = None;
        let (hop, turn) = (pair.hops.departs(), self.turn);
        self.missing.insert(place, node);
        out.send(node, Message::Perm { hop, turn });
        self.ask(node, out);
    }

    fn on_ask(&mut self, from: NodeId, wish: Wish, out: &mut Effects<Message>) {
        let Some(pair) = self.pairs.get_mut(&from) else {
            return;
        };
        if wish.number < pair.newest {
            return;
        }
        pair.newest = wish.number;
        pair.wish = Some(wish);
        self.decide(from, out);
    }

    /// A permission is never matched with a request: one that nobody here waits for any more would
    /// be lost for ever.
    fn on_permission(&mut self, from: NodeId, hop: u64, turn: u64, out: &mut Effects<Message>) {
        let Some(pair) = self.pairs.get_mut(&from) else {
            return;
        };
        if !pair.hops.arrives(hop) {
            return;
        }
        self.turn = self.turn.max(turn);
        self.missing.retain(|node| *node != from);
        self.decide(from, out);
        self.enter_if_permitted(out);
    }

    fn enter_if_permitted(&mut self, out: &mut Effects<Message>) {
        if let Phase::Waiting { request, .. } = self.phase
            && self.missing.is_empty()
        {
            let id = request.id;
            self.phase = Phase::Held { id };
            self.entries = self.entries.saturating_add(1);
            self.turn = self.turn.saturating_add(1);
            self.last_turn = self.turn;
            out.grant(id);
        }
    }

    fn become_idle(&mut self, out: &mut Effects<Message>) {
        self.phase = Phase::Idle;
        let others: Vec<_> = self.pairs.keys().copied().collect();
        for node in others {
            self.decide(node, out);
        }
    }
}

impl Engine<Message> for CarvalhoRoucairol {
    fn acquire(&mut self, request: Request, out: &mut Effects<Message>) {
        debug_assert!(matches!(self.phase, Phase::Idle), "one request at a time");
        let rank = self.rank(&request);
        self.phase = Phase::Waiting { request, rank };
        for &node in &self.missing {
            self.ask(node, out);
        }
        self.enter_if_permitted(out);
    }

    fn release(&mut self, id: RequestId, _how: Release, out: &mut Effects<Message>) {
        if matches!(self.phase, Phase::Held { id: held } if held == id) {
            self.become_idle(out);
        }
    }

    fn cancel(&mut self, id: RequestId, out: &mut Effects<Message>) {
        if matches!(self.phase, Phase::Waiting { request, .. } if request.id == id) {
            self.become_idle(out);
        }
    }

    /// Nobody is inside without the permission of the two.
    fn may_be_inside(&self, node: NodeId) -> bool {
        self.missing.contains(&node)
    }

    fn asks(&self) -> &[NodeId] {
        &self.missing
    }

    fn receive(&mut self, from: NodeId, message: &Message, out: &mut Effects<Message>) {
        match *message {
            Message::Ask {
                number,
                rank,
                tries,
            } => {
                let wish = Wish {
                    number,
                    rank,
                    tries,
                };
                self.on_ask(from, wish, out);
            }
            Message::Perm { hop, turn } => self.on_permission(from, hop, turn, out),
            Message::Busy { number } => {
                if let Phase::Waiting { request, .. } = self.phase
                    && request.id.seq == number
                {
                    out.busy = Some(request.id);
                }
            }
        }
    }
}
