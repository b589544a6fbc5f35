//! What orders the proposals for the next view among the voters.
//!
//! A [`ViewLog`] decides, one after the other, which view follows which. Only progress rests on
//! it: a voter endorses one view an epoch whatever the log says, so a log that errs stops the
//! group and splits it not. The one log there is, [`RaftLog`], is Raft (Ongaro and Ousterhout
//! 2014) as a library does it, under rules that make it live.
//!
//! The voters of a log are those of the last view that it decided: after the decision the leader
//! moves the library to them by joint consensus, and takes no other proposal before that is done.
//! A leader that finds the move undone, because the last one died, does it.
//!
//! Nothing here knows a clock, a socket or a file: time and messages come in, and what shall be
//! sent or made durable comes out. What depends on durable state comes out after
//! [`ViewLog::persisted`] has said that it is durable.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::Epoch;
use crate::time::Time;

pub mod library;
mod message;
mod raft;
mod record;

pub use message::{Body, LogEntry, LogMessage};
pub use raft::RaftLog;
pub use record::{BadRecord, LogRecord, Snapshot};

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

/// A view that was decided, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Link {
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
    pub chain: Vec<Link>,
}

impl Decided {
    /// The name of the view.
    pub const fn link(&self) -> Link {
        Link {
            epoch: self.proposal.epoch,
            digest: self.proposal.digest,
        }
    }
}

/// What a log wants done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogAction {
    /// Send this; it may get lost, come twice, and overtake others.
    Send(VoterId, LogMessage),
    /// Make this durable in the place of the record before, in one step; then call
    /// [`ViewLog::persisted`]. One is outstanding at a time.
    Persist(LogRecord),
    /// This view is decided. Epochs rise from one to the next; each comes at most once in a life,
    /// and one that was decided while this voter was away may be passed over: the chain has its
    /// name. After a restart [`ViewLog::decided`] tells where the log stands, and what was decided
    /// but not durable here may come again.
    Decided(Decided),
    /// Ask [`ViewLog::leader`] again.
    LeaderChanged,
    /// The log contradicts itself, or the library says it does. It is silent from now on; this
    /// voter must come back as another one, without this log's record.
    Broken(&'static str),
}

/// What orders the proposals for the next view. Everything that follows from a call is appended
/// to `out`.
pub trait ViewLog {
    /// A message has come from the voter `from`. What cannot be meant for this log is dropped.
    fn receive(&mut self, now: Time, from: VoterId, message: LogMessage, out: &mut Vec<LogAction>);

    /// The time that [`ViewLog::next_timeout`] names has come, or not: too early does no harm.
    fn timeout(&mut self, now: Time, out: &mut Vec<LogAction>);

    /// When to call [`ViewLog::timeout`].
    fn next_timeout(&self) -> Option<Time>;

    /// The last [`LogAction::Persist`] is durable.
    fn persisted(&mut self, now: Time, out: &mut Vec<LogAction>);

    /// Proposes the view after the last decided one. It may get lost nevertheless, with the
    /// leadership; if it is decided, [`LogAction::Decided`] says so.
    ///
    /// # Errors
    /// Why it cannot be proposed here, or now. Nothing has changed then.
    fn propose(
        &mut self,
        now: Time,
        proposal: Proposal,
        out: &mut Vec<LogAction>,
    ) -> Result<(), NotNow>;

    /// The view of this epoch is in force with all its members, each with a lease under it: only
    /// now may the next view have other voters. To be told again after a restart.
    fn installed(&mut self, epoch: Epoch);

    /// Asks another voter to lead, as one must that wants itself removed. It may come to nothing;
    /// then this voter leads on, and is to ask again.
    ///
    /// # Errors
    /// Why it cannot be asked. Nothing has changed then.
    fn hand_over(&mut self, now: Time, to: VoterId, out: &mut Vec<LogAction>)
    -> Result<(), NotNow>;

    /// Who leads, as far as is known here.
    fn leader(&self) -> Option<VoterId>;

    /// Whether this voter leads.
    fn is_leader(&self) -> bool;

    /// The term, which rises with every attempt at leading.
    fn term(&self) -> u64;

    /// The last view that is known here to be decided.
    fn decided(&self) -> Option<&Decided>;

    /// Whether this voter is removed, and needed no more: only now may it stop for good. That the
    /// decided view is without it is not enough, as the move to the other voters comes after it.
    fn retired(&self) -> bool;
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

/// How long a log waits for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    heartbeat: Duration,
    election: Duration,
}

impl Timing {
    /// A leader is heard of every `heartbeat`; who hears of none for `election`, and up to that
    /// again by chance, wants to lead.
    ///
    /// # Panics
    /// If `heartbeat` is zero, or more than half of `election`: then a single loss would topple
    /// the leader.
    pub fn new(heartbeat: Duration, election: Duration) -> Self {
        assert!(
            !heartbeat.is_zero() && heartbeat * 2 <= election,
            "two heartbeats must fit an election's time-out"
        );
        Self {
            heartbeat,
            election,
        }
    }

    /// What goes with a lease: a leader that died has a successor before its members' leases end.
    ///
    /// # Panics
    /// If the lease is shorter than 20 ns.
    pub fn of_lease(lease: Duration) -> Self {
        Self::new(lease / 20, lease / 4)
    }
}

#[cfg(test)]
mod tests;
