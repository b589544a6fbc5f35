//! How one handle takes its lock.

use std::sync::Arc;

use crate::Algorithm;

/// How a mutex, a semaphore or an election takes its lock: for [`Agent::mutex_with`],
/// [`Agent::semaphore_with`] and [`Agent::election_with`]. They hold for that handle and its clones,
/// and for no other.
///
/// [`Agent::mutex_with`]: crate::Agent::mutex_with
/// [`Agent::semaphore_with`]: crate::Agent::semaphore_with
/// [`Agent::election_with`]: crate::Agent::election_with
///
/// ```
/// use distlock::{Agent, Algorithm, DistMutex, LockOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let agent = Agent::local_in(directory.path())?;
/// # /*
/// let agent = Agent::open()?;
/// # */
/// let options = LockOptions::new().command("print a.ps").abort_on_loss(true);
/// let printer = agent.mutex_with("printer", &options)?;
/// let guard = printer.lock()?;
/// let status = agent.status()?;
/// assert_eq!(status.locks[0].holders[0].command, "print a.ps");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LockOptions {
    pub(crate) algorithm: Option<Algorithm>,
    pub(crate) command: Option<Arc<str>>,
    pub(crate) is_inheritable: bool,
    pub(crate) aborts_on_loss: bool,
}

impl LockOptions {
    /// The lock as the group serves it, shown under this program's name, not inheritable, and lost
    /// without an end of the process.
    pub fn new() -> Self {
        Self::default()
    }

    /// The algorithm that serves the lock: it must be the one in use, unless the lock is new to the
    /// group. By default it comes from the configuration; in the local group it is
    /// [`Algorithm::Kernel`].
    #[must_use]
    pub fn algorithm(mut self, algorithm: Algorithm) -> Self {
        self.algorithm = Some(algorithm);
        self
    }

    /// What `status` shows as the holder's command, in place of this program's name. All members and
    /// clients of the group can read it.
    #[must_use]
    pub fn command(mut self, command: impl Into<Arc<str>>) -> Self {
        self.command = Some(command.into());
        self
    }

    /// Whether other processes may inherit the lock: then
    /// [`Guard::inheritable_fd`](crate::Guard::inheritable_fd) has a descriptor in every group. By
    /// default it has one in the local group alone.
    #[must_use]
    pub fn inheritable(mut self, inheritable: bool) -> Self {
        self.is_inheritable = inheritable;
        self
    }

    /// Whether to end this process with SIGABRT as soon as the lock is no longer valid and was not
    /// given back: when its lease runs out without renewal
    /// ([`GuardState::Suspended`](crate::GuardState::Suspended)), or when it is lost
    /// ([`Loss::Revoked`](crate::Loss::Revoked)), whichever comes first; not when the agent is
    /// closed. For programs that have no better way to stop in time. It is off by default, and
    /// changes nothing in the local group, where no lock is lost.
    ///
    /// A thread of its own watches the lease. If that is not scheduled in time, as when the whole
    /// process stands still, the end comes too late: against that only the
    /// [`Guard::fence`](crate::Guard::fence) helps.
    #[must_use]
    pub fn abort_on_loss(mut self, abort: bool) -> Self {
        self.aborts_on_loss = abort;
        self
    }
}
