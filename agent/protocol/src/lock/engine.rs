//! The interface of an algorithm: what it is told, and what it wants done.
//!
//! An engine is a state machine: events in, [`Effects`] out. It knows members and requests, and
//! neither time nor bytes. An engine lives for one epoch. The next view builds a new one from the
//! holders and the waiters ([`Rebuild`]); nothing else of the old one survives.
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
use core::ops::Deref;
use core::slice;
use core::time::Duration;

use super::request::{Mode, Previous, Release, Request};
use crate::ids::{LockName, NodeId, RequestId};

/// One algorithm's part in one member, for one lock, in one epoch.
///
/// A request's life: [`acquire`](Engine::acquire), then a grant in [`Effects`], then
/// [`release`](Engine::release); or [`cancel`](Engine::cancel) instead of a grant. One request
/// of this member waits at a time. One at most is inside; of a lock that is shared, or has several permits,
/// several may be.
///
/// `M`: what the engines of this lock say to each other. An algorithm's engine knows its own messages
/// alone; [`build`](super::build) makes of it one that takes those of all algorithms.
pub trait Engine<M>: Snapshot<M> + Debug + Send + Sync {
    /// This member wants to enter.
    fn acquire(&mut self, request: Request, out: &mut Effects<M>);

    /// This member's granted request `id` is over. That it was abandoned travels in the
    /// [`GrantHistory`](super::GrantHistory); an engine may keep books of it besides
    /// ([`Engine::mark`]).
    fn release(&mut self, id: RequestId, how: Release, out: &mut Effects<M>);

    /// This member's waiting request `id` shall not be granted any more.
    fn cancel(&mut self, id: RequestId, out: &mut Effects<M>);

    /// A message of this epoch, from another member. Those of another algorithm are ignored.
    fn receive(&mut self, from: NodeId, message: &M, out: &mut Effects<M>);

    /// Whether `node`, another member, can be inside, or be let in by what is under way, as far as
    /// this member knows. `false` is a proof: nobody need wait for it, nor fear what it may have
    /// left half done. Asked of each member that is left when `node` has died, so that one proof
    /// among all is enough.
    fn may_be_inside(&self, node: NodeId) -> bool;

    /// Where this member's books have the mark that a grant was abandoned, if it keeps books.
    fn mark(&self) -> Option<Mark> {
        None
    }

    /// The members to whom [`acquire`](Engine::acquire) sends a message, but for those that follow from
    /// what it had promised before.
    fn asks(&self) -> &[NodeId];

    /// Whether this member could be let in now without a message, for as long as nothing else is told to
    /// this engine, and nobody of this member is inside or waits.
    fn lends(&self) -> bool {
        false
    }

    /// While this member has what lets it in again and again: what this stay of that is called.
    fn stay(&self) -> Option<u64> {
        None
    }

    /// Callers of this member have gone before those of others for long enough, in the present stay.
    fn end_batch(&mut self) {}

    /// Whether [`Engine::lends`] will be true as soon as whoever is inside here has left, if nobody else of
    /// this member waits then.
    fn will_lend(&self) -> bool {
        false
    }

    /// Threads of this member have entered `entries` times by themselves, while [`Engine::lends`] was true;
    /// 0 if one that was counted before has not left yet.
    fn entered(&mut self, _entries: u32) {}

    /// The [hop timer](HopTimer) ran out.
    fn timeout(&mut self, _out: &mut Effects<M>) {}

    /// This member is about to leave, with nothing waiting or inside: pass on what others need.
    fn leave(&mut self, _out: &mut Effects<M>) {}

    /// What was told to this member in this step is over, and its callers ask for nothing more: pass on
    /// what nobody here needs now. Called once, after whatever else is called in a step.
    fn rest(&mut self, _out: &mut Effects<M>) {}
}

/// What a model checker needs of an engine: to go on from one state in more than one way, and to
/// know a state again. Every engine that derives `Clone` and `Hash` has it.
pub trait Snapshot<M> {
    /// The engine once more, as it is now.
    fn copy(&self) -> Box<dyn Engine<M>>;

    /// Feeds all that the engine knows to `hasher`.
    fn feed(&self, hasher: &mut dyn Hasher);
}

impl<M, E: Engine<M> + Clone + Hash + 'static> Snapshot<M> for E {
    fn copy(&self) -> Box<dyn Engine<M>> {
        Box::new(self.clone())
    }

    fn feed(&self, mut hasher: &mut dyn Hasher) {
        self.hash(&mut hasher);
    }
}

impl<M> Clone for Box<dyn Engine<M>> {
    fn clone(&self) -> Self {
        (**self).copy()
    }
}

impl<M> Hash for dyn Engine<M> {
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

/// To whom a message goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Receivers {
    /// To one member, as most do.
    One(NodeId),
    /// To several.
    Several(Vec<NodeId>),
}

impl Deref for Receivers {
    type Target = [NodeId];

    fn deref(&self) -> &[NodeId] {
        match self {
            Self::One(node) => slice::from_ref(node),
            Self::Several(nodes) => nodes,
        }
    }
}

/// What an engine wants done. The driver takes everything out after each call.
#[derive(Clone, Debug, Hash)]
pub struct Effects<M> {
    /// Messages to send, in this order, each to one member or to several.
    pub sends: Vec<(Receivers, M)>,
    /// This member's requests that are inside from now on, and how the grant before ended,
    /// according to the engine's own books if it keeps any.
    pub granted: Vec<(RequestId, Previous)>,
    /// This member's request that cannot be granted now, if its caller wants to know.
    pub busy: Option<RequestId>,
    /// The message that is being received sets so many numbers for fences aside for this member's grants,
    /// in place of those before: the ones after its sender's counter.
    pub block: Option<u32>,
    /// What to do about the timer; `None` leaves it as it is.
    pub hop_timer: Option<HopTimer>,
    /// Whether another member has said that a grant which others shared was abandoned: whoever enters
    /// next is to be told.
    pub abandoned: bool,
}

impl<M> Default for Effects<M> {
    fn default() -> Self {
        Self {
            sends: Vec::new(),
            granted: Vec::new(),
            busy: None,
            block: None,
            hop_timer: None,
            abandoned: false,
        }
    }
}

impl<M> Effects<M> {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.sends.is_empty()
            && self.granted.is_empty()
            && self.busy.is_none()
            && self.block.is_none()
            && self.hop_timer.is_none()
            && !self.abandoned
    }

    pub(crate) fn send(&mut self, to: NodeId, message: M) {
        self.sends.push((Receivers::One(to), message));
    }

    /// To nobody, in a group of one, it sends nothing.
    pub(crate) fn send_to_all(&mut self, to: &[NodeId], message: M) {
        if !to.is_empty() {
            self.sends.push((Receivers::Several(to.to_vec()), message));
        }
    }

    pub(crate) fn grant(&mut self, id: RequestId) {
        self.grant_after(id, Previous::Clean);
    }

    pub(crate) fn grant_after(&mut self, id: RequestId, previous: Previous) {
        self.granted.push((id, previous));
    }

    /// These happen after those that are here.
    pub(super) fn extend<N>(&mut self, later: Effects<N>, wrap: impl Fn(N) -> M) {
        if later.is_empty() {
            return;
        }
        let sends = later.sends.into_iter();
        self.sends
            .extend(sends.map(|(to, message)| (to, wrap(message))));
        self.granted.extend(later.granted);
        self.busy = later.busy.or(self.busy);
        self.block = later.block.or(self.block);
        self.hop_timer = later.hop_timer.or(self.hop_timer);
        self.abandoned |= later.abandoned;
    }
}
