//! Why things end otherwise than asked: one small enum an operation.

use serde::{Deserialize, Serialize};

use crate::protocol::membership::quorum::{absences, from_members};
use crate::protocol::{ElectionAlgorithm, LockSpec, Missing, NodeId, QuorumOverview, Refusal};

/// Why a request ended without a grant.
///
/// Clients are sent a variant by its position: append new ones at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The lock is not free, and the caller did not want to wait.
    #[error("the lock is held by another")]
    Busy,
    /// The caller's time is over, and the lock was held by another.
    #[error("the lock was not free in time")]
    TimedOut,
    /// There was no quorum for one lease, or none when the caller's time was over.
    #[error("no quorum: {}", absences(missing))]
    NoQuorum {
        /// Who would have to be there; empty if this member is in no view, though they are.
        missing: Vec<Missing>,
    },
    /// The lock is served otherwise than the caller said.
    #[error(
        "the lock is served by {} with {} permits: ask for it like that",
        actual.algorithm, actual.permits
    )]
    WrongSpec {
        /// How it is served.
        actual: LockSpec,
    },
    /// The lock is served so that nobody can share it.
    #[error(
        "the lock is served by {} with {} permits, and cannot be shared: only manager and \
         semaphore with one permit let several share it",
        actual.algorithm, actual.permits
    )]
    NotShareable {
        /// How it is served.
        actual: LockSpec,
    },
    /// Too many locks or waiting requests, or too few descriptors for another command.
    #[error(
        "too many locks, requests or open files: release some, let fewer wait at once, or raise the \
         limit of open files of this process and of its agent (ulimit -n)"
    )]
    Limit,
    /// The session is over.
    #[error("{0}")]
    Closed(SessionEnd),
    /// The process was forked from the one that has the agent.
    #[error("a forked process cannot use its parent's agent: open one of its own")]
    Forked,
    /// It was granted, and lost before its caller was inside: ask again.
    #[error("the lock was granted, and lost before its caller was inside: ask again")]
    Voided,
    /// The election is held otherwise than the caller said.
    #[error("leaders are elected by {actual} in this group: ask for that, or for any")]
    WrongElection {
        /// By which algorithm.
        actual: ElectionAlgorithm,
    },
    /// The agent, or its group, has not answered in the time that there was.
    #[error(
        "no answer in time{}: see that the host's agent runs and is not stopped, and what \
         `distlock status` tells of the group",
        from_members(silent)
    )]
    NoAnswer {
        /// The members of the group that did not answer, if that is known.
        silent: Vec<NodeId>,
    },
    /// The lock is lent to this process, whose threads wait for it by themselves
    /// ([`ClientLoan::wait`](crate::runtime::ClientLoan::wait)).
    #[error("the lock is lent: wait for it without the agent")]
    Lent,
    /// The store that has the locks has not answered for one lease, or not in the caller's time.
    #[error("the store {store} cannot be reached: {reason}")]
    Unreachable {
        /// Where it is.
        store: String,
        /// As far as it is known.
        reason: String,
    },
    /// The store does not do what the request takes, or its record of the lock cannot be used.
    #[error("the store {store}: {reason}")]
    Store {
        /// Where it is.
        store: String,
        /// What it says.
        reason: String,
    },
}

impl AcquireError {
    /// The word by which it is counted; `None` if the caller is about to enter in another way.
    pub(crate) fn word(&self) -> Option<&'static str> {
        Some(match self {
            Self::Busy => "busy",
            Self::TimedOut => "timed-out",
            Self::NoQuorum { .. } => "no-quorum",
            Self::WrongSpec { .. } | Self::NotShareable { .. } | Self::WrongElection { .. } => {
                "wrong-spec"
            }
            Self::Limit => "limit",
            Self::Closed(_) => "closed",
            Self::Forked => "forked",
            Self::Voided => "voided",
            Self::NoAnswer { .. } => "no-answer",
            Self::Lent => return None,
            Self::Unreachable { .. } => "unreachable",
            Self::Store { .. } => "store",
        })
    }

    /// What a refusal means to the caller. Only a deadline cancels a request, and without a quorum
    /// it is not known whether the lock was free.
    pub(crate) fn from_refusal(refusal: Refusal, quorum: impl FnOnce() -> QuorumOverview) -> Self {
        match refusal {
            Refusal::Cancelled => {
                let quorum = quorum();
                if quorum.is_ok() {
                    return Self::TimedOut;
                }
                let missing = quorum.lacking();
                Self::NoQuorum { missing }
            }
            Refusal::Busy => Self::Busy,
            Refusal::NoAnswer { silent } => Self::NoAnswer { silent },
            Refusal::NoQuorum { missing } => Self::NoQuorum { missing },
            Refusal::WrongSpec { actual } => Self::WrongSpec { actual },
            Refusal::NotShareable { actual } => Self::NotShareable { actual },
            Refusal::WrongElection { actual } => Self::WrongElection { actual },
            Refusal::Limit => Self::Limit,
            Refusal::Closed => Self::Closed(SessionEnd::Closed),
        }
    }
}

/// Why a release did not free the lock.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lock had been lost before: another may have entered since.
    #[error("the lock was lost before it was released")]
    Lost,
    /// The process was forked from the one that holds the lock; it still does.
    #[error("a forked process cannot release its parent's lock")]
    Forked,
}

/// Why the status of the group cannot be told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StatusError {
    /// The session is over.
    #[error("{0}")]
    Closed(SessionEnd),
    /// Too many ask at once.
    #[error("too many ask for the status at once: ask again later")]
    Limit,
    /// No answer came.
    #[error("the agent does not answer: see whether its process stands still")]
    TimedOut,
    /// It is longer than any message.
    #[error("the status is too long to be told: ask again when fewer hold and wait")]
    TooLong,
    /// The process was forked from the one that has the agent.
    #[error("a forked process cannot use its parent's agent: open one of its own")]
    Forked,
}

/// Why a driven agent does not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// The session is over.
    #[error("{0}")]
    Closed(SessionEnd),
    /// The process was forked from the one that has the agent.
    #[error("a forked process cannot use its parent's agent: open one of its own")]
    Forked,
}

/// Why no signal is sent for a driven agent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignalError {
    /// It would end the process, or do nothing.
    #[error("nothing expects SIGIO in this process: install a handler for it, or block it, first")]
    Unexpected,
    /// The session is over.
    #[error("{0}")]
    Closed(SessionEnd),
    /// The process was forked from the one that has the agent.
    #[error("a forked process cannot use its parent's agent: open one of its own")]
    Forked,
    /// The system refused.
    #[error("the system sends no signals for the agent: {source}")]
    System {
        /// What it says.
        r#source: std::io::Error,
    },
}

/// Why a session is over.
///
/// Clients are sent a variant by its position: append new ones at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum SessionEnd {
    /// It was closed.
    #[error("the agent was closed")]
    Closed,
    /// Another process runs under this member's id.
    #[error(
        "member {by} says that another process runs under this member's id: end that process, or \
         give each its own id; if no other process runs, this member has lost its state, and this \
         host's clock shows an earlier time than when the member last began: correct the clock, or \
         start the member again once the clock has passed that time"
    )]
    Superseded {
        /// Who says so.
        by: NodeId,
    },
    /// A defect in the agent.
    #[error("the agent failed inside, and its locks are lost: please report this")]
    Panicked,
    /// The state could not be written.
    #[error("{what}")]
    State {
        /// The failure.
        what: String,
    },
    /// The event loop's system calls failed.
    #[error("the agent cannot wait for its sockets: {what}")]
    Poll {
        /// The failure.
        what: String,
    },
    /// A client's connection to its agent broke, or its agent ended.
    #[error("the connection to the agent ended")]
    Disconnected,
    /// This member was removed from the group.
    #[error("this member was removed from the group: let distlock members add take it in again")]
    Removed,
}

/// Why the members are not changed.
///
/// Clients are sent a variant by its position: append new ones at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// It makes no sense.
    #[error("{0}")]
    Refused(String),
    /// In this group only files say who is a member.
    #[error(
        "membership is static in this group: change the members' files, and restart the agents"
    )]
    FilesOnly,
    /// No view has it yet, and it is not asked for any more.
    #[error(
        "no quorum: {}; this is not asked for any more, though it may have been proposed: look at \
         the members when that has changed, and ask again",
        absences(missing)
    )]
    NoQuorum {
        /// The members that were missing then.
        missing: Vec<Missing>,
    },
    /// Somebody asked this agent for another change before this one was made.
    #[error("another change was asked for meanwhile: see distlock members, and ask again")]
    Replaced,
    /// The session is over.
    #[error("{0}")]
    Closed(SessionEnd),
    /// The agent does not answer.
    #[error("the agent does not answer: see whether its process stands still")]
    TimedOut,
    /// The process was forked from the one that has the agent.
    #[error("a forked process cannot use its parent's agent: open one of its own")]
    Forked,
}
