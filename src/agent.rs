//! The agent: this process's part in a group.

use std::fmt;
use std::num::NonZeroU32;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;
use distlock_agent::protocol::{Change, ElectionAlgorithm, LockName, NodeId};
use distlock_agent::runtime::Address;
use distlock_agent::runtime::metrics::Metrics;
use distlock_agent::runtime::status::Status;

use crate::backend::{Ask, Backend};
use crate::election::Election;
use crate::error::{HandleError, MembersError, OpenError, StatusError};
use crate::event::Event;
use crate::handle::LockHandle;
use crate::local;
use crate::lock::LockTable;
use crate::mutex::Mutex;
use crate::options::LockOptions;
use crate::semaphore::Semaphore;
use crate::session::Session;

/// This process's part in a group: the group's locks come from here.
///
/// A clone is the same agent, and cheap. The agent lives until [`Agent::close`], or until the last
/// of its clones, mutexes, semaphores and guards is dropped.
///
/// ```
/// use distlock::{Agent, DistMutex, LockError};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// let agent = Agent::local_in(directory.path())?; // or Agent::open()
/// let printer = agent.mutex("printer")?;
/// let guard = printer.lock()?;
/// for lock in agent.status()?.locks {
///     println!("{} is held by {}", lock.name, lock.holders[0].command);
/// }
/// agent.close(); // the guard has lost its lock
/// assert!(!guard.is_held());
/// assert!(matches!(printer.lock(), Err(LockError::Closed)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Agent {
    session: Arc<Session>,
    locks: Arc<LockTable>,
}

/// No panic of the caller leaves an agent half changed: it calls nothing of the caller's with a mutex
/// held.
impl UnwindSafe for Agent {}
impl RefUnwindSafe for Agent {}

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
        let session = Session::new(backend)
            .map_err(|errno| OpenError::io("no page for the fork stamp", errno.into(), ""))?;
        Ok(Self {
            session: Arc::new(session),
            locks: Arc::default(),
        })
    }

    /// The mutex `name`, which is 1 to 255 bytes without NUL. The algorithm comes from the
    /// configuration; in the local group it is [`Algorithm::Kernel`](crate::Algorithm::Kernel).
    ///
    /// # Errors
    /// If the name is invalid, if it names a semaphore with several permits, or if the
    /// agent was closed or belongs to the parent process.
    pub fn mutex(&self, name: impl AsRef<[u8]>) -> Result<Mutex, HandleError> {
        self.mutex_with(name, &LockOptions::new())
    }

    /// The mutex `name`, taken as `options` say.
    ///
    /// # Errors
    /// As for [`Agent::mutex`]; [`HandleError::WrongAlgorithm`] and its like where the options name
    /// an algorithm, of which, where only the group can tell, the error comes from locking
    /// ([`LockError::WrongAlgorithm`](crate::LockError::WrongAlgorithm)); and [`HandleError::Io`]
    /// where no thread is left that could end this process on a loss.
    pub fn mutex_with(
        &self,
        name: impl AsRef<[u8]>,
        options: &LockOptions,
    ) -> Result<Mutex, HandleError> {
        let handle = self.handle(name.as_ref(), Some(NonZeroU32::MIN), options)?;
        Ok(Mutex::new(handle))
    }

    /// The election `name`, which is 1 to 255 bytes without NUL: its leader holds the lock of that
    /// name, which must be exclusive.
    ///
    /// # Errors
    /// As for [`Agent::mutex`].
    pub fn election(&self, name: impl AsRef<[u8]>) -> Result<Election, HandleError> {
        self.election_with(name, None, &LockOptions::new())
    }

    /// The election `name`, held by `algorithm`, which must be the group's, and `None` takes as it
    /// is; the leader takes the lock as `options` say.
    ///
    /// # Errors
    /// As for [`Agent::mutex_with`], and [`HandleError::NoElections`] for an algorithm in the local
    /// group. In a configured one a wrong algorithm is an error of the campaign
    /// ([`LockError::WrongElection`](crate::LockError::WrongElection)).
    pub fn election_with(
        &self,
        name: impl AsRef<[u8]>,
        algorithm: Option<ElectionAlgorithm>,
        options: &LockOptions,
    ) -> Result<Election, HandleError> {
        if let Some(asked) = algorithm
            && !self.session.backend().elects()
        {
            return Err(HandleError::NoElections { asked });
        }
        let handle = self.handle(name.as_ref(), Some(NonZeroU32::MIN), options)?;
        Ok(Election::new(handle, algorithm))
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
    ) -> Result<Semaphore, HandleError> {
        self.semaphore_with(name, permits, &LockOptions::new())
    }

    /// The counting semaphore `name`, whose permits are taken as `options` say.
    ///
    /// # Errors
    /// As for [`Agent::semaphore`] and [`Agent::mutex_with`].
    pub fn semaphore_with(
        &self,
        name: impl AsRef<[u8]>,
        permits: Option<NonZeroU32>,
        options: &LockOptions,
    ) -> Result<Semaphore, HandleError> {
        let handle = self.handle(name.as_ref(), permits, options)?;
        Ok(Semaphore::new(handle))
    }

    /// The group as this agent sees it: members, locks, holders and waiters.
    ///
    /// ```
    /// use distlock::{Agent, DistMutex};
    /// use distlock::status::{HolderStatus, LockStatus, Status};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let agent = Agent::local_in(directory.path())?;
    /// let guard = agent.mutex("printer")?.lock()?;
    /// let Status { quorum, locks, .. } = agent.status()?;
    /// assert!(quorum.ok);
    /// let LockStatus { name, holders, waiters, .. } = &locks[0];
    /// assert_eq!((name.as_str(), waiters.len()), ("printer", 0));
    /// let HolderStatus { pid, fence, .. } = &holders[0];
    /// assert_eq!(*pid, std::process::id());
    /// assert_eq!(*fence, guard.fence().map(u64::from));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the agent was closed, belongs to the parent process, or cannot ask.
    pub fn status(&self) -> Result<Status, StatusError> {
        self.asked()?.status()
    }

    /// What the agent has counted and measured since its start: the host's, if this process uses that one.
    /// Nobody else in the group is asked. `None` in the local group, which has no agent.
    ///
    /// ```no_run
    /// use distlock::Agent;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let agent = Agent::open()?;
    /// if let Some(metrics) = agent.metrics()? {
    ///     for (lock, its) in metrics.locks {
    ///         println!("{lock}: granted {} times, {} wait", its.exclusive, its.waiters);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Agent::status`].
    pub fn metrics(&self) -> Result<Option<Metrics>, StatusError> {
        self.asked()?.metrics()
    }

    /// What tells of itself, if this process may ask it.
    fn asked(&self) -> Result<&dyn Backend, StatusError> {
        if self.session.is_forked() {
            return Err(StatusError::Forked);
        }
        if self.session.is_closed() {
            return Err(StatusError::Closed);
        }
        Ok(self.session.backend())
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
        if self.session.is_forked() {
            return Err(MembersError::Forked);
        }
        if self.session.is_closed() {
            return Err(MembersError::Closed);
        }
        self.session.backend().change(change)
    }

    /// What happens in the group from now on. Each call makes a channel of its own; it ends when
    /// the agent closes, and a receiver that lags far behind misses events. The local group has
    /// none to tell.
    ///
    /// In a forked child the channel is at its end at once.
    pub fn events(&self) -> Receiver<Event> {
        if self.session.is_forked() || self.session.is_closed() {
            return crossbeam_channel::bounded(0).1;
        }
        self.session.backend().events()
    }

    /// The group's lease: how long one that is cut off from the group may act as if it were not.
    /// Whoever loses a lock has less than this to stop what the lock guards. `None` in the local
    /// group, where no lock is lost.
    pub fn lease(&self) -> Option<Duration> {
        self.session.backend().lease()
    }

    /// Whether this process was forked from the one that opened the agent: then all that the agent is
    /// asked for fails, and this process opens another.
    ///
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// let agent = distlock::Agent::local_in(directory.path())?;
    /// assert!(!agent.is_forked());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_forked(&self) -> bool {
        self.session.is_forked()
    }

    /// Ends this process's part: guards lose their locks ([`Loss::Closed`](crate::Loss::Closed)),
    /// which are released; whoever waits gets [`LockError::Closed`](crate::LockError::Closed); threads and sockets end.
    /// Everything afterwards is an error. In a forked child it does nothing.
    pub fn close(&self) {
        if !self.session.is_forked() {
            self.session.close();
        }
    }

    /// A handle of the lock `name`, with so many permits, or with as many as it has.
    pub(crate) fn handle(
        &self,
        name: &[u8],
        permits: Option<NonZeroU32>,
        options: &LockOptions,
    ) -> Result<LockHandle, HandleError> {
        let algorithm = options.algorithm;
        let ask = Ask { algorithm, permits };
        let lock = self.locks.open(&self.session, LockName::new(name)?, ask)?;
        if options.aborts_on_loss {
            let started = self.session.start_watch();
            started.map_err(|source| HandleError::Io {
                what: "no thread can watch the lease".to_owned(),
                source,
            })?;
        }
        Ok(LockHandle::new(lock, options.clone()))
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").finish_non_exhaustive()
    }
}
