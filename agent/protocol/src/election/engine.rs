//! The interface of an algorithm that elects: what it is told, and what it wants done.
//!
//! An engine is a state machine: events in, [`Effects`] out. It lives for one round of one election
//! in one epoch, whose members are known and do not change; the next round and the next view build
//! new ones. It knows neither rounds, epochs nor time.
//!
//! Only members that *stand* can be nominated. The others take part as far as the algorithm needs
//! them: rings lead through them.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::fmt::Debug;
use core::time::Duration;

use crate::ids::NodeId;

/// One algorithm's part in one member, for one round.
///
/// `M`: what the engines of this election say to each other. An algorithm's engine knows its own
/// messages alone; [`build`](super::build) makes of it one that takes those of all algorithms.
pub trait Engine<M>: Debug + Send {
    /// This member stands, from now on and for the rest of the round, and wants the election held.
    fn stand(&mut self, out: &mut Effects<M>);

    /// A message of this round. Those of another algorithm, and what makes no sense, are ignored.
    fn receive(&mut self, from: NodeId, message: &M, out: &mut Effects<M>);

    /// The [timer](AnswerTimer) ran out.
    fn timeout(&mut self, out: &mut Effects<M>);
}

/// What a round's engine is made from.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// This member.
    pub me: NodeId,
    /// All members of the view, each once, in the order of the ring.
    pub members: &'a [NodeId],
    /// Members from which nothing was heard for a while. Rings lead past them.
    pub silent: &'a BTreeSet<NodeId>,
    /// Whether this member stands already. It begins only when somebody else has begun, or by
    /// [`Engine::stand`].
    pub stands: bool,
    /// How long an answer is waited for: there and back between any two members, and what they
    /// need to answer. If it is too short, two can be nominated.
    pub patience: Duration,
}

impl Round<'_> {
    /// The next member of the ring that is not silent; this member if there is no other.
    pub(crate) fn successor(&self) -> NodeId {
        let heard = |node: &&NodeId| !self.silent.contains(*node);
        *self.after_me().find(heard).unwrap_or(&self.me)
    }

    /// The silent members between this one and its successor.
    pub(crate) fn skipped(&self) -> BTreeSet<NodeId> {
        let successor = self.successor();
        self.after_me()
            .copied()
            .take_while(|node| *node != successor)
            .collect()
    }

    /// The other members, from the next one on, once round.
    fn after_me(&self) -> impl Iterator<Item = &NodeId> {
        let mine = self.members.iter().position(|node| *node == self.me);
        let mine = mine.expect("a member takes part in the elections of views that have it");
        self.members[mine + 1..].iter().chain(&self.members[..mine])
    }
}

/// What an engine wants done about its one timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerTimer {
    /// Call [`Engine::timeout`] after this time, and not before.
    Set(Duration),
    /// Do not call it.
    Clear,
}

/// What an engine wants done. The driver takes everything out after each call.
#[derive(Debug)]
pub struct Effects<M> {
    /// Messages to send, in this order.
    pub sends: Vec<(NodeId, M)>,
    /// Who is to lead, as far as this engine can tell: the last word of the round, unless one with
    /// a higher id is nominated later.
    pub nominated: Option<NodeId>,
    /// What to do about the timer; `None` leaves it as it is.
    pub timer: Option<AnswerTimer>,
    /// This round came to nothing: hold another.
    pub hold_again: bool,
}

impl<M> Default for Effects<M> {
    fn default() -> Self {
        Self {
            sends: Vec::new(),
            nominated: None,
            timer: None,
            hold_again: false,
        }
    }
}

impl<M> Effects<M> {
    pub(crate) fn send(&mut self, to: NodeId, message: M) {
        self.sends.push((to, message));
    }

    /// `leader` is elected, so that nothing is waited for any more.
    pub(crate) fn nominate(&mut self, leader: NodeId) {
        self.nominated = self.nominated.max(Some(leader));
        self.timer = Some(AnswerTimer::Clear);
    }

    /// These happen after those that are here.
    pub(super) fn extend<N>(&mut self, later: Effects<N>, wrap: impl Fn(N) -> M) {
        let sends = later.sends.into_iter();
        self.sends
            .extend(sends.map(|(to, message)| (to, wrap(message))));
        self.nominated = self.nominated.max(later.nominated);
        self.timer = later.timer.or(self.timer);
        self.hold_again |= later.hold_again;
    }
}
