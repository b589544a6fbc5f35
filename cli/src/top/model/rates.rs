//! How often something happens: from what was counted until two looks.

use std::time::Duration;

use distlock::status::LockStatus;

use super::{LockMetrics, Look, Metrics};

/// How often a lock is granted, in a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rate {
    /// It cannot be told.
    Unknown,
    /// To callers of the agent that is asked, which counts that.
    Counted(f64),
    /// In the whole group, as the fences of its holders tell, which grow with each grant.
    ByFences(f64),
}

impl Rate {
    pub(crate) fn known(self) -> Option<f64> {
        match self {
            Self::Unknown => None,
            Self::Counted(rate) | Self::ByFences(rate) => Some(rate),
        }
    }
}

/// What the agent does in a second.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rates {
    pub(crate) grants: f64,
    /// Those of them of which the agent was not asked.
    pub(crate) by_loan: f64,
    pub(crate) refusals: f64,
    pub(crate) losses: f64,
    pub(crate) datagrams_sent: f64,
    pub(crate) datagrams_received: f64,
    pub(crate) datagrams_dropped: f64,
}

impl Rates {
    /// `None` in the local group, and if another agent counts than before: one that was started anew.
    pub(super) fn between(before: &Look, now: &Look) -> Option<Self> {
        let (old, new) = (before.metrics.as_ref()?, now.metrics.as_ref()?);
        let time = now.at.since(before.at);
        let rate = |count: fn(&Metrics) -> u64| per_second(count(old), count(new), time);
        Some(Self {
            grants: rate(|its| all_locks(its).map(granted).sum())?,
            by_loan: rate(|its| all_locks(its).map(|lock| lock.by_loan).sum())?,
            refusals: rate(|its| {
                let locks = all_locks(its).map(|lock| lock.refusals.values().sum::<u64>());
                locks.sum()
            })?,
            losses: rate(|its| its.losses.values().sum())?,
            datagrams_sent: rate(|its| its.datagrams_sent)?,
            datagrams_received: rate(|its| its.datagrams_received)?,
            datagrams_dropped: rate(|its| its.datagrams_dropped.values().sum())?,
        })
    }
}

/// The lease of the member that is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) length: Duration,
    /// `None` where no lease bounds what is granted.
    pub(crate) remaining: Option<Duration>,
    /// Less was never left at a renewal; `None` before the first.
    pub(crate) least_margin: Option<Duration>,
}

impl Lease {
    pub(super) fn new(metrics: &Metrics) -> Self {
        let mut bound_before = Duration::ZERO;
        let mut least_margin = None;
        for (bound, count) in metrics.lease_margin.buckets() {
            if count > 0 {
                least_margin = Some(bound_before);
                break;
            }
            bound_before = bound.unwrap_or(bound_before);
        }
        Self {
            length: metrics.lease,
            remaining: metrics.lease_remaining,
            least_margin,
        }
    }
}

/// How often the agent has granted a lock.
pub(super) fn counted(
    before: Option<&Look>,
    now: &Look,
    lock: impl Fn(&Metrics) -> Option<&LockMetrics>,
) -> Rate {
    let rate = || {
        let before = before?;
        let old = granted(lock(before.metrics.as_ref()?)?);
        let new = granted(lock(now.metrics.as_ref()?)?);
        per_second(old, new, now.at.since(before.at))
    };
    rate().map_or(Rate::Unknown, Rate::Counted)
}

/// How often a lock has been granted that was held at both looks: the lower half of a fence counts the
/// lock's grants in an epoch.
pub(super) fn by_fences(before: Option<&Look>, now: &Look, lock: &LockStatus) -> Rate {
    let highest = |lock: &LockStatus| lock.holders.iter().filter_map(|it| it.fence).max();
    let rate = || {
        let before = before?;
        let old = before.status.locks.iter().find(|it| it.name == lock.name)?;
        let (old, new) = (highest(old)?, highest(lock)?);
        let is_same_epoch = old >> 32 == new >> 32;
        is_same_epoch.then(|| per_second(old, new, now.at.since(before.at)))?
    };
    rate().map_or(Rate::Unknown, Rate::ByFences)
}

fn all_locks(metrics: &Metrics) -> impl Iterator<Item = &LockMetrics> {
    metrics.locks.values().chain([&metrics.other_locks])
}

/// With the entries by loan.
fn granted(lock: &LockMetrics) -> u64 {
    lock.exclusive + lock.shared
}

/// `None` if fewer were counted than before.
fn per_second(old: u64, new: u64, time: Duration) -> Option<f64> {
    let count = new.checked_sub(old)?;
    (!time.is_zero()).then(|| count as f64 / time.as_secs_f64())
}
