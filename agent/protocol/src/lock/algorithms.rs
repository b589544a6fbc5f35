//! The algorithms, one file each: which engine serves a lock, and what engines say to each other.
//!
//! An algorithm's engine has messages of its own. What goes over links is a [`Message`], which says of
//! which algorithm it is; [`build`] puts one around each engine's messages, and takes it off again.

mod bakery;
mod carvalho_roucairol;
mod coterie;
mod lamport;
mod maekawa;
mod manager;
mod placement;
mod raymond;
pub(super) mod ricart_agrawala;
pub(super) mod semaphore;
mod singhal;
mod suzuki_kasami;
mod token;
mod token_ring;
mod token_ring_requests;
mod voting;

pub use voting::{violation_probability, votes_needed};

use alloc::boxed::Box;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use self::bakery::Bakery;
use self::carvalho_roucairol::CarvalhoRoucairol;
use self::lamport::Lamport;
use self::maekawa::{Maekawa, Rule};
use self::manager::{Manager, Permits};
use self::raymond::Raymond;
use self::ricart_agrawala::RicartAgrawala;
use self::semaphore::Semaphore;
use self::singhal::Singhal;
use self::suzuki_kasami::SuzukiKasami;
use self::token_ring::TokenRing;
use self::token_ring_requests::TokenRingRequests;
use self::voting::Voting;
use super::engine::{self, Engine, Mark, Rebuild};
use super::request::{Mode, Release, Request};
use super::spec::{Algorithm, LockSpec};
use crate::ids::{NodeId, RequestId};

/// What a lock's engine wants done, whichever its algorithm is.
pub type Effects = engine::Effects<Message>;

/// A message between the engines of one lock.
///
/// The order is that of the wire format: append only.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[expect(
    missing_docs,
    reason = "each variant is documented in its algorithm's file"
)]
pub enum Message {
    Semaphore(semaphore::Message),
    Bakery(bakery::Message),
    RicartAgrawala(ricart_agrawala::Message),
    TokenRing(token_ring::Message),
    TokenRingRequests(token_ring_requests::Message),
    Lamport(lamport::Message),
    CarvalhoRoucairol(carvalho_roucairol::Message),
    Maekawa(maekawa::Message),
    Majority(maekawa::Message),
    SuzukiKasami(suzuki_kasami::Message),
    Singhal(singhal::Message),
    Raymond(raymond::Message),
    Voting(voting::Message),
    Manager(manager::Message),
}

impl Message {
    /// What it is called in counts and traces.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Semaphore(message) => message.kind(),
            Self::Bakery(message) => message.kind(),
            Self::RicartAgrawala(message) => message.kind(),
            Self::TokenRing(message) => message.kind(),
            Self::TokenRingRequests(message) => message.kind(),
            Self::Lamport(message) => message.kind(),
            Self::CarvalhoRoucairol(message) => message.kind(),
            Self::Maekawa(message) | Self::Majority(message) => message.kind(),
            Self::SuzukiKasami(message) => message.kind(),
            Self::Singhal(message) => message.kind(),
            Self::Raymond(message) => message.kind(),
            Self::Voting(message) => message.kind(),
            Self::Manager(message) => message.kind(),
        }
    }

    /// Whether the receiver answers it at once when it can, so that its acknowledgement can ride
    /// on the answer.
    pub(crate) const fn is_request(&self) -> bool {
        match self {
            Self::Semaphore(message) => message.is_request(),
            Self::Bakery(message) => message.is_request(),
            Self::RicartAgrawala(message) => message.is_request(),
            Self::TokenRing(_) | Self::TokenRingRequests(_) | Self::Raymond(_) => true,
            Self::Lamport(message) => message.is_request(),
            Self::CarvalhoRoucairol(message) => message.is_request(),
            Self::Maekawa(message) | Self::Majority(message) => message.is_request(),
            Self::SuzukiKasami(message) => message.is_request(),
            Self::Singhal(message) => message.is_request(),
            Self::Voting(message) => message.is_request(),
            Self::Manager(message) => message.is_request(),
        }
    }

    /// For what the receiver takes the next fences with it, and how many, so that the sender may not give
    /// those to another: grants of several permits, and those of one that is shared, are not joined by a
    /// chain of messages.
    pub const fn confers(&self) -> Option<(Mode, u32)> {
        match self {
            Self::Semaphore(semaphore::Message::Grant { .. }) => Some((Mode::Exclusive, 1)),
            Self::Manager(manager::Message::Share { block, .. }) => Some((Mode::Shared, *block)),
            _ => None,
        }
    }

    /// The algorithm that speaks so.
    pub const fn algorithm(&self) -> Algorithm {
        match self {
            Self::Semaphore(_) => Algorithm::Semaphore,
            Self::Bakery(_) => Algorithm::Bakery,
            Self::RicartAgrawala(_) => Algorithm::RicartAgrawala,
            Self::TokenRing(_) => Algorithm::TokenRing,
            Self::TokenRingRequests(_) => Algorithm::TokenRingRequests,
            Self::Lamport(_) => Algorithm::Lamport,
            Self::CarvalhoRoucairol(_) => Algorithm::CarvalhoRoucairol,
            Self::Maekawa(_) => Algorithm::Maekawa,
            Self::Majority(_) => Algorithm::Majority,
            Self::SuzukiKasami(_) => Algorithm::SuzukiKasami,
            Self::Singhal(_) => Algorithm::Singhal,
            Self::Raymond(_) => Algorithm::Raymond,
            Self::Voting(_) => Algorithm::Voting,
            Self::Manager(_) => Algorithm::Manager,
        }
    }
}

/// Makes a lock's engine anew, as every view does: from its members, holders and waiters alone.
/// What it has to say at once goes to `out`.
pub fn build(spec: LockSpec, from: &Rebuild<'_>, out: &mut Effects) -> Box<dyn Engine<Message>> {
    macro_rules! engine {
        ($algorithm:ident, $new:path $(, $how:expr)?) => {
            Wrapped::make(
                |own| $new($($how,)? from, own),
                Message::$algorithm,
                |message| match message {
                    Message::$algorithm(message) => Some(message),
                    _ => None,
                },
                out,
            )
        };
    }
    match spec.algorithm {
        Algorithm::Semaphore => engine!(Semaphore, Semaphore::new, spec.permits),
        Algorithm::Bakery => engine!(Bakery, Bakery::new),
        Algorithm::RicartAgrawala => engine!(RicartAgrawala, RicartAgrawala::new),
        Algorithm::TokenRing => engine!(TokenRing, TokenRing::new),
        Algorithm::TokenRingRequests => engine!(TokenRingRequests, TokenRingRequests::new),
        Algorithm::Lamport => engine!(Lamport, Lamport::new),
        Algorithm::CarvalhoRoucairol => {
            engine!(CarvalhoRoucairol, CarvalhoRoucairol::new, spec.priority)
        }
        Algorithm::Maekawa => engine!(Maekawa, Maekawa::new, Rule::Small),
        Algorithm::Majority => engine!(Majority, Maekawa::new, Rule::Majority),
        Algorithm::SuzukiKasami => engine!(SuzukiKasami, SuzukiKasami::new),
        Algorithm::Singhal => engine!(Singhal, Singhal::new),
        Algorithm::Raymond => engine!(Raymond, Raymond::new),
        Algorithm::Voting => engine!(Voting, Voting::new),
        // Grants of several permits do not follow one another: there is no token.
        Algorithm::Manager if spec.permits > NonZeroU32::MIN => {
            engine!(Manager, Permits::new, spec.permits)
        }
        Algorithm::Manager => engine!(Manager, Manager::new),
    }
}

/// An algorithm's engine, among those of all algorithms.
#[derive(Clone)]
struct Wrapped<E, M> {
    engine: E,
    wrap: fn(M) -> Message,
    unwrap: fn(&Message) -> Option<&M>,
}

impl<E, M> Wrapped<E, M>
where
    E: Engine<M> + Clone + Hash + 'static,
    M: Clone + 'static,
{
    fn make(
        make: impl FnOnce(&mut engine::Effects<M>) -> E,
        wrap: fn(M) -> Message,
        unwrap: fn(&Message) -> Option<&M>,
        out: &mut Effects,
    ) -> Box<dyn Engine<Message>> {
        let mut own = engine::Effects::default();
        let engine = make(&mut own);
        out.extend(own, wrap);
        Box::new(Self {
            engine,
            wrap,
            unwrap,
        })
    }

    fn step(&mut self, out: &mut Effects, step: impl FnOnce(&mut E, &mut engine::Effects<M>)) {
        let mut own = engine::Effects::default();
        step(&mut self.engine, &mut own);
        out.extend(own, self.wrap);
    }
}

impl<E: fmt::Debug, M> fmt::Debug for Wrapped<E, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.engine.fmt(f)
    }
}

impl<E: Hash, M> Hash for Wrapped<E, M> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.engine.hash(hasher);
    }
}

impl<E, M> Engine<Message> for Wrapped<E, M>
where
    E: Engine<M> + Clone + Hash + 'static,
    M: Clone + 'static,
{
    fn acquire(&mut self, request: Request, out: &mut Effects) {
        self.step(out, |engine, own| engine.acquire(request, own));
    }

    fn release(&mut self, id: RequestId, how: Release, out: &mut Effects) {
        self.step(out, |engine, own| engine.release(id, how, own));
    }

    fn cancel(&mut self, id: RequestId, out: &mut Effects) {
        self.step(out, |engine, own| engine.cancel(id, own));
    }

    fn receive(&mut self, from: NodeId, message: &Message, out: &mut Effects) {
        if let Some(message) = (self.unwrap)(message) {
            self.step(out, |engine, own| engine.receive(from, message, own));
        }
    }

    fn may_be_inside(&self, node: NodeId) -> bool {
        self.engine.may_be_inside(node)
    }

    fn mark(&self) -> Option<Mark> {
        self.engine.mark()
    }

    fn asks(&self) -> &[NodeId] {
        self.engine.asks()
    }

    fn lends(&self) -> bool {
        self.engine.lends()
    }

    fn stay(&self) -> Option<u64> {
        self.engine.stay()
    }

    fn end_batch(&mut self) {
        self.engine.end_batch();
    }

    fn will_lend(&self) -> bool {
        self.engine.will_lend()
    }

    fn entered(&mut self, entries: u32) {
        self.engine.entered(entries);
    }

    fn timeout(&mut self, out: &mut Effects) {
        self.step(out, Engine::timeout);
    }

    fn leave(&mut self, out: &mut Effects) {
        self.step(out, Engine::leave);
    }

    fn rest(&mut self, out: &mut Effects) {
        self.step(out, Engine::rest);
    }
}
