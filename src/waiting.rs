//! A request that is looked at, and not waited for.

use std::fmt;
use std::panic::UnwindSafe;
use std::task::Poll;
use std::time::Duration;

use distlock_agent::protocol::LockName;

use crate::backend::{Patience, Wish};
use crate::error::LockError;
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
