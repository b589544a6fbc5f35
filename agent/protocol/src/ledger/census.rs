//! Which locks are in what state, so that no input takes a look at all of them.
//!
//! Whatever changes a lock marks it as dirty, and what is dirty is counted anew when it was dealt with. So
//! between two inputs this says of every lock what a look at it would.

use alloc::collections::BTreeSet;

use super::Ledger;
use super::lock::Lock;
use super::store::Key;
use crate::ids::LockName;

/// The locks that are not at rest.
#[derive(Clone, Debug, Default)]
pub(super) struct Census {
    /// Somebody wants something of them, or something is under way.
    pub(super) unsettled: BTreeSet<LockName>,
    /// A caller waits for them.
    pub(super) waited: BTreeSet<LockName>,
    /// The registers of those that a caller waits for, or that are observed.
    pub(super) interest: BTreeSet<Key>,
}

impl Ledger {
    /// Counts one lock anew, which may be no more.
    pub(super) fn count(&mut self, name: &LockName) {
        let lock = self.locks.get(name);
        let census = &mut self.census;
        note(
            &mut census.unsettled,
            name,
            lock.is_some_and(|it| !it.is_settled()),
        );
        note(&mut census.waited, name, lock.is_some_and(Lock::is_waited));
        let is_of_interest = lock.is_some_and(|it| it.is_waited() || it.observer.is_some());
        match lock {
            Some(lock) => note(&mut census.interest, &lock.key, is_of_interest),
            None => {
                let key = self.lock_key(name);
                self.census.interest.remove(&key);
            }
        }
    }

    /// Whether the census is what a look at every lock would make it.
    pub(super) fn is_counted(&self) -> bool {
        self.locks.iter().all(|(name, lock)| {
            let census = &self.census;
            census.unsettled.contains(name) != lock.is_settled()
                && census.waited.contains(name) == lock.is_waited()
                && census.interest.contains(&lock.key)
                    == (lock.is_waited() || lock.observer.is_some())
        }) && self
            .census
            .unsettled
            .iter()
            .all(|it| self.locks.contains_key(it))
    }
}

fn note<T: Clone + Ord>(set: &mut BTreeSet<T>, what: &T, is_in: bool) {
    if !is_in {
        set.remove(what);
    } else if !set.contains(what) {
        set.insert(what.clone());
    }
}
