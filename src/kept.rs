//! This process as one that has its locks in a store: etcd or PostgreSQL.

use distlock_agent::runtime;

use crate::config::StoreConfig;
use crate::error::OpenError;
use crate::group::Connection;
use crate::{Agent, Driven, member};

impl Agent {
    /// Opens the group at that place: a store's, like `etcd://10.0.0.1,10.0.0.2?group=shop` or
    /// `postgresql://app@db/shop` (what may follow the question mark: [`StoreConfig::at`]), or `local:`,
    /// `unix:PATH` or `file:PATH#ID`, as [`GroupOptions::at`](crate::discovery::GroupOptions::at) has it.
    ///
    /// It connects in the background, and the first requests wait for that, at most a lease. No agent has
    /// to run on this host; where many programs of a host use one store, they share an agent better
    /// ([`Agent::connect`], `distlock agent`).
    ///
    /// ```no_run
    /// use distlock::{Agent, DistMutex};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let agent = Agent::open_at("etcd://10.0.0.1,10.0.0.2,10.0.0.3?group=shop")?;
    /// let guard = agent.mutex("printer")?.lock()?;
    /// println!("held, fence {:?}", guard.fence());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the place is none, if a password or certificate cannot be read, or if the system refuses
    /// something. That the store does not answer is no error here: requests tell
    /// ([`LockError::Unreachable`](crate::LockError::Unreachable)).
    pub fn open_at(place: &str) -> Result<Self, OpenError> {
        crate::discovery::GroupOptions::new()
            .at(place)
            .find()?
            .open()
    }

    /// Opens the group whose locks a store has, as `config` says.
    ///
    /// # Errors
    /// As for [`Agent::open_at`]; and if the socket for this host's programs cannot be had.
    pub fn from_store(config: StoreConfig) -> Result<Self, OpenError> {
        let mut options = config.options()?;
        options.socket = options
            .socket
            .map(crate::discovery::host_endpoint)
            .transpose()?;
        member::agent(runtime::Agent::start_ledger(options).map_err(member::open_store)?)
    }
}

impl Driven {
    /// Opens the group whose locks a store has, as [`Agent::from_store`] does, without a thread.
    ///
    /// # Errors
    /// As for [`Agent::from_store`], and [`OpenError::NoService`]: local programs are not served.
    pub fn from_store(config: StoreConfig) -> Result<Self, OpenError> {
        let started = runtime::Agent::start_driven_ledger(config.options()?);
        let (agent, driver) = started.map_err(member::open_store)?;
        Ok(Self::new(Connection::Member(agent).into_agent()?, driver))
    }
}
