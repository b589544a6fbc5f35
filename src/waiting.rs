//! A request that is looked at, and not waited for.

use std::fmt;
use std::panic::UnwindSafe;
use std::task::Poll;
use std::time::Duration;

use distlock_agent::protocol::{LockName, Time};
use distlock_agent::runtime::clock;

use crate::backend::{Patience, Wish};
use crate::error::{LockError, TimedLockError};
use crate::guard::Guard;
use crate::handle::{LockHandle, LockRequest};

/// A request for a lock that has no outcome yet: see
/// [`DistMutex::begin`](crate::DistMutex::begin). It keeps its place among all requests. Dropping
/// it withdraws it.
///
/// ```
/// use std::task::Poll;
///
/// use distlock::{Agent, DistMutex};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let agent = Agent::local_in(directory.path())?;
/// # let other = Agent::local_in(directory.path())?.mutex("printer")?.lock()?;
/// let mut waiting = agent.mutex("printer")?.begin()?; // another process holds it
/// assert!(matches!(waiting.poll(), Poll::Pending));
/// # drop(other);
/// let guard = waiting.wait()?; // blocks, when nothing else is left to do
/// # drop(guard);
/// # Ok(())
/// # }
/// ```
///
/// Its lock may have been granted before [`Waiting::poll`] tells so; others wait from then on, also
/// if nobody ever looks.
#[must_use = "the request is withdrawn when it is dropped"]
pub struct Waiting {
    handle: LockHandle,
    /// `None` once the outcome was told.
    request: Option<LockRequest>,
}

/// As [`Agent`](crate::Agent) is.
impl UnwindSafe for Waiting {}

impl Waiting {
    pub(crate) fn begin(handle: &LockHandle, wish: impl Into<Wish>) -> Result<Self, LockError> {
        let mut request = handle.begin(wish, Patience::Lease)?;
        request.ask()?;
        Ok(Self {
            handle: handle.clone(),
            request: Some(request),
        })
    }

    /// The name of the lock.
    pub fn name(&self) -> &LockName {
        self.handle.name()
    }

    /// The outcome, if there is one by now. It does not wait, and of a
    /// [`Driven`](crate::Driven) agent it processes nothing.
    ///
    /// # Errors
    /// As for [`DistMutex::lock`](crate::DistMutex::lock); [`LockError::Finished`] after it has
    /// returned the outcome.
    pub fn poll(&mut self) -> Poll<Result<Guard, LockError>> {
        self.look(Some(Duration::ZERO))
    }

    /// The outcome, if there is one within `slice`, or not much later: for a caller that looks after
    /// something else between two slices. The request keeps its place from call to call.
    ///
    /// ```
    /// use std::task::Poll;
    /// use std::time::Duration;
    ///
    /// use distlock::{Agent, DistMutex};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let agent = Agent::local_in(directory.path())?;
    /// let mut waiting = agent.mutex("printer")?.begin()?;
    /// let guard = loop {
    ///     if let Poll::Ready(outcome) = waiting.wait_slice(Duration::from_millis(100)) {
    ///         break outcome?;
    ///     }
    ///     // Has the user pressed Ctrl-C?
    /// };
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Waiting::poll`].
    pub fn wait_slice(&mut self, slice: Duration) -> Poll<Result<Guard, LockError>> {
        self.look(Some(slice))
    }

    /// Waits for the outcome, as [`DistMutex::lock`](crate::DistMutex::lock) does.
    ///
    /// # Errors
    /// As for [`DistMutex::lock`](crate::DistMutex::lock); [`LockError::Finished`] if
    /// [`Waiting::poll`] has returned the outcome.
    pub fn wait(mut self) -> Result<Guard, LockError> {
        loop {
            if let Poll::Ready(outcome) = self.look(None) {
                return outcome;
            }
        }
    }

    fn look(&mut self, slice: Option<Duration>) -> Poll<Result<Guard, LockError>> {
        let Some(request) = self.request.as_mut() else {
            return Poll::Ready(Err(LockError::Finished));
        };
        let outcome = request.wait_on(slice);
        if outcome.is_ready() {
            self.request = None;
        }
        outcome
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting")
            .field("name", self.name())
            .finish_non_exhaustive()
    }
}

/// A request that waits for a limited time, and has no outcome yet: see
/// [`DistMutex::begin_for`](crate::DistMutex::begin_for). The time runs from then on. Else it is as
/// [`Waiting`]; dropping it withdraws the request.
#[must_use = "the request is withdrawn when it is dropped"]
pub struct TimedWaiting {
    handle: LockHandle,
    wish: Wish,
    deadline: Time,
    /// `None` once the outcome was told.
    request: Option<LockRequest>,
}

/// As [`Agent`](crate::Agent) is.
impl UnwindSafe for TimedWaiting {}

impl TimedWaiting {
    pub(crate) fn begin(
        handle: &LockHandle,
        wish: impl Into<Wish>,
        timeout: Duration,
    ) -> Result<Self, LockError> {
        let wish = wish.into();
        let deadline = clock::now() + timeout;
        Ok(Self {
            handle: handle.clone(),
            wish,
            deadline,
            request: Some(ask(handle, wish, timeout)?),
        })
    }

    /// The name of the lock.
    pub fn name(&self) -> &LockName {
        self.handle.name()
    }

    /// The outcome, if there is one by now, as [`Waiting::poll`] tells it.
    ///
    /// # Errors
    /// As for [`DistMutex::try_lock_for`](crate::DistMutex::try_lock_for); [`LockError::Finished`]
    /// after it has returned the outcome.
    pub fn poll(&mut self) -> Poll<Result<Guard, TimedLockError>> {
        self.wait_slice(Duration::ZERO)
    }

    /// The outcome, if there is one within `slice`, or not much later. The request keeps its place
    /// from call to call.
    ///
    /// # Errors
    /// As for [`TimedWaiting::poll`].
    pub fn wait_slice(&mut self, slice: Duration) -> Poll<Result<Guard, TimedLockError>> {
        let Some(mut request) = self.request.take() else {
            return Poll::Ready(Err(LockError::Finished.into()));
        };
        match request.wait(Some(slice)) {
            Poll::Ready(Ok(Some(guard))) => Poll::Ready(Ok(guard)),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            Poll::Ready(Ok(None)) => {
                let left = self.deadline.since(clock::now());
                if left.is_zero() {
                    return Poll::Ready(Err(TimedLockError::TimedOut));
                }
                match ask(&self.handle, self.wish, left) {
                    Ok(request) => self.request = Some(request),
                    Err(error) => return Poll::Ready(Err(error.into())),
                }
                Poll::Pending
            }
            Poll::Pending => {
                self.request = Some(request);
                Poll::Pending
            }
        }
    }
}

impl fmt::Debug for TimedWaiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimedWaiting")
            .field("name", self.name())
            .finish_non_exhaustive()
    }
}

fn ask(handle: &LockHandle, wish: Wish, timeout: Duration) -> Result<LockRequest, LockError> {
    let mut request = handle.begin(wish, Patience::For(timeout))?;
    request.ask()?;
    Ok(request)
}
