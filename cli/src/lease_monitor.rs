//! Whether a command may go on under its lock: as its group and its lease say.

use std::cell::{Cell, OnceCell};
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use distlock::{Agent, Guard};
use distlock_agent::protocol::Time;
use distlock_agent::runtime::clock;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::exit::Failure;
use crate::refusal;

/// How often a lease is looked at that is to be renewed before the command may start.
const RENEWAL_POLL_MS: u8 = 5;

/// Whether a command may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// It may; to be asked again when the bell rings, and at that time if there is one.
    Granted {
        /// When to ask again.
        until: Option<Time>,
    },
    /// It must end: the lock is lost, or as good as lost.
    Ended {
        /// By then, so that nobody else is inside yet.
        kill: Time,
    },
}

/// How long the lock is good: until its group says otherwise, or its lease is nearly over. In the
/// local group neither happens.
#[derive(Debug)]
pub(crate) struct LeaseMonitor<'a> {
    guard: &'a Guard,
    /// Ends when the lock is lost.
    bell: PipeReader,
    lost: Arc<OnceLock<Time>>,
    /// Why the command may not go on, as it was seen first.
    why: OnceCell<Why>,
    lease: Duration,
    /// The lapses of the lease before the command began.
    lapses: Cell<u64>,
    lifeline: Option<PipeReader>,
}

/// Why a command may not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The lock is lost.
    Lost,
    /// The lease is nearly over.
    NotRenewed,
}

impl<'a> LeaseMonitor<'a> {
    /// Watches the lock of `guard`. `lifeline` ends with the last process that the command has started,
    /// where that is to be waited for.
    ///
    /// # Errors
    /// If no descriptor is left.
    pub(crate) fn new(
        agent: &Agent,
        guard: &'a Guard,
        lifeline: Option<PipeReader>,
    ) -> Result<Self, Failure> {
        let (bell, rope) = io::pipe().map_err(|error| refusal::system("open a pipe", error))?;
        let lost = Arc::new(OnceLock::new());
        let rope = Rope {
            lost: Arc::clone(&lost),
            _end: rope,
        };
        guard.on_loss(move |_| drop(rope));
        Ok(Self {
            guard,
            bell,
            lost,
            why: OnceCell::new(),
            lease: agent.lease().unwrap_or_default(),
            lapses: Cell::new(guard.lapses()),
            lifeline,
        })
    }

    /// How long a lease lasts.
    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    /// Becomes readable when the lock is lost.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Whether the command may go on.
    pub(crate) fn leave(&self) -> Leave {
        let leave = self.look();
        if matches!(leave, Leave::Ended { .. }) {
            self.note_why();
        }
        leave
    }

    /// Ends with the last process that the command has started, where that is to be waited for.
    pub(crate) fn lifeline(&self) -> Option<BorrowedFd<'_>> {
        self.lifeline.as_ref().map(AsFd::as_fd)
    }

    fn look(&self) -> Leave {
        // The clock is read first, so that the end is not taken to be later than it is.
        let now = clock::now();
        let end = self.guard.grace().map(|grace| now + grace);
        // A lease that ran out is over for the command, also if it was renewed after that.
        let has_lapsed = self.guard.lapses() != self.lapses.get();
        let end = if has_lapsed { Some(Time::ZERO) } else { end };
        leave(now, self.lost.get().copied(), end, self.lease)
    }

    fn note_why(&self) {
        let is_lost = self.lost.get().is_some();
        let why = if is_lost { Why::Lost } else { Why::NotRenewed };
        self.why.get_or_init(|| why);
    }

    /// Why the command was not started, or ended.
    pub(crate) fn why(&self) -> Option<Why> {
        self.why.get().copied()
    }

    /// Whether the command may be started. A lease that is nearly over is about to be renewed, or
    /// else to run out: which of them, is known soon.
    pub(crate) fn may_begin(&self) -> bool {
        let limit = clock::now() + self.lease;
        loop {
            // Nothing runs yet that must not outlive it.
            self.lapses.set(self.guard.lapses());
            let Leave::Ended { .. } = self.look() else {
                return true;
            };
            if self.lost.get().is_some() || clock::now() >= limit {
                self.note_why();
                return false;
            }
            let mut bell = [PollFd::new(self.bell.as_fd(), PollFlags::POLLIN)];
            // Interrupted or not, it is looked again.
            let _ = poll(&mut bell, PollTimeout::from(RENEWAL_POLL_MS));
        }
    }
}

/// Dropped when the lock is lost, and also if whoever should tell is gone.
#[derive(Debug)]
struct Rope {
    lost: Arc<OnceLock<Time>>,
    _end: PipeWriter,
}

impl Drop for Rope {
    fn drop(&mut self) {
        // Set before the pipe ends, which wakes who waits.
        let _ = self.lost.set(clock::now());
    }
}

/// Whether a command may go on at `now` under a lock that was lost at `lost`, if it was, and that
/// nobody else is given before `end`, if there is a lease. It is told to end when the lock is lost,
/// or a quarter of the lease before its end; and killed a tenth before, or half a lease after the
/// loss: what is left is for what takes long to be noticed, and for clocks that do not run alike.
fn leave(now: Time, lost: Option<Time>, end: Option<Time>, lease: Duration) -> Leave {
    let kill = end.map(|end| end - lease / 10);
    if let Some(lost) = lost {
        let kill = kill.into_iter().chain([lost + lease / 2]).min();
        return Leave::Ended {
            kill: kill.unwrap_or(lost),
        };
    }
    let ask = end.map(|end| end - lease / 4);
    match (ask, kill) {
        (Some(ask), Some(kill)) if ask <= now => Leave::Ended { kill },
        _ => Leave::Granted { until: ask },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(20);

    fn at(secs: u64) -> Time {
        Time::ZERO + Duration::from_secs(secs)
    }

    #[test]
    fn a_command_ends_before_its_lease_does() {
        let look = |now, lost: Option<u64>, end: Option<u64>| {
            leave(at(now), lost.map(at), end.map(at), LEASE)
        };
        let granted = |until: Option<u64>| Leave::Granted {
            until: until.map(at),
        };
        let ended = |kill| Leave::Ended { kill: at(kill) };
        assert_eq!(look(100, None, None), granted(None), "no lease");
        assert_eq!(look(100, None, Some(120)), granted(Some(115)));
        assert_eq!(look(114, None, Some(120)), granted(Some(115)));
        assert_eq!(look(115, None, Some(120)), ended(118));
        assert_eq!(look(500, None, Some(120)), ended(118), "it stood still");
        assert_eq!(look(101, Some(101), Some(120)), ended(111), "half a lease");
        assert_eq!(look(110, Some(110), Some(120)), ended(118), "no later");
        assert_eq!(look(101, Some(101), None), ended(111));
        assert_eq!(look(101, Some(101), Some(0)), ended(0), "nothing is left");
    }
}
