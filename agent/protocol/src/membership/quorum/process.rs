//! One process's part in quorum views.

mod cluster;
mod overview;
mod view_source;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

use super::affiliation::{Affiliation, Membership, Standing};
use super::certificate::ViewChange;
use super::config::{QuorumConfig, RecoveredState};
use super::founding::FoundingPart;
use super::log::MakeLog;
use super::message::{QuorumMessage, VoterRecord};
use super::outbox::Outbox;
use super::session::Session;
use super::voter::VoterRole;
use crate::ids::{Epoch, NodeId};
use crate::lock::{AbandonedMarks, Summary};
use crate::membership::{Action, Change, Member, View};
use crate::time::Time;

/// One process's part in quorum views.
#[derive(Debug)]
pub struct Quorum<M: MakeLog> {
    config: QuorumConfig,
    session: Session,
    founding: FoundingPart,
    /// The voter's part; `None` where none is wanted and none was.
    vote: Option<Box<VoterRole<M>>>,
    /// Makes the log of one that is to vote.
    make: M,
    began: Time,
    out: Outbox,
    /// Whether no view has been told yet what is to be told of the incarnation before.
    unclean: bool,
}

/// As derived, were it seen that it is the log too that must be cloned.
impl<M: MakeLog + Clone> Clone for Quorum<M>
where
    M::Log: Clone,
{
    fn clone(&self) -> Self {
        Self {
            config: self.config.clone(),
            session: self.session.clone(),
            founding: self.founding.clone(),
            vote: self.vote.clone(),
            make: self.make.clone(),
            began: self.began,
            out: self.out.clone(),
            unclean: self.unclean,
        }
    }
}

impl<M: MakeLog + Hash> Hash for Quorum<M>
where
    M::Log: Hash,
{
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Self {
            config,
            session,
            founding,
            vote,
            make,
            began,
            out,
            unclean,
        } = self;
        (config, session, founding, vote, make, began, out, unclean).hash(hasher);
    }
}

impl<M: MakeLog + Clone> Quorum<M> {
    /// `affiliation`: what is on disk of this member's cluster.
    pub fn new(
        (me, affiliation): (Member, Affiliation),
        config: QuorumConfig,
        mut before: RecoveredState,
        make: M,
        now: Time,
    ) -> Self {
        let cluster = affiliation.cluster();
        if let Some(voter) = &before.voter
            && let Some(endorsed) = &voter.endorsed
            && Some(endorsed.view_config.cluster) != cluster
            && (voter.birth != affiliation.birth || endorsed.parent.is_none())
        {
            // It ended while it left its cluster for another, where it is another voter, or while it
            // gave up a founding. Under one birth no voter forgets what it endorsed of a cluster.
            let next = VoterRecord::new(affiliation.birth, voter.longest_lease());
            before.voter = Some(next);
        }
        let is_new = affiliation.standing == Standing::New;
        let votes = is_new && config.voters.contains(&me.node) || before.voter.is_some();
        let (birth, membership) = (affiliation.birth, affiliation.membership());
        let recorded = membership.map(|its| its.voters.iter().map(|voter| voter.node).collect());
        let mut out = Outbox::new(me.node);
        let recorded = recorded.unwrap_or_default();
        let mut session = Session::new(me, &config, recorded, before.left, now);
        let longest = before.voter.as_ref().map(VoterRecord::longest_lease);
        let remembered = (before.epoch, longest.unwrap_or_default());
        let founding = FoundingPart::new(me, affiliation, remembered, now);
        if let Some(record) = &before.voter
            && let Some(view_config) = record.certified_view_config()
        {
            session.remember(view_config, &mut out);
        }
        let unclean = before.unclean;
        let vote = votes.then(|| {
            let record = (before.voter, before.epoch);
            Box::new(VoterRole::new(
                (me, birth),
                &config,
                record,
                make.clone(),
                now,
            ))
        });
        Self {
            session,
            founding,
            vote,
            make,
            began: now,
            out,
            config,
            unclean,
        }
    }

    /// The view has gone on without this incarnation: here is the next, in another session. The voter
    /// remembers what it knows.
    pub(crate) fn begin_anew(&mut self, now: Time, me: Member) {
        // Those who were inside in that session may take a moment yet to end.
        self.unclean = true;
        let membership = self.founding.affiliation().membership();
        let recorded = membership.map(|its| its.voters.iter().map(|voter| voter.node).collect());
        let recorded = recorded.unwrap_or_default();
        let mut next = Session::new(me, &self.config, recorded, false, now);
        next.take_over(&mut self.session);
        self.session = next;
        self.founding.begin_anew(now, me);
    }

    /// An operator wants this changed, until then at the latest.
    pub fn change(&mut self, now: Time, change: Change, until: Time) -> Vec<Action> {
        self.session.change(change, until);
        self.settle(now)
    }

    /// A message from the present incarnation of another member.
    pub fn receive(&mut self, now: Time, from: NodeId, message: QuorumMessage) -> Vec<Action> {
        self.take_in(now, from, message);
        self.settle(now)
    }

    /// That member can be talked to from now on, and knows nothing of this one yet.
    pub fn meet(&mut self, now: Time, peer: NodeId) -> Vec<Action> {
        self.session.meet(peer);
        self.founding.speak_up(now);
        if let Some(vote) = &mut self.vote {
            vote.begin(&mut self.out);
            vote.endorser.speak_up(now);
            vote.tick(now, &self.config, &self.session.voters(), &mut self.out);
        }
        self.settle(now)
    }

    /// That member's incarnation has ended, or it has left.
    pub(crate) fn part(&mut self, peer: NodeId) {
        self.session.part(peer);
    }

    /// The time that [`Quorum::next_timeout`] names has come; earlier does no harm.
    pub fn timeout(&mut self, now: Time) -> Vec<Action> {
        if let Some(vote) = &mut self.vote {
            vote.begin(&mut self.out);
            vote.tick(now, &self.config, &self.session.voters(), &mut self.out);
        }
        self.settle(now)
    }

    pub fn next_timeout(&self, now: Time) -> Option<Time> {
        let vote = self.vote.as_ref().and_then(|vote| vote.next_timeout(now));
        let founding = (!self.session.is_in_view())
            .then(|| self.founding.next_timeout(now, self.config.lease));
        [self.session.next_timeout(), vote, founding.flatten()]
            .into_iter()
            .flatten()
            .min()
    }

    /// The last [`Action::Persist`] is on disk.
    pub fn persisted(&mut self, now: Time) -> Vec<Action> {
        self.session.persisted(&mut self.out);
        self.settle(now)
    }

    /// The last [`Action::PersistAffiliation`] is on disk.
    pub fn affiliation_persisted(&mut self, now: Time) -> Vec<Action> {
        self.founding.persisted();
        self.settle(now)
    }

    /// The last [`Action::PersistVoter`] is on disk.
    pub fn voter_persisted(&mut self, now: Time) -> Vec<Action> {
        if let Some(vote) = &mut self.vote {
            if vote.persisted(now, &mut self.out) {
                // A voter hears from now on, its own member too.
                self.session.meet(self.out.me());
            }
            vote.tick(now, &self.config, &self.session.voters(), &mut self.out);
        }
        self.settle(now)
    }

    /// The answer to [`Action::Summarise`].
    pub fn summarised(&mut self, now: Time, summary: Summary) -> Vec<Action> {
        self.session.summarised(summary, &mut self.out);
        self.settle(now)
    }

    /// This member needs a new view: a limit is exceeded that only a new epoch lifts.
    pub fn want_view(&mut self, now: Time) -> Vec<Action> {
        self.session.want_view();
        self.settle(now)
    }

    /// This member is about to leave, and knows of locks that were abandoned.
    pub(crate) fn leave_marks(&mut self, marks: AbandonedMarks) {
        self.session.leave_marks(marks);
    }

    /// This member holds nothing, and never will again.
    pub fn leave(&mut self, now: Time) -> Vec<Action> {
        self.session.leave();
        self.settle(now)
    }

    /// The view in force; `None` before the first, and while the next one is being formed.
    pub fn view(&self) -> Option<&Arc<View>> {
        self.session.view()
    }

    /// What this voter would propose the next view after: its newest endorsement, if that is known
    /// to be certified.
    pub fn certified(&self) -> Option<&ViewChange> {
        let vote = self.vote.as_ref()?;
        vote.endorser
            .certified()
            .map(|endorsed| &endorsed.view_change)
    }

    /// When the next of the leases is over that keep the view from being put in force here.
    pub fn waits_until(&self, now: Time) -> Option<Time> {
        self.vote.as_ref()?.waits_until(now)
    }

    /// When the lease ends.
    pub fn lease_ends(&self) -> Time {
        self.session.until()
    }

    /// The epoch of the newest view with this incarnation as a member; zero if no view has it.
    pub(crate) fn epoch(&self) -> Epoch {
        self.session.epoch()
    }

    /// Those who are to vote, and whether each does, as far as is known.
    pub(crate) fn voters(&self, now: Time) -> BTreeMap<NodeId, bool> {
        self.session.votes(now)
    }

    /// Whether that member is in another cluster: their files named other voters when it was
    /// founded.
    pub(crate) fn is_stranger(&self, peer: NodeId) -> bool {
        self.session.is_stranger(peer)
    }

    pub(crate) fn is_unclean(&self) -> bool {
        self.unclean && self.session.may_follow_a_lease()
    }

    /// What the record on disk is to say of a voter whose incarnation ends now, in order.
    pub(crate) fn last_words(&self, now: Time) -> Option<Box<VoterRecord>> {
        self.vote.as_ref().map(|vote| vote.last_words(now))
    }

    fn take_in(&mut self, now: Time, from: NodeId, message: QuorumMessage) {
        let is_needed = self.vote.as_ref().is_some_and(|vote| vote.is_needed());
        self.session.note_needed(is_needed);
        if let QuorumMessage::Decided(view_change) = &message
            && !self.may_vote_in(view_change)
        {
            return;
        }
        if let QuorumMessage::Cluster(notice) = &message {
            return self.on_cluster(now, from, notice);
        }
        let out = &mut self.out;
        match message {
            QuorumMessage::Renewed {
                session,
                seq,
                epoch,
                digest,
            } => {
                self.session
                    .renewed(now, from, (session, seq), (epoch, digest), out);
            }
            QuorumMessage::Refused {
                session,
                seq,
                certified,
            } => {
                let ours = self.founding.affiliation().cluster();
                let certified = certified.filter(|its| {
                    ours.is_none_or(|ours| ours == its.cluster) && self.config.allows(its.cluster)
                });
                self.session
                    .refused(now, from, (session, seq), certified.as_deref(), out);
            }
            QuorumMessage::Flush(view_config) => {
                let ours = self.founding.affiliation().cluster();
                let is_ours = ours.is_none_or(|ours| ours == view_config.cluster);
                if !is_ours || !self.config.allows(view_config.cluster) {
                    return;
                }
                if let Some(vote) = &mut self.vote {
                    vote.endorser.learn_certified(&view_config);
                }
                let membership = Membership::of(&view_config);
                if self.session.takes(from, &view_config) {
                    // On disk before the epoch is, and so before the view is in force.
                    self.founding.join(membership, out);
                }
                self.session.flush(from, *view_config, out);
            }
            QuorumMessage::Install {
                epoch,
                digest,
                table,
            } => self.session.install(from, (epoch, digest), table, out),
            QuorumMessage::Lift { epoch, digest } => {
                self.session.lift(from, (epoch, digest), out);
            }
            QuorumMessage::Founding(status) => {
                self.session.asked_by(now, from);
                self.founding.hear(now, from, *status);
            }
            QuorumMessage::Found(founding) => {
                let offer = (from, *founding);
                self.founding.offered(now, offer, &self.config, out);
            }
            to_voter => {
                let asked = self.session.voters();
                if let Some(vote) = &mut self.vote {
                    vote.take_in(now, from, to_voter, (&self.config, &asked), out);
                }
            }
        }
    }

    /// A voter that endorses a view of a cluster is in that cluster from then on, though this member
    /// may be in none of its views yet: it founds no other, and asks the voters of that view when it
    /// begins anew.
    fn join_where_it_votes(&mut self) {
        let affiliation = self.founding.affiliation();
        let newest = self.vote.as_ref().and_then(|vote| vote.endorser.newest());
        if let Some(newest) = newest
            && affiliation.standing == Standing::New
            && newest.view_change.parent.is_some()
        {
            let membership = Membership::of(&newest.view_change.view_config);
            self.founding.join(membership, &mut self.out);
        }
    }

    /// Does what is due at once, and what this process says to itself.
    fn settle(&mut self, now: Time) -> Vec<Action> {
        loop {
            self.session.timeout(now, &mut self.out);
            self.join_where_it_votes();
            self.found(now);
            if self.vote.is_none() && self.session.shall_vote() {
                self.begin_to_vote(now);
            }
            if !self.session.is_in_view() {
                let completed = self.vote.as_ref().and_then(|vote| vote.founds());
                let completed = completed.and_then(|(its, on_disk)| on_disk.then_some(its));
                let (config, met) = (&self.config, self.session.met());
                self.founding
                    .announce(now, (config, completed), met, &mut self.out);
            }
            let Some(message) = self.out.next_to_self() else {
                return self.out.take();
            };
            let me = self.out.me();
            self.take_in(now, me, message);
        }
    }
}
