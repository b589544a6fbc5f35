//! Why an agent that was opened does not do what it is asked beside locks: be driven, send signals,
//! change the group's members, tell its status.

use std::io;

use distlock_agent::protocol::Missing;
use distlock_agent::protocol::membership::quorum::absences;
use distlock_agent::runtime::{self, ChangeError, SessionEnd};

use super::advice::advice;

/// Why [`Driven::process`](crate::Driven::process) does nothing any more.
///
/// ```
/// use distlock::{Config, Driven, ProcessError, SignalError};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::Builder::new().prefix("dl").tempdir()?;
/// # let text = format!(
/// #     "lease = \"200ms\"\n[group]\nname = \"shop\"\n\
/// #      [[member]]\nid = 1\naddress = \"unix:{}/1\"\n",
/// #     directory.path().display()
/// # );
/// # let node = Config::parse(&text)?.node(1)?;
/// # let node = node.with_state_dir(directory.path().join("state"));
/// let driven = Driven::from_config(node)?;
/// // No handler was installed for the signal, which would end the process.
/// assert!(matches!(driven.set_sigio(true), Err(SignalError::Unexpected)));
/// driven.agent().close();
/// assert_eq!(driven.process(), Err(ProcessError::Closed));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessError {
    /// The agent was closed.
    #[error("the agent was closed; open another")]
    Closed,
    /// The member's session is over: its state cannot be written, it was removed from the group, or
    /// another process has taken its place.
    #[error("the agent cannot be used any more: {reason}; open another")]
    Ended {
        /// What happened.
        reason: String,
    },
    /// The agent was opened before a `fork`, by the parent.
    #[error("the agent belongs to the parent of this process; open another after fork")]
    Forked,
}

impl From<runtime::ProcessError> for ProcessError {
    fn from(error: runtime::ProcessError) -> Self {
        match error {
            runtime::ProcessError::Forked => Self::Forked,
            runtime::ProcessError::Closed(SessionEnd::Closed) => Self::Closed,
            other => Self::Ended {
                reason: other.to_string(),
            },
        }
    }
}

/// Why [`Driven::set_sigio`](crate::Driven::set_sigio) changed nothing. [`ProcessError`] has an example.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignalError {
    /// It would end the process, or do nothing.
    #[error("nothing expects SIGIO in this process; install a handler for it, or block it, first")]
    Unexpected,
    /// The agent was closed, or cannot be used any more.
    #[error("the agent was closed; open another")]
    Closed,
    /// The agent was opened before a `fork`, by the parent.
    #[error("the agent belongs to the parent of this process; open another after fork")]
    Forked,
    /// The system refused.
    #[error("cannot have SIGIO sent: {source}; see the limit of pending signals (ulimit -i)")]
    Io {
        /// What the system says.
        r#source: io::Error,
    },
}

impl From<runtime::SignalError> for SignalError {
    fn from(error: runtime::SignalError) -> Self {
        match error {
            runtime::SignalError::Unexpected => Self::Unexpected,
            runtime::SignalError::Forked => Self::Forked,
            runtime::SignalError::System { source } => Self::Io { source },
            _ => Self::Closed,
        }
    }
}

/// Why [`Agent::add_member`](crate::Agent::add_member) or
/// [`Agent::remove_member`](crate::Agent::remove_member) changed nothing yet.
///
/// ```
/// use distlock::{Agent, MembersError, NodeId};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let agent = Agent::local_in(directory.path())?;
/// let id = NodeId::new(3).expect("ids start at 1");
/// // The local group has no members.
/// assert_eq!(agent.remove_member(id), Err(MembersError::FilesOnly));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MembersError {
    /// It makes no sense.
    #[error("{reason}")]
    Refused {
        /// What is wrong, and what to do.
        reason: String,
    },
    /// In this group only the members' files say who belongs to it (`failure = "presume-failed"`),
    /// or nothing does, as it is the local one.
    #[error(
        "membership is static in this group; change the members' files, and restart the agents"
    )]
    FilesOnly,
    /// No majority of the voters has agreed in time, and this member does not ask for it any more. What was proposed
    /// already may still be done when there is a quorum again: look at the members then.
    #[error("{}", not_changed(missing))]
    NoQuorum {
        /// The voters that were missing then; empty if a majority was there, and something else
        /// took too long.
        missing: Vec<Missing>,
    },
    /// Another change was asked for meanwhile.
    #[error("another change was asked for meanwhile; look at the members, and ask again")]
    Replaced,
    /// The agent was closed.
    #[error("the agent was closed; open another")]
    Closed,
    /// The host's agent, whose client this is, is gone or stands still; or this member's own session
    /// is over.
    #[error("the agent cannot be used any more: {reason}; open another")]
    Disconnected {
        /// What happened.
        reason: String,
    },
    /// The agent was opened before a `fork`, by the parent.
    #[error("the agent belongs to the parent of this process; open another after fork")]
    Forked,
}

impl From<ChangeError> for MembersError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Refused(reason) => Self::Refused { reason },
            ChangeError::FilesOnly => Self::FilesOnly,
            ChangeError::NoQuorum { missing } => Self::NoQuorum { missing },
            ChangeError::Replaced => Self::Replaced,
            ChangeError::Closed(SessionEnd::Closed) => Self::Closed,
            ChangeError::Forked => Self::Forked,
            other => Self::Disconnected {
                reason: other.to_string(),
            },
        }
    }
}

/// Why there is no status.
///
/// ```
/// use distlock::{Agent, StatusError};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let agent = Agent::local_in(directory.path())?;
/// agent.close();
/// assert!(matches!(agent.status(), Err(StatusError::Closed)));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StatusError {
    /// The agent was closed.
    #[error("the agent was closed; open another")]
    Closed,
    /// The agent was opened before a `fork`, by the parent.
    #[error("the agent belongs to the parent of this process; open another after fork")]
    Forked,
    /// The host's agent, whose client this is, is gone; or this member's own session is over.
    #[error("the agent cannot be used any more: {reason}; open another")]
    Disconnected {
        /// What happened.
        reason: String,
    },
    /// The agent is there, and cannot tell it.
    #[error("{reason}")]
    Unavailable {
        /// Why, and what to do.
        reason: String,
    },
    /// The system failed.
    #[error("{what}: {source}; {}", advice(source))]
    Io {
        /// What was tried.
        what: String,
        /// What the system says.
        r#source: io::Error,
    },
}

/// Why the members are as they were.
fn not_changed(missing: &[Missing]) -> String {
    if missing.is_empty() {
        "it was not done in time, though a majority of the voters is there: the group is still being \
         founded, or has just lost a member; wait until locks are granted again, and ask again"
            .to_owned()
    } else {
        format!(
            "no quorum: {}; this is not asked for any more, though it may have been proposed: look at \
         the members when that has changed, and ask again",
            absences(missing)
        )
    }
}
