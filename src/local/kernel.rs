//! One lock of the local group, for all threads of this process: its file, its queue, and its
//! courtesy.
//!
//! [`attempt`] takes a permit that is free, [`wait`] waits for one, and [`hold`] gives it back.
//!
//! A process that unlocks while others wait and wants in again would nearly always win against
//! the one it has just woken. It waits for [`COURTESY`] first.

mod attempt;
mod hold;
mod pace;
mod wait;

use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use distlock_agent::protocol::{LockName, Time};
use distlock_agent::runtime::clock;
use distlock_agent::runtime::queue::Queue;
use distlock_agent::runtime::sync::Mutex;

use super::directory::hash64;
use super::file::LockFile;
use super::page::Bell;
use super::shared::Shared;
use crate::error::LockError;

/// How long a process that unlocks leaves the lock to those that wait, before it competes with
/// them again.
const COURTESY: Duration = Duration::from_millis(1);

/// How often an attempt starts again when the file is replaced under it.
const MAX_REPLACEMENTS: u32 = 1_000;

/// One lock, for all threads of this process.
pub(crate) struct KernelLock {
    group: Arc<Shared>,
    name: LockName,
    hash: u64,
    permits: NonZeroU32,
    queue: Arc<Queue>,
    /// Where the search for a free permit starts.
    first_permit: AtomicU32,
    /// Whether there may be a file to remove at the end.
    is_used: AtomicBool,
    /// An open file without locks, for the next attempt.
    spare: Mutex<Option<LockFile>>,
    /// The last unlocking while others waited: what the bell said then, and when that is stale.
    courtesy: Mutex<Option<(u32, Time)>>,
}

impl KernelLock {
    pub(super) fn new(group: Arc<Shared>, name: LockName, permits: NonZeroU32) -> Self {
        Self {
            hash: hash64(name.as_bytes()),
            group,
            name,
            permits,
            queue: Arc::default(),
            first_permit: AtomicU32::new(std::process::id()),
            is_used: AtomicBool::new(false),
            spare: Mutex::new(None),
            courtesy: Mutex::new(None),
        }
    }

    /// Does one thing with this lock's bell. A second one takes another call, which looks again
    /// whether somebody has cut the page short.
    fn bell<R>(&self, action: impl FnOnce(Bell<'_>) -> R) -> Result<R, LockError> {
        Ok(action(self.group.page()?.bell(self.hash)))
    }

    /// Leaves the lock for a moment to those that waited when this process unlocked, at most until
    /// `deadline`; whether that moment is over.
    fn be_courteous(&self, deadline: Option<Time>) -> bool {
        let Some((count, end)) = self.courtesy.lock().take() else {
            return true;
        };
        let rest = deadline.map_or(end, |deadline| deadline.min(end));
        let rest = rest.since(clock::now());
        if !rest.is_zero() && self.bell(|bell| bell.listen(count, rest)).is_err() {
            return true;
        }
        let has_rung = self.bell(|bell| bell.count()).ok() != Some(count);
        let is_over = has_rung || end <= clock::now();
        if !is_over {
            *self.courtesy.lock() = Some((count, end));
        }
        is_over
    }

    /// When it is left no longer to those that waited, if it is.
    fn courtesy_end(&self) -> Time {
        self.courtesy.lock().map_or(Time::ZERO, |(_, end)| end)
    }

    /// Opens the lock's file. If that is for another number of permits and nobody uses it, it is
    /// replaced.
    fn open(&self) -> Result<LockFile, LockError> {
        self.is_used.store(true, Ordering::Relaxed);
        let directory = &self.group.directory;
        for _ in 0..MAX_REPLACEMENTS {
            let file = LockFile::open(directory, &self.name, self.permits)
                .map_err(|error| self.failed(error))?;
            if file.name() != &self.name {
                let error = io::Error::new(io::ErrorKind::InvalidData, "it is another lock's");
                return Err(self.failed(error));
            }
            if file.permits() == self.permits {
                return Ok(file);
            }
            let is_gone = file
                .retire(directory, true)
                .map_err(|error| self.failed(error))?;
            if !is_gone && !file.is_retiring().map_err(|error| self.failed(error))? {
                let (asked, actual) = (self.permits, file.permits());
                return Err(LockError::WrongPermits { asked, actual });
            }
            std::thread::yield_now();
        }
        Err(self.is_replaced_all_the_time())
    }

    /// Keeps an open file for the next attempt.
    fn keep(&self, file: Option<LockFile>) {
        *self.spare.lock() = file;
    }

    /// After a permit was given back: wakes a waiter, if there is one. It may just be awake.
    fn leave_to_waiters(&self, is_awaited: bool) {
        // Where there is no page nobody can be woken, and they look by themselves.
        let rung = is_awaited
            .then(|| self.bell(|bell| bell.ring()).ok())
            .flatten();
        *self.courtesy.lock() = rung.map(|count| (count, clock::now() + COURTESY));
    }

    fn is_replaced_all_the_time(&self) -> LockError {
        let what = format!(
            "the file of the lock {} is replaced all the time",
            self.name
        );
        LockError::Limit { what }
    }

    fn failed(&self, source: io::Error) -> LockError {
        let file = self
            .group
            .directory
            .path()
            .join(LockFile::file_name(&self.name));
        LockError::io(
            format!("the file {} of the lock {}", file.display(), self.name),
            source,
        )
    }
}

impl Drop for KernelLock {
    /// Removes the file if nobody needs it.
    fn drop(&mut self) {
        if !*self.is_used.get_mut() {
            return;
        }
        let directory = &self.group.directory;
        let file = match self.spare.get_mut().take() {
            Some(file) => Some(file),
            None => {
                LockFile::open_existing(directory, &LockFile::file_name(&self.name)).unwrap_or(None)
            }
        };
        if let Some(file) = file {
            // What cannot be removed now, the next user or `status` removes.
            let _ = file.retire(directory, false);
            drop(file);
            // A waiter may have found all permits locked by the removal.
            let _ = self.bell(|bell| bell.ring());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use distlock_agent::protocol::{Mode, Release};

    use super::*;
    use crate::backend::{Ask, Backend, Lock, Patience, Request};
    use crate::local::Group;

    /// Enters and leaves, and tells how long the entering took.
    fn enter_and_leave(lock: &Arc<dyn Lock>) -> Duration {
        let request = Request {
            wish: Mode::Exclusive.into(),
            patience: Patience::Lease,
            command: None,
            is_inheritable: false,
            waits_by_loan: false,
        };
        let start = clock::now();
        let Poll::Ready(hold) = Arc::clone(lock).begin(request).wait(None) else {
            panic!("it was waited for without end");
        };
        let hold = hold.unwrap().expect("nobody else is there");
        let time = clock::now().since(start);
        hold.release(Release::Given).unwrap();
        time
    }

    /// The kernel ends whoever touches what is not there.
    #[test]
    fn a_file_that_is_cut_short_while_it_is_held_ends_nobody() {
        for how in [Release::Given, Release::Abandoned] {
            let directory = tempfile::tempdir().unwrap();
            let group = Group::open(directory.path()).unwrap();
            let name = LockName::new("x").unwrap();
            let ask = Ask {
                algorithm: None,
                permits: Some(NonZeroU32::MIN),
            };
            let lock = group.open(&name, ask).unwrap();
            let request = Request {
                wish: Mode::Exclusive.into(),
                patience: Patience::Lease,
                command: None,
                is_inheritable: false,
                waits_by_loan: false,
            };
            let Poll::Ready(hold) = Arc::clone(&lock).begin(request).wait(None) else {
                panic!("nobody else is there");
            };
            let path = directory.path().join(LockFile::file_name(&name));
            let file = std::fs::File::options().write(true).open(path).unwrap();
            file.set_len(0).unwrap();
            hold.unwrap().unwrap().release(how).unwrap();
        }
    }

    #[test]
    fn who_unlocks_leaves_the_lock_to_those_that_wait_but_not_for_long() {
        let directory = tempfile::tempdir().unwrap();
        let group = Group::open(directory.path()).unwrap();
        let name = LockName::new("x").unwrap();
        let lock = group.open(
            &name,
            Ask {
                algorithm: None,
                permits: Some(NonZeroU32::MIN),
            },
        );
        let lock = lock.unwrap();
        // One that waits, and is stopped.
        let mut stopped = LockFile::open(&group.shared.directory, &name, NonZeroU32::MIN).unwrap();
        stopped.mark().unwrap();
        enter_and_leave(&lock);
        for _ in 0..10 {
            assert!(enter_and_leave(&lock) >= COURTESY);
        }
        stopped.unmark().unwrap();
        enter_and_leave(&lock);
        let alone = (0..10).map(|_| enter_and_leave(&lock)).min().unwrap();
        assert!(alone < COURTESY, "{alone:?}");
    }
}
