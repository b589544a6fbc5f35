//! Singhal 1989 (IEEE TC 38(5)): a token that is asked for where it is likely to be, or to come
//! from.
//!
//! Each member remembers of each other whether that wants the token, and asks those only: one of
//! them has it, or will. What they know of each other begins as a *staircase*: of the members by
//! id, from where the token comes into being on and around, each takes those before it to want the
//! token. So of two members at least one asks the other. Whoever hears a request while it waits
//! itself asks back. The token takes the latest along: who leaves and the token learn from each
//! other whatever is newer, by the numbers of the requests, and the next one that wants it, around
//! the ring of ids, gets it.
//!
//! Messages: `REQUEST(n)` to those who seem to want it; `TOKEN(hop, wants, numbers)` to one;
//! `BUSY(n)`, "I am inside", only for callers that want to know.
//!
//! Invariant: there is one token, and the holder of the lock has it. The install of a view makes
//! it, and nothing else does. A cancelled request leaves a *ghost* behind: the token comes all the
//! same, and goes on; a new request of that member takes the ghost's place.
//!
//! Progress: the token knows whom it has to go to, and goes round by ids. That alone is not enough:
//! a request can be forgotten. When one reaches its member late, after the token has served it,
//! neither of the two asks the other any more; later the token can rest with the one, while the
//! other asks where it is not. So who has waited for [`PATIENCE`] sends its request to all who have
//! not got it (*escalation*); then every exit knows of it. That the rules lose requests was found
//! by exploring them as they stand here; the paper was not at hand to compare them with.
//!
//! Cost: none where the token is, else a request to each of those who seem to want it, and the
//! token: about (N+1)/2 under light load, N under heavy load, N at most; response 2T+E;
//! synchronisation delay T. The token is as long as that of Suzuki and Kasami.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Bound::{Excluded, Unbounded};
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::token::Hops;
use crate::ids::{NodeId, RequestId};
use crate::lock::engine::{Effects, Engine, HopTimer, Rebuild};
use crate::lock::request::{Release, Request};

/// What the members say to each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// My request of this number is to be served. `tries`: tell me if you are inside.
    Request { number: u64, tries: bool },
    /// Here is the token. `wants`: who is to have it, of whom that is known; `numbers`: of those
    /// who have asked, the number of the last request that it knows of.
    Token {
        hop: u64,
        wants: BTreeSet<NodeId>,
        numbers: BTreeMap<NodeId, u64>,
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

/// How long a member waits before it asks everybody: longer than a request and the token are under
/// way in most networks. It decides on the number of messages, and on nothing else; and that is N
/// at most, as under heavy load.
const PATIENCE: Duration = Duration::from_millis(200);

#[derive(Clone, Debug, Hash)]
pub(crate) struct Singhal {
    me: NodeId,
    others: Vec<NodeId>,
    /// SV: the others that seem to want the token, by id.
    wants: Vec<NodeId>,
    /// SN: the highest number of a request of each member, this one's own included (G1).
    numbers: BTreeMap<NodeId, u64>,
    /// This member's request that waits.
    waiting: Option<Request>,
    /// This member's request that is inside.
    using: Option<RequestId>,
    /// Whether a request is out, also a ghost's: to whom it has not been sent.
    spared: Option<BTreeSet<NodeId>>,
    /// The token, while it is here.
    token: Option<Token>,
    hops: Hops,
}

#[derive(Clone, Debug, Default, Hash)]
struct Token {
    /// TSV: who is to have it.
    wants: BTreeSet<NodeId>,
    /// TSN: the highest number of a request of each member that it knows of.
    numbers: BTreeMap<NodeId, u64>,
}

impl Singhal {
    /// The only token of the epoch comes into being at its home, the lowest step of the staircase;
    /// each waiter asks for it.
    pub(crate) fn new(from: &Rebuild<'_>, out: &mut Effects<Message>) -> Self {
        let home = from.token_home();
        let climb = |node: NodeId| (node < home, node);
        let steps_below = from.others().filter(|&node| climb(node) < climb(from.me));
        let mut engine = Self {
            me: from.me,
            others: from.others().collect(),
            wants: steps_below.collect(),
            numbers: BTreeMap::new(),
            waiting: None,
            using: from.my_holder(),
            spared: None,
            token: (home == from.me).then(Token::default),
            hops: Hops::default(),
        };
        if let Some(request) = from.my_waiter() {
            engine.acquire(request, out);
        }
        engine
    }

    fn enter(&mut self, out: &mut Effects<Message>) -> bool {
        let Some(request) = self.waiting.take() else {
            return false;
        };
        self.using = Some(request.id);
        out.grant(request.id);
        true
    }

    /// This member's request that is out, to one more.
    fn ask(&self, node: NodeId, out: &mut Effects<Message>) {
        let request = Message::Request {
            number: self.numbers.get(&self.me).copied().unwrap_or_default(),
            tries: self.waiting.is_some_and(|request| request.tries),
        };
        out.send(node, request);
    }

    /// Whether `node` wants the token, as far as this member knows from now on.
    fn note(&mut self, node: NodeId, wants: bool) {
        match (self.wants.binary_search(&node), wants) {
            (Err(place), true) => self.wants.insert(place, node),
            (Ok(place), false) => {
                self.wants.remove(place);
            }
            _ => {}
        }
    }

    fn on_request(&mut self, from: NodeId, number: u64, tries: bool, out: &mut Effects<Message>) {
        let newest = self.numbers.entry(from).or_default();
        if number <= *newest {
            return;
        }
        *newest = number;
        self.note(from, true);
        if let Some(token) = &mut self.token {
            if self.using.is_none() {
                token.wants.insert(from);
                token.numbers.insert(from, number);
                self.send_token(from, out);
            } else if tries {
                let busy = Message::Busy { number };
                out.send(from, busy);
            }
        } else if let Some(spared) = &mut self.spared
            && spared.remove(&from)
        {
            self.ask(from, out);
        }
    }

    fn on_token(&mut self, token: Token, out: &mut Effects<Message>) {
        self.spared = None;
        self.token = Some(token);
        out.hop_timer = Some(HopTimer::Clear);
        if !self.enter(out) {
            self.finish(out);
        }
    }

    /// This member's turn is over, also if it did not want it any more: it and the token learn from
    /// each other, and the token goes to the next of them.
    fn finish(&mut self, out: &mut Effects<Message>) {
        let Some(mut token) = self.token.take() else {
            return;
        };
        token.wants.remove(&self.me);
        if let Some(&number) = self.numbers.get(&self.me) {
            token.numbers.insert(self.me, number);
        }
        for node in self.others.clone() {
            let here = self.numbers.get(&node).copied().unwrap_or_default();
            let there = token.numbers.get(&node).copied().unwrap_or_default();
            if here > there {
                token.numbers.insert(node, here);
                token.wants.insert(node);
            } else {
                self.numbers.insert(node, there);
                self.note(node, token.wants.contains(&node));
            }
        }
        let mut after = token.wants.range((Excluded(self.me), Unbounded));
        let next = after.next().or(token.wants.first()).copied();
        self.token = Some(token);
        if let Some(next) = next {
            self.send_token(next, out);
        }
    }

    fn send_token(&mut self, to: NodeId, out: &mut Effects<Message>) {
        if let Some(Token { wants, numbers }) = self.token.take() {
            let token = Message::Token {
                hop: self.hops.departs(),
                wants,
                numbers,
            };
            out.send(to, token);
        }
    }

    /// What a token says of members, and of nobody else.
    fn believed(&self, mut wants: BTreeSet<NodeId>, mut numbers: BTreeMap<NodeId, u64>) -> Token {
        let is_member = |node: &NodeId| *node == self.me || self.others.binary_search(node).is_ok();
        wants.retain(is_member);
        numbers.retain(|node, _| is_member(node));
        Token { wants, numbers }
    }
}

impl Engine<Message> for Singhal {
    fn acquire(&mut self, request: Request, out: &mut Effects<Message>) {
        debug_assert!(
            self.waiting.is_none() && self.using.is_none(),
            "one request at a time"
        );
        self.waiting = Some(request);
        if self.token.is_some() {
            self.enter(out);
            return;
        }
        if self.spared.is_none() {
            *self.numbers.entry(self.me).or_default() += 1;
            let mut spared: BTreeSet<NodeId> = self.others.iter().copied().collect();
            for node in &self.wants {
                spared.remove(node);
                self.ask(*node, out);
            }
            self.spared = Some(spared);
        }
        if self
            .spared
            .as_ref()
            .is_some_and(|spared| !spared.is_empty())
        {
            out.hop_timer = Some(HopTimer::Set(PATIENCE));
        }
    }

    fn release(&mut self, id: RequestId, _how: Release, out: &mut Effects<Message>) {
        if self.using == Some(id) {
            self.using = None;
            self.finish(out);
        }
    }

    fn cancel(&mut self, id: RequestId, out: &mut Effects<Message>) {
        if self.waiting.is_some_and(|request| request.id == id) {
            self.waiting = None;
            out.hop_timer = Some(HopTimer::Clear);
        }
    }

    /// Nobody is inside without the token.
    fn may_be_inside(&self, _node: NodeId) -> bool {
        self.token.is_none()
    }

    fn asks(&self) -> &[NodeId] {
        if self.token.is_some() || self.spared.is_some() {
            &[]
        } else {
            &self.wants
        }
    }

    fn receive(&mut self, from: NodeId, message: &Message, out: &mut Effects<Message>) {
        match message {
            Message::Request { number, tries } => self.on_request(from, *number, *tries, out),
            Message::Token {
                hop,
                wants,
                numbers,
            } => {
                if self.hops.arrives(*hop) {
                    let token = self.believed(wants.clone(), numbers.clone());
                    self.on_token(token, out);
                }
            }
            Message::Busy { number } => {
                if self.numbers.get(&self.me) == Some(number) {
                    out.busy = self.waiting.map(|request| request.id);
                }
            }
        }
    }

    /// Escalation: whoever has the token, or will, is among those who have not got the request.
    fn timeout(&mut self, out: &mut Effects<Message>) {
        if self.waiting.is_some()
            && let Some(spared) = self.spared.as_mut().map(core::mem::take)
        {
            for node in spared {
                self.ask(node, out);
            }
        }
    }

    fn leave(&mut self, out: &mut Effects<Message>) {
        let next = self.others.iter().find(|node| **node > self.me);
        if let Some(&next) = next.or(self.others.first())
            && self.using.is_none()
            && self.token.is_some()
        {
            self.note(next, true);
            self.send_token(next, out);
        }
    }
}
