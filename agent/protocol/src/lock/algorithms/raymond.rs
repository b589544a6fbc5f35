//! Raymond 1989 (ACM TOCS 7(1)): a token in a tree, asked for along the branches.
//!
//! The members form a tree, and speak to their neighbours in it only. Each knows by which neighbour
//! the token is (`holder`), and has a queue of those neighbours that want it, itself included. A
//! member with a request in its queue asks `holder` once; one that gets the token serves the first
//! of its queue, and asks for it back if there are others.
//!
//! The tree is a heap, rooted where the token comes into being: of the members by id, from there on
//! and around, the one at place p has those at 2p+1 and 2p+2 below it. Every view lays it anew.
//!
//! Messages: `REQUEST(n)`, the n-th on this edge, and `TOKEN(hop)`, both between neighbours.
//!
//! Invariant: there is one token, and the holder of the lock has it. The install of a view makes
//! it, and nothing else does. The `holder`s lead to it: while it is under way its two ends may name
//! each other. A cancelled request leaves a *ghost* in the queue of its member: the token comes all
//! the same and goes on; a new request of that member takes the ghost's place.
//!
//! Progress: from a member that waits to the token each has the one before in its queue, and has
//! asked. Nobody gets before it in a queue, and the token serves each queue in order. Between two
//! requests that come by different ways there is no order.
//!
//! As the lecture has it, four of the steps are wrong or left out: one's own request goes into the
//! queue also if others are there; who has asked does not ask again; the token is not sent away
//! while it is used, or before those who came first; and the first of the queue may be the member
//! itself.
//!
//! Cost, d hops from the token in the tree: 2d messages, response 2dT+E, for any two members 6.88
//! in the mean in a group of 16, and 9.59 in one of 31. Under heavy load the token goes round the
//! tree, twice over each edge in a round: 4(N-1)/N messages, synchronisation delay 2(N-1)T/N.

use alloc::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::token::Hops;
use crate::ids::{NodeId, RequestId};
use crate::lock::engine::{Effects, Engine, Rebuild};
use crate::lock::request::{Release, Request};

/// What neighbours say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// I, or somebody behind me, want the token. `number` rises with each such message on an edge.
    Request { number: u64 },
    /// Here it is.
    Token { hop: u64 },
}

impl Message {
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Request { .. } => "REQUEST",
            Self::Token { .. } => "TOKEN",
        }
    }
}

#[derive(Clone, Debug, Hash)]
pub(crate) struct Raymond {
    me: NodeId,
    /// The neighbour by which the token is, or this member.
    holder: NodeId,
    /// The neighbours in the tree, with the highest number of a REQUEST received from each (G1).
    neighbours: BTreeMap<NodeId, u64>,
    /// Who wants the token of this member, each once: neighbours, and itself.
    queue: VecDeque<NodeId>,
    /// Whether the token was asked for, and has not come since.
    asked: bool,
    /// The number of the last REQUEST sent.
    number: u64,
    /// This member's request that waits.
    waiting: Option<RequestId>,
    /// This member's request that is inside.
    using: Option<RequestId>,
    hops: Hops,
}

impl Raymond {
    /// The only token of the epoch comes into being at its home, the root; each waiter asks for it.
    pub(crate) fn new(from: &Rebuild<'_>, out: &mut Effects<Message>) -> Self {
        let (parent, children) = place(from);
        let neighbours = parent.into_iter().chain(children);
        let mut engine = Self {
            me: from.me,
            holder: parent.unwrap_or(from.me),
            neighbours: neighbours.map(|node| (node, 0)).collect(),
            queue: VecDeque::new(),
            asked: false,
            number: 0,
            waiting: None,
            using: from.my_holder(),
            hops: Hops::default(),
        };
        if let Some(request) = from.my_waiter() {
            engine.acquire(request, out);
        }
        engine
    }

    fn has_token(&self) -> bool {
        self.holder == self.me
    }

    fn enqueue(&mut self, node: NodeId) {
        if !self.queue.contains(&node) {
            self.queue.push_back(node);
        }
    }

    /// What follows from any event: the first of the queue gets the token (Raymond's
    /// ASSIGN_PRIVILEGE), and it is asked for if there are others (MAKE_REQUEST).
    fn proceed(&mut self, out: &mut Effects<Message>) {
        while self.has_token() && self.using.is_none() {
            let Some(first) = self.queue.pop_front() else {
                return;
            };
            if first != self.me {
                self.send_token(first, out);
            } else if let Some(id) = self.waiting.take() {
                self.using = Some(id);
                out.grant(id);
            }
        }
        if !self.has_token() && !self.asked && !self.queue.is_empty() {
            self.asked = true;
            self.number += 1;
            let request = Message::Request {
                number: self.number,
            };
            out.send(self.holder, request);
        }
    }

    fn send_token(&mut self, to: NodeId, out: &mut Effects<Message>) {
        self.holder = to;
        let token = Message::Token {
            hop: self.hops.departs(),
        };
        out.send(to, token);
    }

    fn on_request(&mut self, from: NodeId, number: u64, out: &mut Effects<Message>) {
        let Some(newest) = self.neighbours.get_mut(&from) else {
            return;
        };
        if number <= *newest {
            return;
        }
        *newest = number;
        self.enqueue(from);
        self.proceed(out);
    }

    fn on_token(&mut self, hop: u64, out: &mut Effects<Message>) {
        if !self.hops.arrives(hop) {
            return;
        }
        self.holder = self.me;
        self.asked = false;
        self.proceed(out);
    }
}

/// Who is above this member in the tree, and who is below.
fn place(from: &Rebuild<'_>) -> (Option<NodeId>, impl Iterator<Item = NodeId>) {
    let members = from.members;
    let index = |node: NodeId| members.iter().position(|member| *member == node);
    let root = index(from.token_home()).expect("a token's home is a member");
    let mine = index(from.me).expect("a view that is installed here has this member");
    let at = move |place: usize| members[(root + place) % members.len()];
    let mine = (mine + members.len() - root) % members.len();
    let parent = mine.checked_sub(1).map(|before| at(before / 2));
    let children = [2 * mine + 1, 2 * mine + 2].into_iter();
    let children = children.filter(|&place| place < members.len()).map(at);
    (parent, children)
}

impl Engine<Message> for Raymond {
    fn acquire(&mut self, request: Request, out: &mut Effects<Message>) {
        debug_assert!(
            self.waiting.is_none() && self.using.is_none(),
            "one request at a time"
        );
        self.waiting = Some(request.id);
        self.enqueue(self.me);
        self.proceed(out);
    }

    fn release(&mut self, id: RequestId, _how: Release, out: &mut Effects<Message>) {
        if self.using == Some(id) {
            self.using = None;
            self.proceed(out);
        }
    }

    fn cancel(&mut self, id: RequestId, _out: &mut Effects<Message>) {
        if self.waiting == Some(id) {
            self.waiting = None;
        }
    }

    /// Nobody is inside without the token.
    fn may_be_inside(&self, _node: NodeId) -> bool {
        !self.has_token()
    }

    fn asks(&self) -> &[NodeId] {
        if self.has_token() || self.asked {
            &[]
        } else {
            core::slice::from_ref(&self.holder)
        }
    }

    fn receive(&mut self, from: NodeId, message: &Message, out: &mut Effects<Message>) {
        match *message {
            Message::Request { number } => self.on_request(from, number, out),
            Message::Token { hop } if from == self.holder => self.on_token(hop, out),
            Message::Token { .. } => {}
        }
    }

    fn leave(&mut self, out: &mut Effects<Message>) {
        if self.has_token()
            && self.using.is_none()
            && let Some((&neighbour, _)) = self.neighbours.first_key_value()
        {
            self.send_token(neighbour, out);
        }
    }
}
