//! A voter's side: what it endorses, whose leases it renews, and whom it misses.
//!
//! Invariant: at most one endorsement an epoch, on disk before it is said, and epochs only rise.
//! What is endorsed follows a certified parent (see [`ViewChange`]); so it does no harm that a voter
//! which missed some views endorses the newest at once. From an endorsement on, this voter renews
//! no leases but those of that view's members, and tells for how long it has not.
//!
//! A restarted voter does not know whose leases it renewed before, but it knows since when it has
//! renewed nothing at all: since it started. How long those leases were at most is on its disk,
//! before one that is longer is renewed, so that a file with a shorter lease ends no wait for those
//! that were longer.

mod renewals;
mod suspicion;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::super::certificate::{Endorsement, ViewChange};
use super::super::config::QuorumConfig;
use super::super::coordinator::longest_lease;
use super::super::message::{QuorumMessage, Stage, Status, VoterRecord};
use super::super::outbox::Outbox;
use super::super::view_config::{Digest, ViewConfig, Voter};
use crate::ids::{Epoch, Incarnation, NodeId};
use crate::membership::{Change, Member, MembershipOverrides};
use crate::time::Time;

/// How often a voter says in a lease's time how it stands.
const STATUSES: u32 = 10;
/// How many of each kind a status tells of; the others come in the next, when these are settled.
const MAX_TOLD: usize = 100;
/// How many incarnations that are in no view are remembered.
const MAX_NEWCOMERS: usize = 1024;

#[derive(Clone, Debug, Hash)]
pub(in crate::membership::quorum) struct Endorser {
    pub(in crate::membership::quorum) me: Voter,
    pub(in crate::membership::quorum) incarnation: Incarnation,
    /// The highest epoch that an incarnation of this member has taken part in before.
    known: Epoch,
    lease: Duration,
    lock_delay: Duration,
    /// Since when leases may have been renewed that are forgotten; `None` if this voter is so new
    /// that there are none.
    forgets_before: Option<Time>,
    /// The longest lease that may still run because it was renewed here, and what the disk says of
    /// it: nothing longer than that is renewed.
    longest: Duration,
    longest_on_disk: Duration,
    /// When a lease that long may last have been renewed; the longest of the shorter ones since.
    longest_at: Option<Time>,
    longest_since: Duration,
    /// The longest that a member has asked for and the disk did not know of.
    asked: Duration,
    started: Time,
    /// When this voter last did what was due.
    awake_at: Time,
    /// The newest endorsement, which is on disk.
    endorsed: Option<Endorsed>,
    /// The next one, on its way there. Nothing is said of it.
    pending: Option<Endorsed>,
    /// When each session's lease was renewed here last.
    renewed: BTreeMap<Member, Time>,
    /// Sessions that said that they leave: they are inside of nothing.
    leavers: BTreeSet<Member>,
    heard: BTreeMap<NodeId, Heard>,
    /// What other voters said last.
    pub(in crate::membership::quorum) others: BTreeMap<NodeId, Other>,
    /// Since when a majority of voters is heard.
    connected: Option<Time>,
    /// Whether the newest endorsement is known to be certified.
    certified: bool,
    /// The newest certified view configuration that this member has heard of, where it has endorsed
    /// none as new.
    heard_of: Option<Arc<ViewConfig>>,
    status_at: Time,
    /// What the last status said of members.
    told: (Vec<Member>, Vec<Member>, Vec<Member>),
}

#[derive(Clone, Debug, Hash)]
pub(in crate::membership::quorum) struct Endorsed {
    pub(in crate::membership::quorum) view_change: ViewChange,
    pub(in crate::membership::quorum) digest: Digest,
    /// Since when it has been said.
    since: Time,
}

impl Endorsed {
    pub(in crate::membership::quorum) fn since(&self) -> Time {
        self.since
    }
}

/// A member, as its renewal requests show it.
#[derive(Clone, Debug, Hash)]
pub(in crate::membership::quorum) struct Heard {
    pub(in crate::membership::quorum) incarnation: Incarnation,
    seq: u64,
    pub(in crate::membership::quorum) at: Time,
    answered: u64,
    answered_at: Time,
    pub(in crate::membership::quorum) epoch: Epoch,
    pub(in crate::membership::quorum) stage: Stage,
    pub(in crate::membership::quorum) wants_view: bool,
    /// Whether the incarnation before left.
    pub(in crate::membership::quorum) left: bool,
    change: Option<Change>,
}

impl Heard {
    /// What matters of it besides that it was heard.
    fn standing(&self) -> (Incarnation, Epoch, Stage, bool, Option<Change>) {
        let change = self.change.clone();
        (
            self.incarnation,
            self.epoch,
            self.stage,
            self.wants_view,
            change,
        )
    }
}

/// Another voter.
#[derive(Clone, Debug, Hash)]
pub(in crate::membership::quorum) struct Other {
    pub(in crate::membership::quorum) at: Time,
    pub(in crate::membership::quorum) status: Status,
}

impl Endorser {
    /// A voter whose birth is this incarnation has never been before.
    pub(in crate::membership::quorum) fn new(
        (me, incarnation): (Voter, Incarnation),
        config: &QuorumConfig,
        (record, known): (&VoterRecord, Epoch),
        now: Time,
    ) -> Self {
        let endorsed = record.endorsed.clone().map(|view_change| Endorsed {
            digest: view_change.view_config.digest(),
            view_change,
            since: now,
        });
        // Whose leases the incarnation before may have renewed: nobody's, somebody's, or anybody's.
        let is_new = me.birth == incarnation;
        let view_config = record.view_config().filter(|_| record.settled);
        let members = view_config
            .into_iter()
            .flat_map(|view_config| &view_config.members);
        let forgets = !is_new && !record.settled;
        let mut endorser = Self {
            me,
            incarnation,
            known,
            lease: config.lease,
            lock_delay: config.lock_delay,
            forgets_before: forgets.then_some(now),
            longest: record.longest,
            longest_on_disk: record.longest,
            longest_at: (!is_new).then_some(now),
            longest_since: Duration::ZERO,
            asked: Duration::ZERO,
            started: now,
            awake_at: now,
            endorsed,
            pending: None,
            renewed: members.map(|member| (*member, now)).collect(),
            leavers: BTreeSet::new(),
            heard: BTreeMap::new(),
            others: BTreeMap::new(),
            connected: None,
            certified: record.certified,
            heard_of: None,
            status_at: now,
            told: Default::default(),
        };
        endorser.note_certificate();
        endorser
    }

    pub(in crate::membership::quorum) fn endorsed(&self) -> Option<&Endorsed> {
        self.endorsed.as_ref()
    }

    /// The newest view configuration that this voter has endorsed, or is about to.
    pub(in crate::membership::quorum) fn newest(&self) -> Option<&Endorsed> {
        self.pending.as_ref().or(self.endorsed.as_ref())
    }

    /// The newest endorsement that is said, if it is known to be certified, and nothing newer is
    /// under way.
    pub(in crate::membership::quorum) fn certified(&self) -> Option<&Endorsed> {
        let settled = self.certified && self.pending.is_none();
        self.endorsed.as_ref().filter(|_| settled)
    }

    /// Whether no endorsement is on its way to the disk.
    pub(in crate::membership::quorum) fn is_settled(&self) -> bool {
        self.pending.is_none()
    }

    /// What other voters have said of an endorsement of this view configuration.
    pub(in crate::membership::quorum) fn endorsements(
        &self,
        digest: Digest,
    ) -> impl Iterator<Item = (Voter, Endorsement)> + '_ {
        self.others.values().filter_map(move |other| {
            let endorsement = other.status.endorsed.filter(|its| its.digest == digest)?;
            Some((other.status.voter, endorsement))
        })
    }

    /// Whether this voter may vote in what it knows of.
    pub(in crate::membership::quorum) fn is_in_charge(&self) -> bool {
        let newest = self.newest();
        newest.is_some_and(|newest| newest.view_change.voters().any(|voter| voter == self.me))
    }

    pub(in crate::membership::quorum) fn heard(&self, node: NodeId) -> Option<&Heard> {
        self.heard.get(&node)
    }

    /// The endorsement of a decided view change begins, if it may be: it is to be put on disk.
    pub(in crate::membership::quorum) fn endorse(
        &mut self,
        view_change: ViewChange,
        now: Time,
    ) -> bool {
        let newest = self.newest();
        let known = newest.map_or(Epoch::ZERO, |newest| newest.view_change.view_config.epoch);
        let same_cluster = newest.is_none_or(|newest| {
            newest.view_change.view_config.cluster == view_change.view_config.cluster
        });
        let may = view_change.view_config.epoch > known
            && same_cluster
            && view_change.is_sound()
            && view_change.voters().any(|voter| voter == self.me);
        if may {
            if newest.is_none() {
                // What this voter vouches for from now on, others have renewed.
                let others = self.others.values().filter_map(|its| its.status.endorsed);
                let longest = others.map(|endorsed| endorsed.longest).max();
                if let Some(longest) = longest.filter(|longest| *longest > self.longest) {
                    (self.longest, self.longest_at) = (longest, Some(now));
                }
            }
            self.pending = Some(Endorsed {
                digest: view_change.view_config.digest(),
                view_change,
                since: now,
            });
        }
        may
    }

    /// What was pending is on disk: from now on it is said, and lived by. Returns whether there was
    /// anything.
    pub(in crate::membership::quorum) fn persisted(&mut self, now: Time) -> bool {
        let Some(mut endorsed) = self.pending.take() else {
            return false;
        };
        endorsed.since = now;
        let view_config = &endorsed.view_change.view_config;
        self.leavers
            .retain(|leaver| view_config.has_member(*leaver));
        self.endorsed = Some(endorsed);
        self.certified = false;
        self.status_at = now;
        self.note_certificate();
        self.note_connected(now);
        true
    }

    /// The overrides with what operators want, as members have told lately. Whoever is no member has nothing to say.
    pub(in crate::membership::quorum) fn wanted_book(
        &self,
        now: Time,
        view_config: &ViewConfig,
    ) -> MembershipOverrides {
        let members = self.heard.iter().filter(|(node, heard)| {
            view_config.incarnation_of(**node).is_some() && now.since(heard.at) < self.lease
        });
        let changes = members.filter_map(|(_, heard)| heard.change.as_ref());
        changes.fold(view_config.overrides.clone(), |overrides, change| {
            if overrides.has(change) {
                return overrides;
            }
            overrides.with(change).unwrap_or(overrides)
        })
    }

    /// Another voter says how it stands.
    pub(in crate::membership::quorum) fn status(
        &mut self,
        now: Time,
        from: NodeId,
        status: Status,
    ) {
        let is_old = self.others.get(&from).is_some_and(|known| {
            // One that has joined another cluster has another birth, and has endorsed nothing yet.
            let order = |it: &Status| {
                (
                    it.incarnation,
                    it.voter.birth,
                    it.endorsed.map(|its| its.epoch),
                )
            };
            order(&status) < order(&known.status)
        });
        if status.voter.node != from || is_old {
            return;
        }
        self.others.insert(from, Other { at: now, status });
        self.note_certificate();
        self.note_connected(now);
    }

    /// A coordinator, or the completed founding, says that `view_config` is certified. A voter that
    /// votes no more has not endorsed the newest views: it remembers the newest certified view
    /// configuration, and tells members that ask it for a lease.
    pub(in crate::membership::quorum) fn learn_certified(&mut self, view_config: &ViewConfig) {
        let endorsed = self.endorsed.as_ref();
        if endorsed.is_some_and(|endorsed| endorsed.digest == view_config.digest()) {
            self.certified = true;
        }
        let own = endorsed.map(|endorsed| endorsed.view_change.view_config.epoch);
        let known = self.heard_of.as_ref().map(|view_config| view_config.epoch);
        if Some(view_config.epoch) > own.max(known) {
            self.heard_of = Some(Arc::new(view_config.clone()));
        }
    }

    fn note_certificate(&mut self) {
        let Some(endorsed) = &self.endorsed else {
            return;
        };
        let same = |endorsement: &Endorsement| endorsement.digest == endorsed.digest;
        let endorses = |voter: Voter| {
            let other = self.others.get(&voter.node);
            let other = other.filter(|other| other.status.voter == voter);
            voter == self.me
                || other.is_some_and(|other| other.status.endorsed.as_ref().is_some_and(same))
        };
        self.certified |= endorsed.view_change.is_certified_by(endorses);
    }

    /// The founding that this voter has completed was given up: it never voted.
    pub(in crate::membership::quorum) fn forget_founding(&mut self) {
        let is_first = |endorsed: &Endorsed| endorsed.view_change.parent.is_none();
        self.pending.take_if(|its| is_first(its));
        self.endorsed.take_if(|its| is_first(its));
        self.certified = false;
    }

    /// Somebody may not know how it stands.
    pub(in crate::membership::quorum) fn speak_up(&mut self, now: Time) {
        self.status_at = now;
    }

    /// Says how it stands, if that is due or has changed.
    pub(in crate::membership::quorum) fn timeout(
        &mut self,
        now: Time,
        to: &BTreeSet<NodeId>,
        out: &mut Outbox,
    ) {
        self.note_connected(now);
        self.forget(now);
        self.shorten(now);
        let status = self.own_status(now);
        let told = (
            status.suspects.clone(),
            status.leavers.clone(),
            status.newcomers.clone(),
        );
        if now < self.status_at && told == self.told {
            return;
        }
        self.told = told;
        self.status_at = now + self.lease / STATUSES;
        for node in to.iter().filter(|node| **node != self.me.node) {
            out.send(*node, QuorumMessage::Status(status.clone().into()));
        }
    }

    /// What is too old to count is forgotten.
    fn forget(&mut self, now: Time) {
        let long_ago = |at: Time| now.since(at) > self.lease * 4;
        let closed = longest_lease(self.longest) + self.lock_delay;
        self.renewed.retain(|_, at| now.since(*at) <= closed * 2);
        let endorsed = self.endorsed.as_ref();
        self.heard.retain(|node, heard| {
            let view_config = endorsed.map(|endorsed| &endorsed.view_change.view_config);
            !long_ago(heard.at)
                || view_config
                    .is_some_and(|view_config| view_config.incarnation_of(*node).is_some())
        });
    }

    /// When [`Endorser::timeout`] has something to do.
    pub(in crate::membership::quorum) fn next_timeout(&self, now: Time) -> Time {
        let patience = self.patience();
        let misses = self.silences().map(|(_, since)| since + patience);
        let next = misses.filter(|at| *at > now).min();
        next.map_or(self.status_at, |next| next.min(self.status_at))
    }
}
