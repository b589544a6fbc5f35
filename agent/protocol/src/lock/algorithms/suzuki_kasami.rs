//! Suzuki and Kasami 1985 (TOCS 3(4)): a token that goes straight to the next holder, asked for by
//! telling everybody.
//!
//! Each member numbers its requests, and remembers of each other the highest number heard (RN). The
//! token knows which request of each member was served last (LN), and which members are next (Q).
//! The member that leaves puts each whose RN is above its LN into Q, unless it is there, and the
//! token goes to the first. While Q is empty it stays.
//!
//! Messages: `REQUEST(n)` to everybody; `TOKEN(hop, LN, Q)` to one; `BUSY(n)`, "I am inside", only
//! for callers that want to know.
//!
//! Invariant: there is one token, and the holder of the lock has it. The install of a view makes
//! it, and nothing else does. A cancelled request leaves a *ghost* behind: the token comes all the
//! same, is noted to have been there, and goes on; a new request of that member takes the ghost's
//! place, and says nothing. The published test, RN = LN+1, wedges when a number is left out: it is
//! RN > LN here.
//!
//! Cost: N messages, none where the token is: N-1 in the mean under light load, N under heavy load;
//! response 2T+E; synchronisation delay T. The token is as long as there are members that have
//! asked in its epoch: with 1,152 of them, all waiting, some 15 kB, or twelve frames of a link.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::ops::Bound::{Excluded, Unbounded};

use serde::{Deserialize, Serialize};

use super::token::Hops;
use crate::ids::{NodeId, RequestId};
use crate::lock::engine::{Effects, Engine, Rebuild};
use crate::lock::request::{Release, Request};

/// What the members say to each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// My request of this number is to be served. `tries`: tell me if you are inside.
    Request { number: u64, tries: bool },
    /// Here is the token. `served`: LN of those who have been served; `queue`: Q, who comes after
    /// you.
    Token {
        hop: u64,
        served: BTreeMap<NodeId, u64>,
        queue: VecDeque<NodeId>,
    },
    /// I am inside, and got your request of this number.
    Busy { number: u64 },
}

impl Message {
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Request { .. } => "REQUEST",
            Self::Token { .. } => "TOKEN",
            Self::Busy { .. } => "BUSY",
        }
    }

    pub(crate) const fn is_request(&self) -> bool {
        matches!(self, Self::Request { .. } | Self::Token { .. })
    }
}

#[derive(Clone, Debug, Hash)]
pub(crate) struct SuzukiKasami {
    me: NodeId,
    others: Vec<NodeId>,
    /// RN: the highest number of a request of each member, this one's own included (G1).
    requested: BTreeMap<NodeId, u64>,
    /// This member's request that waits.
    waiting: Option<RequestId>,
    /// This member's request that is inside.
    using: Option<RequestId>,
    /// Whether the token was asked for, and has not come since: a ghost's, if nobody waits.
    asked: bool,
    /// The token, while it is here.
    token: Option<Token>,
    hops: Hops,
}

#[derive(Clone, Debug, Default, Hash)]
struct Token {
    served: BTreeMap<NodeId, u64>,
    queue: VecDeque<NodeId>,
}

impl Token {
    /// Whether this request of `node` has not been served.
    fn owes(&self, node: NodeId, number: u64) -> bool {
        self.served.get(&node).is_none_or(|served| number > *served)
    }
}

impl SuzukiKasami {
    /// The only token of the epoch comes into being at its home, with all waiters in its queue:
    /// their requests count as their first, and nobody has to say anything.
    pub(crate) fn new(from: &Rebuild<'_>, out: &mut Effects<Message>) -> Self {
        let home = from.token_home();
        let waiters = from.waiters.iter().map(|request| request.id.node);
        let waiting = from.my_waiter().map(|request| request.id);
        let mut engine = Self {
            me: from.me,
            others: from.others().collect(),
            requested: waiters.clone().map(|node| (node, 1)).collect(),
            waiting,
            using: from.my_holder(),
            asked: waiting.is_some(),
            token: None,
            hops: Hops::default(),
        };
        if home == from.me {
            engine.asked = false;
            engine.token = Some(Token {
                served: BTreeMap::new(),
                queue: waiters.filter(|&node| node != home).collect(),
            });
            engine.enter(out);
        }
        engine
    }

    /// Enters, if somebody here waits. Only with the token.
    fn enter(&mut self, out: &mut Effects<Message>) -> bool {
        let Some(id) = self.waiting.take() else {
            return false;
        };
        self.using = Some(id);
        out.grant(id);
        true
    }

    fn on_request(&mut self, from: NodeId, number: u64, tries: bool, out: &mut Effects<Message>) {
        let newest = self.requested.entry(from).or_default();
        if number <= *newest {
            return;
        }
        *newest = number;
        if self.using.is_none() {
            self.pass_to_who_is_due(out);
        } else if tries
            && self
                .token
                .as_ref()
                .is_some_and(|token| token.owes(from, number))
        {
            let busy = Message::Busy { number };
            out.send(from, busy);
        }
    }

    fn on_token(&mut self, token: Token, out: &mut Effects<Message>) {
        self.asked = false;
        self.token = Some(token);
        if !self.enter(out) {
            self.finish(out);
        }
    }

    /// This member's turn is over, also if it did not want it any more.
    fn finish(&mut self, out: &mut Effects<Message>) {
        if let Some(token) = &mut self.token
            && let Some(&number) = self.requested.get(&self.me)
        {
            token.served.insert(self.me, number);
        }
        self.pass_to_who_is_due(out);
    }

    /// Appends who has asked since to the queue, in the order of ids from this member on, and sends
    /// the token to its first.
    fn pass_to_who_is_due(&mut self, out: &mut Effects<Message>) {
        let Some(token) = &mut self.token else { return };
        let queued: BTreeSet<NodeId> = token.queue.iter().copied().collect();
        let after = self.requested.range((Excluded(self.me), Unbounded));
        let before = self.requested.range(..self.me);
        for (node, number) in after.chain(before) {
            if token.owes(*node, *number) && !queued.contains(node) {
                token.queue.push_back(*node);
            }
        }
        if let Some(next) = token.queue.pop_front() {
            self.send_token(next, out);
        }
    }

    fn send_token(&mut self, to: NodeId, out: &mut Effects<Message>) {
        if let Some(Token { served, queue }) = self.token.take() {
            let token = Message::Token {
                hop: self.hops.departs(),
                served,
                queue,
            };
            out.send(to, token);
        }
    }

    /// What a token says of members, each once, and of nobody else.
    fn believed(&self, mut served: BTreeMap<NodeId, u64>, queue: &VecDeque<NodeId>) -> Token {
        let mut seen = BTreeSet::new();
        let is_other = |node: &NodeId| self.others.binary_search(node).is_ok();
        served.retain(|node, _| *node == self.me || is_other(node));
        let queue = queue.iter().copied();
        let queue = queue.filter(|node| is_other(node) && seen.insert(*node));
        Token {
            queue: queue.collect(),
            served,
        }
    }
}

impl Engine<Message> for SuzukiKasami {
    fn acquire(&mut self, request: Request, out: &mut Effects<Message>) {
        debug_assert!(
            self.waiting.is_none() && self.using.is_none(),
            "one request at a time"
        );
        self.waiting = Some(request.id);
        if self.token.is_some() {
            self.enter(out);
        } else if !self.asked {
            self.asked = true;
            let number = self.requested.entry(self.me).or_default();
            *number += 1;
            let request = Message::Request {
                number: *number,
                tries: request.tries,
            };
            out.send_to_all(&self.others, request);
        }
    }

    fn release(&mut self, id: RequestId, _how: Release, out: &mut Effects<Message>) {
        if self.using == Some(id) {
            self.using = None;
            self.finish(out);
        }
    }

    fn cancel(&mut self, id: RequestId, _out: &mut Effects<Message>) {
        if self.waiting == Some(id) {
            self.waiting = None;
        }
    }

    /// Nobody is inside without the token.
    fn may_be_inside(&self, _node: NodeId) -> bool {
        self.token.is_none()
    }

    fn asks(&self) -> &[NodeId] {
        if self.token.is_some() || self.asked {
            &[]
        } else {
            &self.others
        }
    }

    fn receive(&mut self, from: NodeId, message: &Message, out: &mut Effects<Message>) {
        match message {
            Message::Request { number, tries } => self.on_request(from, *number, *tries, out),
            Message::Token { hop, served, queue } => {
                if self.hops.arrives(*hop) {
                    let token = self.believed(served.clone(), queue);
                    self.on_token(token, out);
                }
            }
            Message::Busy { number } => {
                if self.requested.get(&self.me) == Some(number) {
                    out.busy = self.waiting;
                }
            }
        }
    }

    fn leave(&mut self, out: &mut Effects<Message>) {
        let next = self.others.iter().find(|node| **node > self.me);
        if let Some(&next) = next.or(self.others.first())
            && self.using.is_none()
        {
            self.send_token(next, out);
        }
    }
}
