//! What all handles and guards of one agent share: the back end, and what to release when the agent
//! closes.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use distlock_agent::protocol::Time;
use distlock_agent::runtime::{ForkStamp, sync};
use nix::errno::Errno;

use crate::backend::Backend;
use crate::watch::{Watch, Watched};

/// A held lock, as its session sees it.
pub(crate) trait Held: Send + Sync {
    /// Tells its holder that the agent closes, and releases it.
    fn close(&self);

    /// Ends the process with SIGABRT if it shall and the lease has run out; else when that will be.
    fn abort_if_suspended(&self) -> Time;
}

/// This process's part in a group, until the agent closes or the last handle is dropped.
pub(crate) struct Session {
    stamp: ForkStamp,
    watch: Arc<Watch>,
    next_guard: AtomicU64,
    /// Set with `guards` locked.
    is_closed: AtomicBool,
    /// What is held, by a number that is used once. An ordered map, since a leak checker finds its
    /// way through it also when a C program ends without closing its agent; through a hash table it
    /// does not.
    guards: sync::Mutex<BTreeMap<u64, Weak<dyn Held>>>,
    backend: Arc<dyn Backend>,
}

impl Session {
    /// # Errors
    /// If the system has no page for what tells a forked child from its parent.
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Result<Self, Errno> {
        Ok(Self {
            stamp: ForkStamp::new()?,
            watch: Arc::default(),
            next_guard: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            guards: sync::Mutex::default(),
            backend,
        })
    }

    /// Whether this process is a forked child of the one that opened the agent.
    pub(crate) fn is_forked(&self) -> bool {
        self.stamp.is_child()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// A number for a guard, which no other has.
    pub(crate) fn next_guard(&self) -> u64 {
        self.next_guard.fetch_add(1, Ordering::Relaxed)
    }

    /// Has the guard `id` released when the agent closes; `false` if it has been closed.
    #[must_use]
    pub(crate) fn register(&self, id: u64, guard: Weak<dyn Held>) -> bool {
        let mut guards = self.guards.lock();
        let is_open = !self.is_closed();
        if is_open {
            guards.insert(id, guard);
        }
        is_open
    }

    /// The guard `id` holds nothing any more.
    pub(crate) fn unregister(&self, id: u64) {
        self.guards.lock().remove(&id);
    }

    /// Starts the thread that watches the leases of locks with
    /// [`LockOptions::abort_on_loss`](crate::LockOptions::abort_on_loss), where there are leases and
    /// it was not started before.
    ///
    /// # Errors
    /// If the system has no thread left, or no descriptor.
    pub(crate) fn start_watch(self: &Arc<Self>) -> io::Result<()> {
        match self.backend.lease() {
            Some(_) => self.watch.start(self),
            None => Ok(()),
        }
    }

    /// Has the thread look at the leases at this time at the latest.
    pub(crate) fn watch_at(&self, time: Time) {
        self.watch.look_at(time);
    }

    pub(crate) fn close(&self) {
        let guards = {
            let mut guards = self.guards.lock();
            if self.is_closed.swap(true, Ordering::SeqCst) {
                return;
            }
            std::mem::take(&mut *guards)
        };
        self.watch.end();
        for guard in guards.into_values().filter_map(|guard| guard.upgrade()) {
            guard.close();
        }
        self.backend.close();
    }
}

impl Watched for Session {
    fn look(&self) -> Time {
        let guards: Vec<_> = self.guards.lock().values().cloned().collect();
        // Not under the mutex: a guard whose last reference this is takes it when it is dropped.
        let guards = guards.iter().filter_map(Weak::upgrade);
        guards
            .map(|guard| guard.abort_if_suspended())
            .min()
            .unwrap_or(Time::MAX)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.is_forked() {
            // The threads behind it are the parent's: leak it.
            std::mem::forget(Arc::clone(&self.backend));
        } else {
            self.close();
        }
    }
}
