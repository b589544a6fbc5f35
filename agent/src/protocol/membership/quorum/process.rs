//! One process's part in quorum views.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::time::Duration;

use super::charter::Digest;
#[cfg(feature = "sim")]
use super::charter::Step;
use super::log::{LogAction, LogRecord, ViewLog, VoterId};
use super::message::{QuorumMessage, VoterRecord};
use super::outbox::Outbox;
use super::overview::QuorumOverview;
use super::session::Session;
use super::vote::Vote;
use crate::protocol::face::Marks;
use crate::protocol::ids::{Epoch, NodeId};
use crate::protocol::lock::Summary;
use crate::protocol::membership::{Action, Change, Member, View};
use crate::protocol::time::Time;

/// What a process must know of its group to take part in quorum views.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Terms {
    /// The group's name.
    pub(crate) group: String,
    pub(crate) lease: Duration,
    /// Those who vote, by the configuration.
    pub(crate) voters: BTreeSet<NodeId>,
    /// The epoch of a cluster that is founded now: the seconds of the wall clock, so that fences
    /// rise though all states were lost.
    pub(crate) first_epoch: Epoch,
    /// After somebody was lost who may have been inside: for how much longer nobody is let in.
    pub(crate) lock_delay: Duration,
}

/// What is known of the lives before this one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Before {
    /// The highest epoch that any took part in.
    pub(crate) epoch: Epoch,
    /// Whether the last one left, and there is nothing to tell of it.
    pub(crate) left: bool,
    /// Whether something is to be told of it: it did not leave, or knew of locks that were
    /// abandoned.
    pub(crate) unclean: bool,
    /// Whether an operator has had them forget whose leases were renewed.
    pub(crate) recovers: bool,
    /// What was on disk of a voter here.
    pub(crate) voter: Option<VoterRecord>,
}

impl Terms {
    pub(super) fn cluster(&self) -> Digest {
        Digest::of_cluster(&self.group, self.voters.iter().copied())
    }
}

/// How a voter's log is made.
pub(crate) trait MakeLog: fmt::Debug {
    type Log: ViewLog + fmt::Debug;

    /// `how`: how it begins.
    fn make(
        &mut self,
        now: Time,
        me: VoterId,
        how: Beginning,
        out: &mut Vec<LogAction>,
    ) -> Option<Self::Log>;
}

/// How a voter's log begins.
#[derive(Clone, Debug)]
pub(crate) enum Beginning {
    /// As one of the first voters, which are these.
    Founded(BTreeSet<VoterId>),
    /// As one that is added to others.
    Joined,
    /// With what was on disk.
    Restored(Box<LogRecord>),
}

/// One process's part in quorum views.
#[derive(Debug)]
pub(crate) struct Quorum<M: MakeLog> {
    terms: Terms,
    session: Session,
    /// The voter's part; `None` where none is wanted and none was.
    vote: Option<Box<Vote<M>>>,
    out: Outbox,
    /// Whether no view has been told yet what is to be told of the life before.
    unclean: bool,
}

/// As derived, were it seen that it is the log too that must be cloned.
impl<M: MakeLog + Clone> Clone for Quorum<M>
where
    M::Log: Clone,
{
    fn clone(&self) -> Self {
        Self {
            terms: self.terms.clone(),
            session: self.session.clone(),
            vote: self.vote.clone(),
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
            terms,
            session,
            vote,
            out,
            unclean,
        } = self;
        (terms, session, vote, out, unclean).hash(hasher);
    }
}

impl<M: MakeLog> Quorum<M> {
    pub(crate) fn new(me: Member, terms: Terms, before: Before, make: M, now: Time) -> Self {
        let votes = terms.voters.contains(&me.node) || before.voter.is_some();
        let charter = before.voter.as_ref().and_then(VoterRecord::charter);
        let cluster = charter.map(|charter| charter.cluster);
        let mut out = Outbox::new(me.node);
        let mut session = Session::new(me, &terms, cluster, before.left, now);
        if let Some(record) = &before.voter
            && let Some(charter) = record.certified_charter()
        {
            session.remember(charter, &mut out);
        }
        let unclean = before.unclean;
        let vote = votes.then(|| Box::new(Vote::new(me, &terms, before, make, now)));
        Self {
            session,
            vote,
            out,
            terms,
            unclean,
        }
    }

    /// The view has gone on without this life: here is the next, in another session. The voter
    /// remembers what it knows.
    pub(crate) fn begin_anew(&mut self, now: Time, me: Member) {
        let cluster = self.session.cluster();
        // Those who were inside in that session may take a moment yet to end.
        self.unclean = true;
        let mut next = Session::new(me, &self.terms, cluster, false, now);
        next.take_over(&mut self.session);
        self.session = next;
    }

    /// An operator wants this changed.
    pub(crate) fn change(&mut self, now: Time, change: Change) -> Vec<Action> {
        self.session.change(change);
        self.settle(now)
    }

    /// A message from the present life of another member.
    pub(crate) fn receive(
        &mut self,
        now: Time,
        from: NodeId,
        message: QuorumMessage,
    ) -> Vec<Action> {
        self.take_in(now, from, message);
        self.settle(now)
    }

    /// That member can be talked to from now on, and knows nothing of this one yet.
    pub(crate) fn meet(&mut self, now: Time, peer: NodeId) -> Vec<Action> {
        self.session.meet(peer);
        if let Some(vote) = &mut self.vote {
            vote.begin(&mut self.out);
            vote.part.speak_up(now);
            vote.tick(now, &self.terms, &mut self.out);
        }
        self.settle(now)
    }

    /// That member's life has ended, or it has left.
    pub(crate) fn part(&mut self, peer: NodeId) {
        self.session.part(peer);
    }

    /// The time that [`Quorum::next_timeout`] names has come; earlier does no harm.
    pub(crate) fn timeout(&mut self, now: Time) -> Vec<Action> {
        if let Some(vote) = &mut self.vote {
            vote.begin(&mut self.out);
            vote.tick(now, &self.terms, &mut self.out);
        }
        self.settle(now)
    }

    pub(crate) fn next_timeout(&self, now: Time) -> Option<Time> {
        let vote = self.vote.as_ref().and_then(|vote| vote.next_timeout(now));
        [self.session.next_timeout(), vote]
            .into_iter()
            .flatten()
            .min()
    }

    /// The last [`Action::Persist`] is on disk.
    pub(crate) fn persisted(&mut self, now: Time) -> Vec<Action> {
        self.session.persisted(&mut self.out);
        self.settle(now)
    }

    /// The last [`Action::PersistVoter`] is on disk.
    pub(crate) fn voter_persisted(&mut self, now: Time) -> Vec<Action> {
        if let Some(vote) = &mut self.vote {
            if vote.persisted(now, &mut self.out) {
                // A voter hears from now on, its own member too.
                self.session.meet(self.out.me());
            }
            vote.tick(now, &self.terms, &mut self.out);
        }
        self.settle(now)
    }

    /// The answer to [`Action::Summarise`].
    pub(crate) fn summarised(&mut self, now: Time, summary: Summary) -> Vec<Action> {
        self.session.summarised(summary, &mut self.out);
        self.settle(now)
    }

    /// This member needs a new view: a bound is reached that only a new epoch lifts.
    pub(crate) fn want_view(&mut self, now: Time) -> Vec<Action> {
        self.session.want_view();
        self.settle(now)
    }

    /// This member is about to leave, and knows of locks that were abandoned.
    pub(crate) fn leave_marks(&mut self, marks: Marks) {
        self.session.leave_marks(marks);
    }

    /// This member holds nothing, and never will again.
    pub(crate) fn leave(&mut self, now: Time) -> Vec<Action> {
        self.session.leave();
        self.settle(now)
    }

    /// The view in force; `None` before the first, and while the next one is being formed.
    pub(crate) fn view(&self) -> Option<&Arc<View>> {
        self.session.view()
    }

    /// What this voter would propose the next view after: its newest endorsement, if that is known
    /// to be certified.
    #[cfg(feature = "sim")]
    pub(crate) fn certified(&self) -> Option<&Step> {
        let vote = self.vote.as_ref()?;
        vote.part.certified().map(|endorsed| &endorsed.step)
    }

    /// When the next of the leases is over that keep the view from being put in force here.
    #[cfg(feature = "sim")]
    pub(crate) fn waits_until(&self, now: Time) -> Option<Time> {
        self.vote.as_ref()?.waits_until(now)
    }

    /// When the lease ends.
    pub(crate) fn lease_ends(&self) -> Time {
        self.session.until()
    }

    /// The epoch of the newest view that this life is in; zero if there is none.
    pub(crate) fn epoch(&self) -> Epoch {
        self.session.epoch()
    }

    /// The quorum as this member sees it. `absent`: who cannot be talked to.
    pub(crate) fn overview(&self, now: Time, absent: &[NodeId]) -> QuorumOverview {
        self.session.overview(now, absent)
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
        self.unclean && self.session.has_had_no_view()
    }

    /// What the record on disk is to say of a voter whose life ends now, in order.
    pub(crate) fn last_words(&self, now: Time) -> Option<Box<VoterRecord>> {
        self.vote.as_ref().map(|vote| vote.last_words(now))
    }

    fn take_in(&mut self, now: Time, from: NodeId, message: QuorumMessage) {
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
                self.session
                    .refused(now, from, (session, seq), certified.as_deref(), out);
            }
            QuorumMessage::Flush(charter) => {
                if let Some(vote) = &mut self.vote {
                    vote.part.learn_certified(charter.digest());
                }
                self.session.flush(from, *charter, out);
            }
            QuorumMessage::Install {
                epoch,
                digest,
                table,
            } => self.session.install(from, (epoch, digest), table, out),
            QuorumMessage::Cluster { cluster, voters } => {
                if let Some(vote) = &mut self.vote {
                    vote.part.hear_of(now, cluster);
                }
                self.session.introduced(from, cluster, voters, out);
            }
            to_voter => {
                if let Some(vote) = &mut self.vote {
                    vote.take_in(now, from, to_voter, &self.terms, out);
                }
            }
        }
    }

    /// Does what is due at once, and what this process says to itself.
    fn settle(&mut self, now: Time) -> Vec<Action> {
        loop {
            self.session.timeout(now, &mut self.out);
            let Some(message) = self.out.next_to_self() else {
                return self.out.take();
            };
            let me = self.out.me();
            self.take_in(now, me, message);
        }
    }
}
