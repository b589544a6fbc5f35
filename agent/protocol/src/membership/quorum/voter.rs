//! All that a voter does and remembers: its endorsements, its log, its proposals and the view it is
//! to put in force, put together.

pub(super) mod endorser;
mod log;
mod proposal;

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use self::endorser::Endorser;
use self::proposal::{proposal_of, voter_id};
use super::affiliation::Founding;
use super::certificate::ViewChange;
use super::config::QuorumConfig;
use super::coordinator::Coordination;
use super::log::{MakeLog, NotNow, ViewLog};
use super::message::{QuorumMessage, Status, VoterRecord};
use super::outbox::Outbox;
use super::proposer::Proposer;
use super::view_config::{Digest, Voter};
use crate::ids::{Epoch, Incarnation, NodeId};
use crate::membership::{Action, Member};
use crate::time::Time;

/// All that a voter does and remembers.
#[derive(Clone, Debug, Hash)]
pub(super) struct VoterRole<M: MakeLog> {
    pub(super) endorser: Endorser,
    proposer: Proposer,
    /// The view that this process is to put in force.
    coordination: Option<Coordination>,
    make: M,
    log: Option<M::Log>,
    /// Whether the log was given up.
    is_broken: bool,
    record: VoterRecord,
    disk: Disk,
}

/// What is on its way to the disk. One record at a time.
#[derive(Clone, Debug, Default, Hash)]
struct Disk {
    /// Whether there is a record of this voter: nothing is said before.
    is_born: bool,
    writing: Option<Writing>,
    /// The record has changed since.
    dirty: bool,
    /// The log waits for the record's next writing.
    log_waits: bool,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Writing {
    endorsed: Option<Digest>,
    longest: Duration,
    log_waits: bool,
}

impl<M: MakeLog> VoterRole<M> {
    /// `birth`: of this member, should it have been no voter before.
    pub(super) fn new(
        (me, birth): (Member, Incarnation),
        config: &QuorumConfig,
        (before, known): (Option<VoterRecord>, Epoch),
        make: M,
        now: Time,
    ) -> Self {
        let is_born = before.is_some();
        let mut record = before.unwrap_or_else(|| VoterRecord::new(birth, config.lease));
        let voter = record.voter(me.node);
        let endorser = Endorser::new((voter, me.incarnation), config, (&record, known), now);
        let newest = endorser
            .newest()
            .map(|newest| newest.view_change.view_config.epoch);
        let ahead = config.ahead(newest.unwrap_or_default().max(known));
        // From now on that may change at any moment.
        record.settled = false;
        Self {
            endorser,
            proposer: Proposer::new(me, config.lease, ahead, now),
            coordination: None,
            make,
            log: None,
            is_broken: false,
            record,
            disk: Disk {
                is_born,
                dirty: !is_born,
                ..Disk::default()
            },
        }
    }

    /// A new voter is put on disk before it says anything.
    pub(super) fn begin(&mut self, out: &mut Outbox) {
        if self.disk.dirty {
            self.put(out);
        }
    }

    fn put(&mut self, out: &mut Outbox) {
        if self.disk.writing.is_some() {
            self.disk.dirty = true;
            return;
        }
        self.disk.dirty = false;
        self.disk.writing = Some(Writing {
            endorsed: self.endorser.newest().map(|newest| newest.digest),
            longest: self.record.longest,
            log_waits: core::mem::take(&mut self.disk.log_waits),
        });
        out.act(Action::PersistVoter(Box::new(self.record.clone())));
    }

    /// Returns whether that was the first record.
    pub(super) fn persisted(&mut self, now: Time, out: &mut Outbox) -> bool {
        let Some(writing) = self.disk.writing.take() else {
            return false;
        };
        let is_first = !core::mem::replace(&mut self.disk.is_born, true);
        self.endorser.longest_is_on_disk(writing.longest);
        if self.endorser.newest().map(|newest| newest.digest) == writing.endorsed {
            if self.endorser.persisted(now) {
                self.proposer.note_view(now);
            }
            self.start_log(now, out);
        }
        if writing.log_waits
            && let Some(log) = &mut self.log
        {
            let mut actions = Vec::new();
            log.persisted(now, &mut actions);
            self.log_actions(now, actions, out);
        }
        if self.disk.dirty {
            self.put(out);
        }
        is_first
    }

    pub(super) fn take_in(
        &mut self,
        now: Time,
        from: NodeId,
        message: QuorumMessage,
        (config, asked): (&QuorumConfig, &[NodeId]),
        out: &mut Outbox,
    ) {
        if !self.disk.is_born {
            return;
        }
        match message {
            QuorumMessage::Renew(renew) => {
                let is_news = self.endorser.renew(now, from, &renew, out);
                let member = Member {
                    node: from,
                    incarnation: renew.session,
                };
                if let Some(coordination) = &mut self.coordination {
                    let pause = config.lease / 10;
                    coordination.renew(now, member, &renew, pause, out);
                }
                if !is_news {
                    return;
                }
            }
            QuorumMessage::Status(status) => self.on_status(now, from, *status, out),
            // How a first view is endorsed is for those who found the cluster.
            QuorumMessage::Decided(view_change) if view_change.parent.is_some() => {
                self.endorse(now, *view_change, out)
            }
            QuorumMessage::Summary {
                epoch,
                digest,
                summary,
            } => {
                if let Some(coordination) = &mut self.coordination {
                    coordination.summary(from, (epoch, digest), summary);
                }
            }
            QuorumMessage::Log {
                from: voter,
                to,
                message,
            } => {
                let is_known = self.voter_called(voter).is_some();
                if let Some(log) = self.log.as_mut().filter(|_| to == self.endorser.me) {
                    if is_known {
                        let mut actions = Vec::new();
                        log.receive(now, voter_id(voter), message, &mut actions);
                        self.log_actions(now, actions, out);
                    } else if voter.node == from
                        && let Some(message) = log.answer_former(voter_id(voter), &message)
                    {
                        // What is committed is so, whatever is on this disk: it goes out at once.
                        let (from, to) = (to, voter);
                        out.send(to.node, QuorumMessage::Log { from, to, message });
                    }
                }
            }
            _ => {}
        }
        self.tick(now, config, asked, out);
    }

    /// Another voter says how it stands. It may know less than this one.
    fn on_status(&mut self, now: Time, from: NodeId, status: Status, out: &mut Outbox) {
        let (voter, endorsement) = (status.voter, status.endorsed);
        self.endorser.status(now, from, status);
        if voter.node != from {
            return;
        }
        let Some(mine) = self.endorser.endorsed() else {
            return;
        };
        let is_behind = endorsement
            .is_none_or(|its| its.epoch < mine.view_change.view_config.epoch)
            && mine.view_change.parent.is_some();
        if is_behind && mine.view_change.voters().any(|it| it == voter) {
            let view_change = Box::new(mine.view_change.clone());
            out.send(from, QuorumMessage::Decided(view_change));
        }
    }

    /// The cluster that this voter is founding, if it has endorsed its first view and no other; and
    /// whether that is on disk.
    pub(super) fn founds(&self) -> Option<(Digest, bool)> {
        let newest = self
            .endorser
            .newest()
            .filter(|its| its.view_change.parent.is_none())?;
        Some((
            newest.view_change.view_config.cluster,
            self.endorser.is_settled(),
        ))
    }

    /// All have accepted this founding.
    pub(super) fn complete(&mut self, now: Time, founding: &Founding, out: &mut Outbox) {
        if self.disk.is_born {
            self.endorse(now, founding.view_change(), out);
        }
    }

    /// Nothing came of the founding that was completed here.
    pub(super) fn forget_founding(&mut self, out: &mut Outbox) {
        self.endorser.forget_founding();
        self.coordination = None;
        self.record.endorsed = None;
        self.record.certified = false;
        self.put(out);
    }

    /// Forgets all that it voted for in a cluster that this member leaves, and is another voter from
    /// now on, of this `birth`.
    pub(super) fn begin_anew(
        &mut self,
        (me, birth): (Member, Incarnation),
        config: &QuorumConfig,
        now: Time,
        out: &mut Outbox,
    ) where
        M: Clone,
    {
        let longest = self.record.longest.max(config.lease);
        let record = VoterRecord::new(birth, longest);
        let known = self
            .endorser
            .newest()
            .map(|newest| newest.view_change.view_config.epoch);
        let make = self.make.clone();
        let before = (Some(record), known.unwrap_or_default());
        *self = Self::new((me, birth), config, before, make, now);
        self.put(out);
    }

    /// A view change was decided: it is endorsed, if it may be.
    fn endorse(&mut self, now: Time, view_change: ViewChange, out: &mut Outbox) {
        if !self.endorser.endorse(view_change.clone(), now) {
            return;
        }
        self.coordination = None;
        self.record.endorsed = Some(view_change);
        self.record.certified = false;
        self.put(out);
    }

    /// Whether the other voters cannot decide without this one, or cannot tell yet that they can. The
    /// view that has it vote no more is not enough: the log moves to the other voters after it.
    pub(super) fn is_needed(&self) -> bool {
        match &self.log {
            Some(log) => !log.retired(),
            None => !self.is_broken && self.endorser.is_in_charge(),
        }
    }

    /// What is to be on disk when this incarnation ends in order, and says nothing more.
    pub(super) fn last_words(&self, now: Time) -> Box<VoterRecord> {
        let mut record = Box::new(self.record.clone());
        record.settled = self.endorser.is_quiet(now);
        record
    }

    /// Everything that may be due.
    /// `asked`: whom this member asks for its lease.
    pub(super) fn tick(
        &mut self,
        now: Time,
        config: &QuorumConfig,
        asked: &[NodeId],
        out: &mut Outbox,
    ) {
        if !self.disk.is_born {
            return;
        }
        if self.endorser.note_awake(now) {
            self.proposer.begin_anew();
        }
        if self.record.longest != self.endorser.longest_allowed() {
            self.record.longest = self.endorser.longest_allowed();
            self.put(out);
        }
        self.start_log(now, out);
        if let Some(log) = &mut self.log
            && log.next_timeout().is_some_and(|at| at <= now)
        {
            let mut actions = Vec::new();
            log.timeout(now, &mut actions);
            self.log_actions(now, actions, out);
        }
        if self.endorser.certified().is_some() && !self.record.certified {
            self.record.certified = true;
            self.put(out);
        }
        self.coordinate(now, config, out);
        self.propose(now, config, out);
        let audience = self.audience(config, asked);
        self.endorser.timeout(now, &audience, out);
    }

    /// Those who are told how this voter stands: all who vote or shall vote, as far as is known.
    fn audience(&self, config: &QuorumConfig, asked: &[NodeId]) -> BTreeSet<NodeId> {
        let mut audience: BTreeSet<NodeId> = asked.iter().copied().collect();
        if self.endorser.newest().is_none() {
            audience.extend(&config.voters);
        }
        if let Some(newest) = self.endorser.newest() {
            audience.extend(newest.view_change.voters().map(|voter| voter.node));
            audience.extend(&newest.view_change.view_config.overrides.voters);
        }
        audience
    }

    fn coordinate(&mut self, now: Time, config: &QuorumConfig, out: &mut Outbox) {
        let Some(endorsed) = self.endorser.endorsed() else {
            return;
        };
        let me = Member {
            node: self.endorser.me.node,
            incarnation: self.endorser.incarnation,
        };
        let is_mine = endorsed.view_change.view_config.coordinator == me;
        if is_mine && self.coordination.is_none() && self.endorser.is_settled() {
            let (view_change, digest) = (endorsed.view_change.clone(), endorsed.digest);
            self.coordination = Some(Coordination::new(view_change, digest));
        }
        let Some(coordination) = &mut self.coordination else {
            return;
        };
        let leases = (self.endorser.age(now), self.endorser.longest());
        coordination.endorsed(now, self.endorser.me, leases, config);
        for (voter, endorsement) in self.endorser.endorsements(coordination.digest()) {
            let leases = (endorsement.age, endorsement.longest);
            coordination.endorsed(now, voter, leases, config);
        }
        let is_live = self.endorser.certified().is_some();
        coordination.advance(now, is_live, out);
    }

    fn propose(&mut self, now: Time, config: &QuorumConfig, out: &mut Outbox) {
        let leads = self.log.as_ref().is_some_and(ViewLog::is_leader);
        self.proposer.note_leadership(now, leads);
        if let Some(epoch) = self.proposer.newly_installed(&self.endorser, now)
            && let Some(log) = &mut self.log
        {
            log.installed(epoch);
        }
        let unresponsive = self
            .coordination
            .as_ref()
            .map(|coordination| coordination.unresponsive(now, config.lease))
            .unwrap_or_default();
        let view_change = self.proposer.consider(now, &self.endorser, &unresponsive);
        let Some(view_change) = view_change else {
            return self.hand_over(now, out);
        };
        let epoch = view_change.view_config.epoch;
        let Some(log) = &mut self.log else {
            return;
        };
        let mut actions = Vec::new();
        let mut proposed = log.propose(now, proposal_of(&view_change), &mut actions);
        if proposed == Err(NotNow::NotInstalled)
            && let Some(parent) = &view_change.parent
        {
            // A log that was founded has decided nothing yet, and cannot tell what its voters would
            // follow. One view with the same voters comes before.
            let mut same = view_change.clone();
            same.view_config.voters.clone_from(&parent.voters);
            proposed = log.propose(now, proposal_of(&same), &mut actions);
        }
        match proposed {
            Ok(()) => self.proposer.note_proposed(now, epoch),
            Err(_) => self.proposer.note_refused(now),
        }
        self.log_actions(now, actions, out);
    }

    /// Has another voter lead, if this one shall not vote any more.
    fn hand_over(&mut self, now: Time, out: &mut Outbox) {
        let Some(successor) = self.proposer.successor(now, &self.endorser) else {
            return;
        };
        if let Some(log) = &mut self.log {
            let mut actions = Vec::new();
            // Where the log is busy now, it is asked again.
            let _ = log.hand_over(now, voter_id(successor), &mut actions);
            self.log_actions(now, actions, out);
        }
    }

    /// The voters of the newest view configuration and its parent.
    fn voters(&self) -> impl Iterator<Item = Voter> + '_ {
        let newest = self.endorser.newest();
        newest
            .into_iter()
            .flat_map(|newest| newest.view_change.voters())
    }

    fn voter_called(&self, voter: Voter) -> Option<Voter> {
        self.voters().find(|it| *it == voter)
    }

    pub(super) fn waits_until(&self, now: Time) -> Option<Time> {
        self.coordination.as_ref()?.next_timeout(now)
    }

    pub(super) fn next_timeout(&self, now: Time) -> Option<Time> {
        if !self.disk.is_born {
            return self.disk.dirty.then_some(Time::ZERO);
        }
        let log = self.log.as_ref().and_then(ViewLog::next_timeout);
        let coordination = self.coordination.as_ref();
        let times = [
            log,
            self.proposer.next_timeout(),
            coordination.and_then(|coordination| coordination.next_timeout(now)),
            Some(self.endorser.next_timeout(now)),
        ];
        times.into_iter().flatten().min()
    }
}
