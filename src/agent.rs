//! The agent: this process's part in a group.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use crossbeam_channel::Receiver;
use distlock_agent::protocol::{Change, LockName, NodeId, Time};
use distlock_agent::runtime::ForkStamp;
use distlock_agent::runtime::status::Status;
use distlock_agent::runtime::sync;

use crate::backend::{self, AcquireError, Ask, Backend, Hold, Lock, Patience, Request, Wish};
use crate::config::Address;
use crate::error::{HandleError, LockError, MembersError, OpenError, StatusError};
use crate::guard::{Guard, GuardShared};
use crate::loss::LossSignal;
use crate::mutex::Mutex;
use crate::thread::ThreadId;
use crate::watch::{Watch, Watched};
use crate::{Algorithm, Election, ElectionAlgorithm, Event, Leader, Semaphore, local};

/// What an election asks of its lock.
const EXCLUSIVE: Ask = Ask {
    algorithm: None,
    permits: Some(NonZeroU32::MIN),
};

/// This process's part in a group: the group's locks come from here.
///
/// A clone is the same agent, and cheap. The agent lives until [`Agent::close`], or until the last
/// of its clones, mutexes, semaphores and guards is dropped.
#[derive(Clone)]
pub struct Agent {
    inner: Arc<Inner>,
}

impl Agent {
    /// Opens the local group: the processes of this user on this host. It needs no configuration,
    /// and the kernel is the arbiter. It excludes nobody in the configured group that this host may
    /// be in: [`Agent::open`] finds that one.
    ///
    /// Its directory is `$DISTLOCK_DIR`, else `/run/distlock-local` for root and
    /// `/run/lock/distlock-UID` for other users. It is made with mode 0700 if it does not exist. All
    /// that are to take turns must have the same one; do not put it on a network file system.
    ///
    /// # Errors
    /// If the directory cannot be made or used, or is not this user's alone. There is no second
    /// place: another program could take the first.
    pub fn local() -> Result<Self, OpenError> {
        Self::local_in(local::directory())
    }

    /// Opens the local group whose directory is `path`, as `DISTLOCK_DIR=path` would for
    /// [`Agent::local`].
    ///
    /// # Errors
    /// As for [`Agent::local`].
    pub fn local_in(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::new(Arc::new(local::Group::open(path.as_ref())?))
    }

    /// The agent in front of `backend`.
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Result<Self, OpenError> {
        let stamp = ForkStamp::new()
            .map_err(|errno| OpenError::io("no page for the fork stamp", errno.into(), ""))?;
        let (command, is_inheritable, aborts_on_loss, watch, registry) = Default::default();
        Ok(Self {
            inner: Arc::new(Inner {
                stamp,
                command,
                is_inheritable,
                aborts_on_loss,
                watch,
                registry,
                backend,
            }),
        })
    }

    /// The mutex `name`, which is 1 to 255 bytes without NUL. The algorithm comes from the
    /// configuration; in the local group it is [`Algorithm::Kernel`].
    ///
    /// # Errors
    /// If the name is invalid, if it names a semaphore with several permits, or if the
    /// agent was closed or belongs to the parent process.
    pub fn mutex(&self, name: impl AsRef<[u8]>) -> Result<Mutex, HandleError> {
        self.open_mutex(name.as_ref(), None)
    }

    /// The mutex `name`, served by `algorithm`: that must be the one in use, unless the lock is
    /// new to the group.
    ///
    /// # Errors
    /// As for [`Agent::mutex`], and [`HandleError::WrongAlgorithm`]. Where only the group can
    /// tell, the error comes from locking ([`LockError::WrongAlgorithm`]).
    pub fn mutex_with(
        &self,
        name: impl AsRef<[u8]>,
        algorithm: Algorithm,
    ) -> Result<Mutex, HandleError> {
        self.open_mutex(name.as_ref(), Some(algorithm))
    }

    /// The election `name`, which is 1 to 255 bytes without NUL: its leader holds the lock of that
    /// name, which must be exclusive.
    ///
    /// # Errors
    /// As for [`Agent::mutex`].
    pub fn election(&self, name: impl AsRef<[u8]>) -> Result<Election, HandleError> {
        let lock = self.handle(name.as_ref(), EXCLUSIVE)?;
        Ok(Election::new(lock, None))
    }

    /// The election `name`, held by `algorithm`: that must be the group's.
    ///
    /// # Errors
    /// As for [`Agent::election`], and [`HandleError::NoElections`] in the local group. In a
    /// configured one a wrong algorithm is an error of the campaign
    /// ([`LockError::WrongElection`]).
    pub fn election_with(
        &self,
        name: impl AsRef<[u8]>,
        algorithm: ElectionAlgorithm,
    ) -> Result<Election, HandleError> {
        if !self.inner.backend.elects() {
            return Err(HandleError::NoElections { asked: algorithm });
        }
        let lock = self.handle(name.as_ref(), EXCLUSIVE)?;
        Ok(Election::new(lock, Some(algorithm)))
    }

    fn open_mutex(&self, name: &[u8], algorithm: Option<Algorithm>) -> Result<Mutex, HandleError> {
        let lock = self.handle(
            name,
            Ask {
                algorithm,
                permits: Some(NonZeroU32::MIN),
            },
        )?;
        Ok(Mutex::new(lock))
    }

    /// The counting semaphore `name`: at most `permits` holders at a time. `None` takes the number
    /// from the configuration; in the local group the callers must say it, all of them the same.
    ///
    /// # Errors
    /// If the name is invalid, if the number of permits is not the lock's or is not known, or if the
    /// agent was closed or belongs to the parent process.
    pub fn semaphore(
        &self,
        name: impl AsRef<[u8]>,
        permits: Option<NonZeroU32>,
    ) -> Result<Arc<Semaphore>, HandleError> {
        let lock = self.handle(
            name.as_ref(),
            Ask {
                algorithm: None,
                permits,
            },
        )?;
        Ok(Arc::new(Semaphore::new(lock)))
    }

    /// The group as this agent sees it: members, locks, holders and waiters.
    ///
    /// # Errors
    /// If the agent was closed, belongs to the parent process, or cannot ask.
    pub fn status(&self) -> Result<Status, StatusError> {
        if self.inner.stamp.is_child() {
            return Err(StatusError::Forked);
        }
        if self.inner.registry.lock().is_closed {
            return Err(StatusError::Closed);
        }
        self.inner.backend.status()
    }

    /// Lets a member belong to the group that its files need not know: `id` at `address`. When it
    /// returns, the view that says so is in force, and the member's own agent, whose file lists it
    /// and some of the others, will be taken in. Done already, it does nothing.
    ///
    /// # Errors
    /// If it makes no sense, or no majority of the voters agrees in time.
    pub fn add_member(&self, id: NodeId, address: &Address) -> Result<(), MembersError> {
        self.change(Change::Add(id, address.to_string()))
    }

    /// Excludes a member for good, whatever the files say. It is waited out as one that died; to be
    /// polite, end its agent first. Done already, it does nothing.
    ///
    /// # Errors
    /// As for [`Agent::add_member`].
    pub fn remove_member(&self, id: NodeId) -> Result<(), MembersError> {
        self.change(Change::Remove(id))
    }

    /// Has these members vote, one to seven of them, in place of those who voted before. When it
    /// returns, the view that says so is in force; from then on one voter comes or goes in a view,
    /// until all these vote that are there, and no others. Done already, it does nothing.
    ///
    /// # Errors
    /// As for [`Agent::add_member`].
    pub fn set_voters(&self, voters: &[NodeId]) -> Result<(), MembersError> {
        self.change(Change::Voters(voters.iter().copied().collect()))
    }

    fn change(&self, change: Change) -> Result<(), MembersError> {
        if self.inner.stamp.is_child() {
            return Err(MembersError::Forked);
        }
        if self.inner.registry.lock().is_closed {
            return Err(MembersError::Closed);
        }
        self.inner.backend.change(change)
    }

    /// What happens in the group from now on. Each call makes a channel of its own; it ends when
    /// the agent closes, and a receiver that lags far behind misses events. The local group has
    /// none to tell.
    ///
    /// In a forked child the channel is at its end at once.
    pub fn events(&self) -> Receiver<Event> {
        if self.inner.stamp.is_child() || self.inner.registry.lock().is_closed {
            return crossbeam_channel::bounded(0).1;
        }
        self.inner.backend.events()
    }

    /// The group's lease: how long one that is cut off from the group may act as if it were not.
    /// Whoever loses a lock has less than this to stop what the lock guards. `None` in the local
    /// group, where no lock is lost.
    pub fn lease(&self) -> Option<Duration> {
        self.inner.backend.lease()
    }

    /// Sets what `status` shows as the command of the locks that this agent takes from now on, in
    /// place of this program's name. All members and clients of the group can read it.
    pub fn set_command(&self, command: &str) {
        if !self.inner.stamp.is_child() {
            *self.inner.command.lock() = Some(command.into());
        }
    }

    /// Says that locks which this agent takes from now on are to be inherited by other processes:
    /// see [`Guard::inheritable_fd`], which then has a descriptor in every group.
    pub fn set_inheritable(&self, inheritable: bool) {
        self.inner
            .is_inheritable
            .store(inheritable, Ordering::Relaxed);
    }

    /// Ends this process with SIGABRT as soon as a lock that this agent takes from now on is no
    /// longer valid and was not given back: when its lease runs out without renewal
    /// ([`GuardState::Suspended`](crate::GuardState::Suspended)), or when it is lost
    /// ([`Loss::Revoked`](crate::Loss::Revoked)), whichever comes first; not when the agent is
    /// closed. For programs that have no better way to stop in time. It is off by default, and
    /// changes nothing in the local group, where no lock is lost.
    ///
    /// The lease is watched by a thread of its own. One that is not scheduled in time, as when the
    /// whole process stands still, comes too late: against that only the
    /// [`Guard::fence`](crate::Guard::fence) helps.
    ///
    /// # Errors
    /// If the system has no thread left for it.
    pub fn set_abort_on_loss(&self, abort: bool) -> io::Result<()> {
        if self.inner.stamp.is_child() {
            return Ok(());
        }
        if abort && self.inner.backend.lease().is_some() {
            self.inner.watch.start(&self.inner)?;
        }
        self.inner.aborts_on_loss.store(abort, Ordering::Relaxed);
        Ok(())
    }

    /// Ends this process's part: guards lose their locks ([`Loss::Closed`](crate::Loss::Closed)),
    /// which are released; whoever waits gets [`LockError::Closed`]; threads and sockets end.
    /// Everything afterwards is an error. In a forked child it does nothing.
    pub fn close(&self) {
        if !self.inner.stamp.is_child() {
            self.inner.close();
        }
    }

    pub(crate) fn handle(&self, name: &[u8], ask: Ask) -> Result<Arc<LockShared>, HandleError> {
        let name = LockName::new(name)?;
        if self.inner.stamp.is_child() {
            return Err(HandleError::Forked);
        }
        let known = self.inner.registry.lock().known(&name)?;
        let shared = match known {
            Some(known) => known,
            None => {
                // The host's agent has to be asked, and other threads do not wait for its answer.
                let lock = self.inner.backend.open(&name, ask)?;
                self.inner.registry.lock().enter(name, lock, &self.inner)?
            }
        };
        shared.check(ask)?;
        Ok(shared)
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").finish_non_exhaustive()
    }
}

/// What all clones, handles and guards of one agent share.
pub(crate) struct Inner {
    stamp: ForkStamp,
    command: sync::Mutex<Option<Arc<str>>>,
    is_inheritable: AtomicBool,
    aborts_on_loss: AtomicBool,
    watch: Arc<Watch>,
    registry: sync::Mutex<Registry>,
    backend: Arc<dyn Backend>,
}

/// Ordered maps, since a leak checker finds its way through them also when a C program ends without
/// closing its agent; through hash tables it does not.
#[derive(Default)]
struct Registry {
    is_closed: bool,
    /// One entry a name, so that self-deadlocks are found and threads queue in one place.
    locks: BTreeMap<LockName, Weak<LockShared>>,
    /// What is held, by a number that is used once.
    guards: BTreeMap<u64, Weak<GuardShared>>,
    next_guard: u64,
}

impl Registry {
    /// The lock `name`, if a handle to it is open.
    fn known(&self, name: &LockName) -> Result<Option<Arc<LockShared>>, HandleError> {
        if self.is_closed {
            return Err(HandleError::Closed);
        }
        Ok(self.locks.get(name).and_then(Weak::upgrade))
    }

    /// Adds a lock that was just opened; if another thread was first, it is that one's.
    fn enter(
        &mut self,
        name: LockName,
        lock: Arc<dyn Lock>,
        agent: &Arc<Inner>,
    ) -> Result<Arc<LockShared>, HandleError> {
        if let Some(known) = self.known(&name)? {
            return Ok(known);
        }
        let shared = Arc::new(LockShared {
            name: name.clone(),
            holders: sync::Mutex::new(Vec::new()),
            lock,
            agent: Arc::clone(agent),
        });
        self.locks.insert(name, Arc::downgrade(&shared));
        Ok(shared)
    }
}

impl Inner {
    fn close(&self) {
        let mut registry = self.registry.lock();
        if std::mem::replace(&mut registry.is_closed, true) {
            return;
        }
        let guards = std::mem::take(&mut registry.guards);
        drop(registry);
        self.watch.end();
        for guard in guards.into_values().filter_map(|guard| guard.upgrade()) {
            guard.close();
        }
        self.backend.close();
    }
}

impl Watched for Inner {
    fn look(&self) -> Time {
        let guards: Vec<_> = self.registry.lock().guards.values().cloned().collect();
        // Not under the mutex: a guard whose last reference this is takes it when it is dropped.
        let guards = guards.iter().filter_map(Weak::upgrade);
        guards
            .map(|guard| guard.abort_if_suspended())
            .min()
            .unwrap_or(Time::MAX)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.stamp.is_child() {
            // The threads behind it are the parent's: leak it.
            std::mem::forget(Arc::clone(&self.backend));
        } else {
            self.close();
        }
    }
}

/// One lock, for all its handles and guards in this agent.
pub(crate) struct LockShared {
    name: LockName,
    /// The threads that hold it, each as often as it holds a permit.
    holders: sync::Mutex<Vec<ThreadId>>,
    lock: Arc<dyn Lock>,
    agent: Arc<Inner>,
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

    /// Whether this process is a forked child of the one that opened the lock.
    pub(crate) fn is_forked(&self) -> bool {
        self.agent.stamp.is_child()
    }

    /// Enters, as far as `patience` goes.
    pub(crate) fn acquire(
        self: &Arc<Self>,
        wish: impl Into<Wish>,
        patience: Patience,
    ) -> Result<Guard, AcquireError> {
        let mut waiting = self.begin(wish, patience)?;
        loop {
            if let Poll::Ready(outcome) = waiting.wait(None) {
                return outcome;
            }
        }
    }

    /// Asks to enter, for this thread.
    pub(crate) fn begin(
        self: &Arc<Self>,
        wish: impl Into<Wish>,
        patience: Patience,
    ) -> Result<Waiting, AcquireError> {
        if self.is_forked() {
            return Err(LockError::Forked.into());
        }
        let thread = ThreadId::current();
        if patience != Patience::Try && self.waits_for_itself(thread) {
            return Err(LockError::Deadlock.into());
        }
        if self.agent.registry.lock().is_closed {
            return Err(LockError::Closed.into());
        }
        let loss = LossSignal::new();
        let request = Request {
            wish: wish.into(),
            patience,
            command: self.agent.command.lock().clone(),
            is_inheritable: self.agent.is_inheritable.load(Ordering::Relaxed),
            loss: loss.clone(),
        };
        Ok(Waiting {
            back: Some(Arc::clone(&self.lock).begin(request)),
            granted: None,
            lock: Arc::clone(self),
            loss,
            thread,
        })
    }

    /// Who leads in the election of this name.
    pub(crate) fn observe(&self) -> Receiver<Option<Leader>> {
        if self.is_forked() || self.agent.registry.lock().is_closed {
            return crossbeam_channel::bounded(0).1;
        }
        self.agent.backend.observe(&self.name)
    }

    /// Makes the guard, unless the agent was closed in the meantime.
    fn register(
        self: &Arc<Self>,
        hold: Box<dyn Hold>,
        loss: LossSignal,
        thread: ThreadId,
    ) -> Option<Guard> {
        let mut registry = self.agent.registry.lock();
        let id = registry.next_guard;
        let guard = Arc::new(GuardShared::new(Arc::clone(self), id, hold, loss, thread));
        if registry.is_closed {
            drop(registry);
            guard.close();
            return None;
        }
        registry.next_guard += 1;
        registry.guards.insert(id, Arc::downgrade(&guard));
        drop(registry);
        if self.agent.aborts_on_loss.load(Ordering::Relaxed) {
            self.agent.watch.look_at(guard.abort_on_loss());
        }
        Some(Guard::new(guard))
    }

    /// The guard `id`, taken by `thread`, holds nothing any more.
    pub(crate) fn unregister(&self, id: u64, thread: ThreadId) {
        self.agent.registry.lock().guards.remove(&id);
        let mut holders = self.holders.lock();
        if let Some(at) = holders.iter().position(|holder| *holder == thread) {
            holders.swap_remove(at);
        }
    }

    /// Whether all permits are with `thread`.
    fn waits_for_itself(&self, thread: ThreadId) -> bool {
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

/// A thread's request that has no outcome yet. Dropping it withdraws it.
pub(crate) struct Waiting {
    /// `None` once there is an outcome.
    back: Option<Box<dyn backend::Waiting>>,
    /// The outcome, if it was known when it was asked for.
    granted: Option<Guard>,
    lock: Arc<LockShared>,
    loss: LossSignal,
    thread: ThreadId,
}

impl Waiting {
    /// Makes the request now. Its outcome is told by [`Waiting::wait`], but for an error that is
    /// known at once.
    pub(crate) fn ask(&mut self) -> Result<(), AcquireError> {
        let back = self.back.as_mut().expect("a request that has no outcome");
        if let Some(hold) = back.ask()? {
            self.granted = Some(self.enter(hold)?);
        }
        Ok(())
    }

    /// As [`backend::Waiting::wait`].
    pub(crate) fn wait(&mut self, slice: Option<Duration>) -> Poll<Result<Guard, AcquireError>> {
        if self.lock.is_forked() {
            return Poll::Ready(Err(LockError::Forked.into()));
        }
        if let Some(guard) = self.granted.take() {
            let is_closed = guard.state() == crate::GuardState::Lost;
            return Poll::Ready(if is_closed {
                Err(LockError::Closed.into())
            } else {
                Ok(guard)
            });
        }
        let back = self.back.as_mut().expect("a request that has no outcome");
        let Poll::Ready(outcome) = back.wait(slice) else {
            return Poll::Pending;
        };
        Poll::Ready(outcome.and_then(|hold| self.enter(hold)))
    }

    /// Makes the guard.
    fn enter(&mut self, hold: Box<dyn Hold>) -> Result<Guard, AcquireError> {
        self.back = None;
        self.lock.holders.lock().push(self.thread);
        self.lock
            .register(hold, self.loss.clone(), self.thread)
            .ok_or(AcquireError::Failed(LockError::Closed))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(guard) = self.granted.take() {
            guard.withdraw();
        }
        if self.lock.is_forked() {
            // What it would touch is the parent's: leak it.
            std::mem::forget(self.back.take());
        }
    }
}

impl Drop for LockShared {
    fn drop(&mut self) {
        if self.is_forked() {
            std::mem::forget(Arc::clone(&self.lock));
            return;
        }
        let mut registry = self.agent.registry.lock();
        // Another handle may have been opened since, and have its own entry.
        if registry
            .locks
            .get(&self.name)
            .is_some_and(|entry| entry.strong_count() == 0)
        {
            registry.locks.remove(&self.name);
        }
    }
}
