//! The token ring with requests (Martin 1985, Sci. Comput. Program. 5): the token stays where it
//! was last used, and moves when it is asked for.
//!
//! The members, by id, form a ring. Requests go one way round (to the predecessor), the token the
//! other way (to the successor), so every request meets it.
//!
//! Messages: `REQUEST(n)` to the predecessor; `TOKEN(hop)` to the successor.
//!
//! Invariant: exactly one of "one member is the holder" and "one TOKEN is under way"; who is
//! inside is the holder. The token crosses an edge only after a REQUEST crossed it the other way.
//! It comes into being in the install of a view, and only there. A token that nobody wants any
//! more is *kept*: passed on, one cancelled request would make it go round for ever.
//!
//! Cost: 2d messages for a member d hops after the holder: N-1 in the mean, 2(N-1) at worst, and 2
//! under heavy load; response 2dT+E; synchronisation delay T.

use serde::{Deserialize, Serialize};

use super::token::Hops;
use crate::ids::{NodeId, RequestId};
use crate::lock::engine::{Effects, Engine, Rebuild};
use crate::lock::request::{Release, Request};

/// What the members say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// Somebody after you wants the token. `number` rises with each such message on an edge.
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
pub(crate) struct TokenRingRequests {
    alone: bool,
    /// Where the token goes.
    successor: NodeId,
    /// Where requests go.
    predecessor: NodeId,
    /// Whether the token is here.
    holder: bool,
    /// This member's request that is inside.
    using: Option<RequestId>,
    /// This member's request that waits.
    hungry: Option<RequestId>,
    /// Whether the token was asked for, and has not come since.
    asked: bool,
    /// Whether the successor waits for it.
    pending: bool,
    /// The number of the last REQUEST sent.
    number: u64,
    /// The highest number of a REQUEST received (G1).
    newest: u64,
    hops: Hops,
}

impl TokenRingRequests {
    /// The only token of the epoch comes into being here, at its home; each waiter asks for it.
    pub(crate) fn new(from: &Rebuild<'_>, out: &mut Effects<Message>) -> Self {
        let mut engine = Self {
            alone: from.members.len() == 1,
            successor: from.neighbour(1),
            predecessor: from.neighbour(from.members.len() - 1),
            holder: from.token_home() == from.me,
            using: from.my_holder(),
            hungry: None,
            asked: false,
            pending: false,
            number: 0,
            newest: 0,
            hops: Hops::default(),
        };
        if let Some(request) = from.my_waiter() {
            engine.acquire(request, out);
        }
        engine
    }

    fn ask(&mut self, out: &mut Effects<Message>) {
        if !self.asked {
            self.asked = true;
            self.number += 1;
            let request = Message::Request {
                number: self.number,
            };
            out.send(self.predecessor, request);
        }
    }

    fn pass(&mut self, out: &mut Effects<Message>) {
        self.pending = false;
        self.holder = false;
        let token = Message::Token {
            hop: self.hops.departs(),
        };
        out.send(self.successor, token);
    }

    fn enter(&mut self, id: RequestId, out: &mut Effects<Message>) {
        self.using = Some(id);
        out.grant(id);
    }

    fn on_request(&mut self, number: u64, out: &mut Effects<Message>) {
        if number <= self.newest {
            return;
        }
        self.newest = number;
        if self.holder && self.using.is_none() {
            self.pass(out);
        } else {
            self.pending = true;
            if !self.holder {
                self.ask(out);
            }
        }
    }

    fn on_token(&mut self, hop: u64, out: &mut Effects<Message>) {
        if !self.hops.arrives(hop) {
            return;
        }
        self.asked = false;
        self.holder = true;
        if let Some(id) = self.hungry.take() {
            self.enter(id, out);
        } else if self.pending {
            self.pass(out);
        }
    }
}

impl Engine<Message> for TokenRingRequests {
    fn acquire(&mut self, request: Request, out: &mut Effects<Message>) {
        debug_assert!(
            self.hungry.is_none() && self.using.is_none(),
            "one request at a time"
        );
        if self.holder {
            self.enter(request.id, out);
        } else {
            self.hungry = Some(request.id);
            self.ask(out);
        }
    }

    fn release(&mut self, id: RequestId, _how: Release, out: &mut Effects<Message>) {
        if self.using == Some(id) {
            self.using = None;
            if self.pending {
                self.pass(out);
            }
        }
    }

    fn cancel(&mut self, id: RequestId, _out: &mut Effects<Message>) {
        if self.hungry == Some(id) {
            self.hungry = None;
        }
    }

    /// Nobody is inside without the token.
    fn may_be_inside(&self, _node: NodeId) -> bool {
        !self.holder
    }

    fn asks(&self) -> &[NodeId] {
        core::slice::from_ref(&self.predecessor)
    }

    fn receive(&mut self, from: NodeId, message: &Message, out: &mut Effects<Message>) {
        match *message {
            Message::Request { number } if from == self.successor => self.on_request(number, out),
            Message::Token { hop } if from == self.predecessor => self.on_token(hop, out),
            _ => {}
        }
    }

    fn leave(&mut self, out: &mut Effects<Message>) {
        if self.holder && self.using.is_none() && !self.alone {
            self.pass(out);
        }
    }
}
