//! Which thread this is. `std::thread::current().id()` says so too, but makes an object for every
//! thread that is not Rust's own, and panics where that is gone already: in the destructors of a C
//! thread's data, where it may well unlock.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// A thread of this process; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadId(u64);

impl ThreadId {
    /// In place of a thread: a task, which runs on any of them.
    pub(crate) const TASK: Self = Self(0);

    /// Its number, which is zero for none but [`Self::TASK`].
    pub(crate) fn as_u64(self) -> u64 {
        self.0
    }

    /// The calling thread.
    pub(crate) fn current() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        thread_local! {
            static ID: Cell<u64> = const { Cell::new(0) };
        }
        Self(ID.with(|id| {
            if id.get() == 0 {
                id.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
            }
            id.get()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_has_its_own() {
        let here = ThreadId::current();
        assert_eq!(here, ThreadId::current());
        let there = std::thread::spawn(ThreadId::current).join().unwrap();
        assert_ne!(here, there);
    }
}
