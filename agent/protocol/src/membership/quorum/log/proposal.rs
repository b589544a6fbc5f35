//! What is proposed to the log, and what it decided.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::Epoch;

/// The most voters of a view.
pub const MAX_VOTERS: usize = 7;
/// The longest encoded view, in bytes: that of the largest group, with the one before it.
pub const MAX_VIEW: usize = 128 << 10;
/// How many predecessors of the last decided view are remembered.
pub const MAX_CHAIN: usize = 64;

/// A voter for as long as it remembers what it has promised. One whose memory was lost comes back
/// under another number; none is ever used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VoterId(pub u64);

impl fmt::Display for VoterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What the layer above calls a view; to the log it is as opaque as the view.
pub type Digest = [u8; 32];

/// A view that somebody wants to be the next.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Proposal {
    /// The view's epoch: above that of the last decided view, and of zero.
    pub epoch: Epoch,
    /// Its digest.
    pub digest: Digest,
    /// Its voters: at least one, at most [`MAX_VOTERS`].
    pub voters: BTreeSet<VoterId>,
    /// The view itself, encoded: at most [`MAX_VIEW`] bytes.
    pub view: Vec<u8>,
}

/// Names a view that was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ViewRef {
    /// Its epoch.
    pub epoch: Epoch,
    /// Its digest.
    pub digest: Digest,
}

/// A view that was decided, and what was decided before it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Decided {
    /// The view.
    pub proposal: Proposal,
    /// Its predecessors, oldest first, at most [`MAX_CHAIN`]: what a voter that has missed some
    /// needs, to see that the view descends from the one it knows.
    pub chain: Vec<ViewRef>,
}

impl Decided {
    /// The name of the view.
    pub const fn link(&self) -> ViewRef {
        ViewRef {
            epoch: self.proposal.epoch,
            digest: self.proposal.digest,
        }
    }
}

/// Why a log does not do now what it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotNow {
    /// Another voter leads, or none.
    #[error("this voter does not lead; ask the leader, when there is one")]
    NotLeader,
    /// A former proposal, a move to other voters or a hand-over is under way.
    #[error("the log is busy with what came before; ask again when it is done")]
    Busy,
    /// The epoch is not above that of the last decided view.
    #[error("a view of this epoch or a later one, {decided}, is decided already")]
    OldEpoch {
        /// The epoch of the last decided view.
        decided: Epoch,
    },
    /// The voters are others, and it was not said that the last view is in force everywhere.
    #[error("voters can be changed only when all members have installed the last view")]
    NotInstalled,
    /// More than one voter comes or goes.
    #[error("one voter can be added or removed at a time; make it several views")]
    TooManyChanges,
    /// The view has no place for the leader among its voters.
    #[error("the leader cannot remove itself from the voters; hand over first")]
    RemovesLeader,
    /// There are no voters, too many of them, or too many bytes.
    #[error("a view has 1 to 7 voters and at most 131072 bytes")]
    Size,
    /// The one who shall lead is not among the voters, or is this one.
    #[error("only another voter can be asked to lead")]
    NotVoter,
}
