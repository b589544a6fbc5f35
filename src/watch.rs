//! The end of a process that must not go on without its locks.
//!
//! That a lease runs out is no event: nobody says it. So a thread sleeps until it would, and looks.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use distlock_agent::protocol::Time;
use distlock_agent::runtime::sync::Mutex;
use distlock_agent::runtime::{Alarm, clock, thread};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// What is watched over.
pub(crate) trait Watched: Send + Sync + 'static {
    /// Acts on what is over; when to look again, which with [`Time::MAX`] is never.
    fn look(&self) -> Time;
}

/// The thread, and when it wakes.
#[derive(Default)]
pub(crate) struct Watch {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What the thread sleeps by; `None` before it is started.
    alarm: Option<Arc<Alarm>>,
    is_over: bool,
    /// When to look, if there is a reason to.
    at: Option<Time>,
}

impl State {
    /// Has the thread wake when it has something to do.
    fn set_alarm(&self) -> io::Result<()> {
        let at = if self.is_over {
            Some(Time::ZERO)
        } else {
            self.at
        };
        self.alarm.as_ref().map_or(Ok(()), |alarm| alarm.set(at))
    }
}

impl Watch {
    /// Starts the thread, unless it was started.
    ///
    /// # Errors
    /// If the system has no thread left, or no descriptor.
    pub(crate) fn start<W: Watched>(self: &Arc<Self>, watched: &Arc<W>) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.alarm.is_some() || state.is_over {
            return Ok(());
        }
        let alarm = Arc::new(Alarm::new()?);
        let of_thread = Arc::clone(&alarm);
        let (watch, watched) = (Arc::clone(self), Arc::downgrade(watched));
        thread::spawn("distlock-watch", move || watch.run(&of_thread, &watched))?;
        state.alarm = Some(alarm);
        state.set_alarm()
    }

    /// Has it look at this time at the latest.
    pub(crate) fn look_at(&self, time: Time) {
        let mut state = self.state.lock();
        if time != Time::MAX && state.at.is_none_or(|at| time < at) {
            state.at = Some(time);
            // The kernel has no reason to refuse; if it did, the thread would look too late.
            state.set_alarm().expect("a timer that is open can be set");
        }
    }

    /// Ends the thread, soon.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        let _ = state.set_alarm();
    }

    fn run<W: Watched>(&self, alarm: &Alarm, watched: &Weak<W>) {
        loop {
            let mut fds = [PollFd::new(alarm.as_fd(), PollFlags::POLLIN)];
            // Interrupted or not, the clock is looked at.
            let _ = poll(&mut fds, PollTimeout::NONE);
            {
                let mut state = self.state.lock();
                if state.is_over {
                    return;
                }
                if state.at.is_none_or(|at| clock::now() < at) {
                    continue;
                }
                // Before it looks: who comes meanwhile is not overlooked.
                state.at = None;
                let _ = state.set_alarm();
            }
            let Some(watched) = watched.upgrade() else {
                return;
            };
            let next = watched.look();
            drop(watched);
            self.look_at(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crossbeam_channel::{Receiver, Sender, bounded};

    use super::*;

    /// Says when it is looked at, and is told when that shall be again.
    struct Leases {
        looks: Sender<Time>,
        next: Receiver<Time>,
    }

    impl Watched for Leases {
        fn look(&self) -> Time {
            self.looks.send(clock::now()).unwrap();
            self.next.recv().unwrap()
        }
    }

    #[test]
    fn looks_when_a_lease_would_end() {
        let (looks, looked) = bounded(0);
        let (plan, next) = bounded(1);
        let leases = Arc::new(Leases { looks, next });
        let watch = Arc::new(Watch::default());
        watch.start(&leases).unwrap();
        watch.start(&leases).unwrap();
        let far = clock::now() + Duration::from_secs(3_600);
        let soon = clock::now() + Duration::from_millis(20);
        watch.look_at(far);
        watch.look_at(soon);
        assert!(looked.recv().unwrap() >= soon, "the nearer one counts");
        // What comes while it looks is not forgotten.
        let sooner = clock::now() + Duration::from_millis(20);
        watch.look_at(sooner);
        plan.send(far).unwrap();
        assert!(looked.recv().unwrap() >= sooner);
        plan.send(Time::MAX).unwrap();
        watch.end();
        while Arc::strong_count(&watch) > 1 {
            std::thread::yield_now();
        }
    }
}
