//! A member's side: its lease, and its way from one view to the next.
//!
//! A lease runs for the time L from when the wish for it was *sent*, on the member's own clock, once
//! a majority of a view's voters has renewed it, all under that very view, which this member knows
//! to be certified. It is counted so that it ends here before it ends for anybody who counts it
//! from what a voter has seen.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use super::charter::{Charter, Digest, MAX_VOTERS};
use super::message::{QuorumMessage, Renew, Stage};
use super::outbox::Outbox;
use super::overview::{Absence, Missing, QuorumOverview};
use super::process::Terms;
use crate::protocol::face::Marks;
use crate::protocol::ids::{Epoch, Incarnation, NodeId};
use crate::protocol::lock::Summary;
use crate::protocol::membership::{Action, Book, Change, Member, View};
use crate::protocol::time::Time;

/// How often a lease is renewed in its time.
const RENEWALS: u32 = 5;
/// How often in a lease's time a wish is repeated that no majority answers, or while a view is being
/// formed.
const REPEATS: u32 = 20;
/// How often one that leaves says so in a lease's time.
const GOODBYES: u32 = 50;
/// How many wishes are remembered.
const MAX_WISHES: usize = 16;

#[derive(Clone, Debug, Hash)]
pub(super) struct Session {
    me: Member,
    lease: Duration,
    /// Those who vote, by the configuration.
    configured: Vec<NodeId>,
    /// Those who vote, by the newest view that others have told of.
    told: Vec<NodeId>,
    /// Since when this life is.
    began: Time,
    /// Whether the life before left.
    left: bool,
    /// When each voter last answered.
    heard: BTreeMap<NodeId, Time>,
    /// Those of them that knew of no view with this life in it, nor of any other that is certified,
    /// and since when.
    ignorant: BTreeMap<NodeId, Time>,
    /// Up to where the voter of this very member remembers, from the life before.
    remembered: Epoch,
    /// The cluster that was endorsed here before; there is no way into another.
    cluster: Option<Digest>,
    /// Those who can be talked to, and when each was last told which cluster this is. They are told
    /// while they are in no view with this member: files that name different voters found different
    /// clusters, which would not hear of each other otherwise.
    met: BTreeMap<NodeId, Option<Time>>,
    /// Those of them that are in another cluster.
    strangers: BTreeSet<NodeId>,
    /// The newest certified view that this life is in.
    known: Option<Known>,
    /// When the lease ends; zero if there is none.
    until: Time,
    /// The wishes that may still renew it, oldest first.
    wishes: VecDeque<Wish>,
    seq: u64,
    answered: u64,
    /// When the newest wish was sent that a majority has answered; before there is one, when this
    /// life began.
    answered_sent: Time,
    renew_at: Time,
    /// What an operator wants changed, until it is.
    change: Option<Change>,
    /// Who may be a member, as it was last told.
    book: Book,
    /// In this epoch a bound was reached that only a new view lifts.
    wants_view: Option<Epoch>,
    leaves: bool,
    /// What it knows of locks that were abandoned when it leaves.
    marks: Marks,
    /// Whether a certified view has gone on without this life.
    is_over: bool,
    /// Whether a view has been in force in this life.
    was_installed: bool,
}

#[derive(Clone, Debug, Hash)]
struct Known {
    charter: Charter,
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
    Installed(Arc<View>),
}

#[derive(Clone, Debug, Hash)]
struct Wish {
    seq: u64,
    sent: Time,
    /// Who has answered, and who of them has renewed under the view that is known here.
    answered: Vec<NodeId>,
    renewed: Vec<NodeId>,
}

impl Session {
    /// `cluster`: the one that was endorsed here before. `left`: whether the life before did.
    pub(super) fn new(
        me: Member,
        terms: &Terms,
        cluster: Option<Digest>,
        left: bool,
        now: Time,
    ) -> Self {
        Self {
            me,
            lease: terms.lease,
            configured: terms.voters.iter().copied().collect(),
            cluster,
            left,
            began: now,
            told: Vec::new(),
            heard: BTreeMap::new(),
            ignorant: BTreeMap::new(),
            remembered: Epoch::ZERO,
            met: BTreeMap::new(),
            strangers: BTreeSet::new(),
            known: None,
            until: Time::ZERO,
            wishes: VecDeque::new(),
            seq: 0,
            answered: 0,
            answered_sent: now,
            renew_at: now,
            change: None,
            book: Book::default(),
            wants_view: None,
            leaves: false,
            marks: Marks::None,
            is_over: false,
            was_installed: false,
        }
    }

    /// The view in force; `None` before the first, and while the next one is being formed.
    pub(super) fn view(&self) -> Option<&Arc<View>> {
        match &self.known.as_ref()?.phase {
            Phase::Installed(view) => Some(view),
            _ => None,
        }
    }

    /// The epoch of the newest view that this life is in; zero if there is none.
    pub(super) fn epoch(&self) -> Epoch {
        self.known
            .as_ref()
            .map_or(Epoch::ZERO, |known| known.charter.epoch)
    }

    /// When the lease ends.
    pub(super) fn until(&self) -> Time {
        self.until
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        (!self.is_over).then_some(self.renew_at)
    }

    /// Sends a wish if one is due.
    pub(super) fn timeout(&mut self, now: Time, out: &mut Outbox) {
        if self.is_over || now < self.renew_at {
            return;
        }
        // Soon, until a majority answers; but who is cut off for longer burdens nobody by it.
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
        self.wishes.retain(|wish| now < wish.sent + lease);
        while self.wishes.len() >= MAX_WISHES {
            self.wishes.pop_front();
        }
        self.wishes.push_back(Wish {
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
        };
        for voter in self.voters() {
            out.send(voter, QuorumMessage::Renew(renew));
            if let Some(change) = &self.change {
                out.send(voter, QuorumMessage::Wish(change.clone()));
            }
        }
        self.introduce(now, out);
    }

    /// Tells those which cluster this is who may not know, once in a lease.
    fn introduce(&mut self, now: Time, out: &mut Outbox) {
        let Some(known) = &self.known else { return };
        let charter = &known.charter;
        for (peer, told) in &mut self.met {
            let lately = told.is_some_and(|at| now < at + self.lease);
            if lately || charter.life_of(*peer).is_some() {
                continue;
            }
            *told = Some(now);
            let message = QuorumMessage::Cluster {
                cluster: charter.cluster,
                voters: charter.voters.iter().map(|its| its.node).collect(),
            };
            out.send(*peer, message);
        }
    }

    /// Another member says which cluster it is in.
    pub(super) fn introduced(
        &mut self,
        peer: NodeId,
        cluster: Digest,
        voters: Vec<NodeId>,
        out: &mut Outbox,
    ) {
        if voters.is_empty() || voters.len() > MAX_VOTERS {
            return;
        }
        match self.cluster() {
            Some(ours) if ours == cluster => {
                self.strangers.remove(&peer);
            }
            Some(_) if self.strangers.insert(peer) => {
                out.act(Action::Stranger {
                    peer,
                    ours: self.voters(),
                    theirs: voters,
                });
            }
            Some(_) => {}
            // This member's file may be an old one, or wrong: here is whom to ask.
            None if self.told.is_empty() => {
                self.hear_of_voters(voters);
                self.renew_at = Time::ZERO;
            }
            None => {}
        }
    }

    /// Whether that member is in another cluster.
    pub(super) fn is_stranger(&self, peer: NodeId) -> bool {
        self.strangers.contains(&peer)
    }

    fn hear_of_voters(&mut self, voters: Vec<NodeId>) {
        if self.told.is_empty() && self.known.is_none() {
            // Before there was a cluster nobody could know of it.
            self.ignorant.clear();
        }
        self.told = voters;
    }

    /// An operator wants this changed; in place of what was wanted before.
    pub(super) fn change(&mut self, change: Change) {
        self.change = Some(change);
        self.renew_at = Time::ZERO;
    }

    /// A certified view says this of who may be a member.
    pub(super) fn read(&mut self, book: &Book, out: &mut Outbox) {
        self.change.take_if(|change| book.has(change));
        if *book != self.book {
            self.book = book.clone();
            out.act(Action::Members(book.clone()));
        }
    }

    /// What the voter of this very member knows from the life before. Of this member itself it says
    /// nothing: if that was removed it may have been added again since, and the others tell.
    pub(super) fn remember(&mut self, charter: &Charter, out: &mut Outbox) {
        self.remembered = charter.epoch;
        let mut book = charter.book.clone();
        book.removed.remove(&self.me.node);
        self.read(&book, out);
    }

    /// That member hears this one from now on.
    pub(super) fn meet(&mut self, peer: NodeId) {
        if peer != self.me.node {
            self.met.insert(peer, None);
            self.strangers.remove(&peer);
        }
        if self.voters().contains(&peer) {
            self.renew_at = Time::ZERO;
        }
    }

    /// That member's life has ended, or it has left.
    pub(super) fn part(&mut self, peer: NodeId) {
        self.met.remove(&peer);
        self.strangers.remove(&peer);
    }

    /// What does not end with a session.
    pub(super) fn take_over(&mut self, before: &mut Self) {
        self.change = before.change.take();
        self.book = core::mem::take(&mut before.book);
        self.remembered = before.remembered;
    }

    /// The cluster that this member belongs to.
    pub(super) fn cluster(&self) -> Option<Digest> {
        let known = self.known.as_ref().map(|known| known.charter.cluster);
        known.or(self.cluster)
    }

    /// Whether no view has been in force in this life.
    pub(super) fn has_had_no_view(&self) -> bool {
        !self.was_installed
    }

    /// The quorum as this member sees it. Before there is a cluster all voters must be there; after
    /// that one that has lost its state counts for nothing, though it answers.
    /// `absent`: who cannot be talked to.
    pub(super) fn overview(&self, now: Time, absent: &[NodeId]) -> QuorumOverview {
        let mut voters = self.voters();
        voters.sort_unstable();
        let patience = self.lease / 2;
        let exists = self.exists();
        let is_founded = exists || self.cluster.is_some();
        let is_heard = |node| match self.heard.get(&node) {
            Some(at) => *at + patience > now,
            None => !absent.contains(&node) && self.began + patience > now,
        };
        let absence = |node| match is_heard(node) {
            true => (exists && self.is_ignorant(now, node)).then_some(Absence::StateLost),
            false if is_founded => Some(Absence::Silent),
            false => Some(Absence::Unfounded),
        };
        let missing = |&member| absence(member).map(|why| Missing { member, why });
        let missing: Vec<Missing> = voters.iter().filter_map(missing).collect();
        QuorumOverview {
            is_founded,
            suffices: missing.is_empty() || (exists && 2 * missing.len() < voters.len()),
            is_leased: now < self.until,
            voters,
            missing,
        }
    }

    /// Whether there has been a view of this group.
    fn exists(&self) -> bool {
        self.known.is_some() || !self.told.is_empty()
    }

    /// Whether a voter has known of no view for so long that it must have lost its state.
    fn is_ignorant(&self, now: Time, node: NodeId) -> bool {
        let since = self.ignorant.get(&node);
        since.is_some_and(|since| *since + self.lease / 2 <= now)
    }

    /// Those who are to vote, and whether each does, as far as is known; empty before there is a view.
    pub(super) fn votes(&self, now: Time) -> BTreeMap<NodeId, bool> {
        if !self.exists() {
            return BTreeMap::new();
        }
        let voters = match &self.known {
            Some(known) => known.charter.voters.iter().map(|its| its.node).collect(),
            None => self.told.clone(),
        };
        let configured = self.configured.iter().copied();
        let wanted = configured.filter(|node| !self.book.removed.contains(node));
        let all = wanted.chain(voters.iter().copied());
        all.map(|node| (node, voters.contains(&node) && !self.is_ignorant(now, node)))
            .collect()
    }

    fn stage(&self) -> Stage {
        match &self.known {
            _ if self.leaves => match self.marks {
                Marks::None => Stage::Leaving,
                Marks::Shared => Stage::LeavingWithSharedMarks,
                Marks::Own => Stage::LeavingWithMarks,
            },
            Some(Known {
                phase: Phase::Installed(_),
                leased,
                ..
            }) => {
                if *leased {
                    Stage::Leased
                } else {
                    Stage::Installed
                }
            }
            _ => Stage::Frozen,
        }
    }

    /// Whom to ask: the voters of the view that this life is in. Before, those in the file, which
    /// may be an old one, and those who are named by anybody it knows.
    fn voters(&self) -> Vec<NodeId> {
        if let Some(known) = &self.known {
            return known.charter.voters.iter().map(|its| its.node).collect();
        }
        let told = self
            .told
            .iter()
            .filter(|node| !self.configured.contains(node));
        self.configured.iter().chain(told).copied().collect()
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
        let Some(wish) = self.wishes.iter_mut().find(|wish| wish.seq == seq) else {
            return;
        };
        if under != (known.charter.epoch, known.digest) || wish.renewed.contains(&from) {
            return;
        }
        wish.renewed.push(from);
        let renewed = |node| wish.renewed.contains(&node);
        if !known.charter.has_majority(|voter| renewed(voter.node)) {
            return;
        }
        let newly_leased = !core::mem::replace(&mut known.leased, true);
        let until = wish.sent + self.lease;
        if newly_leased && matches!(known.phase, Phase::Installed(_)) {
            self.renew_at = Time::ZERO;
        }
        if until > self.until {
            self.until = until;
            out.act(Action::Lease(until));
        }
    }

    /// A voter does not renew the lease. If a certified view has gone on without this life, that
    /// is its end.
    pub(super) fn refused(
        &mut self,
        now: Time,
        from: NodeId,
        (session, seq): (Incarnation, u64),
        certified: Option<&Charter>,
        out: &mut Outbox,
    ) {
        self.answered(now, from, session, seq);
        if session != self.me.incarnation {
            return;
        }
        let Some(charter) = certified else {
            self.ignorant.entry(from).or_insert(now);
            return;
        };
        self.hear_of_voters(charter.voters.iter().map(|its| its.node).collect());
        self.ignorant.remove(&from);
        let knows_newer = self.epoch() > charter.epoch;
        let is_memory = from == self.me.node && charter.epoch <= self.remembered;
        if !knows_newer && !is_memory {
            self.read(&charter.book, out);
        }
        self.end_if_excluded(charter, out);
    }

    fn answered(&mut self, now: Time, from: NodeId, session: Incarnation, seq: u64) {
        let count = self.voters().len();
        if session != self.me.incarnation {
            return;
        }
        self.heard.insert(from, now);
        let Some(wish) = self.wishes.iter_mut().find(|wish| wish.seq == seq) else {
            return;
        };
        if !wish.answered.contains(&from) {
            wish.answered.push(from);
        }
        let sent = wish.sent;
        if 2 * wish.answered.len() > count && seq > self.answered {
            (self.answered, self.answered_sent) = (seq, sent);
            // By its wishes the coordinator sees what it has missed of a view that is being formed.
            let is_awaited = self.known.is_some() && self.view().is_none();
            if !self.leaves && !is_awaited {
                self.renew_at = self.renew_at.max(sent + self.lease / RENEWALS);
            }
        }
    }

    /// Whether this session is in `charter`. A life that was left out of a view is not the same
    /// session when it is let in again: what it was inside of may be others' by now.
    fn goes_on_in(&self, charter: &Charter) -> bool {
        let Some(since) = charter.member_since(self.me) else {
            return false;
        };
        let known = self.known.as_ref();
        known.is_none_or(|known| since <= known.charter.epoch)
    }

    fn end_if_excluded(&mut self, charter: &Charter, out: &mut Outbox) {
        let Some(known) = &self.known else { return };
        if charter.cluster == known.charter.cluster
            && charter.epoch > known.charter.epoch
            && !self.goes_on_in(charter)
            && !self.is_over
        {
            self.is_over = true;
            self.until = Time::ZERO;
            self.wishes.clear();
            out.act(Action::Excluded(charter.epoch));
        }
    }

    /// The coordinator says that this is certified: stop, and tell.
    pub(super) fn flush(&mut self, from: NodeId, charter: Charter, out: &mut Outbox) {
        let is_foreign = self
            .cluster
            .is_some_and(|cluster| cluster != charter.cluster);
        if charter.coordinator.node != from || self.is_over || is_foreign {
            return;
        }
        if !self.goes_on_in(&charter) {
            return self.end_if_excluded(&charter, out);
        }
        let digest = charter.digest();
        if let Some(known) = &self.known {
            if known.digest == digest && matches!(known.phase, Phase::Frozen) {
                // The summary was lost, or is late.
                out.act(Action::Summarise(charter.unclean.clone()));
            }
            if charter.epoch <= known.charter.epoch || charter.cluster != known.charter.cluster {
                return;
            }
        }
        self.ignorant.clear();
        out.act(Action::Freeze);
        out.act(Action::Persist(charter.epoch));
        self.known = Some(Known {
            charter,
            digest,
            phase: Phase::Persisting,
            leased: false,
        });
        // What was renewed under the view before counts no more.
        for wish in &mut self.wishes {
            wish.renewed.clear();
        }
        self.renew_at = Time::ZERO;
    }

    /// That this member takes part is on disk.
    pub(super) fn persisted(&mut self, out: &mut Outbox) {
        if let Some(known) = &mut self.known
            && matches!(known.phase, Phase::Persisting)
        {
            known.phase = Phase::Frozen;
            out.act(Action::Summarise(known.charter.unclean.clone()));
        }
    }

    pub(super) fn summarised(&self, summary: Summary, out: &mut Outbox) {
        let Some(known) = &self.known else { return };
        if matches!(known.phase, Phase::Frozen) {
            let message = QuorumMessage::Summary {
                epoch: known.charter.epoch,
                digest: known.digest,
                summary,
            };
            out.send(known.charter.coordinator.node, message);
        }
    }

    /// The coordinator says that it is in force.
    pub(super) fn install(
        &mut self,
        from: NodeId,
        view: (Epoch, Digest),
        table: Summary,
        out: &mut Outbox,
    ) {
        let Some(known) = &mut self.known else { return };
        let awaited =
            (known.charter.epoch, known.digest) == view && known.charter.coordinator.node == from;
        if awaited && matches!(known.phase, Phase::Frozen) && !self.is_over {
            let view = Arc::new(known.charter.view());
            known.phase = Phase::Installed(Arc::clone(&view));
            let book = known.charter.book.clone();
            self.was_installed = true;
            self.renew_at = Time::ZERO;
            self.read(&book, out);
            out.act(Action::Install(view, table));
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
    pub(super) fn leave_marks(&mut self, marks: Marks) {
        self.marks = marks;
    }

    /// This member holds nothing, and never will again.
    pub(super) fn leave(&mut self) {
        self.leaves = true;
        self.until = Time::ZERO;
        self.renew_at = Time::ZERO;
    }
}
