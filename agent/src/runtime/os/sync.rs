//! The mutexes, condition variables and reader-writer locks of this library: std's, without
//! poisoning.
//!
//! Std's keep their whole state in themselves (Linux's futexes). So a child that was forked while
//! other threads worked can use all those that it makes itself; [`ForkStamp`](crate::runtime::ForkStamp)
//! keeps it away from those that it inherits. What queues the waiters of all locks in one table of
//! the process (parking_lot) does not do: another thread may have held a part of that table at the
//! fork, and what it lists are threads that the child does not have.
//!
//! Poisoning says that a thread panicked with a lock held. Here a panic in a step of the protocol
//! ends the session (`CoreGuard::guarded`), and no other code that may panic runs with a lock held; so
//! it says nothing more, and is left out.
//!
//! None of them is fair: a thread that unlocks and locks again at once may get ahead of one that
//! waits. Where that one must be next, there is a [`Queue`](crate::runtime::os::queue::Queue).

use std::sync::{self, PoisonError, TryLockError};
use std::time::Duration;

pub use std::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

/// [`std::sync::Mutex`] without poisoning.
#[derive(Debug, Default)]
pub struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A mutex that nobody holds.
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Waits until nobody else holds it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks it, unless somebody holds it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// What it protects, to one who has it alone.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it protected.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// [`std::sync::Condvar`] for a [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// A condition that nobody waits for.
    pub const fn new() -> Self {
        Self(sync::Condvar::new())
    }

    /// Unlocks, waits until it is notified, or for no reason, and locks again.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, for at most `timeout`.
    pub fn wait_for<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> MutexGuard<'a, T> {
        let (guard, _) = self
            .0
            .wait_timeout(guard, timeout)
            .unwrap_or_else(PoisonError::into_inner);
        guard
    }

    /// Wakes one that waits.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// [`std::sync::RwLock`] without poisoning.
#[derive(Debug, Default)]
pub struct RwLock<T>(sync::RwLock<T>);

impl<T> RwLock<T> {
    /// A lock that nobody holds.
    pub const fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }

    /// Waits until nobody writes.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody else reads or writes.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_panic_with_a_lock_held_poisons_nothing() {
        let (mut mutex, lock) = (Mutex::new(1), RwLock::new(1));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let (_mutex, _lock) = (mutex.lock(), lock.write());
            panic!("with both held");
        }));
        assert!(panicked.is_err());
        assert!(mutex.0.is_poisoned() && lock.0.is_poisoned());
        assert_eq!(*mutex.lock(), 1);
        assert_eq!(*mutex.try_lock().unwrap(), 1);
        assert_eq!(*lock.read(), 1);
        assert_eq!(*lock.write(), 1);
        let waited = Condvar::new().wait_for(mutex.lock(), Duration::from_millis(1));
        assert_eq!(*waited, 1);
        drop(waited);
        assert_eq!(*mutex.get_mut(), 1);
        assert_eq!(mutex.into_inner(), 1);
    }
}
