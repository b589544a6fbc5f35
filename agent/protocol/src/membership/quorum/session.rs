//! A member's side: its lease, and its way from one view to the next.
//!
//! A lease runs for the time L from when its renewal was *asked for*, on the member's own clock, once
//! a majority of a view's voters has renewed it, all under that very view, which this member knows
//! to be certified. It is counted so that it ends here before it ends for anybody who counts it
//! from what a voter has seen.

mod contacts;
mod flush;
mod known_overrides;
mod overview;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use self::contacts::Contacts;
use self::known_overrides::KnownOverrides;
use super::affiliation::Membership;
use super::config::QuorumConfig;
use super::log::MAX_VOTERS;
use super::message::{QuorumMessage, Renew, Stage};
use super::outbox::Outbox;
use super::view_config::{Digest, ViewConfig, Voter};
use crate::ids::{Epoch, Incarnation, NodeId};
use crate::lock::AbandonedMarks;
use crate::membership::{Action, Change, Member, View};
use crate::time::Time;

/// How often a lease is renewed in its time.
const RENEWALS: u32 = 5;
/// At how many moments of that pause it renews: those at which links ask, where the lease is not long.
const MOMENTS: u32 = 4;
/// How often in a lease's time a renewal request is repeated that no majority answers, or while a
/// view is being formed.
const REPEATS: u32 = 20;
/// How often one that leaves says so in a lease's time.
const GOODBYES: u32 = 50;
/// How many renewal requests are remembered.
const MAX_RENEWALS: usize = 16;

#[derive(Clone, Debug, Hash)]
pub(super) struct Session {
    me: Member,
    lease: Duration,
    /// Those who vote, by the configuration, and by what is on disk here.
    configured: Vec<NodeId>,
    recorded: Vec<NodeId>,
    /// Those who vote, by the newest view that others have told of, and that view's epoch.
    told: Vec<NodeId>,
    told_epoch: Epoch,
    /// Since when this incarnation is.
    began: Time,
    /// Whether the incarnation before left.
    left: bool,
    /// When each voter last answered.
    heard: BTreeMap<NodeId, Time>,
    /// Those of them that knew of no view with this incarnation in it, nor of any other that is
    /// certified, and since when.
    ignorant: BTreeMap<NodeId, Time>,
    contacts: Contacts,
    /// The newest certified view that this incarnation is in.
    known: Option<Known>,
    /// When the lease ends; zero if there is none.
    until: Time,
    /// The renewal requests that may still renew it, oldest first.
    renewals: VecDeque<RenewalRequest>,
    seq: u64,
    answered: u64,
    /// When the newest renewal request was sent that a majority has answered; before there is one,
    /// when this incarnation began.
    answered_sent: Time,
    renew_at: Time,
    overrides: KnownOverrides,
    /// In this epoch a bound was reached that only a new view lifts.
    wants_view: Option<Epoch>,
    leaves: bool,
    /// What it knows of locks that were abandoned when it leaves.
    marks: AbandonedMarks,
    /// Whether a certified view has gone on without this incarnation.
    is_over: bool,
    /// Whether a view has been in force in this incarnation without locks in quarantine.
    was_lifted: bool,
}

#[derive(Clone, Debug, Hash)]
struct Known {
    view_config: ViewConfig,
    digest: Digest,
    phase: Phase,
    /// Whether the lease has been renewed under it.
    leased: bool,
}

#[derive(Clone, Debug, Hash)]
enum Phase {
    /// That this member takes part is on its way to the disk.
    Persisting,
    /// The summary is told, or about to be; the install is to come.
    Frozen,
    /// It is in force; locks may be in quarantine.
    Installed { view: Arc<View>, quarantines: bool },
}

#[derive(Clone, Debug, Hash)]
struct RenewalRequest {
    seq: u64,
    sent: Time,
    /// The voters that have answered, and those of them that have renewed under the view that is
    /// known here.
    answered: Vec<NodeId>,
    renewed: Vec<NodeId>,
}

impl Session {
    /// `recorded`: the voters of the cluster that this member remembers. `left`: whether the
    /// incarnation before did.
    pub(super) fn new(
        me: Member,
        config: &QuorumConfig,
        recorded: Vec<NodeId>,
        left: bool,
        now: Time,
    ) -> Self {
        Self {
            me,
            lease: config.lease,
            configured: config.voters.iter().copied().collect(),
            recorded,
            left,
            began: now,
            told: Vec::new(),
            told_epoch: Epoch::ZERO,
            heard: BTreeMap::new(),
            ignorant: BTreeMap::new(),
            contacts: Contacts::default(),
            known: None,
            until: Time::ZERO,
            renewals: VecDeque::new(),
            seq: 0,
            answered: 0,
            answered_sent: now,
            renew_at: now,
            overrides: KnownOverrides::new(me.node),
            wants_view: None,
            leaves: false,
            marks: AbandonedMarks::None,
            is_over: false,
            was_lifted: false,
        }
    }

    /// The view in force; `None` before the first, and while the next one is being formed.
    pub(super) fn view(&self) -> Option<&Arc<View>> {
        match &self.known.as_ref()?.phase {
            Phase::Installed { view, .. } => Some(view),
            _ => None,
        }
    }

    /// The epoch of the newest view with this incarnation as a member; zero if no view has it.
    pub(super) fn epoch(&self) -> Epoch {
        self.known
            .as_ref()
            .map_or(Epoch::ZERO, |known| known.view_config.epoch)
    }

    /// When the lease ends.
    pub(super) fn until(&self) -> Time {
        self.until
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        (!self.is_over).then_some(self.renew_at)
    }

    /// Sends a renewal request if one is due.
    pub(super) fn timeout(&mut self, now: Time, out: &mut Outbox) {
        if self.is_over || now < self.renew_at {
            return;
        }
        // Soon, until a majority answers; but a member that is cut off for longer burdens nobody by
        // it.
        let is_cut_off = now.since(self.answered_sent) > self.lease;
        let often = match self.leaves {
            true => GOODBYES,
            false if is_cut_off => RENEWALS,
            false => REPEATS,
        };
        self.renew_at = now + self.lease / often;
        self.seq += 1;
        // Older ones renew nothing any more.
        let lease = self.lease;
        self.renewals.retain(|renewal| now < renewal.sent + lease);
        while self.renewals.len() >= MAX_RENEWALS {
            self.renewals.pop_front();
        }
        self.renewals.push_back(RenewalRequest {
            seq: self.seq,
            sent: now,
            answered: Vec::new(),
            renewed: Vec::new(),
        });
        let renew = Renew {
            session: self.me.incarnation,
            seq: self.seq,
            answered: self.answered,
            epoch: self.epoch(),
            stage: self.stage(),
            wants_view: self.wants_view == Some(self.epoch()),
            left: self.left,
            lease: self.lease,
            change: self.overrides.change_request(now).cloned(),
        };
        for voter in self.voters() {
            out.send(voter, QuorumMessage::Renew(renew.clone()));
        }
        if let Some(known) = &self.known {
            self.contacts
                .introduce(now, self.lease, &known.view_config, out);
        }
    }

    /// Another member says that it is in this member's cluster, or in one that this member may join:
    /// here is whom to ask. This member's file may be an old one, and so may what it remembers.
    pub(super) fn introduced(&mut self, peer: NodeId, membership: &Membership) {
        self.contacts.note_kin(peer);
        let is_news = membership.epoch > self.told_epoch && membership.epoch > self.epoch();
        if is_news && (1..=MAX_VOTERS).contains(&membership.voters.len()) {
            self.hear_of_voters(membership.epoch, nodes(&membership.voters));
            self.renew_at = Time::ZERO;
        }
    }

    /// This member is in a cluster from now on, and in none of its views yet: its voters are asked, too,
    /// though this member's file may name others.
    pub(super) fn recall(&mut self, voters: &[Voter]) {
        let asked = self.voters();
        if !voters.iter().all(|voter| asked.contains(&voter.node)) {
            self.renew_at = Time::ZERO;
        }
        self.recorded = nodes(voters);
    }

    /// Another member says that it is in another cluster of the same name.
    pub(super) fn met_stranger(&mut self, peer: NodeId, theirs: &Membership, out: &mut Outbox) {
        if self.contacts.note_stranger(peer) {
            // Whom it asks, before it is in a view, are more.
            let ours = match &self.known {
                Some(known) => nodes(&known.view_config.voters),
                None if self.recorded.is_empty() => self.configured.clone(),
                None => self.recorded.clone(),
            };
            out.act(Action::Stranger {
                peer,
                ours,
                theirs: nodes(&theirs.voters),
            });
        }
    }

    /// Another member asks, as it is in no view: it is told of the cluster with the next renewal.
    pub(super) fn asked_by(&mut self, now: Time, peer: NodeId) {
        self.contacts.asked_by(now, self.lease / 10, peer);
    }

    /// Those that can be talked to.
    pub(super) fn met(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.contacts.nodes()
    }

    /// Whether this incarnation is in a view, or about to be.
    pub(super) fn is_in_view(&self) -> bool {
        self.known.is_some()
    }

    /// The lease is over and will not be renewed: the cluster is abandoned.
    /// `epoch`: of the cluster that this member joins instead.
    pub(super) fn abandon(&mut self, epoch: Epoch, out: &mut Outbox) {
        self.overrides.forget_epoch();
        if self.known.is_some() && !self.is_over {
            self.is_over = true;
            self.renewals.clear();
            out.act(Action::Excluded(epoch));
        }
    }

    /// Whether that member is in another cluster.
    pub(super) fn is_stranger(&self, peer: NodeId) -> bool {
        self.contacts.is_stranger(peer)
    }

    fn hear_of_voters(&mut self, epoch: Epoch, voters: Vec<NodeId>) {
        if self.told.is_empty() && self.known.is_none() {
            // Before there was a cluster nobody could know of it.
            self.ignorant.clear();
        }
        (self.told, self.told_epoch) = (voters, epoch);
    }

    /// An operator wants this changed, until then at the latest; in place of what was wanted before.
    pub(super) fn change(&mut self, change: Change, until: Time) {
        self.overrides.want(change, until);
        self.renew_at = Time::ZERO;
    }

    /// Whether the other voters still need this member's vote.
    pub(super) fn note_needed(&mut self, is_needed: bool) {
        self.overrides.note_needed(is_needed);
    }

    /// What the voter of this very member knows, which may be of the incarnation before.
    pub(super) fn remember(&mut self, view_config: &ViewConfig, out: &mut Outbox) {
        self.overrides.told(self.me.node, view_config, out);
    }

    /// That member hears this one from now on.
    pub(super) fn meet(&mut self, peer: NodeId) {
        if peer != self.me.node {
            self.contacts.meet(peer);
        }
        if self.voters().contains(&peer) {
            self.renew_at = Time::ZERO;
        }
    }

    /// That member's incarnation has ended, or it has left.
    pub(super) fn part(&mut self, peer: NodeId) {
        self.contacts.part(peer);
    }

    /// What does not end with a session.
    pub(super) fn take_over(&mut self, before: &mut Self) {
        self.overrides.take_over(&mut before.overrides);
    }

    /// Whether the lease of an incarnation before may still run, for all that views say in this one.
    pub(super) fn may_follow_a_lease(&self) -> bool {
        !self.was_lifted
    }

    /// Whether the newest view that this member knows has it vote.
    pub(super) fn shall_vote(&self) -> bool {
        self.known.is_some() && self.overrides.wants_own_vote()
    }

    fn stage(&self) -> Stage {
        match &self.known {
            _ if self.leaves => match self.marks {
                AbandonedMarks::None => Stage::Leaving,
                AbandonedMarks::Shared => Stage::LeavingWithSharedMarks,
                AbandonedMarks::Own => Stage::LeavingWithMarks,
            },
            Some(Known {
                phase: Phase::Installed { quarantines, .. },
                leased,
                ..
            }) => match *leased && !quarantines {
                true => Stage::Leased,
                false => Stage::Installed,
            },
            _ => Stage::Frozen,
        }
    }

    /// The members to ask: the voters of this incarnation's view, and of a later view that others
    /// have told of. Before this incarnation has a view: the voters in the file and those on disk,
    /// either of which may be out of date.
    pub(super) fn voters(&self) -> Vec<NodeId> {
        let mut voters = match &self.known {
            Some(known) => nodes(&known.view_config.voters),
            None => self.configured.clone(),
        };
        let recorded = self.recorded.iter().filter(|_| self.known.is_none());
        let told = self.told.iter().filter(|_| self.told_epoch > self.epoch());
        for &node in recorded.chain(told) {
            if !voters.contains(&node) {
                voters.push(node);
            }
        }
        voters
    }

    /// A voter has renewed the lease, as far as it is concerned, under a view.
    pub(super) fn renewed(
        &mut self,
        now: Time,
        from: NodeId,
        (session, seq): (Incarnation, u64),
        under: (Epoch, Digest),
        out: &mut Outbox,
    ) {
        self.answered(now, from, session, seq);
        if session != self.me.incarnation || self.is_over || self.leaves {
            return;
        }
        self.ignorant.remove(&from);
        let Some(known) = &mut self.known else { return };
        let Some(renewal) = self.renewals.iter_mut().find(|renewal| renewal.seq == seq) else {
            return;
        };
        if under != (known.view_config.epoch, known.digest) || renewal.renewed.contains(&from) {
            return;
        }
        renewal.renewed.push(from);
        let renewed = |node| renewal.renewed.contains(&node);
        if !known.view_config.has_majority(|voter| renewed(voter.node)) {
            return;
        }
        let newly_leased = !core::mem::replace(&mut known.leased, true);
        let until = renewal.sent + self.lease;
        if newly_leased && matches!(known.phase, Phase::Installed { .. }) {
            self.renew_at = Time::ZERO;
        }
        if until > self.until {
            self.until = until;
            out.act(Action::Lease(until));
        }
    }

    /// A voter does not renew the lease. If a certified view has gone on without this incarnation,
    /// that is its end.
    pub(super) fn refused(
        &mut self,
        now: Time,
        from: NodeId,
        (session, seq): (Incarnation, u64),
        certified: Option<&ViewConfig>,
        out: &mut Outbox,
    ) {
        self.answered(now, from, session, seq);
        if session != self.me.incarnation {
            return;
        }
        let Some(view_config) = certified else {
            self.ignorant.entry(from).or_insert(now);
            return;
        };
        if view_config.epoch > self.told_epoch {
            self.hear_of_voters(view_config.epoch, nodes(&view_config.voters));
        }
        self.ignorant.remove(&from);
        self.overrides.told(from, view_config, out);
        self.end_if_excluded(view_config, out);
    }

    fn answered(&mut self, now: Time, from: NodeId, session: Incarnation, seq: u64) {
        let count = self.voters().len();
        if session != self.me.incarnation {
            return;
        }
        self.heard.insert(from, now);
        let Some(renewal) = self.renewals.iter_mut().find(|renewal| renewal.seq == seq) else {
            return;
        };
        if !renewal.answered.contains(&from) {
            renewal.answered.push(from);
        }
        let sent = renewal.sent;
        if 2 * renewal.answered.len() > count && seq > self.answered {
            (self.answered, self.answered_sent) = (seq, sent);
            // By them the coordinator sees what this member has missed of a view that is being
            // formed.
            let is_awaited = self.known.is_some() && self.view().is_none();
            if !self.leaves && !is_awaited {
                let pause = self.lease / RENEWALS;
                let moment = (sent + pause).floor_to(pause / MOMENTS);
                self.renew_at = self.renew_at.max(moment);
            }
        }
    }

    /// This member needs a new view.
    pub(super) fn want_view(&mut self) {
        if self.view().is_some() && self.wants_view != Some(self.epoch()) {
            self.wants_view = Some(self.epoch());
            self.renew_at = Time::ZERO;
        }
    }

    /// This member is about to leave, and knows of locks that were abandoned.
    pub(super) fn leave_marks(&mut self, marks: AbandonedMarks) {
        self.marks = marks;
    }

    /// This member holds nothing, and never will again.
    pub(super) fn leave(&mut self) {
        self.leaves = true;
        self.until = Time::ZERO;
        self.renew_at = Time::ZERO;
    }
}

fn nodes(voters: &[Voter]) -> Vec<NodeId> {
    voters.iter().map(|voter| voter.node).collect()
}
