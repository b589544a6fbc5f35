//! Why there is no handle for a lock, why it was not acquired, and what an unlock came too late for.

use std::io;
use std::num::NonZeroU32;

use distlock_agent::protocol::membership::quorum::{absences, from_members};
use distlock_agent::protocol::{Absence, Missing, NameError, NodeId};

use super::advice::{advice, is_file_limit};
use crate::{Algorithm, ElectionAlgorithm, GuardState};

/// Why there is no handle for a mutex, a semaphore or an election.
///
/// ```
/// use distlock::{Agent, HandleError, NameError};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let agent = Agent::local_in(directory.path())?;
/// let refused = agent.mutex("").unwrap_err();
/// assert!(matches!(refused, HandleError::Name(NameError::Empty)));
/// assert_eq!(refused.to_string(), "a lock's name may not be empty");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandleError {
    /// The name is not a lock's name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The lock is served by another algorithm.
    #[error("this lock is served by {actual}, not by {asked}; ask for {actual}, or for none")]
    WrongAlgorithm {
        /// What the caller wants.
        asked: Algorithm,
        /// What the lock has.
        actual: Algorithm,
    },
    /// The local group elects nobody by an algorithm.
    #[error(
        "leaders are not elected by {asked} here: in the local group the kernel decides; leave the \
         algorithm out"
    )]
    NoElections {
        /// What the caller wants.
        asked: ElectionAlgorithm,
    },
    /// The group does not have this algorithm at all.
    #[error(
        "this group has no algorithm {asked}: the local group has kernel only, locks in a store \
         have ledger only, and a group of members has all others"
    )]
    NotInThisGroup {
        /// What the caller wants.
        asked: Algorithm,
    },
    /// The algorithm lets two in with some probability, and the group promises more.
    #[error(
        "{asked} lets two in with some probability, which failure = \"quorum\" rules out; choose \
         another, or another group"
    )]
    OnlyProbable {
        /// What the caller wants.
        asked: Algorithm,
    },
    /// The lock has another number of permits.
    #[error("this lock has {actual} permits, not {asked}; ask for as many as it has")]
    WrongPermits {
        /// What the caller wants.
        asked: NonZeroU32,
        /// What the lock has.
        actual: NonZeroU32,
    },
    /// Nobody said how many permits the semaphore has.
    #[error("say how many permits this semaphore has: the configuration does not")]
    PermitsUnknown,
    /// More permits than the group can serve.
    #[error("a semaphore has at most {max} permits here, not {asked}")]
    TooManyPermits {
        /// What the caller wants.
        asked: NonZeroU32,
        /// The bound.
        max: u32,
    },
    /// The host's agent did not say in time how the lock is served.
    #[error("the agent does not answer; see that it runs and is not stopped")]
    NoAnswer,
    /// The agent was closed.
    #[error("the agent was closed; open another")]
    Closed,
    /// The agent was opened before a `fork`, by the parent.
    #[error("the agent belongs to the parent of this process; open another after fork")]
    Forked,
    /// The system failed.
    #[error("{what}: {source}; {}", advice(source))]
    Io {
        /// What was tried.
        what: String,
        /// What the system says.
        r#source: io::Error,
    },
}

/// Why [`DistMutex::lock`](crate::DistMutex::lock) or
/// [`Semaphore::acquire`](crate::Semaphore::acquire) did not enter. The caller holds nothing.
///
/// ```
/// use distlock::{Agent, DistMutex, LockError};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let agent = Agent::local_in(directory.path())?;
/// let printer = agent.mutex("printer")?;
/// let guard = printer.lock()?;
/// match printer.lock() {
///     Err(LockError::Deadlock) => println!("this thread holds it already"),
///     Err(LockError::NoQuorum { .. }) => println!("other hosts are needed"),
///     other => panic!("{other:?}"),
/// }
/// # drop(guard);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The group had no quorum for one lease, or none when the time to wait was over: no majority of
    /// its voters was heard.
    #[error("no quorum: {}; {}", absences(missing), remedy(missing))]
    NoQuorum {
        /// Who would have to be there: voters that are silent, or that have lost their states. Empty
        /// if this member is in no view yet, though they are there.
        missing: Vec<Missing>,
    },
    /// This thread holds it already, and would wait for itself for ever.
    #[error("this thread holds the lock already; unlock it first")]
    Deadlock,
    /// The agent was closed, also while waiting.
    #[error("the agent was closed; open another")]
    Closed,
    /// The lock is served by another algorithm than the caller said.
    #[error("this lock is served by {actual}, not by {asked}; ask for {actual}, or for none")]
    WrongAlgorithm {
        /// What the caller wants.
        asked: Algorithm,
        /// What the lock has.
        actual: Algorithm,
    },
    /// The group elects its leaders otherwise.
    #[error("this group elects its leaders by {actual}, not by {asked}; ask for {actual}")]
    WrongElection {
        /// What the caller wants.
        asked: ElectionAlgorithm,
        /// What the group has.
        actual: ElectionAlgorithm,
    },
    /// The lock cannot be shared.
    #[error(
        "this lock is served by {actual}, and cannot be shared: list it in the configuration with \
         algorithm = \"manager\""
    )]
    NotShareable {
        /// What the lock has.
        actual: Algorithm,
    },
    /// The lock is in use with another number of permits.
    #[error("this lock is in use with {actual} permits, not {asked}; ask for as many as it has")]
    WrongPermits {
        /// What the caller wants.
        asked: NonZeroU32,
        /// What the lock has.
        actual: NonZeroU32,
    },
    /// A limit is exceeded: too many locks, waiting requests or open files.
    #[error("a limit is exceeded: {what}")]
    Limit {
        /// Which, and what to do.
        what: String,
    },
    /// The host's agent, or the group, did not answer in time: whether the lock is held is not known.
    /// Only a caller with a time limit is told:
    /// [`DistMutex::try_lock`](crate::DistMutex::try_lock) waits for the answer for one second, and a
    /// timed call for 0.2 seconds longer than for the lock.
    #[error(
        "no answer in time{}; see that the agent runs and is not stopped, and what 'distlock \
         status' tells of the group",
        from_members(silent)
    )]
    NoAnswer {
        /// The members of the group that did not answer, if that is known.
        silent: Vec<NodeId>,
    },
    /// The store that has the locks has not answered for one lease, or not in the caller's time: whether the
    /// lock is held is not known.
    #[error(
        "the store {store} cannot be reached: {reason}; see that it runs ('distlock store check')"
    )]
    Unreachable {
        /// Where it is.
        store: String,
        /// As far as it is known.
        reason: String,
    },
    /// The store refuses what it takes to hold the lock, or its record of the lock cannot be used.
    #[error("the store {store} does not keep this lock: {reason}")]
    Store {
        /// Where it is.
        store: String,
        /// What it says.
        reason: String,
    },
    /// The host's agent, whose client this is, is gone; or this member's own session is over.
    #[error("the agent cannot be used any more: {reason}; open another")]
    Disconnected {
        /// What happened.
        reason: String,
    },
    /// The agent was opened before a `fork`, by the parent.
    #[error("the agent belongs to the parent of this process; open another after fork")]
    Forked,
    /// The outcome of this request was returned before.
    #[error("the outcome of this request was returned before; begin another")]
    Finished,
    /// The system failed.
    #[error("{what}: {source}; {}", advice(source))]
    Io {
        /// What was tried.
        what: String,
        /// What the system says.
        r#source: io::Error,
    },
}

impl LockError {
    /// Sorts `source` into the fitting variant.
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        let what = what.into();
        if is_file_limit(&source) {
            let what = format!("{what}: {source}; close some, or raise the limit (ulimit -n)");
            Self::Limit { what }
        } else {
            Self::Io { what, source }
        }
    }
}

/// Why [`DistMutex::try_lock`](crate::DistMutex::try_lock) did not enter.
///
/// ```
/// use distlock::{Agent, DistMutex, TryLockError};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let agent = Agent::local_in(directory.path())?;
/// # let other = Agent::local_in(directory.path())?.mutex("printer")?.lock()?;
/// match agent.mutex("printer")?.try_lock() {
///     Ok(guard) => guard.unlock()?,
///     Err(TryLockError::WouldBlock) => println!("another process prints: do something else"),
///     Err(TryLockError::Failed(error)) => return Err(error.into()),
/// #   Err(_) => unreachable!(),
/// }
/// # drop(other);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TryLockError {
    /// The lock is not free.
    #[error("the lock is held by another")]
    WouldBlock,
    /// It could not be tried.
    #[error(transparent)]
    Failed(#[from] LockError),
}

/// Why [`DistMutex::try_lock_for`](crate::DistMutex::try_lock_for) did not enter.
///
/// ```
/// use std::time::Duration;
///
/// use distlock::{Agent, DistMutex, TimedLockError};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let agent = Agent::local_in(directory.path())?;
/// # let other = Agent::local_in(directory.path())?.mutex("printer")?.lock()?;
/// let late = agent.mutex("printer")?.try_lock_for(Duration::from_millis(10)).unwrap_err();
/// assert!(matches!(late, TimedLockError::TimedOut)); // another process holds it
/// # drop(other);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TimedLockError {
    /// The time is over, and the lock was held by another. Without a quorum at the end it is
    /// [`LockError::NoQuorum`].
    #[error("the lock was not free in time")]
    TimedOut,
    /// It could not be waited for.
    #[error(transparent)]
    Failed(#[from] LockError),
}

/// Why [`Guard::unlock`](crate::Guard::unlock) was not a plain unlock. The caller holds nothing
/// any more in any case.
///
/// ```
/// use distlock::{Agent, DistMutex, UnlockError};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let agent = Agent::local_in(directory.path())?;
/// let guard = agent.mutex("printer")?.lock()?;
/// agent.close();
/// match guard.unlock() {
///     Ok(()) => println!("all of it was under the lock"),
///     Err(UnlockError::Closed | UnlockError::Lost) => println!("the end of it perhaps was not"),
///     Err(error) => return Err(error.into()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnlockError {
    /// The lock had been lost before: another may have been inside since.
    #[error("the lock was lost before it was unlocked: another may have been inside since")]
    Lost,
    /// The agent was closed before, and released the lock then.
    #[error("the agent was closed before the lock was unlocked")]
    Closed,
    /// The guard is a copy in a forked child: the parent still holds the lock.
    #[error("the lock belongs to the parent of this process, which still holds it")]
    Forked,
    /// The system failed; the lock is free all the same, or will be when this process ends.
    #[error("{what}: {source}; {}", advice(source))]
    Io {
        /// What was tried.
        what: String,
        /// What the system says.
        r#source: io::Error,
    },
}

/// What to do about those who would have to be there.
fn remedy(missing: &[Missing]) -> &'static str {
    let is_lost = |it: &Missing| it.why == Absence::StateLost;
    if missing.iter().any(is_lost) && missing.iter().all(is_lost) {
        "restore their state directories, or see 'distlock status' about 'distlock recover'"
    } else {
        match missing.len() {
            0 => "see in 'distlock status' who votes, and what the agent's log says",
            1 => "see that it runs and can be reached, and in 'distlock status' who votes",
            _ => "see that they run and can be reached, and in 'distlock status' who votes",
        }
    }
}

#[cfg(test)]
mod tests {
    use distlock_agent::protocol::NodeId;

    use super::*;

    #[test]
    fn names_the_missing() {
        let missing = |id, why| Missing {
            member: NodeId::new(id).unwrap(),
            why,
        };
        let told = |missing: &[Missing]| {
            let missing = missing.to_vec();
            LockError::NoQuorum { missing }.to_string()
        };
        let (two, three) = (missing(2, Absence::Silent), missing(3, Absence::Silent));
        let text = told(&[two]);
        assert!(
            text.contains("member 2 is silent; see that it runs"),
            "{text}"
        );
        let text = told(&[two, three]);
        assert!(
            text.contains("members 2, 3 are silent; see that they run"),
            "{text}"
        );
        let text = told(&[missing(2, Absence::StateLost)]);
        assert!(
            text.contains("member 2 has lost its state; restore"),
            "{text}"
        );
        assert!(text.contains("distlock recover"), "{text}");
        assert!(told(&[]).contains("in no view"));
    }
}

/// Why the work of [`Guard::hold`](crate::Guard::hold) was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", match state {
    GuardState::Suspended => "the lease ran out before the work was done, and nobody knows whether the lock is lost",
    _ => "the lock was lost before the work was done",
})]
#[non_exhaustive]
pub struct NotHeld {
    /// What the guard was worth then.
    pub state: GuardState,
}
