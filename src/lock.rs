//! One lock of an agent: one object a name, for all handles and guards of this process.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use distlock_agent::protocol::LockName;
use distlock_agent::runtime::sync;

use crate::Algorithm;
use crate::backend::{Ask, Lock};
use crate::error::HandleError;
use crate::guard::Lent;
use crate::session::Session;
use crate::thread::ThreadId;

/// The locks of an agent that handles are open for: one entry a name, so that self-deadlocks are
/// found and threads queue in one place. An ordered map for a leak checker's sake, as in
/// [`Session`].
#[derive(Default)]
pub(crate) struct LockTable(sync::Mutex<BTreeMap<LockName, Weak<LockShared>>>);

impl LockTable {
    /// The lock `name`, for another handle.
    ///
    /// # Errors
    /// If the lock is not as `ask` says, or the agent was closed or belongs to the parent process.
    pub(crate) fn open(
        self: &Arc<Self>,
        session: &Arc<Session>,
        name: LockName,
        ask: Ask,
    ) -> Result<Arc<LockShared>, HandleError> {
        if session.is_forked() {
            return Err(HandleError::Forked);
        }
        if session.is_closed() {
            return Err(HandleError::Closed);
        }
        let known = self.0.lock().get(&name).and_then(Weak::upgrade);
        let shared = match known {
            Some(known) => known,
            None => {
                // The host's agent has to be asked, and other threads do not wait for its answer.
                let lock = session.backend().open(&name, ask)?;
                self.enter(session, name, lock)
            }
        };
        shared.check(ask)?;
        Ok(shared)
    }

    /// Adds a lock that was just opened; if another thread was first, it is that one's.
    fn enter(
        self: &Arc<Self>,
        session: &Arc<Session>,
        name: LockName,
        lock: Arc<dyn Lock>,
    ) -> Arc<LockShared> {
        let mut locks = self.0.lock();
        if let Some(known) = locks.get(&name).and_then(Weak::upgrade) {
            return known;
        }
        let shared = Arc::new(LockShared {
            name: name.clone(),
            holders: sync::Mutex::new(Vec::new()),
            is_exclusive: lock.permits() == NonZeroU32::MIN,
            owner: AtomicU64::new(0),
            is_granted: AtomicBool::new(false),
            lent: OnceLock::new(),
            lock,
            table: Arc::clone(self),
            session: Arc::clone(session),
        });
        locks.insert(name, Arc::downgrade(&shared));
        shared
    }
}

/// One lock, for all its handles and guards in this agent.
pub(crate) struct LockShared {
    name: LockName,
    /// The threads that hold it, each as often as it holds a permit.
    holders: sync::Mutex<Vec<ThreadId>>,
    /// Whether one may be inside at a time: known without a mutex.
    is_exclusive: bool,
    /// The thread that is inside without the agent's knowing, as a number; 0 if none is.
    owner: AtomicU64,
    /// Whether the group has granted it to this process as it was asked for.
    is_granted: AtomicBool,
    /// By what threads enter without the agent, once the lock has been granted.
    lent: OnceLock<Option<Lent>>,
    lock: Arc<dyn Lock>,
    table: Arc<LockTable>,
    session: Arc<Session>,
}

impl LockShared {
    pub(crate) fn name(&self) -> &LockName {
        &self.name
    }

    pub(crate) fn algorithm(&self) -> Algorithm {
        self.lock.algorithm()
    }

    pub(crate) fn permits(&self) -> NonZeroU32 {
        self.lock.permits()
    }

    /// The lock itself.
    pub(crate) fn backend(&self) -> &Arc<dyn Lock> {
        &self.lock
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Whether this process is a forked child of the one that opened the lock.
    pub(crate) fn is_forked(&self) -> bool {
        self.session.is_forked()
    }

    /// `thread` holds a permit.
    pub(crate) fn add_holder(&self, thread: ThreadId) {
        self.holders.lock().push(thread);
    }

    /// The guard `id`, taken by `thread`, holds nothing any more.
    pub(crate) fn unregister(&self, id: u64, thread: ThreadId) {
        self.session.unregister(id);
        let mut holders = self.holders.lock();
        if let Some(at) = holders.iter().position(|holder| *holder == thread) {
            holders.swap_remove(at);
        }
    }

    /// Whether one may be inside at a time.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.is_exclusive
    }

    /// The group has granted it: it is served as it was asked for.
    pub(crate) fn set_granted(&self) {
        self.is_granted.store(true, Ordering::Relaxed);
    }

    /// By what threads of this process enter while the group lends them the lock. `None` before a first
    /// grant: to whoever asks for another algorithm than it is served by, it is to be refused.
    pub(crate) fn lent(&self) -> Option<&Lent> {
        if !self.is_granted.load(Ordering::Relaxed) {
            return None;
        }
        self.lent.get_or_init(|| self.lock.lend()).as_ref()
    }

    /// The lock was given back that this process had asked for.
    pub(crate) fn was_released(&self) {
        if let Some(Some(lent)) = self.lent.get() {
            lent.was_released();
        }
    }

    /// The thread that is inside by what is lent.
    pub(crate) fn set_owner(&self, thread: Option<ThreadId>) {
        let number = thread.map_or(0, ThreadId::as_u64);
        self.owner.store(number, Ordering::Relaxed);
    }

    /// Whether all permits are with `thread`, which would wait for itself.
    pub(crate) fn is_exhausted_by(&self, thread: ThreadId) -> bool {
        if thread == ThreadId::TASK {
            // Nobody knows which task holds what.
            return false;
        }
        // Only its own entries can have its number there.
        if self.owner.load(Ordering::Relaxed) == thread.as_u64() {
            return true;
        }
        let held = self
            .holders
            .lock()
            .iter()
            .filter(|holder| **holder == thread)
            .count();
        u32::try_from(held).is_ok_and(|held| held >= self.permits().get())
    }

    /// Whether another handle may be had on these terms.
    fn check(&self, ask: Ask) -> Result<(), HandleError> {
        let (algorithm, permits) = (self.algorithm(), self.permits());
        match ask {
            Ask {
                algorithm: Some(asked),
                ..
            } if asked != algorithm => Err(HandleError::WrongAlgorithm {
                asked,
                actual: algorithm,
            }),
            Ask {
                permits: Some(asked),
                ..
            } if asked != permits => Err(HandleError::WrongPermits {
                asked,
                actual: permits,
            }),
            Ask { .. } => Ok(()),
        }
    }
}

impl Drop for LockShared {
    fn drop(&mut self) {
        if self.is_forked() {
            std::mem::forget(Arc::clone(&self.lock));
            return;
        }
        let mut locks = self.table.0.lock();
        // Another handle may have been opened since, and have its own entry.
        if locks
            .get(&self.name)
            .is_some_and(|entry| entry.strong_count() == 0)
        {
            locks.remove(&self.name);
        }
    }
}
