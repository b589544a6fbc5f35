//! What a store's client is made with.

use std::fmt;
use std::time::Duration;

use distlock_protocol::ledger::Host;
use zeroize::Zeroizing;

use crate::tls::Tls;

/// What a store's client is made with.
pub struct StoreOptions {
    /// The store's hosts, at least one.
    pub hosts: Vec<Host>,
    /// Whether and how connections are sealed.
    pub tls: Option<Tls>,
    /// As whom to sign in.
    pub user: Option<String>,
    /// By which password.
    pub password: Option<Zeroizing<String>>,
    /// Which database, where the store has several.
    pub database: Option<String>,
    /// The group, whose registers are below `distlock/GROUP/`.
    pub group: String,
    /// The lease: an operation without reply for a third of it, at most two seconds, closes its connection.
    pub lease: Duration,
    /// Whether to be told of changes by the store. Without, the ledger finds them by reading.
    pub has_hints: bool,
    /// By chance, and another one in each start of each agent.
    pub seed: u64,
}

impl StoreOptions {
    /// For how long a reply is waited for.
    pub(crate) fn patience(&self) -> Duration {
        (self.lease / 3).min(Duration::from_secs(2))
    }
}

impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions")
            .field("hosts", &self.hosts)
            .field("user", &self.user)
            .field("database", &self.database)
            .field("group", &self.group)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}
