//! The perpetual token ring (Le Lann 1977): a token goes round for ever, and the member that has it
//! may enter.
//!
//! The members, by id, form a ring. Whoever gets the token enters if it wants to, once, and passes
//! the token on; else it passes it on after a short while.
//!
//! Message: `TOKEN(hop, idle)`.
//!
//! Invariant: there is one token, and the holder of the lock has it. The install of a view makes
//! it, and nothing else does: within an epoch no message between members is lost for good, and "no
//! token seen" cannot be told from "in use". A token that comes twice is taken once (G3).
//!
//! Cost: under heavy load 1 message an entry and a synchronisation delay of T. When nobody wants
//! in, one message per T+d for ever, where d is the time a member keeps a token it does not want;
//! the mean wait then is N(T+d)/2 and the longest N(T+d), when the token has just left. A lone
//! member that enters again and again waits for a full round each time.
//!
//! d is 1 ms while the ring is in use, and doubles with every round that nobody used, up to 20 ms:
//! a constant d either burns a processor for nothing or makes busy rings slow.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::token::Hops;
use crate::ids::{NodeId, RequestId};
use crate::lock::engine::{Effects, Engine, HopTimer, Rebuild};
use crate::lock::request::{Release, Request};

/// What the members say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// Your turn. `idle`: for how many hops nobody has wanted it.
    Token { hop: u64, idle: u32 },
}

impl Message {
    #[expect(clippy::unused_self, reason = "as in the other algorithms")]
    pub(crate) const fn kind(&self) -> &'static str {
        "TOKEN"
    }
}

/// How long a member keeps a token it does not want, in a ring that is in use.
const SHORTEST_STAY: Duration = Duration::from_millis(1);
/// The same, in a ring that nobody has used for a while.
const LONGEST_STAY: Duration = Duration::from_millis(20);

#[derive(Clone, Debug, Hash)]
pub(crate) struct TokenRing {
    successor: NodeId,
    alone: bool,
    members: u32,
    waiting: Option<RequestId>,
    held: Option<RequestId>,
    /// The token, while it is here.
    token: Option<Token>,
    hops: Hops,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Token {
    idle: u32,
}

impl TokenRing {
    /// The only token of the epoch comes into being here, at its home.
    pub(crate) fn new(from: &Rebuild<'_>, out: &mut Effects<Message>) -> Self {
        let mut engine = Self {
            successor: from.neighbour(1),
            alone: from.members.len() == 1,
            members: from.members.len() as u32,
            waiting: from.my_waiter().map(|request| request.id),
            held: from.my_holder(),
            token: None,
            hops: Hops::default(),
        };
        if from.token_home() == from.me {
            engine.arrive(Token { idle: 0 }, out);
        }
        engine
    }

    fn arrive(&mut self, token: Token, out: &mut Effects<Message>) {
        self.token = Some(token);
        if self.held.is_none() && !self.enter(out) && !self.alone {
            out.hop_timer = Some(HopTimer::Set(stay(token.idle / self.members)));
        }
    }

    /// Enters, if the token is here and somebody wants it.
    fn enter(&mut self, out: &mut Effects<Message>) -> bool {
        let Some((id, token)) = self.waiting.zip(self.token.as_mut()) else {
            return false;
        };
        token.idle = 0;
        self.waiting = None;
        self.held = Some(id);
        out.hop_timer = Some(HopTimer::Clear);
        out.grant(id);
        true
    }

    fn pass(&mut self, out: &mut Effects<Message>) {
        if self.alone {
            return;
        }
        if let Some(token) = self.token.take() {
            let token = Message::Token {
                hop: self.hops.departs(),
                idle: token.idle.saturating_add(1),
            };
            out.send(self.successor, token);
            out.hop_timer = Some(HopTimer::Clear);
        }
    }
}

/// How long the token stays unwanted, after `rounds` that nobody used.
fn stay(rounds: u32) -> Duration {
    SHORTEST_STAY
        .saturating_mul(1 << rounds.min(10))
        .min(LONGEST_STAY)
}

impl Engine<Message> for TokenRing {
    fn acquire(&mut self, request: Request, out: &mut Effects<Message>) {
        debug_assert!(
            self.waiting.is_none() && self.held.is_none(),
            "one request at a time"
        );
        self.waiting = Some(request.id);
        self.enter(out);
    }

    fn release(&mut self, id: RequestId, _how: Release, out: &mut Effects<Message>) {
        if self.held == Some(id) {
            self.held = None;
            // One entry a visit, even if somebody here wants in again: the others come first.
            self.pass(out);
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
        &[]
    }

    fn receive(&mut self, _from: NodeId, message: &Message, out: &mut Effects<Message>) {
        let Message::Token { hop, idle } = *message;
        if self.hops.arrives(hop) {
            self.arrive(Token { idle }, out);
        }
    }

    fn timeout(&mut self, out: &mut Effects<Message>) {
        if self.held.is_none() {
            self.pass(out);
        }
    }

    fn leave(&mut self, out: &mut Effects<Message>) {
        self.timeout(out);
    }
}
