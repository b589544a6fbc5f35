//! The counting semaphore: several holders at a time.

use std::fmt;
use std::num::NonZeroU32;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::{Duration, Instant};

use distlock_agent::protocol::{LockName, Mode};

use crate::error::{LockError, TimedLockError, TryLockError};
use crate::guard::Guard;
use crate::handle::{LockHandle, until};
use crate::locking::{Locking, TimedLocking};
use crate::waiting::{TimedWaiting, Waiting};

/// A counting semaphore that processes share: see [`Agent::semaphore`](crate::Agent::semaphore).
///
/// A permit is a [`Guard`], and comes back when the guard is dropped or its process dies. With
/// more than one permit a fence identifies its grant, and orders nothing. A clone is the same
/// semaphore, and cheap.
///
/// ```
/// use std::num::NonZeroU32;
///
/// use distlock::{Agent, TryLockError};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let agent = Agent::local_in(directory.path())?;
/// # /*
/// let agent = Agent::open()?;
/// # */
/// let licences = agent.semaphore("licences", NonZeroU32::new(2))?;
/// let first = licences.acquire()?;
/// let _second = licences.acquire()?;
/// assert!(matches!(licences.try_acquire(), Err(TryLockError::WouldBlock)));
/// drop(first);
/// let _third = licences.try_acquire()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Semaphore {
    handle: LockHandle,
}

/// As [`Agent`](crate::Agent) is.
impl UnwindSafe for Semaphore {}
impl RefUnwindSafe for Semaphore {}

impl Semaphore {
    pub(crate) fn new(handle: LockHandle) -> Self {
        Self { handle }
    }

    /// The name.
    pub fn name(&self) -> &LockName {
        self.handle.name()
    }

    /// How many may be inside at a time.
    pub fn permits(&self) -> NonZeroU32 {
        self.handle.permits()
    }

    /// Waits for a permit.
    ///
    /// # Errors
    /// As for [`DistMutex::lock`](crate::DistMutex::lock). [`LockError::Deadlock`] means that
    /// this thread has all the permits itself.
    pub fn acquire(&self) -> Result<Guard, LockError> {
        self.handle.wait(Mode::Exclusive)
    }

    /// Asks for a permit, and does not wait, as [`DistMutex::begin`](crate::DistMutex::begin).
    ///
    /// # Errors
    /// As for [`DistMutex::begin`](crate::DistMutex::begin).
    pub fn begin(&self) -> Result<Waiting, LockError> {
        Waiting::begin(&self.handle, Mode::Exclusive)
    }

    /// The same for at most `timeout` from now on.
    ///
    /// # Errors
    /// As for [`DistMutex::begin`](crate::DistMutex::begin).
    pub fn begin_for(&self, timeout: Duration) -> Result<TimedWaiting, LockError> {
        TimedWaiting::begin(&self.handle, Mode::Exclusive, timeout)
    }

    /// Waits for a permit, as a future: see [`DistMutex::lock_async`](crate::DistMutex::lock_async).
    pub fn acquire_async(&self) -> Locking {
        Locking::new(&self.handle, Mode::Exclusive)
    }

    /// The same for at most `timeout`, from the first poll on.
    pub fn acquire_async_for(&self, timeout: Duration) -> TimedLocking {
        TimedLocking::new(&self.handle, Mode::Exclusive, timeout)
    }

    /// Takes a permit if there is one.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if there is none; else as for [`Semaphore::acquire`].
    pub fn try_acquire(&self) -> Result<Guard, TryLockError> {
        self.handle.attempt(Mode::Exclusive)
    }

    /// Waits for a permit for at most `timeout`.
    ///
    /// # Errors
    /// [`TimedLockError::TimedOut`] when the time is over; else as for [`Semaphore::acquire`].
    pub fn try_acquire_for(&self, timeout: Duration) -> Result<Guard, TimedLockError> {
        self.handle.wait_for(Mode::Exclusive, timeout)
    }

    /// Waits for a permit until `deadline` at most; one that has passed is a timeout of zero.
    ///
    /// # Errors
    /// As for [`Semaphore::try_acquire_for`].
    pub fn try_acquire_until(&self, deadline: Instant) -> Result<Guard, TimedLockError> {
        self.try_acquire_for(until(deadline))
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("name", self.handle.name())
            .field("permits", &self.permits())
            .finish_non_exhaustive()
    }
}
