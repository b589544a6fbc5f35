//! What a lock is entered by without a request: in this process's own agent, or in memory that it shares with
//! the host's agent.

use std::sync::Arc;

use distlock_agent::protocol::{Fence, Release, Time};
use distlock_agent::runtime::{ClientLoan, Grant, LentLock, Turn};

use crate::GuardState;

/// A lock that threads enter by themselves while it is lent.
pub(crate) enum Lent {
    /// To this process, a member.
    Member(Arc<LentLock>),
    /// To the clients of the host's agent, of whom this process is one.
    Client(Arc<ClientLoan>),
}

impl Lent {
    /// Enters, if it is lent and nobody is inside.
    pub(crate) fn enter(&self) -> Option<Fence> {
        match self {
            Self::Member(lent) => lent.enter(),
            Self::Client(lent) => lent.enter(),
        }
    }

    /// Whether it is lent, and another is inside, as far as that is known without the agent.
    pub(crate) fn is_inside(&self) -> bool {
        match self {
            Self::Member(_) => false,
            Self::Client(lent) => lent.is_inside(),
        }
    }

    /// Waits for its turn to enter while it is lent, at most until `until`. Threads of the member's own
    /// process wait by requests, which cost no message.
    pub(crate) fn wait(&self, until: Option<Time>) -> Turn {
        match self {
            Self::Member(_) => Turn::Ask,
            Self::Client(lent) => lent.wait(until),
        }
    }

    /// The lock was given back that this process had asked for.
    pub(crate) fn was_released(&self) {
        if let Self::Client(lent) = self {
            lent.was_released();
        }
    }

    /// Leaves, for whoever entered with `fence`; `false` if the agent in this process must be told first, by
    /// [`Lent::take_over`].
    pub(crate) fn leave(&self, fence: Fence) -> bool {
        match self {
            Self::Member(lent) => lent.leave(),
            Self::Client(lent) => {
                lent.leave(fence);
                true
            }
        }
    }

    /// What the entry with `fence` is worth now.
    pub(crate) fn state(&self, fence: Fence) -> GuardState {
        match self {
            Self::Member(lent) => lent.state(fence),
            Self::Client(lent) => lent.state(fence),
        }
    }

    /// Whether that it is lost is all that the agent could say, which needs not be asked.
    pub(crate) fn knows_losses(&self) -> bool {
        matches!(self, Self::Client(_))
    }

    /// Until when nobody else is let in, as far as that is known without the agent.
    pub(crate) fn limit(&self) -> Option<Time> {
        match self {
            Self::Member(_) => None,
            Self::Client(lent) => lent.limit(),
        }
    }

    /// Has the agent know of the entry with `fence`.
    pub(crate) fn take_over(&self, fence: Fence) -> Grant {
        match self {
            Self::Member(lent) => lent.take_over(fence),
            Self::Client(lent) => lent.take_over(fence),
        }
    }

    /// Ends the entry with `fence`, which nobody saw.
    pub(crate) fn withdraw(&self, fence: Fence) {
        if !self.leave(fence) {
            let _ = self.take_over(fence).release_as(Release::Unused);
        }
    }
}
