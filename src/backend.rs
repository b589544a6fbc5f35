//! What stands behind an [`Agent`](crate::Agent): the local group, a member of a configured
//! group, or a client of the host's agent.
//!
//! The front (agent, mutex, semaphore, guard) does what is the same for all of them: it checks
//! names, refuses what a forked child or a closed agent may not do, finds self-deadlocks, keeps
//! the guards and releases them when the agent closes. A back end does the rest:
//! [`Backend`] → [`Lock`] (one name) → [`Hold`] (one grant).

use std::io;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use crossbeam_channel::Receiver;
use distlock_agent::protocol::{Change, Fence, LockName, Mode, Release, Time};
pub(crate) use distlock_agent::runtime::Patience;
use distlock_agent::runtime::metrics::Metrics;
use distlock_agent::runtime::status::Status;
use distlock_agent::runtime::{Announcer, LeaseWatch, LossSignal, Observed, Purpose, Settling};

use crate::error::{HandleError, LockError, MembersError, StatusError, UnlockError};
use crate::event::{Event, Leader};
use crate::guard::Lent;
use crate::previous_owner::PreviousOwner;
use crate::{Algorithm, GuardState};

/// One group, as this process takes part in it. Dropped after [`Backend::close`], never in a
/// forked child.
pub(crate) trait Backend: Send + Sync {
    /// A handle for the lock `name`. It may wait for the host's agent, and of two that threads ask
    /// for at once, one is dropped.
    ///
    /// # Errors
    /// If it can be known already that the lock is not as `ask` says.
    fn open(&self, name: &LockName, ask: Ask) -> Result<Arc<dyn Lock>, HandleError>;

    /// The group's status.
    fn status(&self) -> Result<Status, StatusError>;

    /// What this process's or the host's agent has counted and measured, if there is one.
    fn metrics(&self) -> Result<Option<Metrics>, StatusError> {
        Ok(None)
    }

    /// Changes who belongs to the group.
    ///
    /// # Errors
    /// Why that is not done.
    fn change(&self, _change: Change) -> Result<(), MembersError> {
        Err(MembersError::FilesOnly)
    }

    /// A channel of its own for each call. Bounded: a receiver that lags misses events.
    fn events(&self) -> Receiver<Event>;

    /// The group's lease, if it has one.
    fn lease(&self) -> Option<Duration> {
        None
    }

    /// Who leads in the election `name`. A channel of its own for each call, at its end where there
    /// is nothing to tell.
    fn observe(&self, _name: &LockName) -> Observed<Option<Leader>> {
        Observed::over()
    }

    /// Whether leaders are elected by an algorithm, and not by the first entry.
    fn elects(&self) -> bool {
        false
    }

    /// Ends all [`Waiting`] with [`LockError::Closed`], event channels, sockets and threads. Called
    /// once, when all [`Hold`]s that the front knows are released. New calls that slip in end with
    /// `Closed` too.
    fn close(&self);
}

/// What the caller says about a lock; `None` takes it as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    /// The algorithm.
    pub(crate) algorithm: Option<Algorithm>,
    /// One for a mutex.
    pub(crate) permits: Option<NonZeroU32>,
}

/// One lock. It keeps its back end alive as far as it needs it.
pub(crate) trait Lock: Send + Sync {
    /// By which algorithm it is served.
    fn algorithm(&self) -> Algorithm;

    /// How many may be inside.
    fn permits(&self) -> NonZeroU32;

    /// By what threads of this process can enter alone without a request, where there is such a thing.
    fn lend(&self) -> Option<Lent> {
        None
    }

    /// A request to enter. Threads of this process that want the same lock are served in the order
    /// in which they first ask or wait.
    fn begin(self: Arc<Self>, request: Request) -> Box<dyn Waiting>;
}

/// A request that has no outcome yet. Dropping it withdraws it, except in a forked child, where it
/// touches nothing.
pub(crate) trait Waiting: Send {
    /// Makes the request without waiting for anybody, if it has not been made: otherwise the first
    /// [`Waiting::wait`] does. The outcome, if it is known at once.
    fn ask(&mut self) -> Result<Option<Box<dyn Hold>>, LockError>;

    /// Waits for the outcome, as far as the request's patience goes; and if `slice` is given not
    /// much longer than that for now. The request keeps its place from call to call. Not to be
    /// called after a grant or an error. `None`: another held the lock for as long as the caller
    /// waits; the next call asks again.
    fn wait(&mut self, slice: Option<Duration>) -> Poll<Result<Option<Box<dyn Hold>>, LockError>>;

    /// The outcome, if there is one by now, as [`Waiting::wait`] tells it; it waits for nobody.
    fn poll(&mut self) -> Poll<Result<Option<Box<dyn Hold>>, LockError>> {
        self.wait(Some(Duration::ZERO))
    }

    /// Has this task woken when the outcome is there; when it has to poll all the same, at the latest. To be
    /// called after a poll without an outcome.
    fn wake_by(&mut self, task: &Waker) -> Time;
}

/// One wish to enter.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// What is wanted of the lock.
    pub(crate) wish: Wish,
    /// How long to wait.
    pub(crate) patience: Patience,
    /// What `status` is to show as the holder's command; `None` is this process's command line.
    pub(crate) command: Option<Arc<str>>,
    /// Whether [`Hold::inheritable_fd`] will be wanted.
    pub(crate) is_inheritable: bool,
    /// Whether the caller would wait by [`Lent::wait`] if the lock were lent: then the outcome can be that it
    /// is to ask again before its time is over.
    pub(crate) waits_by_loan: bool,
}

/// What is wanted of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    /// With whom to be inside. Shared only where one may be inside at a time.
    pub(crate) mode: Mode,
    /// Whether to be elected first.
    pub(crate) purpose: Purpose,
}

impl From<Mode> for Wish {
    fn from(mode: Mode) -> Self {
        let purpose = Purpose::Enter;
        Self { mode, purpose }
    }
}

/// One grant. The front calls either [`Hold::release`] or [`Hold::forget`], exactly once.
pub(crate) trait Hold: Send {
    /// Its fencing token.
    fn fence(&self) -> Option<Fence>;

    /// How the former holder left.
    fn previous_owner(&self) -> PreviousOwner;

    /// What the grant is worth now. Cheap: no system call but for the clock.
    fn state(&self) -> GuardState;

    /// What is fired when it is lost before it is released. Asked for once.
    fn loss(&self) -> LossSignal {
        LossSignal::default()
    }

    /// For how long nobody else is let in, also if it is lost; `None` if no lease bounds it.
    fn grace(&self) -> Option<Duration>;

    /// How often its lease has run out and was renewed after that: to be asked after `grace`.
    fn lapses(&self) -> u64 {
        0
    }

    /// Ends it, without waiting for anybody and without panic. `how` is what the next holder is to
    /// learn.
    fn release(self: Box<Self>, how: Release) -> Result<(), UnlockError>;

    /// The same, and if its lease is over waits until it is known whether it was lost, at most a
    /// lease.
    fn settle(self: Box<Self>, how: Release) -> Result<(), UnlockError> {
        self.release(how)
    }

    /// The same without waiting: what is to be waited for, if it is not known yet.
    fn settle_later(self: Box<Self>, how: Release) -> Result<Option<Settling>, UnlockError> {
        self.release(how).map(|()| None)
    }

    /// In place of [`Hold::release`] in a forked child: drops the child's copy without touching
    /// what the parent uses. Where nothing better is possible it leaks.
    fn forget(self: Box<Self>);

    /// Tells `status` the process that `distlock run` runs.
    fn set_command_pid(&self, pid: u32);

    /// By what that process can tell the host's agent itself, where there is one.
    fn announcer(&self) -> io::Result<Option<Announcer>> {
        Ok(None)
    }

    /// A copy of the descriptor that is the lock or stands for it, where there is one. From then
    /// on the lock is free only when all copies are closed.
    fn inheritable_fd(&mut self) -> io::Result<Option<OwnedFd>> {
        Ok(None)
    }

    /// Closes this process's own copy of what others have inherited, where the lock is held without.
    fn close_inheritable(&mut self) {}

    /// What another process of the caller's sees the end of the lease by, once, where there is one.
    fn take_watch(&mut self) -> io::Result<Option<LeaseWatch>> {
        Ok(None)
    }
}
