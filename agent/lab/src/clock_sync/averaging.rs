//! The Berkeley algorithm (Gusella and Zatti 1989): the clocks of a group are set to their average.
//!
//! A daemon asks everybody for the time, `POLL(q)`, and is answered, `TIME(q, C)`. It takes each
//! answer for as old as half of its round trip, leaves out answers that took too long and clocks
//! that are too far from the median, averages the rest with its own, and tells everybody by how
//! much to correct the clock, `ADJUST(q, Δ)`; itself too. 3(N-1) messages.
//!
//! The lecture leaves out the delay, the clocks that are far off, and the daemon's own correction.
//! The group's clocks agree with each other then, not with the time of day.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use distlock_protocol::{NodeId, Time};

/// Which answers count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AveragingLimits {
    /// Answers that took longer than this from the question on do not count.
    pub max_round_trip: Duration,
    /// γ: clocks further than this from the median do not count. They are corrected all the same.
    pub max_deviation: Duration,
}

/// One round, in the daemon.
#[derive(Clone, Debug)]
pub struct AveragingRound {
    number: u64,
    limits: AveragingLimits,
    daemon: NodeId,
    asked: Time,
    /// Who was asked and has not answered.
    missing: BTreeSet<NodeId>,
    /// By how many nanoseconds each clock is ahead of the daemon's; of the daemon's own, zero.
    ahead_ns: BTreeMap<NodeId, i64>,
}

/// What comes of a round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Corrections {
    /// By how many nanoseconds each clock is to be set forward; negative, to lose so much in time
    /// ([`SlewedClock`](distlock_protocol::clock::SlewedClock)). With the daemon's own; without those that did not
    /// answer in time.
    pub by_node: BTreeMap<NodeId, i64>,
    /// By how many nanoseconds the average is ahead of the daemon's clock, rounded down.
    pub mean_ns: i64,
    /// Whose clocks were too far from the median to count.
    pub outliers: BTreeSet<NodeId>,
}

impl AveragingRound {
    /// The daemon asks `others` for the time, `now` by its own clock. `number` is the round's, and
    /// goes with the question and comes with the answer.
    pub fn new(
        number: u64,
        daemon: NodeId,
        others: impl IntoIterator<Item = NodeId>,
        limits: AveragingLimits,
        now: Time,
    ) -> Self {
        let others = others.into_iter().filter(|node| *node != daemon);
        Self {
            number,
            limits,
            daemon,
            asked: now,
            missing: others.collect(),
            ahead_ns: BTreeMap::from([(daemon, 0)]),
        }
    }

    /// `from` answers that its clock shows `clock`, of which the daemon hears at `now`.
    ///
    /// # Errors
    /// Why the answer does not count. Nothing is changed but that one which comes late is not
    /// waited for.
    pub fn receive(
        &mut self,
        from: NodeId,
        number: u64,
        clock: Time,
        now: Time,
    ) -> Result<(), AveragingError> {
        if number != self.number || !self.missing.contains(&from) {
            return Err(AveragingError::NotAsked);
        }
        let round_trip = now.since(self.asked);
        if round_trip > self.limits.max_round_trip {
            self.missing.remove(&from);
            return Err(AveragingError::Slow { round_trip });
        }
        let there = i128::from(clock.as_nanos()) + (round_trip / 2).as_nanos() as i128;
        let ahead = i64::try_from(there - i128::from(now.as_nanos()));
        let ahead = ahead.map_err(|_| AveragingError::OutOfRange)?;
        self.missing.remove(&from);
        self.ahead_ns.insert(from, ahead);
        Ok(())
    }

    /// Whether nobody is waited for any more.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// Averages what has come so far.
    pub fn conclude(self) -> Corrections {
        let mut sorted: Vec<i64> = self.ahead_ns.values().copied().collect();
        sorted.sort_unstable();
        // The lower of two in the middle: a clock that there is, so that it never is too far from
        // itself, and somebody always counts.
        let median = sorted[(sorted.len() - 1) / 2];
        let most = self.limits.max_deviation.as_nanos();
        let is_far = |ahead: i64| u128::from(ahead.abs_diff(median)) > most;
        let (far, near): (Vec<_>, Vec<_>) =
            self.ahead_ns.iter().partition(|(_, ahead)| is_far(**ahead));
        let sum: i128 = near.iter().map(|(_, ahead)| i128::from(**ahead)).sum();
        let mean = sum.div_euclid(near.len() as i128);
        let correction = |ahead: i64| {
            let wide = mean - i128::from(ahead);
            // Two clocks 584 years apart get there in two rounds.
            i64::try_from(wide).unwrap_or(if wide < 0 { i64::MIN } else { i64::MAX })
        };
        Corrections {
            by_node: self
                .ahead_ns
                .iter()
                .map(|(node, ahead)| (*node, correction(*ahead)))
                .collect(),
            mean_ns: mean as i64,
            outliers: far.into_iter().map(|(node, _)| *node).collect(),
        }
    }

    /// The daemon.
    pub const fn daemon(&self) -> NodeId {
        self.daemon
    }
}

/// Why an answer does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AveragingError {
    /// It is of another round, comes twice, or is from somebody who was not asked.
    #[error("nobody was asked that, or it is answered: ignore the answer")]
    NotAsked,
    /// It took too long to be worth something.
    #[error("the answer took {round_trip:?}, which is too long to tell the time by")]
    Slow {
        /// How long it took.
        round_trip: Duration,
    },
    /// The clocks are more than 292 years apart.
    #[error("the clocks are more than 292 years apart")]
    OutOfRange,
}
