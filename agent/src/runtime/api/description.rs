//! How the group's configuration says that a lock is served.

use serde::{Deserialize, Serialize};

use crate::protocol::{Failure, LockName, LockSpec};
use crate::runtime::shared::group_status::Identity;

/// How the group's configuration says that a lock is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// How, if nobody who uses the lock says otherwise.
    pub spec: LockSpec,
    /// Whether the configuration lists the lock. Then nobody may say otherwise.
    pub is_listed: bool,
    /// Whether a majority decides who belongs to the group. Then no algorithm is served that lets
    /// two in with some probability.
    pub by_quorum: bool,
    /// Whether a store has the locks, all of which its ledger serves then.
    pub is_in_store: bool,
}

impl Description {
    pub(crate) fn of(lock: &LockName, identity: &Identity) -> Self {
        let settings = &identity.settings;
        let listed = settings.locks.get(lock).copied();
        let spec = listed.unwrap_or_else(|| LockSpec::exclusive(settings.algorithm));
        Self {
            spec,
            is_listed: listed.is_some(),
            by_quorum: settings.failure == Failure::Quorum,
            is_in_store: identity.is_in_store,
        }
    }
}
