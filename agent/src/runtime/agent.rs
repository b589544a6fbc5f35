//! An agent: one member of a group, in a thread of this process, or driven by it.

pub(crate) mod driven;
mod event_loop;
mod options;
mod start;
mod start_error;
#[cfg(feature = "store")]
mod start_ledger;

use std::collections::BTreeSet;
use std::mem;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};

use crate::protocol::{Change, ClusterId, LockName, LockSpec, Mode, NodeId};
use crate::runtime::agent::driven::Driver;
use crate::runtime::agent::event_loop::EventLoop;
use crate::runtime::agent::start::{prepare, system};
use crate::runtime::api::caller::Caller;
use crate::runtime::api::description::Description;
use crate::runtime::api::error::{AcquireError, ChangeError, StatusError};
use crate::runtime::api::events::{AgentEvent, Leader, Observed};
use crate::runtime::api::metrics::Metrics;
use crate::runtime::api::patience::Patience;
use crate::runtime::api::status::Status;
use crate::runtime::disk::state_dir::{StateDir, StateError, StateOwner};
use crate::runtime::net::address::Address;
use crate::runtime::observe::counters::Counters;
use crate::runtime::os::sync::Mutex;
use crate::runtime::os::thread::{join, spawn};
use crate::runtime::request::{Grant, Waiting};
use crate::runtime::shared::core_guard::Shared;
use crate::runtime::shared::loans::LentLock;
use crate::runtime::shared::wakeup::Wakeup;

pub use options::Options;
pub use start_error::StartError;
#[cfg(feature = "store")]
pub use start_ledger::LedgerOptions;

/// A running agent. Dropping it closes it.
///
/// All methods may be called from any thread. In a process that was forked from the agent's, each
/// of them fails or does nothing, and the agent of the parent is not touched. The child has copies
/// of the agent's descriptors until it ends or runs another program: as long as it does, this
/// member's address stays taken after the parent's end.
#[derive(Debug)]
pub struct Agent {
    pub(crate) shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Agent {
    /// Starts an agent. When this returns, its address and its socket are bound; the group forms
    /// in the background, and the first requests wait for it.
    ///
    /// # Errors
    /// If the state directory, the address or the socket cannot be had (another process may have
    /// them), or the system refuses a thread, memory or descriptors. Nothing is left behind.
    pub fn start(options: Options) -> Result<Self, StartError> {
        Self::with_thread(prepare(options, Wakeup::thread)?)
    }

    /// Starts an agent whose locks are kept in a store. It connects in the background, and the first
    /// requests wait for that, at most a lease.
    ///
    /// # Errors
    /// If the socket or the state directory cannot be had, or the system refuses a thread, memory or
    /// descriptors.
    #[cfg(feature = "store")]
    pub fn start_ledger(options: LedgerOptions) -> Result<Self, StartError> {
        Self::with_thread(start_ledger::prepare(options, Wakeup::thread)?)
    }

    /// The same without a thread, as by [`Agent::start_driven`].
    ///
    /// # Errors
    /// As for [`Agent::start_ledger`], and [`StartError::Service`].
    #[cfg(feature = "store")]
    pub fn start_driven_ledger(options: LedgerOptions) -> Result<(Self, Driver), StartError> {
        if options.socket.is_some() {
            return Err(StartError::Service);
        }
        Ok(Self::without_thread(start_ledger::prepare(
            options,
            Wakeup::callers,
        )?))
    }

    fn with_thread(event_loop: EventLoop) -> Result<Self, StartError> {
        let event_loop = event_loop
            .start_disk()
            .map_err(system("start the disk's thread"))?;
        let shared = event_loop.shared();
        let thread = spawn("distlock-agent", move || event_loop.run())
            .map_err(system("start the agent thread"))?;
        Ok(Self {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Starts an agent without a thread: the application makes it go on, by [`Driver::process`], or
    /// by waiting for a lock. While it does neither, this member is silent, and its lease runs out.
    ///
    /// # Errors
    /// As for [`Agent::start`], and [`StartError::Service`].
    pub fn start_driven(options: Options) -> Result<(Self, Driver), StartError> {
        if options.socket.is_some() {
            return Err(StartError::Service);
        }
        Self::driven(options)
    }

    /// As [`Agent::start_driven`], also with a service for clients: they wait for whoever drives.
    ///
    /// # Errors
    /// As for [`Agent::start`].
    #[doc(hidden)]
    pub fn driven(options: Options) -> Result<(Self, Driver), StartError> {
        Ok(Self::without_thread(prepare(options, Wakeup::callers)?))
    }

    fn without_thread(event_loop: EventLoop) -> (Self, Driver) {
        let agent = Self {
            shared: event_loop.shared(),
            thread: Mutex::new(None),
        };
        (agent, Driver::new(event_loop))
    }

    /// Waits for `lock`, for itself alone, as long as `patience` says. Threads of one agent that want the same lock
    /// are served in the order in which they asked.
    ///
    /// `spec` says how the lock is to be served, or takes it as it is.
    ///
    /// # Errors
    /// [`AcquireError`] says why there is no grant.
    pub fn acquire(
        &self,
        lock: &LockName,
        spec: Option<LockSpec>,
        patience: Patience,
        caller: Caller,
    ) -> Result<Grant, AcquireError> {
        self.begin(lock, spec, Mode::Exclusive, patience, caller)?
            .finish()
    }

    /// Asks for `lock`, alone or with all who share it, to be waited for bit by bit.
    ///
    /// # Errors
    /// [`AcquireError`] says why it cannot be asked for.
    pub fn begin(
        &self,
        lock: &LockName,
        spec: Option<LockSpec>,
        mode: Mode,
        patience: Patience,
        caller: Caller,
    ) -> Result<Waiting, AcquireError> {
        self.shared.begin(lock, spec, mode, patience, caller)
    }

    /// The lock, for threads that enter it by themselves while the group lends it to this member. `None`
    /// where that cannot be.
    pub fn lend(&self, lock: &LockName) -> Option<Arc<LentLock>> {
        self.shared.lend(lock)
    }

    /// How the whole group is. Other members are asked, and have 300 ms to answer; the callers of
    /// those who do not are missing.
    ///
    /// # Errors
    /// [`StatusError`] says why it cannot be told.
    pub fn status(&self) -> Result<Status, StatusError> {
        self.shared.status()
    }

    /// What was counted and measured since the start. Nobody else is asked.
    ///
    /// # Errors
    /// [`StatusError`] says why it cannot be told.
    pub fn metrics(&self) -> Result<Metrics, StatusError> {
        self.shared.metrics()
    }

    /// Changes who may be a member of the group, beyond what files say. When it returns, the view that
    /// says so is in force here, and no other will be anywhere. It may take as long as it takes to exclude a member that does not
    /// answer.
    ///
    /// # Errors
    /// [`ChangeError`] says why it is not done.
    pub fn change(&self, change: Change) -> Result<(), ChangeError> {
        self.shared.change(change)
    }

    /// Which members' settings differ, and what happens to the group from now on. Each call makes a
    /// channel of its own; a listener that does not read misses the newest events and is told how
    /// many ([`AgentEvent::Missed`]). After [`AgentEvent::Ended`] the channel is disconnected.
    pub fn events(&self) -> Receiver<AgentEvent> {
        self.events_as(|event| Some(event.clone()))
    }

    /// As [`Agent::events`], each event as `map` makes it, without those it makes nothing of.
    pub fn events_as<T: Send + 'static>(&self, map: fn(&AgentEvent) -> Option<T>) -> Receiver<T> {
        if self.shared.stamp.is_child() {
            return bounded(1).1;
        }
        self.shared.hub.subscribe(map)
    }

    /// Who leads in the election called `lock`, as far as this member knows: now, and from now on.
    /// While it is cut off from the group it hears of nothing. In a forked child the channel is at
    /// its end.
    pub fn observe(&self, lock: &LockName) -> Receiver<Option<Leader>> {
        self.observe_as(lock, |leader| leader).into_receiver()
    }

    /// As [`Self::observe`], each leader as `map` makes it.
    pub fn observe_as<T: Send + 'static>(
        &self,
        lock: &LockName,
        map: fn(Leader) -> T,
    ) -> Observed<Option<T>> {
        if self.shared.stamp.is_child() {
            return Observed::over();
        }
        let mut core = self.shared.lock_core();
        // First: what is told at once is told to this listener too.
        let observed = core.observe(lock, map);
        core.begin_to_observe(lock);
        core.finish_as_application();
        observed
    }

    /// Whether a store has the locks.
    pub fn is_in_store(&self) -> bool {
        self.shared.identity.is_in_store
    }

    /// How the configuration says that `lock` is served.
    pub fn describe(&self, lock: &LockName) -> Description {
        Description::of(lock, &self.shared.identity)
    }

    /// What the agent has counted. In a forked child all is zero.
    pub fn counters(&self) -> Counters {
        if self.shared.stamp.is_child() {
            return Counters::default();
        }
        self.shared.lock_core().counters()
    }

    /// The group's name.
    pub fn group(&self) -> &str {
        &self.shared.identity.settings.group
    }

    /// The group's lease.
    pub fn lease(&self) -> Duration {
        self.shared.identity.settings.lease
    }

    /// This member.
    pub fn me(&self) -> NodeId {
        self.shared.identity.me
    }

    /// Leaves the group: waiting requests end, what is held is released and lost to its guards,
    /// the others are told. When it returns the thread, the sockets and their files are gone: at
    /// most about a second later, and a lease more while clients do not come out. Does nothing
    /// the second time.
    pub fn close(&self) {
        if self.shared.stamp.is_child() {
            return;
        }
        self.leave();
        self.shared.drive_to_the_end();
        join(&self.thread);
    }

    /// Begins to leave, and waits for nothing: [`Agent::close`] waits for the end.
    #[doc(hidden)]
    pub fn leave(&self) {
        self.shared.leave();
    }
}

/// After the states of a majority of the voters were lost, for good: leaves an operator's word, for
/// member `me`, at `address`, of `group`, which must not run, that its cluster is abandoned. `abandoned` names
/// that cluster where the member's state is lost, too. When all of `voters`, those of the file, have the same
/// word, they found the group anew, above all epochs that any of them knows, and no earlier than the
/// longest lease that any of them remembers.
///
/// Whoever could still have a majority of the old voters, on the other side of a cut, must not be
/// left running: two groups would be the result.
///
/// # Errors
/// If the member runs, its state cannot be read or written, or nothing names the cluster.
pub fn recover(
    state_dir: &Path,
    (group, me, address): (&str, NodeId, &Address),
    abandoned: Option<ClusterId>,
    voters: &BTreeSet<NodeId>,
) -> Result<(), StateError> {
    let owner = StateOwner::here(group, me, address.to_string());
    StateDir::recover(state_dir, owner, abandoned, voters)
}

impl Drop for Agent {
    fn drop(&mut self) {
        if self.shared.stamp.is_child() {
            // The thread exists only in the parent: there is nothing to join or detach here.
            mem::forget(self.thread.get_mut().take());
        } else {
            self.close();
        }
    }
}
