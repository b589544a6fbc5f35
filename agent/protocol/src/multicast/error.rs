//! Why something is not multicast, not taken in, or no view.

use crate::ids::{Epoch, NodeId};

/// Why nothing is multicast. The payload comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MulticastError<T> {
    /// There is no view, or it is about to change.
    #[error("no view is in force: multicast it again when one is")]
    Frozen(T),
    /// As many of this member's messages as may wait for delivery.
    #[error("too many messages of this member wait for delivery: multicast it again after one")]
    Full(T),
}

/// What is wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// Its sender does not belong to the view.
    #[error("the sender does not belong to the view")]
    NotAMember,
    /// A message before it has not come: the link loses some, or does not keep their order.
    #[error(
        "message {found} came where {expected} was due: the link must keep order and lose none"
    )]
    Gap {
        /// The number of the message that is missing.
        expected: u64,
        /// The number of this one.
        found: u64,
    },
    /// No member says such things.
    #[error("the message contradicts what was said before: it is damaged")]
    Nonsense,
    /// More waits here than can be kept: this member has fallen too far behind.
    #[error("too many messages wait here: this member must leave, and join anew")]
    TooMuch,
}

/// A member is not stopped for a view that does not come any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("epoch {next} is over: here is epoch {epoch}; ignore what asks for it")]
pub struct TooLate {
    /// The view that was to come.
    pub next: Epoch,
    /// The view in force here.
    pub epoch: Epoch,
}

/// Why a view is not installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// This member does not belong to it.
    #[error("this member does not belong to the view: join anew")]
    NotAMember,
    /// It follows another view than the one in force here.
    #[error("the view follows epoch {previous}, and here is epoch {epoch}: install those between")]
    NotNext {
        /// The view in force here.
        epoch: Epoch,
        /// The view that this one follows.
        previous: Epoch,
    },
    /// This member has not told what it has not delivered.
    #[error("the member is not frozen: a view begins with what its members say when they freeze")]
    NotFrozen,
}

/// Why such a view cannot follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// Some have not installed the last view yet.
    #[error("not all members are in the same view: let them install the last one first")]
    TwoViews,
    /// A member has not told what it has not delivered.
    #[error("member {node} has not said what it has not delivered")]
    NotHeard {
        /// Which.
        node: NodeId,
    },
    /// Epochs rise.
    #[error("epoch {epoch} does not follow epoch {previous}")]
    OldEpoch {
        /// The new view's.
        epoch: Epoch,
        /// The one before.
        previous: Epoch,
    },
}
