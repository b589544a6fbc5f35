//! The coordinator's side: from endorsements to a certificate, from summaries to the install, and from
//! there to the end of the quarantine.
//!
//! Only the process that a view configuration names puts it in force, once, and not before
//!
//! - it is certified: a majority of the voters before and of those after has endorsed it;
//! - every one of its members has stopped, and told what it has.
//!
//! A lock of which the members' engines prove that none of the lost can hold it is served from then
//! on. All others are in quarantine until the coordinator lifts it, which it does when the leases are
//! over of all who were members and are not any more: for each voter of some certificate, the time
//! W = L · (1 + ρ) / (1 − ρ), and the lock delay if there is one, less the voter's age has passed here
//! since the endorsement came; L is the longest lease that the voter may have renewed. Before the
//! first view of a cluster nobody had a lease; what was before the cluster was waited for when it was
//! founded.
//!
//! Why that is long enough: the last voters who renewed a lost member's lease and those of the
//! certificate have one in common. It renewed before it endorsed; the lease ends at most
//! L / (1 − ρ) of real time after; here at least W / (1 + ρ) of real time is waited.

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use super::certificate::ViewChange;
use super::config::QuorumConfig;
use super::message::{QuorumMessage, Renew, Stage};
use super::outbox::Outbox;
use super::view_config::{Digest, Voter};
use crate::ids::{Epoch, NodeId};
use crate::lock::Summary;
use crate::membership::Member;
use crate::time::{DRIFT, Time};

/// How long a lease that was renewed now may be in use, counted on another clock.
pub(super) fn longest_lease(lease: Duration) -> Duration {
    lease * (DRIFT + 1) / (DRIFT - 1)
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Coordination {
    view_change: ViewChange,
    digest: Digest,
    /// From when on each voter's word has no lease of a lost member behind it.
    free_at: BTreeMap<Voter, Time>,
    /// The members that have not told what they have.
    missing: BTreeSet<NodeId>,
    table: Summary,
    stage: Progress,
    /// Since when it is in that stage.
    since: Time,
    /// Whether it came in force with locks in quarantine.
    quarantined: bool,
    /// The members in which it is in force and, once the quarantine is lifted, that know so.
    arrived: BTreeSet<NodeId>,
    /// When something was said last to each member.
    said: BTreeMap<NodeId, Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Progress {
    Endorsing,
    Flushing,
    /// Some locks are in quarantine.
    Quarantined,
    Installed,
}

impl Coordination {
    pub(super) fn new(view_change: ViewChange, digest: Digest) -> Self {
        Self {
            missing: view_change
                .view_config
                .members
                .iter()
                .map(|its| its.node)
                .collect(),
            view_change,
            digest,
            free_at: BTreeMap::new(),
            table: Summary::default(),
            stage: Progress::Endorsing,
            since: Time::ZERO,
            quarantined: false,
            arrived: BTreeSet::new(),
            said: BTreeMap::new(),
        }
    }

    pub(super) fn digest(&self) -> Digest {
        self.digest
    }

    fn epoch(&self) -> Epoch {
        self.view_change.view_config.epoch
    }

    /// A voter has endorsed it. It has renewed no other leases for the time `age`, and none before
    /// that was longer than `longest`.
    pub(super) fn endorsed(
        &mut self,
        now: Time,
        voter: Voter,
        (age, longest): (Duration, Duration),
        config: &QuorumConfig,
    ) {
        let somebody_is_lost = !self.view_change.view_config.unclean.is_empty();
        let delay = somebody_is_lost.then_some(config.lock_delay);
        // Both run from the last renewal on, whichever view comes after it: other members that come
        // or go meanwhile keep nobody waiting.
        let closed = longest_lease(longest) + delay.unwrap_or_default();
        let free_at = now + closed.saturating_sub(age);
        let known = self.free_at.entry(voter).or_insert(free_at);
        *known = free_at.min(*known);
    }

    /// A member tells what it has.
    pub(super) fn summary(&mut self, from: NodeId, view: (Epoch, Digest), summary: Summary) {
        let awaited = self.stage == Progress::Flushing && view == (self.epoch(), self.digest);
        if awaited && self.missing.remove(&from) {
            self.table.merge(summary);
        }
    }

    /// Takes the view to every stage that it can reach by `now`. `is_live`: for a first view, whether
    /// the cluster that it founds is known to be live.
    pub(super) fn advance(&mut self, now: Time, is_live: bool, out: &mut Outbox) {
        let is_first = self.view_change.parent.is_none();
        let has_endorsed = |voter: Voter| self.free_at.contains_key(&voter);
        let is_certified = match is_first {
            true => is_live,
            false => self.view_change.is_certified_by(has_endorsed),
        };
        if self.stage == Progress::Endorsing && is_certified {
            (self.stage, self.since) = (Progress::Flushing, now);
            self.say_to_all(now, out);
        }
        let is_free = |voter: Voter| self.free_at.get(&voter).is_some_and(|at| *at <= now);
        let is_free = is_first || self.view_change.is_certified_by(is_free);
        if self.stage == Progress::Flushing && self.missing.is_empty() {
            let unclean = &self.view_change.view_config.unclean;
            self.table.conclude_in_quarantine(unclean);
            if is_free {
                self.table.lift();
            }
            self.quarantined = self.table.quarantines();
            self.stage = match self.quarantined {
                true => Progress::Quarantined,
                false => Progress::Installed,
            };
            self.since = now;
            self.say_to_all(now, out);
        }
        if self.stage == Progress::Quarantined && is_free {
            self.table.lift();
            (self.stage, self.since) = (Progress::Installed, now);
            self.arrived.clear();
            for Member { node, .. } in self.view_change.view_config.members.clone() {
                self.say_lifted(now, node, out);
            }
        }
    }

    fn say_to_all(&mut self, now: Time, out: &mut Outbox) {
        for Member { node, .. } in self.view_change.view_config.members.clone() {
            self.say(now, node, out);
        }
    }

    fn say(&mut self, now: Time, to: NodeId, out: &mut Outbox) {
        let message = match self.stage {
            Progress::Endorsing => return,
            Progress::Flushing => QuorumMessage::Flush(self.view_change.view_config.clone().into()),
            Progress::Quarantined | Progress::Installed => QuorumMessage::Install {
                epoch: self.epoch(),
                digest: self.digest,
                table: self.table.clone(),
            },
        };
        self.said.insert(to, now);
        out.send(to, message);
    }

    fn say_lifted(&mut self, now: Time, to: NodeId, out: &mut Outbox) {
        let message = QuorumMessage::Lift {
            epoch: self.epoch(),
            digest: self.digest,
        };
        self.said.insert(to, now);
        out.send(to, message);
    }

    /// The members that have not come along for a whole lease, though voters hear them: they do not
    /// hear the coordinator, or it does not hear them. The others cannot wait for ever.
    pub(super) fn unresponsive(&self, now: Time, lease: Duration) -> BTreeSet<NodeId> {
        let members = self
            .view_change
            .view_config
            .members
            .iter()
            .map(|its| its.node);
        match self.stage {
            _ if now < self.since + lease => BTreeSet::new(),
            Progress::Endorsing => BTreeSet::new(),
            Progress::Flushing => self.missing.clone(),
            Progress::Quarantined | Progress::Installed => {
                members.filter(|it| !self.arrived.contains(it)).collect()
            }
        }
    }

    /// A member's renewal request shows how far it has come. What it seems to have missed is said
    /// again.
    pub(super) fn renew(
        &mut self,
        now: Time,
        from: Member,
        renew: &Renew,
        pause: Duration,
        out: &mut Outbox,
    ) {
        if !self.view_change.view_config.has_member(from) {
            return;
        }
        let is_lifted = self.quarantined && self.stage == Progress::Installed;
        let is_in_it = renew.epoch == self.epoch();
        let arrived = if is_lifted {
            Stage::Leased
        } else {
            Stage::Installed
        };
        if is_in_it && renew.stage >= arrived {
            self.arrived.insert(from.node);
        }
        let lately = |at: &Time| now.since(*at) < pause;
        if self.said.get(&from.node).is_some_and(lately) {
            return;
        }
        let lacks_view = renew.epoch < self.epoch() || is_in_it && renew.stage == Stage::Frozen;
        let is_behind = match self.stage {
            Progress::Endorsing => false,
            Progress::Flushing => self.missing.contains(&from.node),
            Progress::Quarantined | Progress::Installed => lacks_view,
        };
        if is_behind {
            self.say(now, from.node, out);
        } else if is_lifted && is_in_it && renew.stage == Stage::Installed {
            self.say_lifted(now, from.node, out);
        }
    }

    /// When [`Coordination::advance`] may have something to do.
    pub(super) fn next_timeout(&self, now: Time) -> Option<Time> {
        let waits = self.stage == Progress::Quarantined;
        let times = self.free_at.values().copied().filter(|at| *at > now);
        times.min().filter(|_| waits)
    }
}
