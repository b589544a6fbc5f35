//! The face of an algorithm: what it is told, and what it wants done.
//!
//! An engine is a state machine: events in, [`Effects`] out. It knows members and requests, and
//! neither time nor bytes. An engine lives for one epoch. The next view builds a new one from who
//! was inside and who waited ([`Rebuild`]); nothing else of the old one survives.
//!
//! Engines bear messages that come twice or out of order (guards G1 to G5 of doc/design.md), though
//! the links underneath deliver each once and in order: an algorithm's safety rests on its own
//! rules. Those that say so ([`Algorithm::needs_order`](super::Algorithm::needs_order)) rest on the
//! order of links too. A fence's counter and the Lamport clock travel with every message; the
//! engine sees neither.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::fmt::Debug;
use core::hash::{Hash, Hasher};
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::request::{Mode, Previous, Release, Request};
use super::{
    bakery, carvalho_roucairol, lamport, maekawa, raymond, ricart_agrawala, semaphore, singhal,
    suzuki_kasami, token_ring, token_ring_requests, voting,
};
use crate::ids::{LockName, NodeId, RequestId};

/// One algorithm's part in one member, for one lock, in one epoch.
///
/// A request's life: [`acquire`](Engine::acquire), then a grant in [`Effects`], then
/// [`release`](Engine::release); or [`cancel`](Engine::cancel) instead of a grant. One request
/// of this member waits at a time, and one at most is inside, except that a counting semaphore
/// lets one wait while others are inside.
pub trait Engine: Snapshot + Debug + Send + Sync {
    /// This member wants to enter.
    fn acquire(&mut self, request: Request, out: &mut Effects);

    /// This member's granted request `id` is over. That it was abandoned travels in the
    /// [`GrantHistory`](super::GrantHistory); an engine may keep books of it besides ([`Engine::mark`]).
    fn release(&mut self, id: RequestId, how: Release, out: &mut Effects);

    /// This member's waiting request `id` shall not be granted any more.
    fn cancel(&mut self, id: RequestId, out: &mut Effects);

    /// A message of this epoch, from another member. Messages of other algorithms are ignored.
    fn receive(&mut self, from: NodeId, message: &Message, out: &mut Effects);

    /// Whether `node`, another member, can be inside, or be let in by what is under way, as far as
    /// this member knows. `false` is a proof: nobody need wait for it, nor fear what it may have
    /// left half done. Asked of each member that is left when `node` has died, so that one proof
    /// among all is enough.
    fn may_be_inside(&self, node: NodeId) -> bool;

    /// Where this member's books have the mark that a grant was abandoned, if it keeps books.
    fn mark(&self) -> Option<Mark> {
        None
    }

    /// The members to whom [`acquire`](Engine::acquire) sends a message.
    fn asks(&self) -> &[NodeId];

    /// The [hop timer](HopTimer) ran out.
    fn timeout(&mut self, _out: &mut Effects) {}

    /// This member is about to leave, with nothing waiting or inside: pass on what others need.
    fn leave(&mut self, _out: &mut Effects) {}
}

/// What a model checker needs of an engine: to go on from one state in more than one way, and to
/// know a state again. Every engine that derives `Clone` and `Hash` has it.
pub trait Snapshot {
    /// The engine once more, as it is now.
    fn copy(&self) -> Box<dyn Engine>;

    /// Feeds all that the engine knows to `hasher`.
    fn feed(&self, hasher: &mut dyn Hasher);
}

impl<E: Engine + Clone + Hash + 'static> Snapshot for E {
    fn copy(&self) -> Box<dyn Engine> {
        Box::new(self.clone())
    }

    fn feed(&self, mut hasher: &mut dyn Hasher) {
        self.hash(&mut hasher);
    }
}

impl Clone for Box<dyn Engine> {
    fn clone(&self) -> Self {
        (**self).copy()
    }
}

impl Hash for dyn Engine {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.feed(hasher);
    }
}

/// Where the mark is that a grant was abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// In the books: whoever enters is to be told.
    Kept,
    /// With a grant to another member, which may have come too late to be entered.
    Conferred,
}

/// What a new engine is made from. A lock nobody uses has no holders and no waiters.
#[derive(Clone, Copy, Debug)]
pub struct Rebuild<'a> {
    /// This member.
    pub me: NodeId,
    /// All members of the view, by id.
    pub members: &'a [NodeId],
    /// The lock.
    pub lock: &'a LockName,
    /// Who is inside: at most as many as the lock has permits, or any number that share it.
    pub holders: &'a [RequestId],
    /// How they are inside.
    pub held: Mode,
    /// Who waits, by stamp.
    pub waiters: &'a [Request],
    /// Whether a grant before was abandoned, and whoever enters is to be told.
    pub abandoned: bool,
}

impl Rebuild<'_> {
    /// The other members.
    pub(crate) fn others(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.members.iter().copied().filter(|&node| node != self.me)
    }

    /// The other members that are inside.
    pub(crate) fn holders_elsewhere(&self) -> BTreeSet<NodeId> {
        let nodes = self.holders.iter().map(|id| id.node);
        nodes.filter(|&node| node != self.me).collect()
    }

    /// This member's request that waits.
    pub(crate) fn my_waiter(&self) -> Option<Request> {
        self.waiters
            .iter()
            .copied()
            .find(|request| request.id.node == self.me)
    }

    /// This member's request that is inside, of a lock with one permit.
    pub(crate) fn my_holder(&self) -> Option<RequestId> {
        self.holders.iter().copied().find(|id| id.node == self.me)
    }

    /// Where an install puts the only token of its epoch: with the holder, else with the first
    /// waiter, else with the lowest id.
    pub(crate) fn token_home(&self) -> NodeId {
        let holder = self.holders.first().map(|id| id.node);
        let waiter = self.waiters.first().map(|request| request.id.node);
        holder.or(waiter).unwrap_or(self.members[0])
    }

    /// The member `steps` places after this one in the ring of ids.
    pub(crate) fn neighbour(&self, steps: usize) -> NodeId {
        let mine = self.members.iter().position(|&node| node == self.me);
        let mine = mine.expect("a view that is installed here has this member");
        self.members[(mine + steps) % self.members.len()]
    }
}

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
        }
    }

    /// Whether the receiver takes the next fence with it, so that the sender may not give that one
    /// to another: with several permits, grants are not joined by a chain of messages.
    pub const fn confers_fence(&self) -> bool {
        matches!(self, Self::Semaphore(semaphore::Message::Grant { .. }))
    }

    /// The algorithm that speaks so.
    pub const fn algorithm(&self) -> super::Algorithm {
        match self {
            Self::Semaphore(_) => super::Algorithm::Semaphore,
            Self::Bakery(_) => super::Algorithm::Bakery,
            Self::RicartAgrawala(_) => super::Algorithm::RicartAgrawala,
            Self::TokenRing(_) => super::Algorithm::TokenRing,
            Self::TokenRingRequests(_) => super::Algorithm::TokenRingRequests,
            Self::Lamport(_) => super::Algorithm::Lamport,
            Self::CarvalhoRoucairol(_) => super::Algorithm::CarvalhoRoucairol,
            Self::Maekawa(_) => super::Algorithm::Maekawa,
            Self::Majority(_) => super::Algorithm::Majority,
            Self::SuzukiKasami(_) => super::Algorithm::SuzukiKasami,
            Self::Singhal(_) => super::Algorithm::Singhal,
            Self::Raymond(_) => super::Algorithm::Raymond,
            Self::Voting(_) => super::Algorithm::Voting,
        }
    }
}

/// What an engine wants done about its one timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HopTimer {
    /// Call [`Engine::timeout`] after this time, and not before.
    Set(Duration),
    /// Call [`Engine::timeout`] after a random time below this, which the host chooses.
    Within(Duration),
    /// Do not call it.
    Clear,
}

/// What an engine wants done. The driver takes everything out after each call.
#[derive(Clone, Debug, Default, Hash)]
pub struct Effects {
    /// Messages to send, in this order.
    pub sends: Vec<(NodeId, Message)>,
    /// This member's requests that are inside from now on, and how the grant before ended,
    /// according to the engine's own books if it keeps any.
    pub granted: Vec<(RequestId, Previous)>,
    /// This member's request that cannot be granted now, if its caller wants to know.
    pub busy: Option<RequestId>,
    /// What to do about the timer; `None` leaves it as it is.
    pub hop_timer: Option<HopTimer>,
}

impl Effects {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.sends.is_empty()
            && self.granted.is_empty()
            && self.busy.is_none()
            && self.hop_timer.is_none()
    }

    pub(crate) fn send(&mut self, to: NodeId, message: Message) {
        self.sends.push((to, message));
    }

    pub(crate) fn grant(&mut self, id: RequestId) {
        self.grant_after(id, Previous::Clean);
    }

    pub(crate) fn grant_after(&mut self, id: RequestId, previous: Previous) {
        self.granted.push((id, previous));
    }
}
