//! Which cluster a process is in: how it founds one, joins it, or leaves it for another.

use alloc::boxed::Box;

use super::super::affiliation::Membership;
use super::super::certificate::ViewChange;
use super::super::founding::Progress;
use super::super::log::MakeLog;
use super::super::message::{ClusterNotice, QuorumMessage};
use super::super::view_config::{Digest, ViewConfig, Voter};
use super::super::voter::VoterRole;
use super::Quorum;
use crate::ids::NodeId;
use crate::membership::Member;
use crate::time::Time;

impl<M: MakeLog + Clone> Quorum<M> {
    /// A voter that is asked to endorse a view of a cluster that is not its own does not.
    pub(super) fn may_vote_in(&self, view_change: &ViewChange) -> bool {
        let cluster = view_change.view_config.cluster;
        let ours = self.founding.affiliation().cluster();
        ours.is_none_or(|ours| ours == cluster) && self.config.allows(cluster)
    }

    /// Another member says which cluster it is in.
    pub(super) fn on_cluster(&mut self, now: Time, from: NodeId, notice: &ClusterNotice) {
        let theirs = &notice.membership;
        self.founding.hear_of_cluster(now, from, theirs.cluster);
        self.founding.hear_of_epoch(theirs.epoch);
        let follows = self.follows(now, notice);
        let out = &mut self.out;
        match self.founding.affiliation().cluster() {
            _ if !self.config.allows(theirs.cluster) => {
                self.session.met_stranger(from, theirs, out);
            }
            Some(ours) if ours == theirs.cluster => self.session.introduced(from, theirs),
            Some(_) if follows => {
                // Whatever this member had there is over, and it was not there when its voters lost
                // their states: it lives anew, in the other cluster.
                self.founding.follow(theirs.clone(), out);
                if let Some(vote) = &mut self.vote {
                    let me = Member {
                        node: out.me(),
                        incarnation: vote.endorser.incarnation,
                    };
                    let birth = self.founding.affiliation().birth;
                    vote.begin_anew((me, birth), &self.config, now, out);
                }
                self.session.abandon(theirs.epoch, out);
                self.session.introduced(from, theirs);
            }
            // What was accepted here may come to be or not: its voters say so when they are asked.
            Some(_) if self.founding.affiliation().accepted().is_some() => {}
            Some(_) => self.session.met_stranger(from, theirs, out),
            None => self.session.introduced(from, theirs),
        }
    }

    /// Whether this member leaves its cluster, or the founding that it accepted, for that one: an
    /// operator has abandoned its cluster for it, or more than half of the voters that it remembers
    /// have lost their states, and vote there.
    fn follows(&self, now: Time, notice: &ClusterNotice) -> bool {
        let affiliation = self.founding.affiliation();
        let Some((cluster, voters)) = affiliation.cluster().zip(affiliation.voters()) else {
            return false;
        };
        let theirs = &notice.membership.voters;
        let is_reborn_there = |voter: &&Voter| {
            let mut there = theirs.iter();
            there.any(|its| its.node == voter.node && its.birth > voter.birth)
        };
        let reborn = voters.iter().filter(is_reborn_there).count();
        let is_abandoned = notice.abandons.contains(&cluster.id());
        (is_abandoned || 2 * reborn > voters.len()) && self.session.until() <= now
    }

    /// What has become of the founding that this member takes part in, and what follows.
    pub(super) fn found(&mut self, now: Time) {
        if self.session.is_in_view() {
            return;
        }
        if let Some(membership) = self.founding.affiliation().membership() {
            let cluster = membership.cluster;
            return self.go_live_again(now, cluster);
        }
        if self.vote.is_none() && self.founding.founds_as_voter() {
            self.begin_to_vote(now);
        }
        let completed = self.vote.as_ref().and_then(|vote| vote.founds());
        let lease = self.config.lease;
        match self.founding.progress(now, completed, lease, &mut self.out) {
            Some(Progress::Complete(founding)) => {
                if let Some(vote) = &mut self.vote {
                    vote.complete(now, &founding, &mut self.out);
                }
            }
            Some(Progress::Live(cluster)) => self.go_live(now, cluster),
            Some(Progress::GivenUp(cluster)) => {
                if let Some(vote) = &mut self.vote
                    && vote.founds().is_some_and(|(its, _)| its == cluster)
                {
                    vote.forget_founding(&mut self.out);
                }
            }
            None => {}
        }
        if let Some(founding) = self.founding.found(now, &self.config) {
            let me = self.out.me();
            self.out.send(me, QuorumMessage::Found(Box::new(founding)));
        }
    }

    /// The cluster is live, so its first view is certified: that goes to the disk after it.
    fn go_live(&mut self, now: Time, cluster: Digest) {
        let Some(first) = self.first_view(cluster) else {
            return;
        };
        self.founding.join(Membership::of(&first), &mut self.out);
        self.session.recall(&first.voters);
        self.certify(now, &first);
    }

    /// A record may say that the cluster is live, and not yet that its first view is certified. All voters
    /// had to endorse that view: where one has lost its state, they cannot tell each other so again.
    fn go_live_again(&mut self, now: Time, cluster: Digest) {
        let is_open = |vote: &VoterRole<M>| vote.endorser.certified().is_none();
        if self.vote.as_ref().is_some_and(|vote| is_open(vote))
            && let Some(first) = self.first_view(cluster)
        {
            self.certify(now, &first);
        }
    }

    /// The first view of a cluster, if this voter has endorsed it, and nothing since.
    fn first_view(&self, cluster: Digest) -> Option<ViewConfig> {
        let vote = self.vote.as_ref()?;
        let ViewChange {
            parent,
            view_config,
        } = &vote.endorser.endorsed()?.view_change;
        (parent.is_none() && view_config.cluster == cluster).then(|| view_config.clone())
    }

    fn certify(&mut self, now: Time, view_config: &ViewConfig) {
        if let Some(vote) = &mut self.vote {
            vote.endorser.learn_certified(view_config);
            vote.tick(now, &self.config, &self.session.voters(), &mut self.out);
        }
    }

    pub(super) fn begin_to_vote(&mut self, now: Time) {
        let me = Member {
            node: self.out.me(),
            incarnation: self.founding.incarnation(),
        };
        let birth = self.founding.affiliation().birth;
        let record = (None, self.session.epoch());
        let mut vote = VoterRole::new((me, birth), &self.config, record, self.make.clone(), now);
        vote.begin(&mut self.out);
        self.vote = Some(Box::new(vote));
    }
}
