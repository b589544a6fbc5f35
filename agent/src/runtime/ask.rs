//! What a caller says with its request: how long it waits, and who it is.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::clock;
#[cfg(doc)]
use super::error::AcquireError;
use super::sync::Mutex;
use crate::protocol::{ElectionAlgorithm, Time, Wait};

/// How long a caller that does not wait for the lock waits for the group's answer.
const TRY_TIME: Duration = Duration::from_millis(800);
/// How long an agent may take to answer that a request is cancelled.
const CANCEL_TIME: Duration = Duration::from_millis(200);

/// How long a caller is willing to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Patience {
    /// Until members have been missing for one lease ([`AcquireError::NoQuorum`]); a held lock is
    /// waited for without limit.
    Lease,
    /// Without limit.
    Forever,
    /// Not at all: [`AcquireError::Busy`] if the lock is not free. The group's answer is waited for one
    /// second at most: then [`AcquireError::NoQuorum`] if there is none, else
    /// [`AcquireError::NoAnswer`].
    Try,
    /// So long: then [`AcquireError::TimedOut`], or, 0.2 seconds later, [`AcquireError::NoAnswer`] if
    /// the host's agent stands still.
    For(Duration),
}

impl Patience {
    /// What the core is told; deadlines are the caller's own.
    pub(crate) fn wait(self) -> Wait {
        match self {
            Self::Lease => Wait::Lease,
            Self::Forever | Self::For(_) => Wait::Cancelled,
            Self::Try => Wait::Try,
        }
    }

    /// When the caller gives up by itself, from now on.
    pub(crate) fn deadline(self) -> Option<Deadline> {
        let time = match self {
            Self::For(time) => time,
            Self::Try => TRY_TIME,
            Self::Lease | Self::Forever => return None,
        };
        Some(Deadline::after(time))
    }
}

/// When a caller gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadline {
    /// Then it cancels its request.
    pub(crate) cancel: Time,
    /// Then it waits no longer for the answer to that.
    pub(crate) end: Time,
}

impl Deadline {
    fn after(time: Duration) -> Self {
        let cancel = clock::now() + time;
        Self {
            cancel,
            end: cancel + CANCEL_TIME,
        }
    }

    /// The same, but over at `end`.
    pub(crate) fn within(self, end: Time) -> Self {
        Self {
            cancel: self.cancel.min(end - CANCEL_TIME),
            end: self.end.min(end),
        }
    }
}

/// Who asks: for `status`, for what the lock must outlast, and what for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The program that calls; for `distlock run` the runner.
    pub pid: u32,
    /// Its command line; for `distlock run` the command's.
    pub command: Arc<str>,
    /// The process that `distlock run` runs.
    pub command_pid: Option<u32>,
    /// Whether the grant is to have a descriptor that other processes can inherit, to keep the
    /// lock ([`Grant::lifeline`](super::Grant::lifeline)).
    pub has_lifeline: bool,
    /// What it wants of the lock.
    pub purpose: Purpose,
}

/// What a caller wants of a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// To enter it.
    #[default]
    Enter,
    /// To lead: to be elected, and then to enter it.
    Lead {
        /// By which algorithm; `None`: by that of the group.
        algorithm: Option<ElectionAlgorithm>,
    },
}

/// This process's command line, once it has been read.
static COMMAND: Mutex<Option<Arc<str>>> = Mutex::new(None);

impl Caller {
    /// This process and its command line.
    pub fn current() -> Self {
        let read = || -> Arc<str> {
            let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
            words.collect::<Vec<_>>().join(" ").into()
        };
        // Another thread may have held it at a fork: in a child it is never waited for.
        let command = match COMMAND.try_lock() {
            Some(mut known) => Arc::clone(known.get_or_insert_with(read)),
            None => read(),
        };
        Self {
            pid: std::process::id(),
            command,
            command_pid: None,
            has_lifeline: false,
            purpose: Purpose::Enter,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in a child of a fork that came while another thread had it.
    #[test]
    fn nobody_waits_for_the_command_line() {
        let known = Caller::current().command;
        let held = COMMAND.lock();
        assert_eq!(Caller::current().command, known);
        drop(held);
    }
}
