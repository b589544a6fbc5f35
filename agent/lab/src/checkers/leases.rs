//! Leases: what is granted is valid until then, and no longer.

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use super::{Call, Process, Violation, violation};
use crate::clock::Clock;
use distlock_protocol::{NodeId, Refusal, Time, Wait};

/// A lease runs for no longer than it may from when it was told; only while it does anybody is told
/// of a grant; and who has just been renewed is not refused for want of a quorum. Unless there is a
/// new view: its voters may be others than those who renewed.
#[derive(Debug)]
pub struct Leases {
    lease: Duration,
    clocks: BTreeMap<NodeId, Clock>,
    /// The shortest that files have had.
    shortest: Duration,
    /// Until when each process may act, on its own clock.
    until: BTreeMap<Process, Time>,
    /// Those who have stopped for a view under which their lease has not been renewed.
    stopped: BTreeSet<Process>,
}

impl Leases {
    /// Leases of the length `lease`, counted on these clocks; members that are not named have an
    /// exact one.
    pub const fn new(lease: Duration, clocks: BTreeMap<NodeId, Clock>) -> Self {
        Self {
            lease,
            shortest: lease,
            clocks,
            until: BTreeMap::new(),
            stopped: BTreeSet::new(),
        }
    }

    /// Files have another lease from now on: what is judged is the longest, or the shortest, of all.
    pub fn change(&mut self, lease: Duration) {
        self.lease = self.lease.max(lease);
        self.shortest = self.shortest.min(lease);
    }

    fn clock(&self, process: Process) -> Clock {
        self.clocks.get(&process.node).copied().unwrap_or_default()
    }

    /// `process` says that its lease runs until its clock shows `until`. Returns when that is.
    ///
    /// # Errors
    /// It is longer than a lease is.
    pub fn extends(&mut self, now: Time, process: Process, until: Time) -> Result<Time, Violation> {
        let clock = self.clock(process);
        let local = clock.shows(now);
        if until > local + self.lease {
            let ahead = until.since(local);
            return Err(violation!(
                now,
                Leases,
                "{process} says that its lease runs for {ahead:?} from now"
            ));
        }
        self.until.insert(process, until);
        self.stopped.remove(&process);
        Ok(clock.when(until))
    }

    /// `process` has stopped for a view: what renews its lease from now on are that one's voters.
    pub fn stops(&mut self, process: Process) {
        self.stopped.insert(process);
    }

    /// `process` has no lease any more.
    pub fn ends(&mut self, process: Process) {
        self.until.remove(&process);
        self.stopped.remove(&process);
    }

    /// Whether the lease of `process` runs.
    pub fn has_lease(&self, now: Time, process: Process) -> bool {
        let until = self.until.get(&process);
        until.is_some_and(|until| self.clock(process).shows(now) < *until)
    }

    /// `call` is granted something.
    ///
    /// # Errors
    /// The lease of its process is over, or there is none.
    pub fn grants(&self, now: Time, call: Call) -> Result<(), Violation> {
        let local = self.clock(call.process).shows(now);
        match self.until.get(&call.process) {
            Some(until) if local < *until => Ok(()),
            until => Err(violation!(
                now,
                Leases,
                "{call} is granted what is not valid: the lease ends at {until:?}, it is {local:?}"
            )),
        }
    }

    /// `call`, which has waited since `since` on the terms `wait`, is refused.
    ///
    /// # Errors
    /// For want of a quorum, and that was renewed a moment ago, or `call` has waited for less than a
    /// lease.
    pub fn refuses(
        &self,
        now: Time,
        call: Call,
        refusal: &Refusal,
        (since, wait): (Time, Wait),
    ) -> Result<(), Violation> {
        if !matches!(refusal, Refusal::NoQuorum { .. }) {
            return Ok(());
        }
        let clock = self.clock(call.process);
        let local = clock.shows(now);
        let waited = local.since(clock.shows(since));
        if wait == Wait::Lease && waited < self.shortest {
            return Err(violation!(
                now,
                Leases,
                "{call} is refused by {refusal:?} after {waited:?}"
            ));
        }
        // What was renewed was asked for less than half a lease ago: so a majority has answered in
        // this time.
        if let Some(until) = self.until.get(&call.process)
            && *until > local + self.lease / 2
            && !self.stopped.contains(&call.process)
        {
            return Err(violation!(
                now,
                Leases,
                "{call} is refused by {refusal:?}, while the lease runs for {:?} yet",
                until.since(local)
            ));
        }
        Ok(())
    }
}
