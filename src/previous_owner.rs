//! How the holder before left a lock.

/// How the former holder of a lock left it: see [`Guard::previous_owner`](crate::Guard::previous_owner).
///
/// ```
/// use distlock::{Agent, DistMutex, PreviousOwner};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let agent = Agent::local_in(directory.path())?;
/// let account = agent.mutex("account")?;
/// account.lock()?.abandon()?; // the transfer is half done
/// assert_eq!(account.lock()?.previous_owner(), PreviousOwner::Abandoned);
/// assert_eq!(account.lock()?.previous_owner(), PreviousOwner::Clean);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PreviousOwner {
    /// It unlocked, or there was none.
    Clean,
    /// It died inside, without unlocking: what the lock protects may be half done. So did a thread
    /// whose panic unwound through its guard, a client of the host's agent whose process ended,
    /// and a command of `distlock run` that a signal ended. After a member of a configured group
    /// died it also means that nobody who is left can tell that the lock was not held there.
    ///
    /// Closing an agent, a handle or a C program's lock in order counts as unlocking.
    Abandoned,
}
