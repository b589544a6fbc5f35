//! What an agent counts and measures while it runs, for [`Metrics`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::protocol::{LockName, Mode, NodeId, Time};
use crate::runtime::api::metrics::{Histogram, LockMetrics, Metrics};

/// Under words that are known when the program is written, and so are few.
type Counts = BTreeMap<&'static str, u64>;

/// Why grants are void: counted from zero, so that the first one shows as one more.
const LOSSES: [&str; 4] = ["closed", "excluded", "expired", "failed"];
/// What views have that those before had not, or have not.
const CAUSES: [&str; 5] = ["founding", "joined", "left", "replaced", "same"];

/// Counts and times since the agent's start.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// One for each lock that is counted apart.
    locks: BTreeMap<LockName, LockMeasured>,
    others: LockMeasured,
    losses: Counts,
    views: Counts,
    /// The members of the last view.
    members: BTreeSet<NodeId>,
    /// Since when there is no view, after there was one.
    paused: Option<Time>,
    pub(crate) lease_margin: Histogram,
    view_pause: Histogram,
    pub(crate) state_write: Histogram,
    pub(crate) loop_stall: Histogram,
}

/// Of one lock.
#[derive(Debug, Default)]
pub(crate) struct LockMeasured {
    exclusive: u64,
    shared: u64,
    by_loan: u64,
    refusals: Counts,
    abandoned: u64,
    wait: Histogram,
    hold: Histogram,
}

impl Measured {
    /// `listed`: the locks that the configuration lists.
    pub(crate) fn new<'a>(listed: impl Iterator<Item = &'a LockName>) -> Self {
        let has_own_name = |lock: &&LockName| lock.as_bytes() != Metrics::OTHER.as_bytes();
        let locks = listed.filter(has_own_name).take(Metrics::MAX_LOCKS);
        Self {
            locks: locks
                .map(|lock| (lock.clone(), LockMeasured::default()))
                .collect(),
            losses: LOSSES.map(|why| (why, 0)).into(),
            views: CAUSES.map(|why| (why, 0)).into(),
            ..Self::default()
        }
    }

    /// Of `lock`, or of all that are not counted apart.
    pub(crate) fn of(&mut self, lock: &LockName) -> &mut LockMeasured {
        self.locks.get_mut(lock).unwrap_or(&mut self.others)
    }

    /// A grant is void, for that reason.
    pub(crate) fn loses(&mut self, why: &'static str) {
        *self.losses.entry(why).or_default() += 1;
    }

    /// There is a view or not, at `now`.
    pub(crate) fn has_view(&mut self, has_view: bool, now: impl FnOnce() -> Time) {
        if has_view {
            if let Some(since) = self.paused.take() {
                self.view_pause.note(now().since(since));
            }
        } else if self.paused.is_none() && !self.members.is_empty() {
            self.paused = Some(now());
        }
    }

    /// A view of these members has come into force.
    pub(crate) fn installs(&mut self, members: &[NodeId]) {
        let members: BTreeSet<_> = members.iter().copied().collect();
        let before = &self.members;
        let why = match (members.is_subset(before), members.is_superset(before)) {
            _ if before.is_empty() => "founding",
            (true, true) => "same",
            (true, false) => "left",
            (false, true) => "joined",
            (false, false) => "replaced",
        };
        *self.views.entry(why).or_default() += 1;
        self.members = members;
    }

    /// Adds all that was counted to `metrics`.
    pub(crate) fn add_to(&self, metrics: &mut Metrics) {
        for (name, measured) in &self.locks {
            measured.add_to(metrics.locks.entry(name.to_string()).or_default());
        }
        self.others.add_to(&mut metrics.other_locks);
        metrics.losses = named(&self.losses);
        metrics.view_changes = named(&self.views);
        metrics.lease_margin = self.lease_margin.clone();
        metrics.view_pause = self.view_pause.clone();
        metrics.state_write = self.state_write.clone();
        metrics.loop_stall = self.loop_stall.clone();
    }
}

impl LockMeasured {
    /// It is granted to a caller that has waited for so long. `is_abandoned`: after a holder that ended inside.
    pub(crate) fn grants(&mut self, mode: Mode, waited: Duration, is_abandoned: bool) {
        *match mode {
            Mode::Exclusive => &mut self.exclusive,
            Mode::Shared => &mut self.shared,
        } += 1;
        self.abandoned += u64::from(is_abandoned);
        self.wait.note(waited);
    }

    /// It was lent, and so often entered.
    pub(crate) fn was_lent(&mut self, entries: u32) {
        self.by_loan += u64::from(entries);
    }

    /// A caller was inside for so long.
    pub(crate) fn was_held(&mut self, time: Duration) {
        self.hold.note(time);
    }

    /// A caller is refused, or has given up.
    pub(crate) fn refuses(&mut self, why: &'static str) {
        *self.refusals.entry(why).or_default() += 1;
    }

    fn add_to(&self, metrics: &mut LockMetrics) {
        metrics.by_loan = self.by_loan;
        metrics.exclusive = self.exclusive + self.by_loan;
        metrics.shared = self.shared;
        metrics.refusals = named(&self.refusals);
        metrics.abandoned = self.abandoned;
        metrics.wait = self.wait.clone();
        metrics.hold = self.hold.clone();
    }
}

fn named(counts: &Counts) -> BTreeMap<String, u64> {
    let named = counts
        .iter()
        .map(|(why, count)| ((*why).to_owned(), *count));
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> LockName {
        LockName::new(name).unwrap()
    }

    #[test]
    fn locks_that_are_not_listed_are_counted_together() {
        let listed: Vec<_> = (0..300)
            .map(|number| name(&format!("{number:03}")))
            .collect();
        let mut measured = Measured::new(listed.iter().chain([&name("other")]));
        for lock in ["000", "199", "200", "other", "x"] {
            let of_lock = measured.of(&name(lock));
            of_lock.grants(Mode::Shared, Duration::ZERO, false);
        }
        let mut metrics = Metrics::default();
        measured.add_to(&mut metrics);
        assert_eq!(metrics.locks.len(), Metrics::MAX_LOCKS);
        assert_eq!(
            [metrics.locks["000"].shared, metrics.locks["199"].shared],
            [1, 1]
        );
        assert_eq!(metrics.other_locks.shared, 3);
    }

    #[test]
    fn views_are_told_apart_by_their_members() {
        let mut measured = Measured::default();
        let views: [&[u16]; 5] = [&[1], &[1, 2], &[1, 2], &[2], &[3]];
        for (number, view) in views.into_iter().enumerate() {
            let at = |seconds| move || Time::from_nanos(seconds * 1_000_000_000);
            let begins = 10 * number as u64;
            measured.has_view(false, at(begins));
            measured.has_view(false, at(begins + 1));
            measured.has_view(true, at(begins + 2));
            let members: Vec<_> = view.iter().filter_map(|id| NodeId::new(*id)).collect();
            measured.installs(&members);
        }
        let mut metrics = Metrics::default();
        measured.add_to(&mut metrics);
        let words = ["founding", "joined", "left", "replaced", "same"];
        let expected = words.map(|word| (word.to_owned(), 1));
        assert_eq!(metrics.view_changes, BTreeMap::from(expected));
        // Before the founding nothing was served that could pause.
        assert_eq!(metrics.view_pause.count(), 4);
        assert_eq!(metrics.view_pause.sum(), Duration::from_secs(8));
    }
}
