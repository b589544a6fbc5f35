//! The node's timers: a closed set of reasons to wake up, and when.

use alloc::collections::{BTreeMap, BTreeSet};

use super::ids::{LockName, NodeId, Ticket};
use super::time::Time;

/// Why the node wants to be woken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// A link has something to repeat, to acknowledge or to ask.
    Link(NodeId),
    /// A ring's token has stayed unwanted for long enough.
    Hop(LockName),
    /// What an election waits for has not come.
    Election(LockName),
    /// A caller that only tries has waited long enough for an answer.
    Try(Ticket),
    /// Something is due that has to do with views.
    Views,
    /// Members are missing: look for callers that have waited for a lease.
    Quorum,
    /// The predecessor's lease is over.
    Quarantine,
    /// The others have had time enough to hear that this member leaves.
    Leave,
}

/// When to wake up, and for what. Each timer is set at most once.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Timers<T = Timer> {
    order: BTreeSet<(Time, T)>,
    times: BTreeMap<T, Time>,
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Self {
            order: BTreeSet::new(),
            times: BTreeMap::new(),
        }
    }
}

impl<T: Clone + Ord> Timers<T> {
    /// Sets `timer`, in place of what it was set to before.
    pub(crate) fn set(&mut self, timer: T, at: Time) {
        if let Some(before) = self.times.insert(timer.clone(), at) {
            if before == at {
                return;
            }
            self.order.remove(&(before, timer.clone()));
        }
        self.order.insert((at, timer));
    }

    pub(crate) fn clear(&mut self, timer: &T) {
        if let Some(at) = self.times.remove(timer) {
            self.order.remove(&(at, timer.clone()));
        }
    }

    pub(crate) fn set_or_clear(&mut self, timer: T, at: Option<Time>) {
        match at {
            Some(at) => self.set(timer, at),
            None => self.clear(&timer),
        }
    }

    /// When the first timer is due.
    pub(crate) fn next(&self) -> Option<Time> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Takes a timer that is due.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<T> {
        if self.next()? > now {
            return None;
        }
        let (_, timer) = self.order.pop_first()?;
        self.times.remove(&timer);
        Some(timer)
    }
}
