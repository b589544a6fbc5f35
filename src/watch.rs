//! The end of a process that must not go on without its locks.
//!
//! That a lease runs out is no event: nobody says it. So a thread sleeps until it would, and looks.

use std::io;
use std::sync::{Arc, Weak};
use std::thread;

use distlock_agent::protocol::Time;
use distlock_agent::runtime::clock;
use nix::sys::signal::{SigSet, SigmaskHow};
use parking_lot::{Condvar, Mutex};

/// What is watched over.
pub(crate) trait Watched: Send + Sync + 'static {
    /// Acts on what is over; when to look again, which with [`Time::MAX`] is never.
    fn look(&self) -> Time;
}

/// The thread, and when it wakes.
#[derive(Default)]
pub(crate) struct Watch {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_started: bool,
    is_over: bool,
    /// When to look, if there is a reason to.
    at: Option<Time>,
}

impl Watch {
    /// Starts the thread, unless it was started.
    ///
    /// # Errors
    /// If the system has none left.
    pub(crate) fn start<W: Watched>(self: &Arc<Self>, watched: &Arc<W>) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.is_started || state.is_over {
            return Ok(());
        }
        let (watch, watched) = (Arc::clone(self), Arc::downgrade(watched));
        // Signals are for the application's own threads.
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
        let started = thread::Builder::new()
            .name("distlock-watch".to_owned())
            .spawn(move || watch.run(&watched));
        before.thread_set_mask()?;
        state.is_started = started.is_ok();
        started.map(drop)
    }

    /// Has it look at this time at the latest.
    pub(crate) fn look_at(&self, time: Time) {
        let mut state = self.state.lock();
        if time != Time::MAX && state.at.is_none_or(|at| time < at) {
            state.at = Some(time);
            self.changed.notify_one();
        }
    }

    /// Ends the thread, soon.
    pub(crate) fn end(&self) {
        self.state.lock().is_over = true;
        self.changed.notify_one();
    }

    fn run<W: Watched>(&self, watched: &Weak<W>) {
        let mut state = self.state.lock();
        while !state.is_over {
            match state.at.map(|at| at.since(clock::now())) {
                None => self.changed.wait(&mut state),
                Some(left) if !left.is_zero() => {
                    self.changed.wait_for(&mut state, left);
                }
                Some(_) => {
                    // Before it looks: who comes meanwhile is not overlooked.
                    state.at = None;
                    drop(state);
                    let Some(watched) = watched.upgrade() else {
                        return;
                    };
                    let next = watched.look();
                    drop(watched);
                    state = self.state.lock();
                    if next != Time::MAX {
                        state.at = Some(state.at.map_or(next, |at| at.min(next)));
                    }
                }
            }
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
            thread::yield_now();
        }
    }
}
