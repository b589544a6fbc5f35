//! Futures that wait for a lock. They are on the standard library alone, and run on any executor.

use std::fmt;
use std::future::Future;
use std::panic::UnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use distlock_agent::protocol::{LockName, Time};
use distlock_agent::runtime::clock;

use crate::backend::{Patience, Wish};
use crate::error::{LockError, TimedLockError};
use crate::guard::Guard;
use crate::handle::{LockHandle, LockRequest};
use crate::session::TaskTimer;
use crate::thread::ThreadId;

/// Waits for a lock: see [`DistMutex::lock_async`](crate::DistMutex::lock_async) and
/// [`Semaphore::acquire_async`](crate::Semaphore::acquire_async).
///
/// The request is made when it is polled first, and keeps its place from then on, also while nobody polls.
/// Polling it after it has told its outcome gives [`LockError::Finished`].
///
/// # Cancel safety
/// Dropping it at any time withdraws the request, and gives back what was granted at that moment: nothing stays
/// held. Its place among those that wait is lost. So in a loop over `select!` keep it outside of the loop, and
/// poll `&mut` of it.
///
/// ```
/// use distlock::{Agent, DistMutex};
///
/// # async fn on_a_runtime() -> Result<(), Box<dyn std::error::Error>> {
/// let printer = Agent::open()?.mutex("printer")?;
/// let guard = printer.lock_async().await?;
/// // inside
/// drop(guard);
/// # Ok(())
/// # }
/// ```
#[must_use = "a future does nothing unless it is polled"]
pub struct Locking {
    handle: LockHandle,
    wish: Wish,
    patience: Patience,
    stage: Stage,
    timer: TaskTimer,
}

enum Stage {
    /// It was not polled yet.
    New,
    Asked(LockRequest),
    /// The outcome was told.
    Over,
}

/// As [`Agent`](crate::Agent) is.
impl UnwindSafe for Locking {}

impl Locking {
    pub(crate) fn new(handle: &LockHandle, wish: impl Into<Wish>) -> Self {
        Self::with_patience(handle, wish.into(), Patience::Lease)
    }

    fn with_patience(handle: &LockHandle, wish: Wish, patience: Patience) -> Self {
        Self {
            handle: handle.clone(),
            wish,
            patience,
            stage: Stage::New,
            timer: TaskTimer::new(handle.session()),
        }
    }

    /// The name of the lock.
    pub fn name(&self) -> &LockName {
        self.handle.name()
    }

    /// `None`: another held the lock for as long as the caller waits.
    fn look(&mut self, task: &Waker) -> Poll<Result<Option<Guard>, LockError>> {
        if matches!(self.stage, Stage::New) {
            if let Some(guard) = self.handle.enter_at_once(self.wish, ThreadId::TASK) {
                return Poll::Ready(Ok(Some(guard)));
            }
            let request = self
                .handle
                .request(self.wish, self.patience, false, ThreadId::TASK);
            self.stage = match request.and_then(|mut request| request.ask().map(|()| request)) {
                Ok(request) => Stage::Asked(request),
                Err(error) => return Poll::Ready(Err(error)),
            };
        }
        loop {
            let Stage::Asked(request) = &mut self.stage else {
                return Poll::Ready(Err(LockError::Finished));
            };
            if let Poll::Ready(outcome) = request.poll() {
                return Poll::Ready(outcome);
            }
            // What comes between the two is seen by the second one.
            let at = request.wake_by(task);
            if at > clock::now() {
                return match self.timer.set(at, task) {
                    Ok(()) => Poll::Pending,
                    Err(error) => {
                        let what = "start the thread that wakes tasks".to_owned();
                        Poll::Ready(Err(LockError::io(what, error)))
                    }
                };
            }
        }
    }

    fn settle<T>(&mut self, outcome: Poll<T>) -> Poll<T> {
        if outcome.is_ready() {
            self.stage = Stage::Over;
            self.timer.clear();
        }
        outcome
    }
}

impl Future for Locking {
    type Output = Result<Guard, LockError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let outcome = self.look(context.waker());
            match self.settle(outcome) {
                Poll::Ready(Ok(Some(guard))) => return Poll::Ready(Ok(guard)),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                // It waits for as long as another holds the lock: so it asks again.
                Poll::Ready(Ok(None)) => self.stage = Stage::New,
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl fmt::Debug for Locking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locking")
            .field("name", self.name())
            .finish_non_exhaustive()
    }
}

/// Waits for a lock for a limited time: see
/// [`DistMutex::lock_async_for`](crate::DistMutex::lock_async_for).
///
/// The time runs from the first poll on. Else it is as [`Locking`]; dropping it at any time withdraws the request.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub struct TimedLocking {
    locking: Locking,
    timeout: Duration,
    /// From the first poll on.
    deadline: Option<Time>,
}

impl TimedLocking {
    pub(crate) fn new(handle: &LockHandle, wish: impl Into<Wish>, timeout: Duration) -> Self {
        let patience = Patience::For(timeout);
        Self {
            locking: Locking::with_patience(handle, wish.into(), patience),
            timeout,
            deadline: None,
        }
    }

    /// The name of the lock.
    pub fn name(&self) -> &LockName {
        self.locking.name()
    }
}

impl Future for TimedLocking {
    type Output = Result<Guard, TimedLockError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let timeout = self.timeout;
        let deadline = *self.deadline.get_or_insert_with(|| clock::now() + timeout);
        loop {
            let outcome = self.locking.look(context.waker());
            match self.locking.settle(outcome) {
                Poll::Ready(Ok(Some(guard))) => return Poll::Ready(Ok(guard)),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Ready(Ok(None)) => {
                    let left = deadline.since(clock::now());
                    if left.is_zero() {
                        return Poll::Ready(Err(TimedLockError::TimedOut));
                    }
                    self.locking.patience = Patience::For(left);
                    self.locking.stage = Stage::New;
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
