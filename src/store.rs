//! A store, looked at and cared for by whoever operates it: what `distlock store` does, and
//! `distlock fence check --at`. Programs that lock need none of it.

use std::time::Duration;

use distlock_agent::protocol::ledger::survey::{Overview, Survey};
use distlock_agent::protocol::ledger::{LockRecord, Op, Reply, keys};
use distlock_agent::protocol::{Fence, LockName, Previous};
use distlock_agent::runtime::{StoreConsole, clock};

use crate::config::StoreConfig;
use crate::error::OpenError;

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection to a store, by which nothing is locked.
///
/// ```no_run
/// use distlock::config::StoreConfig;
/// use distlock::store::StoreAdmin;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = StoreConfig::at("etcd://10.0.0.1?group=shop")?;
/// let mut store = StoreAdmin::connect(&config)?;
/// assert!(store.keeps());
/// println!("the last fence: {:?}", store.last_fence(&"printer".parse()?)?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct StoreAdmin {
    console: StoreConsole,
    at: String,
    group: String,
    took: Duration,
}

/// The store does not answer, or refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store {at}: {reason}")]
pub struct StoreError {
    /// Where it is.
    pub at: String,
    /// What it says, or that it says nothing.
    pub reason: String,
}

/// What a group has in a store, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreContents {
    /// Locks that have a record.
    pub locks: usize,
    /// Grants.
    pub holders: usize,
    /// Requests that wait.
    pub waiters: usize,
    /// Agents that hold or wait.
    pub sessions: usize,
    /// Records that cannot be read, and why.
    pub unreadable: Vec<String>,
}

/// What [`StoreAdmin::collect`] has removed, or would.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Collected {
    /// The locks whose records are gone.
    pub locks: Vec<LockName>,
    /// How many were changed meanwhile, and stay.
    pub changed: usize,
}

impl StoreAdmin {
    /// Connects to the store that `config` names.
    ///
    /// # Errors
    /// If a password or certificate cannot be read ([`OpenError::Keys`], [`OpenError::Unsafe`]), or the store
    /// does not answer ([`OpenError::Store`]).
    pub fn connect(config: &StoreConfig) -> Result<Self, OpenError> {
        let options = config.store_options()?;
        let client = distlock_stores::open(config.url.kind, options);
        Self::by(config, client)
    }

    /// Connects, and makes in the store what has to be there before anything is locked: in PostgreSQL a
    /// table, in etcd nothing. What is there already stays.
    ///
    /// # Errors
    /// As for [`StoreAdmin::connect`]; and if the user may not make it.
    pub fn initialize(config: &StoreConfig) -> Result<Self, OpenError> {
        let options = config.store_options()?;
        let client = distlock_stores::open_to_initialize(config.url.kind, options);
        Self::by(config, client)
    }

    fn by(
        config: &StoreConfig,
        client: Result<Box<dyn distlock_stores::Store>, String>,
    ) -> Result<Self, OpenError> {
        let failed = |reason| OpenError::Store {
            store: config.url().to_owned(),
            reason,
        };
        let begun = clock::now();
        let console = StoreConsole::connect(client.map_err(failed)?, PATIENCE).map_err(failed)?;
        Ok(Self {
            console,
            at: config.url().to_owned(),
            group: config.group().to_owned(),
            took: clock::now().since(begun),
        })
    }

    /// How long it took to connect and to sign in.
    pub fn took(&self) -> Duration {
        self.took
    }

    /// Whether the store keeps what it acknowledges, as far as it can be known.
    pub fn keeps(&self) -> bool {
        !self.console.facts().may_forget
    }

    /// Why it may forget, and what else is worth knowing of the store, in words.
    pub fn doubts(&self) -> &[String] {
        &self.console.facts().doubts
    }

    /// Which store it is: another one, or one that was restored from a backup, has another identity.
    pub fn identity(&self) -> &str {
        &self.console.facts().identity
    }

    /// The last fence that was given of that lock; `None` if it has no record.
    ///
    /// # Errors
    /// If the store does not answer, or the record cannot be read.
    pub fn last_fence(&mut self, lock: &LockName) -> Result<Option<Fence>, StoreError> {
        let key = keys::lock_key(&self.group, lock);
        match self.ask(Op::Read { key: key.clone() })? {
            Reply::Value(None) => Ok(None),
            Reply::Value(Some(entry)) => match LockRecord::parse(&entry.value) {
                Ok(record) => Ok(Fence::new(record.fence)),
                Err(error) => Err(self.failed(format!("the record {key}: {error}"))),
            },
            other => Err(self.failed(format!("it answers a read with {other:?}"))),
        }
    }

    /// What the group has there.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn contents(&mut self) -> Result<StoreContents, StoreError> {
        let overview = self.survey()?;
        let records = overview.locks.values().map(|(record, _)| record);
        Ok(StoreContents {
            locks: overview.locks.len(),
            holders: records.clone().map(|record| record.inside.len()).sum(),
            waiters: records.map(|record| record.queue.len()).sum(),
            sessions: overview.sessions.len(),
            unreadable: overview
                .unreadable
                .iter()
                .map(|(key, error)| format!("{key}: {error}"))
                .collect(),
        })
    }

    /// Removes the records of locks that nobody holds or waits for, and that were granted last longer ago
    /// than `idle`; with `is_dry` it only tells which.
    ///
    /// A record keeps the last fence of its lock. Without it the next fence is the time of day: it is higher
    /// than the last one, unless the clock of the host that gives it was set back by more than `idle`. A
    /// record stays that has to tell the next holder how the last one left.
    ///
    /// # Errors
    /// If the store does not answer.
    pub fn collect(&mut self, idle: Duration, is_dry: bool) -> Result<Collected, StoreError> {
        let newest = clock::wall().saturating_sub(idle);
        let fraction = (u64::from(newest.subsec_nanos()) << 32) / 1_000_000_000;
        let newest = newest.as_secs() << 32 | fraction;
        let mut collected = Collected::default();
        for (name, (record, version)) in self.survey()?.locks {
            let is_idle = record.inside.is_empty() && record.queue.is_empty();
            let has_told = record.left == Previous::Clean;
            if !is_idle || !has_told || record.fence >= newest {
                continue;
            }
            if !is_dry {
                let key = keys::lock_key(&self.group, &name);
                let expect = version;
                if self.ask(Op::Remove { key, expect })? != Reply::Removed {
                    collected.changed += 1;
                    continue;
                }
            }
            collected.locks.push(name);
        }
        Ok(collected)
    }

    fn survey(&mut self) -> Result<Overview, StoreError> {
        let mut survey = Survey::new(&self.group);
        while let Some(op) = survey.op() {
            let reply = self.ask(op)?;
            survey.reply(reply).map_err(|why| self.failed(why))?;
        }
        let overview = survey.finish();
        overview.ok_or_else(|| self.failed("it does not list its records".to_owned()))
    }

    fn ask(&mut self, op: Op) -> Result<Reply, StoreError> {
        let asked = self.console.ask(op, PATIENCE);
        asked.map_err(|reason| self.failed(reason))
    }

    fn failed(&self, reason: String) -> StoreError {
        StoreError {
            at: self.at.clone(),
            reason,
        }
    }
}

/// The statements by which `distlock store init` makes what a store needs, for those who would rather do
/// that themselves; `None` where it needs nothing.
pub fn schema(config: &StoreConfig) -> Option<&'static str> {
    distlock_stores::schema(config.url.kind)
}
