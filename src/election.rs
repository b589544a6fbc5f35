//! Elections: of several that want to lead, one does, and another takes over when it is gone.

use std::fmt;
use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crossbeam_channel::Receiver;
use distlock_agent::protocol::{ElectionAlgorithm, LockName, Mode};
use distlock_agent::runtime::{Observed, Purpose};

use crate::backend::Wish;
use crate::error::{LockError, TimedLockError, TryLockError, UnlockError};
use crate::event::Leader;
use crate::guard::Guard;
use crate::handle::LockHandle;
use crate::locking::{Locking, TimedLocking};
use crate::waiting::{TimedWaiting, Waiting};

/// An election: see [`Agent::election`](crate::Agent::election).
///
/// The members where somebody campaigns elect one of them, by the algorithm that the configuration
/// names (`election`). What makes the elected one the leader is the exclusive lock of the election's
/// name, which it alone asks for then, and holds as long as it leads: so there are never two
/// leaders, leadership has a fence and a lease as every lock, `status` shows the leader as its
/// holder, and whoever locks a mutex of that name leads nobody and keeps others from leading.
///
/// In the local group the kernel's lock is all there is to it, and who leads next is the kernel's
/// choice.
///
/// ```
/// use distlock::{Agent, TryLockError};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let agent = Agent::local_in(directory.path())?;
/// # let other = Agent::local_in(directory.path())?.election("nightly report")?;
/// let election = agent.election("nightly report")?;
/// let leadership = election.campaign()?; // blocks until this process leads
/// # assert!(matches!(other.try_campaign(), Err(TryLockError::WouldBlock)));
/// println!("leading, fence {:?}", leadership.fence()); // it is a guard, too
/// leadership.resign()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Election {
    handle: LockHandle,
    algorithm: Option<ElectionAlgorithm>,
}

/// As [`Agent`](crate::Agent) is.
impl UnwindSafe for Election {}
impl RefUnwindSafe for Election {}

impl Election {
    pub(crate) fn new(handle: LockHandle, algorithm: Option<ElectionAlgorithm>) -> Self {
        Self { handle, algorithm }
    }

    /// The name.
    pub fn name(&self) -> &LockName {
        self.handle.name()
    }

    /// Waits until this process leads.
    ///
    /// # Errors
    /// As for [`DistMutex::lock`](crate::DistMutex::lock), and [`LockError::WrongElection`].
    pub fn campaign(&self) -> Result<Leadership, LockError> {
        self.handle.wait(self.wish()).map(Leadership)
    }

    /// Stands for election, and does not wait, as [`DistMutex::begin`](crate::DistMutex::begin). Its
    /// outcome is the guard of the election's lock: who holds that leads.
    ///
    /// # Errors
    /// As for [`Election::campaign`], as far as it is known at once.
    pub fn begin(&self) -> Result<Waiting, LockError> {
        Waiting::begin(&self.handle, self.wish())
    }

    /// The same for at most `timeout` from now on.
    ///
    /// # Errors
    /// As for [`Election::begin`].
    pub fn begin_for(&self, timeout: Duration) -> Result<TimedWaiting, LockError> {
        TimedWaiting::begin(&self.handle, self.wish(), timeout)
    }

    /// Waits until this process leads, as a future: see
    /// [`DistMutex::lock_async`](crate::DistMutex::lock_async).
    pub fn campaign_async(&self) -> Campaigning {
        Campaigning(Locking::new(&self.handle, self.wish()))
    }

    /// The same for at most `timeout`, from the first poll on.
    pub fn campaign_async_for(&self, timeout: Duration) -> TimedCampaigning {
        TimedCampaigning(TimedLocking::new(&self.handle, self.wish(), timeout))
    }

    /// Leads, if nobody else does or is about to.
    ///
    /// # Errors
    /// [`TryLockError::WouldBlock`] if another leads; else as for [`Election::campaign`].
    pub fn try_campaign(&self) -> Result<Leadership, TryLockError> {
        self.handle.attempt(self.wish()).map(Leadership)
    }

    /// Waits for at most `timeout` until this process leads, also without a quorum.
    ///
    /// # Errors
    /// [`TimedLockError::TimedOut`] when the time is over; else as for [`Election::campaign`].
    pub fn try_campaign_for(&self, timeout: Duration) -> Result<Leadership, TimedLockError> {
        self.handle.wait_for(self.wish(), timeout).map(Leadership)
    }

    /// Who leads, as far as this process's agent knows: now, and whenever that changes. Each call
    /// makes a channel of its own; it ends when the agent closes, and a receiver that lags far behind
    /// misses changes. An agent that is cut off from its group hears of none, so whoever must know
    /// whether a leader still leads checks the fence.
    ///
    /// The local group has none to tell, and its channel, like that of a forked child, is at its end
    /// at once; `Agent::status` shows who holds the lock.
    pub fn observe(&self) -> Receiver<Option<Leader>> {
        self.handle.observe().into_receiver()
    }

    /// Who leads, for tasks: [`Election::observe`] says what is told, and [`Observing::next`] waits for it.
    ///
    /// ```
    /// # async fn follow(election: &distlock::Election) {
    /// let mut leaders = election.observe_async();
    /// while let Some(leader) = leaders.next().await {
    ///     println!("{leader:?} leads");
    /// }
    /// # }
    /// ```
    pub fn observe_async(&self) -> Observing {
        Observing(self.handle.observe())
    }

    fn wish(&self) -> Wish {
        Wish {
            mode: Mode::Exclusive,
            purpose: Purpose::Lead {
                algorithm: self.algorithm,
            },
        }
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election")
            .field("name", self.handle.name())
            .finish_non_exhaustive()
    }
}

/// Waits until this process leads: see [`Election::campaign_async`]. As [`Locking`](crate::Locking) otherwise: it
/// asks when it is polled first, and dropping it at any time withdraws the candidacy.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub struct Campaigning(Locking);

impl Future for Campaigning {
    type Output = Result<Leadership, LockError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let elected = Pin::new(&mut self.0).poll(context);
        elected.map(|guard| guard.map(Leadership))
    }
}

/// Waits for a limited time until this process leads: see [`Election::campaign_async_for`]. Else it is as
/// [`Campaigning`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub struct TimedCampaigning(TimedLocking);

impl Future for TimedCampaigning {
    type Output = Result<Leadership, TimedLockError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let elected = Pin::new(&mut self.0).poll(context);
        elected.map(|guard| guard.map(Leadership))
    }
}

/// Tells who leads: see [`Election::observe_async`].
#[derive(Debug)]
pub struct Observing(Observed<Option<Leader>>);

impl Observing {
    /// Who leads when that has changed, and at first who leads now; `None` within if nobody does, and `None` when the
    /// agent has closed.
    ///
    /// # Cancel safety
    /// Dropping it misses nothing: the next one tells it.
    pub async fn next(&mut self) -> Option<Option<Leader>> {
        poll_fn(|context| self.0.poll_next(context.waker())).await
    }
}

/// The proof of leading: a [`Guard`] of the election's lock, whose fence, validity and loss are the
/// leadership's. Dropping it resigns. [`Election`] has an example.
#[derive(Debug)]
#[must_use = "the leadership is resigned as soon as it is dropped"]
pub struct Leadership(Guard);

impl Leadership {
    /// Leads no more, so that another is elected; and tells what dropping would not.
    ///
    /// # Errors
    /// If the leadership was lost before: then another may have led since.
    pub fn resign(self) -> Result<(), UnlockError> {
        self.0.unlock()
    }

    /// The guard of the election's lock alone.
    pub fn into_guard(self) -> Guard {
        self.0
    }
}

impl Deref for Leadership {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}
