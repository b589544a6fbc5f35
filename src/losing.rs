//! Futures that wait for the end of what a guard proves.

use std::fmt;
use std::future::Future;
use std::panic::UnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use distlock_agent::runtime::{Loss, LossFuture, LossSignal, Settling};

use crate::GuardState;
use crate::error::UnlockError;
use crate::guard::GuardShared;
use crate::session::{Session, TaskTimer};

/// Waits until a lock is lost: see [`Guard::lost`](crate::Guard::lost).
///
/// # Cancel safety
/// It may be dropped at any time, and nothing is missed by the next one.
#[must_use = "a future does nothing unless it is polled"]
pub struct Lost {
    /// `None` in a forked child, which holds nothing.
    signal: Option<LossFuture>,
}

impl Lost {
    pub(crate) fn new(signal: Option<LossSignal>) -> Self {
        Self {
            signal: signal.map(LossFuture::new),
        }
    }
}

/// As [`Agent`](crate::Agent) is.
impl UnwindSafe for Lost {}

impl Future for Lost {
    type Output = Option<Loss>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Loss>> {
        match &mut self.signal {
            Some(signal) => Pin::new(signal).poll(context),
            None => Poll::Ready(None),
        }
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lost").finish_non_exhaustive()
    }
}

/// Waits until a guard proves nothing any more: see [`Guard::invalid`](crate::Guard::invalid).
///
/// # Cancel safety
/// It may be dropped at any time. The next one looks from then on: a lease that has run out and was renewed in
/// between only [`Guard::lapses`](crate::Guard::lapses) tells.
#[must_use = "a future does nothing unless it is polled"]
pub struct Invalid {
    guard: Arc<GuardShared>,
    /// How often the lease had run out before.
    lapses: u64,
    loss: LossFuture,
    timer: TaskTimer,
}

/// As [`Agent`](crate::Agent) is.
impl UnwindSafe for Invalid {}

impl Invalid {
    pub(crate) fn new(guard: Arc<GuardShared>) -> Self {
        Self {
            lapses: guard.lapses(),
            loss: LossFuture::new(guard.loss.clone()),
            timer: TaskTimer::new(guard.lock.session()),
            guard,
        }
    }

    /// What it is worth, if that is nothing any more.
    fn look(&self) -> Poll<GuardState> {
        match self.guard.state() {
            // A renewal hides that nobody knew whether it was held.
            GuardState::Valid if self.guard.lapses() != self.lapses => {
                Poll::Ready(GuardState::Suspended)
            }
            GuardState::Valid => Poll::Pending,
            state => Poll::Ready(state),
        }
    }

    /// Has the task woken by whatever can be its end.
    fn wake_by(&mut self, context: &mut Context<'_>) {
        let has_ended = Pin::new(&mut self.loss).poll(context).is_ready();
        let task = context.waker();
        let end = self.guard.lease_end();
        // Without a thread that wakes the task when the lease is over the task polls all the time: that costs, and
        // misses nothing.
        if !has_ended && self.timer.set(end, task).is_err() {
            task.wake_by_ref();
        }
    }
}

impl Future for Invalid {
    type Output = GuardState;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<GuardState> {
        if self.guard.lock.is_forked() {
            return Poll::Ready(GuardState::Lost);
        }
        if let Poll::Ready(state) = self.look() {
            return Poll::Ready(state);
        }
        self.wake_by(context);
        // What came between the two.
        self.look()
    }
}

impl fmt::Debug for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invalid").finish_non_exhaustive()
    }
}

/// Waits until it is known how a guard ended that was unlocked when its lease was over.
pub(crate) struct Settled {
    settling: Settling,
    timer: TaskTimer,
}

impl Settled {
    pub(crate) fn new(settling: Settling, session: &Arc<Session>) -> Self {
        Self {
            settling,
            timer: TaskTimer::new(session),
        }
    }
}

impl Future for Settled {
    type Output = Result<(), UnlockError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let task = context.waker();
        let deadline = self.settling.deadline();
        // Without a thread that wakes the task it polls all the time.
        if self.timer.set(deadline, task).is_err() {
            task.wake_by_ref();
        }
        let settled = self.settling.poll(task);
        settled.map(|outcome| outcome.map_err(|_| UnlockError::Lost))
    }
}
