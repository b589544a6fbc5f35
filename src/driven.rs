//! A member of a configured group that has no thread: the application drives it.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use distlock_agent::runtime::{self, Driver};

use crate::config::NodeConfig;
use crate::error::{OpenError, ProcessError, SignalError};
use crate::{Agent, member};

/// This process as a member of a configured group, driven by the application's own event loop: for
/// programs that may have no thread besides their own.
///
/// [`Driven::agent`] gives out locks as any other agent does, with the same guards, fences and
/// leases. What its thread would do, the application does:
///
/// - It polls the descriptor ([`AsFd`]) for readability among its others, and calls
///   [`Driven::process`] when there is something to do. No other timeout is needed.
/// - What waits ([`DistMutex::lock`](crate::DistMutex::lock), [`Agent::status`], [`Agent::close`])
///   processes by itself until it has what it waits for, as nobody else would.
///   [`DistMutex::begin`](crate::DistMutex::begin) asks without waiting.
/// - While it does neither, this member is silent. Others wait for its answers; it misses what is
///   said; and once its lease is over its guards are suspended, and then lost, as those of a
///   process that stands still ([`Agent::lease`]). The guards see it by themselves.
///
/// It needs processing about ten times in a lease, and whenever something arrives: each lock that
/// others take may wait for an answer of this member. If it votes, all of them wait for it.
///
/// Threads may use it too. While one of them waits it processes for all.
///
/// ```
/// use std::os::fd::AsFd;
/// use std::task::Poll;
///
/// use distlock::{Config, DistMutex, Driven};
/// use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::Builder::new().prefix("dl").tempdir()?;
/// # let text = format!(
/// #     "lease = \"200ms\"\n[group]\nname = \"shop\"\n\
/// #      [[member]]\nid = 1\naddress = \"unix:{}/1\"\n",
/// #     directory.path().display()
/// # );
/// let node = Config::parse(&text)?.node(1)?;
/// # let node = node.with_state_dir(directory.path().join("state"));
/// let driven = Driven::from_config(node)?;
/// let printer = driven.agent().mutex("printer")?;
/// let mut waiting = printer.begin()?;
/// let guard = loop {
///     // The application's other descriptors are polled here too.
///     let mut polled = [PollFd::new(driven.as_fd(), PollFlags::POLLIN)];
///     poll(&mut polled, PollTimeout::NONE)?;
///     driven.process()?;
///     if let Poll::Ready(outcome) = waiting.poll() {
///         break outcome?;
///     }
/// };
/// println!("held, fence {:?}", guard.fence());
/// # Ok(())
/// # }
/// ```
pub struct Driven {
    agent: Agent,
    driver: Driver,
}

impl Driven {
    /// Joins a configured group as one of its members, as [`Agent::from_config`] does, without a
    /// thread. The group forms while the application processes.
    ///
    /// # Errors
    /// As for [`Agent::from_config`], and [`OpenError::NoService`]: local programs are not served.
    pub fn from_config<C>(config: C) -> Result<Self, OpenError>
    where
        C: TryInto<NodeConfig>,
        OpenError: From<C::Error>,
    {
        let config = config.try_into()?;
        let started = runtime::Agent::start_driven(member::options(&config));
        let (agent, driver) = started.map_err(|error| member::open(error, config.me()))?;
        Ok(Self {
            agent: member::agent(agent)?,
            driver,
        })
    }

    #[cfg(feature = "store")]
    pub(crate) fn new(agent: Agent, driver: Driver) -> Self {
        Self { agent, driver }
    }

    /// The agent, from which the locks come. It lives on in its clones and locks, but goes on only
    /// with this.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Does what there is to do: takes what has arrived, up to a bound, answers, looks at the
    /// timers, and writes what must be on the disk. It waits for nothing but the disk. If more is
    /// left, the descriptor stays readable. It does nothing while another thread does it.
    ///
    /// What [`Guard::on_loss`](crate::Guard::on_loss) wants done at a loss runs in it, and may not
    /// lock. No signal handler may call it, or anything else of this library.
    ///
    /// # Errors
    /// If the agent was closed, or cannot go on, or belongs to the parent process. Then the
    /// descriptor stays readable for ever.
    pub fn process(&self) -> Result<(), ProcessError> {
        Ok(self.driver.process()?)
    }

    /// Has the kernel send this process SIGIO, or not any more, whenever there is something to
    /// process: for a program that computes or sleeps and does not poll. It comes at once if there
    /// is something already. It may also come when there is nothing, and one may stand for several.
    ///
    /// The handler is the application's. It must not process: a handler may call next to nothing
    /// (signal-safety(7)), and the agent allocates memory and takes mutexes, which what it
    /// interrupts may have. So it notes that the signal came, and the application calls
    /// [`Driven::process`] when it looks at the note, or when what it sleeps in returns `EINTR`.
    /// Between a look and a sleep a signal would be missed: ppoll(2), sigsuspend(2) and
    /// sigwaitinfo(2), with the signal blocked otherwise, miss none.
    ///
    /// # Errors
    /// If the signal has no handler and is not blocked, since it would end the process; if the
    /// agent was closed, or belongs to the parent process; or if the system refuses.
    pub fn set_sigio(&self, is_on: bool) -> Result<(), SignalError> {
        Ok(self.driver.set_sigio(is_on)?)
    }

    /// How long there is nothing to process if nothing arrives; `None` without a limit. The
    /// descriptor becomes readable then by itself: this is for programs that cannot poll it.
    pub fn timeout(&self) -> Option<Duration> {
        self.driver.timeout()
    }
}

/// Readable when there is something to process. It may be polled only, not read.
impl AsFd for Driven {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.driver.as_fd()
    }
}

impl AsRawFd for Driven {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl fmt::Debug for Driven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driven").finish_non_exhaustive()
    }
}
