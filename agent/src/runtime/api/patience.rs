//! How long a caller waits.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::protocol::{MAX_TRY_TIME, Time, Wait};
#[cfg(doc)]
use crate::runtime::api::error::AcquireError;
use crate::runtime::os::clock;

/// How long a caller that does not wait for the lock waits for the group's answer.
const TRY_TIME: Duration = MAX_TRY_TIME.saturating_add(Duration::from_millis(100));
/// How long an agent may take to answer that a request is cancelled.
const CANCEL_TIME: Duration = Duration::from_millis(200);
/// How many leases a change may take: one for the removed member's own, one for the view, and some.
const CHANGE_LEASES: u32 = 4;
/// How long it may take where leases are short: changes are collected, and views keep a distance.
const LEAST_CHANGE: Duration = Duration::from_secs(4);

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

    /// By when whoever decides has to answer that a request is cancelled now. A caller that looks only after
    /// its own time is over, as it was stopped, has not waited for that answer yet.
    pub(crate) fn of_answer() -> Time {
        clock::now() + CANCEL_TIME
    }

    /// The same, but over at `end`.
    pub(crate) fn within(self, end: Time) -> Self {
        Self {
            cancel: self.cancel.min(end - CANCEL_TIME),
            end: self.end.min(end),
        }
    }
}

/// For how long a change is asked for.
pub(crate) fn change_takes(lease: Duration) -> Duration {
    (lease * CHANGE_LEASES).max(LEAST_CHANGE)
}

/// When a change is answered at the latest: voters count for one lease what a member has asked for last, and then
/// somebody may ask for the opposite.
pub(crate) fn change_is_answered_within(lease: Duration) -> Duration {
    change_takes(lease) + lease * 5 / 4
}
