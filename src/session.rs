//! What all handles and guards of one agent share: the back end, and what to release when the agent
//! closes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;
use std::{io, mem};

use distlock_agent::protocol::Time;
use distlock_agent::runtime::{ForkStamp, clock, sync};
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
    /// Tasks that are to be woken, by the time and a number.
    tasks: sync::Mutex<BTreeMap<(Time, u64), Waker>>,
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
            tasks: sync::Mutex::default(),
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

    /// Wakes the tasks whose time has come; when that of the next one will be.
    fn wake_tasks(&self) -> Time {
        let now = clock::now();
        let due = {
            let mut tasks = self.tasks.lock();
            let later = tasks.split_off(&(now + Duration::from_nanos(1), 0));
            mem::replace(&mut *tasks, later)
        };
        due.into_values().for_each(Waker::wake);
        let next = self.tasks.lock().keys().next().map(|(time, _)| *time);
        next.unwrap_or(Time::MAX)
    }

    pub(crate) fn close(&self) {
        let guards = {
            let mut guards = self.guards.lock();
            if self.is_closed.swap(true, Ordering::SeqCst) {
                return;
            }
            mem::take(&mut *guards)
        };
        self.watch.end();
        let tasks = mem::take(&mut *self.tasks.lock());
        for guard in guards.into_values().filter_map(|guard| guard.upgrade()) {
            guard.close();
        }
        self.backend.close();
        // They find it closed.
        tasks.into_values().for_each(Waker::wake);
    }
}

/// When the session's thread wakes a task, of which nobody else knows that something is over.
pub(crate) struct TaskTimer {
    session: Arc<Session>,
    /// When, and by which number, one is to be woken.
    set: Option<(Time, u64)>,
}

impl TaskTimer {
    pub(crate) fn new(session: &Arc<Session>) -> Self {
        Self {
            session: Arc::clone(session),
            set: None,
        }
    }

    /// Has `task` woken at `time`, and at no other any more; never with [`Time::MAX`].
    ///
    /// # Errors
    /// If the system has no thread left, or no descriptor.
    pub(crate) fn set(&mut self, time: Time, task: &Waker) -> io::Result<()> {
        self.clear();
        if time == Time::MAX {
            return Ok(());
        }
        let session = &self.session;
        session.watch.start(session)?;
        let number = session.next_guard();
        session.tasks.lock().insert((time, number), task.clone());
        self.set = Some((time, number));
        session.watch.look_at(time);
        if session.is_closed() {
            // Its thread may have ended before it saw that one.
            task.wake_by_ref();
        }
        Ok(())
    }

    pub(crate) fn clear(&mut self) {
        if let Some(set) = self.set.take()
            && !self.session.is_forked()
        {
            let task = self.session.tasks.lock().remove(&set);
            // Whatever its drop does, it does without the mutex.
            drop(task);
        }
    }
}

impl Drop for TaskTimer {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Watched for Session {
    fn look(&self) -> Time {
        let guards: Vec<_> = self.guards.lock().values().cloned().collect();
        // Not under the mutex: a guard whose last reference this is takes it when it is dropped.
        let guards = guards.iter().filter_map(Weak::upgrade);
        let leases = guards.map(|guard| guard.abort_if_suspended());
        leases.chain([self.wake_tasks()]).min().unwrap_or(Time::MAX)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.is_forked() {
            // The threads behind it are the parent's: leak it.
            mem::forget(Arc::clone(&self.backend));
        } else {
            self.close();
        }
    }
}
