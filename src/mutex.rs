//! The mutex: one holder at a time.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use distlock_agent::protocol::{LockName, Mode};

use crate::Algorithm;
use crate::error::{LockError, TimedLockError, TryLockError};
use crate::guard::Guard;
use crate::handle::{LockHandle, until};
use crate::locking::{Locking, TimedLocking};
use crate::waiting::{TimedWaiting, Waiting};

/// Mutual exclusion across threads, processes and hosts: the methods of [`Mutex`], for code that takes any
/// lock.
///
/// `&`, [`Box`] and [`Arc`] of a `DistMutex` implement it too. The trait is object safe, and sealed: later
/// versions add methods.
///
/// ```
/// use distlock::{Agent, DistMutex};
///
/// fn print(lock: impl DistMutex) -> Result<(), distlock::LockError> {
///     let _guard = lock.lock()?;
///     println!("only one process prints");
///     Ok(())
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let printer = Agent::open()?.mutex("printer")?;
/// print(&printer)?;
/// let any: Box<dyn DistMutex> = Box::new(printer);
/// print(any)?;
/// # Ok(())
/// # }
/// ```
pub trait DistMutex: fmt::Debug + Send + Sync + sealed::Sealed {
    /// The name.
    fn name(&self) -> &LockName;

    /// The algorithm that serves it.
    fn algorithm(&self) -> Algorithm;

    /// Waits until this process is inside.
    ///
    /// # Errors
    /// If the agent closes meanwhile, if there was no quorum for one lease, if this thread holds the
    /// lock already, or if the system fails. Nothing is held then.
    fn lock(&self) -> Result<Guard, LockError>;

    /// Asks to enter, and does not wait: the outcome is looked at later. The request is sent now,
    /// and from now on has its place among all requests; in the local group, where nobody but the
    /// kernel is asked, among those of this process. Closing the agent, a quorum that is missing for
    /// a lease, and a thread that holds the lock already end it as they end [`DistMutex::lock`].
    ///
    /// # Errors
    /// As for [`DistMutex::lock`], as far as it is known at once.
    fn begin(&self) -> Result<Waiting, LockError>;

    /// The same for at most `timeout` from now on, also without a quorum.
    ///
    /// # Errors
    /// As for [`DistMutex::begin`].
    fn begin_for(&self, timeout: Duration) -> Result<TimedWaiting, LockError>;

    /// Waits until this process is inside, as a future: for tasks of any executor, on the standard library
    /// alone. What it costs beside [`DistMutex::lock`] is the executor's business. A task has no thread of its
    /// own, and so one that waits for what it holds itself waits for ever, and is not told
    /// [`LockError::Deadlock`].
    fn lock_async(&self) -> Locking;

    /// The same for at most `timeout`, from the first poll on, also without a quorum.
    fn lock_async_for(&self, timeout: Duration) -> TimedLocking;

    /// Enters if the lock is free. The group's answer is waited for one second at most.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if it is not, also if this thread holds it;
    /// [`LockError::NoAnswer`] if the host's agent, or another member, has not answered in time, so
    /// that it is not known whether the lock is free; else as
    /// for [`DistMutex::lock`].
    fn try_lock(&self) -> Result<Guard, TryLockError>;

    /// Waits for at most `timeout`, also without a quorum. Zero is [`DistMutex::try_lock`] with
    /// another error.
    ///
    /// # Errors
    /// [`TimedLockError::TimedOut`] when the time is over; 0.2 seconds later [`LockError::NoAnswer`] if
    /// the host's agent stands still; else as for [`DistMutex::lock`].
    fn try_lock_for(&self, timeout: Duration) -> Result<Guard, TimedLockError>;

    /// Waits until `deadline` at most; one that has passed is a timeout of zero.
    ///
    /// # Errors
    /// As for [`DistMutex::try_lock_for`].
    fn try_lock_until(&self, deadline: Instant) -> Result<Guard, TimedLockError> {
        self.try_lock_for(until(deadline))
    }

    /// The same lock, to be shared: its guards may be inside together with other shared ones,
    /// and never with an exclusive one. Their fences identify, and order nothing.
    ///
    /// The local group serves this, and in a configured one the algorithms [`Algorithm::Manager`] (the
    /// default) and [`Algorithm::Semaphore`], with one permit; elsewhere locking fails with
    /// [`LockError::NotShareable`]. A thread that has the lock in one way and waits for it in the
    /// other, or again, gets [`LockError::Deadlock`].
    fn shared(&self) -> Arc<dyn DistMutex>;
}

mod sealed {
    pub trait Sealed {}
}

/// A lock of a group, by name: see [`Agent::mutex`](crate::Agent::mutex). Its methods are those of
/// [`DistMutex`].
///
/// A clone is the same lock, and cheap.
///
/// ```
/// use distlock::{Agent, DistMutex};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let printer = Agent::open()?.mutex("printer")?;
/// let other = printer.clone();
/// let guard = printer.lock()?;
/// let refused = std::thread::spawn(move || other.try_lock().is_err());
/// assert!(refused.join().expect("no panic"));
/// guard.unlock()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Mutex {
    handle: LockHandle,
    mode: Mode,
}

impl Mutex {
    pub(crate) fn new(handle: LockHandle) -> Self {
        let mode = Mode::Exclusive;
        Self { handle, mode }
    }
}

/// As [`Agent`](crate::Agent) is.
impl UnwindSafe for Mutex {}
impl RefUnwindSafe for Mutex {}

impl sealed::Sealed for Mutex {}

impl DistMutex for Mutex {
    fn name(&self) -> &LockName {
        self.handle.name()
    }

    fn algorithm(&self) -> Algorithm {
        self.handle.algorithm()
    }

    fn lock(&self) -> Result<Guard, LockError> {
        self.handle.wait(self.mode)
    }

    fn begin(&self) -> Result<Waiting, LockError> {
        Waiting::begin(&self.handle, self.mode)
    }

    fn begin_for(&self, timeout: Duration) -> Result<TimedWaiting, LockError> {
        TimedWaiting::begin(&self.handle, self.mode, timeout)
    }

    fn lock_async(&self) -> Locking {
        Locking::new(&self.handle, self.mode)
    }

    fn lock_async_for(&self, timeout: Duration) -> TimedLocking {
        TimedLocking::new(&self.handle, self.mode, timeout)
    }

    fn try_lock(&self) -> Result<Guard, TryLockError> {
        self.handle.attempt(self.mode)
    }

    fn try_lock_for(&self, timeout: Duration) -> Result<Guard, TimedLockError> {
        self.handle.wait_for(self.mode, timeout)
    }

    fn shared(&self) -> Arc<dyn DistMutex> {
        Arc::new(Self {
            handle: self.handle.clone(),
            mode: Mode::Shared,
        })
    }
}

/// A pointer to a lock is that lock.
macro_rules! point_to {
    ($($pointer:ty),*) => {$(
        impl<T: DistMutex + ?Sized> sealed::Sealed for $pointer {}

        impl<T: DistMutex + ?Sized> DistMutex for $pointer {
            fn name(&self) -> &LockName {
                (**self).name()
            }

            fn algorithm(&self) -> Algorithm {
                (**self).algorithm()
            }

            fn lock(&self) -> Result<Guard, LockError> {
                (**self).lock()
            }

            fn begin(&self) -> Result<Waiting, LockError> {
                (**self).begin()
            }

            fn begin_for(&self, timeout: Duration) -> Result<TimedWaiting, LockError> {
                (**self).begin_for(timeout)
            }

            fn lock_async(&self) -> Locking {
                (**self).lock_async()
            }

            fn lock_async_for(&self, timeout: Duration) -> TimedLocking {
                (**self).lock_async_for(timeout)
            }

            fn try_lock(&self) -> Result<Guard, TryLockError> {
                (**self).try_lock()
            }

            fn try_lock_for(&self, timeout: Duration) -> Result<Guard, TimedLockError> {
                (**self).try_lock_for(timeout)
            }

            fn shared(&self) -> Arc<dyn DistMutex> {
                (**self).shared()
            }
        }
    )*};
}

point_to!(&T, Box<T>, Arc<T>);

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex")
            .field("name", self.handle.name())
            .field("algorithm", &self.algorithm())
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}
