//! What a member tells of its locks when a view ends, and what a view begins with.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{LockSpec, Mode, Request};
use crate::protocol::ids::{LockName, RequestId};

/// The locks in use: what one member knows of itself, or, merged, what a view begins with.
///
/// A member tells only of its own requests. Nobody else can know better, so summaries of members
/// that stopped in different epochs merge without contradiction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The highest Lamport clock.
    pub clock: u64,
    /// The locks that somebody holds or waits for, by name.
    pub locks: BTreeMap<LockName, LockSummary>,
}

/// One lock in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockSummary {
    /// How it is served.
    pub spec: LockSpec,
    /// Who is inside.
    pub holders: Vec<RequestId>,
    /// How they are inside.
    pub held: Mode,
    /// Who waits, by stamp.
    pub waiters: Vec<Request>,
}

impl Summary {
    /// Takes in what another member tells. Requests made in the new view are stamped later than
    /// all that are here, as the clock is set past the highest.
    pub fn merge(&mut self, other: Self) {
        self.clock = self.clock.max(other.clock);
        for (name, theirs) in other.locks {
            let ours = self.locks.entry(name).or_insert_with(|| LockSummary {
                spec: theirs.spec,
                holders: Vec::new(),
                held: Mode::default(),
                waiters: Vec::new(),
            });
            // Those inside at one time are inside in one way.
            ours.held = ours.held.max(theirs.held);
            ours.holders.extend(theirs.holders);
            ours.holders.sort_unstable();
            ours.waiters.extend(theirs.waiters);
            ours.waiters.sort_unstable_by_key(|request| request.stamp);
        }
    }
}
