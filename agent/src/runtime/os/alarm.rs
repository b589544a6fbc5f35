//! An alarm: a timer of the clock by which leases run.
//!
//! The timeouts of poll(2), epoll_wait(2) and condition variables are measured by `CLOCK_MONOTONIC`,
//! which stands still while the host is suspended. A lease goes on meanwhile. Whoever sleeps until a
//! lease ends therefore waits for an alarm: it is set to a time of `CLOCK_BOOTTIME`, and if that has
//! passed in a suspend, it goes off as soon as the host wakes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::protocol::Time;
use crate::runtime::os::clock;

/// [`Alarm`]'s `at` while it is off. No clock shows it.
const OFF: u64 = u64::MAX;

/// A descriptor that is readable from a given time on, also if the host was suspended at that time.
/// Setting it again makes it unreadable until the new time. It is close-on-exec.
#[derive(Debug)]
pub struct Alarm {
    timer: TimerFd,
    /// What it was set to last, in nanoseconds.
    at: AtomicU64,
}

impl Alarm {
    /// An alarm that is off.
    ///
    /// # Errors
    /// If no descriptor is left.
    pub fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        Ok(Self {
            timer: TimerFd::new(ClockId::CLOCK_BOOTTIME, flags)?,
            at: AtomicU64::new(OFF),
        })
    }

    /// Sets it to `at`, or turns it off. Of two threads that set it at once either may win: callers
    /// that share an alarm do this under a mutex of theirs.
    ///
    /// # Errors
    /// Only if the kernel refuses an open timer, which it has no reason to.
    pub fn set(&self, at: Option<Time>) -> io::Result<()> {
        let at = at.map_or(OFF, Time::as_nanos);
        let is_same = self.at.swap(at, Ordering::Relaxed) == at;
        // One that has gone off is set again all the same: an edge-triggered epoll that has told of it
        // tells no second time.
        if is_same && Time::from_nanos(at) > clock::now() {
            return Ok(());
        }
        let set = match at {
            OFF => self.timer.unset(),
            at => {
                let flags = TimerSetTimeFlags::TFD_TIMER_ABSTIME;
                self.timer.set(expiration(Time::from_nanos(at)), flags)
            }
        };
        if set.is_err() {
            // Nobody may rely on it.
            self.at.store(0, Ordering::Relaxed);
        }
        set.map_err(Errno::into)
    }

    /// Has it go off at `at`, or earlier: one that is to go off before anyway is left as it is, which
    /// saves a system call.
    ///
    /// # Errors
    /// As for [`Alarm::set`].
    pub(crate) fn set_by(&self, at: Time, now: Time) -> io::Result<()> {
        let set = Time::from_nanos(self.at.load(Ordering::Relaxed));
        if now < set && set <= at {
            return Ok(());
        }
        self.set(Some(at))
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

/// `at` as a timer takes it.
pub(crate) fn expiration(at: Time) -> Expiration {
    // Zero would turn it off.
    let at = Duration::from_nanos(at.as_nanos().max(1));
    Expiration::OneShot(TimeSpec::from_duration(at))
}

#[cfg(test)]
mod tests {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn is_due(alarm: &Alarm, timeout: PollTimeout) -> bool {
        let mut fds = [PollFd::new(alarm.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, timeout).unwrap() == 1
    }

    #[test]
    fn goes_off_by_its_time() {
        let alarm = Alarm::new().unwrap();
        let soon = clock::now() + Duration::from_millis(20);
        alarm.set_by(soon, clock::now()).unwrap();
        let late = soon + Duration::from_secs(3_600);
        alarm.set_by(late, clock::now()).unwrap();
        assert!(is_due(&alarm, PollTimeout::NONE), "as it was set before");
        assert!(clock::now() >= soon);
        alarm.set_by(late, clock::now()).unwrap();
        assert!(!is_due(&alarm, PollTimeout::ZERO), "set anew");
        let soon = clock::now() + Duration::from_millis(20);
        alarm.set_by(soon, clock::now()).unwrap();
        assert!(is_due(&alarm, PollTimeout::NONE), "earlier than set");
    }

    #[test]
    fn goes_off_at_its_time_and_not_before() {
        let alarm = Alarm::new().unwrap();
        assert!(!is_due(&alarm, PollTimeout::ZERO), "it is off");
        let soon = clock::now() + Duration::from_millis(20);
        alarm.set(Some(soon)).unwrap();
        assert!(is_due(&alarm, PollTimeout::NONE));
        assert!(clock::now() >= soon);
        alarm.set(Some(soon + Duration::from_secs(3_600))).unwrap();
        assert!(!is_due(&alarm, PollTimeout::ZERO));
        // What is over goes off at once, however long ago it was.
        alarm.set(Some(Time::ZERO)).unwrap();
        assert!(is_due(&alarm, PollTimeout::NONE));
        alarm.set(None).unwrap();
        assert!(!is_due(&alarm, PollTimeout::ZERO));
        alarm.set(Some(Time::MAX)).unwrap();
        assert!(!is_due(&alarm, PollTimeout::ZERO), "never");
    }
}
