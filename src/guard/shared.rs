//! What a guard shares with its agent.

use std::process::abort;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use distlock_agent::protocol::{Fence, Release, Time};
use distlock_agent::runtime::sync::Mutex;
use distlock_agent::runtime::{Loss, LossSignal, Settling, clock};

use crate::GuardState;
use crate::backend::Hold;
use crate::error::UnlockError;
use crate::lock::LockShared;
use crate::previous_owner::PreviousOwner;
use crate::session::Held;
use crate::thread::ThreadId;

/// Whether a guard's end waits to learn how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    AtOnce,
    Settle,
}

/// What a guard shares with its agent, which may close before the guard is dropped.
pub(crate) struct GuardShared {
    pub(super) id: u64,
    pub(crate) lock: Arc<LockShared>,
    pub(super) thread: ThreadId,
    pub(super) fence: Option<Fence>,
    pub(super) previous: PreviousOwner,
    /// Whether it was granted to a thread that was panicking already.
    pub(super) in_panic: bool,
    /// Whether the process ends with the lock.
    pub(super) aborts: AtomicBool,
    /// The lapses of its lease before it was to abort.
    pub(super) lapses: AtomicU64,
    pub(crate) loss: LossSignal,
    /// `None` once it is released.
    pub(super) hold: Mutex<Option<Box<dyn Hold>>>,
}

impl GuardShared {
    pub(crate) fn new(
        lock: Arc<LockShared>,
        id: u64,
        hold: Box<dyn Hold>,
        thread: ThreadId,
    ) -> Self {
        let (fence, previous, loss) = (hold.fence(), hold.previous_owner(), hold.loss());
        Self {
            id,
            lock,
            thread,
            fence,
            previous,
            in_panic: thread::panicking(),
            aborts: AtomicBool::new(false),
            lapses: AtomicU64::new(0),
            loss,
            hold: Mutex::new(Some(hold)),
        }
    }

    /// What the lock is worth to this process.
    pub(crate) fn state(&self) -> GuardState {
        let hold = self.hold.lock();
        match hold.as_ref() {
            Some(hold) if !self.loss.is_lost() => hold.state(),
            _ => GuardState::Lost,
        }
    }

    /// How often its lease has run out and was renewed after that.
    pub(crate) fn lapses(&self) -> u64 {
        self.hold.lock().as_ref().map_or(0, |hold| hold.lapses())
    }

    /// When its lease is over, as far as is known; [`Time::MAX`] if none bounds it.
    pub(crate) fn lease_end(&self) -> Time {
        // The clock is read first, so that this is not too late.
        let now = clock::now();
        let grace = self.hold.lock().as_ref().and_then(|hold| hold.grace());
        grace.map_or(Time::MAX, |grace| now + grace)
    }

    /// Ends the process with SIGABRT when the lock is lost, but not when its agent closes; when to
    /// see for the first time whether the lease has run out.
    pub(crate) fn abort_on_loss(&self) -> Time {
        self.lapses.store(self.lapses(), Ordering::Relaxed);
        self.aborts.store(true, Ordering::Relaxed);
        self.loss.on_loss(Box::new(|loss| {
            if loss == Loss::Revoked {
                abort();
            }
        }));
        self.abort_if_suspended()
    }

    /// The guard's end. The second call (unlocking, then dropping) does nothing.
    pub(super) fn end(self: &Arc<Self>, how: Release, ending: Ending) -> Result<(), UnlockError> {
        self.end_by(|hold| match ending {
            Ending::AtOnce => hold.release(how),
            Ending::Settle => hold.settle(how),
        })
    }

    /// The same without waiting: what is to be waited for, if how it ended is not known yet.
    pub(super) fn end_later(
        self: &Arc<Self>,
        how: Release,
    ) -> Result<Option<Settling>, UnlockError> {
        self.end_by(|hold| hold.settle_later(how))
    }

    fn end_by<T: Default>(
        self: &Arc<Self>,
        give_back: impl FnOnce(Box<dyn Hold>) -> Result<T, UnlockError>,
    ) -> Result<T, UnlockError> {
        if self.lock.is_forked() {
            match self.hold.try_lock() {
                Some(mut hold) => {
                    if let Some(hold) = hold.take() {
                        hold.forget();
                    }
                }
                // A thread of the parent had the mutex at the fork: leak what it guards.
                None => std::mem::forget(Arc::clone(self)),
            }
            return Err(UnlockError::Forked);
        }
        let Some(hold) = self.hold.lock().take() else {
            let lost = self.loss.reason();
            return lost.map_or(Ok(T::default()), |loss| Err(lost_by(loss)));
        };
        let lost = match self.loss.reason() {
            None if hold.state() == GuardState::Lost => Some(Loss::Revoked),
            reason => reason,
        };
        // Before the release: this thread may lock again as soon as others may.
        self.lock.unregister(self.id, self.thread);
        let released = give_back(hold);
        self.lock.was_released();
        self.loss.settle();
        // Closed: the agent is closing, and was about to release it.
        lost.map_or(released, |loss| Err(lost_by(loss)))
    }
}

/// What an unlock says that came after the loss.
fn lost_by(loss: Loss) -> UnlockError {
    match loss {
        Loss::Closed => UnlockError::Closed,
        _ => UnlockError::Lost,
    }
}

impl Held for GuardShared {
    fn abort_if_suspended(&self) -> Time {
        if !self.aborts.load(Ordering::Relaxed) {
            return Time::MAX;
        }
        // The clock is read first, so that this is not too late.
        let now = clock::now();
        let hold = self.hold.lock();
        let Some(hold) = hold.as_ref().filter(|_| !self.loss.is_lost()) else {
            return Time::MAX;
        };
        let grace = hold.grace();
        let has_lapsed = hold.lapses() != self.lapses.load(Ordering::Relaxed);
        if hold.state() == GuardState::Suspended || has_lapsed {
            abort();
        }
        grace.map_or(Time::MAX, |grace| now + grace)
    }

    fn close(&self) {
        self.loss.fire(Loss::Closed);
        let hold = self.hold.lock().take();
        if let Some(hold) = hold {
            // The agent is closing: there is nobody left to tell.
            let _ = hold.release(Release::Given);
            self.lock.unregister(self.id, self.thread);
        }
    }
}
