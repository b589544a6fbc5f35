//! What an agent has counted and measured, for whoever watches over it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::protocol::LockName;
use crate::runtime::api::status::MemberState;

/// What one agent has counted and measured since its start, and how it is now. Nobody else is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metrics {
    /// The group's name.
    pub group: String,
    /// The agent's member.
    pub member: u16,
    /// The epoch of the view in force; 0 if no view is in force.
    pub epoch: u32,
    /// Whether the member can be granted locks.
    pub has_quorum: bool,
    /// How many members are in each state.
    pub members: BTreeMap<MemberState, u64>,
    /// How many voters vote.
    pub voting: u64,
    /// How many voters do not: they are silent, have lost their states, or do not vote yet.
    pub not_voting: u64,
    /// How long a lease lasts.
    pub lease: Duration,
    /// How long the member's lease still lasts; zero if it is over, or not yet there; `None` where no lease
    /// bounds what is granted.
    pub lease_remaining: Option<Duration>,
    /// How much the clocks of other members are proven to gain on this one's, in parts per million: negative if
    /// this one gains, and zero while nothing is proven that leases do not allow for.
    pub clock_rates: BTreeMap<u16, i64>,
    /// How many programs are connected; `None` of an agent that serves none.
    pub clients: Option<u64>,
    /// How many programs were turned away or cut off, by reason, as in the status.
    pub clients_refused: BTreeMap<String, u64>,
    /// How many views have come into force, by whom they have that the view before had not, or have not:
    /// `founding`, `joined`, `left`, `replaced` and `same`.
    pub view_changes: BTreeMap<String, u64>,
    /// How many grants were void before they were released, by reason: `excluded` if the group went on without
    /// this member, `expired` if they were released when their lease was over and nothing was heard of the group,
    /// `closed` if the agent was closed, `failed` if the agent had to end.
    pub losses: BTreeMap<String, u64>,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Datagrams taken.
    pub datagrams_received: u64,
    /// Datagrams and messages dropped, by reason, as in the status.
    pub datagrams_dropped: BTreeMap<String, u64>,
    /// Of sealed members' handshakes: challenges that were answered, and answers that were right.
    pub handshakes: u64,
    /// How many records the audit log lacks; `None` where none is written.
    pub audit_lost: Option<u64>,
    /// The locks that the configuration lists, the first [`Metrics::MAX_LOCKS`] of them.
    pub locks: BTreeMap<String, LockMetrics>,
    /// All other locks, taken together.
    pub other_locks: LockMetrics,
    /// How much was left of a lease when it was renewed.
    pub lease_margin: Histogram,
    /// For how long no request was served, from the end of one view to the next one.
    pub view_pause: Histogram,
    /// How long it took to have the member's state on disk.
    pub state_write: Histogram,
    /// How late the agent's thread was: what it did took so long, or the system did not let it run.
    pub loop_stall: Histogram,
}

impl Metrics {
    /// How many locks are counted apart.
    pub const MAX_LOCKS: usize = 200;
    /// What stands for the name of all other locks. A lock of that name is one of them.
    pub const OTHER: &str = "other";

    /// Where `lock` is counted.
    pub(crate) fn of(&mut self, lock: &LockName) -> &mut LockMetrics {
        let listed = self.locks.get_mut(&lock.to_string());
        listed.unwrap_or(&mut self.other_locks)
    }
}

/// One lock, as this agent's callers use it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockMetrics {
    /// How many callers are inside.
    pub holders: u64,
    /// How many wait.
    pub waiters: u64,
    /// For how long the one waits that has waited longest; zero if nobody does.
    pub oldest_wait: Duration,
    /// How often it was granted to one caller alone, with the entries by loan.
    pub exclusive: u64,
    /// How often it was granted to one of several that share it.
    pub shared: u64,
    /// How often it was entered while the agent lent it, without a request. Of these entries it is not known
    /// how long they waited, and of most how long they stayed.
    pub by_loan: u64,
    /// How many requests were refused or given up, by reason.
    pub refusals: BTreeMap<String, u64>,
    /// How many grants came after a holder that had ended inside.
    pub abandoned: u64,
    /// How long requests waited that were granted.
    pub wait: Histogram,
    /// How long those stayed inside of which the agent knew.
    pub hold: Histogram,
}

/// How often something took how long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// How often it took at most as long as the bound at the same place in [`Histogram::BOUNDS`], and longer
    /// than the bound before; the last is of what took longer than all bounds.
    buckets: Vec<u64>,
    sum: Duration,
}

const fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

impl Histogram {
    /// 100 µs to an hour.
    pub const BOUNDS: [Duration; 21] = [
        micros(100),
        micros(250),
        micros(500),
        micros(1_000),
        micros(2_500),
        micros(5_000),
        micros(10_000),
        micros(25_000),
        micros(50_000),
        micros(100_000),
        micros(250_000),
        micros(500_000),
        secs(1),
        micros(2_500_000),
        secs(5),
        secs(10),
        secs(30),
        secs(60),
        secs(300),
        secs(900),
        secs(3_600),
    ];

    /// It took `time`.
    pub(crate) fn note(&mut self, time: Duration) {
        let bucket = Self::BOUNDS.partition_point(|bound| *bound < time);
        if let Some(count) = self.buckets.get_mut(bucket) {
            *count += 1;
        }
        self.sum = self.sum.saturating_add(time);
    }

    /// How long it took all in all.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// How often there was something.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// How often it took longer than the bound before and at most as long as this one; `None` is beyond all
    /// bounds.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> {
        let bounds = Self::BOUNDS.map(Some).into_iter().chain([None]);
        bounds.zip(self.buckets.iter().copied())
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: vec![0; Self::BOUNDS.len() + 1],
            sum: Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_what_is_below_it() {
        let mut histogram = Histogram::default();
        let noted = [
            micros(0),
            micros(100),
            micros(101),
            secs(3_600),
            secs(3_601),
        ];
        noted.into_iter().for_each(|time| histogram.note(time));
        let counts: Vec<_> = histogram
            .buckets()
            .filter(|(_, count)| *count > 0)
            .collect();
        let expected = [
            (Some(micros(100)), 2),
            (Some(micros(250)), 1),
            (Some(secs(3_600)), 1),
            (None, 1),
        ];
        assert_eq!(counts, expected);
        assert_eq!(histogram.count(), 5);
        assert_eq!(histogram.sum(), noted.iter().sum());
        assert!(Histogram::BOUNDS.is_sorted());
    }
}
