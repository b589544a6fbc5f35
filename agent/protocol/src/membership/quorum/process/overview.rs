//! The quorum as a process sees it: what its member hears, what its voter has endorsed, and, before
//! there is a cluster, what keeps one from being founded.

use alloc::vec::Vec;

use super::super::certificate::ViewChange;
use super::super::log::MakeLog;
use super::super::overview::{Absence, Missing, QuorumOverview};
use super::super::view_config::Voter;
use super::Quorum;
use crate::ids::NodeId;
use crate::time::Time;

impl<M: MakeLog + Clone> Quorum<M> {
    /// The quorum as this member sees it. `absent`: the members that are not up.
    pub(crate) fn overview(&self, now: Time, absent: &[NodeId]) -> QuorumOverview {
        let mut overview = self.session.overview(now, absent);
        overview.cluster = self.founding.affiliation().cluster_id();
        if self.session.exists() || overview.cluster.is_some() {
            let silent = overview.missing.iter_mut();
            let silent = silent.filter(|its| its.why == Absence::Silent);
            for its in silent.filter(|its| self.has_lost_its_vote(now, its.member)) {
                its.why = Absence::StateLost;
            }
            self.tell_of_lost_certificate(now, &mut overview);
            return overview;
        }
        let report = self.founding.report(now, &self.config);
        let mut report = report.unwrap_or_default();
        let is_early = now < self.began + self.config.lease / 2;
        let is_absent = |node: &&NodeId| !is_early || absent.contains(node);
        let of = |why| move |&member: &NodeId| Missing { member, why };
        let away = report
            .absent
            .iter()
            .filter(is_absent)
            .map(of(Absence::Unfounded));
        let unrecovered = report.without_permit.iter().map(of(Absence::Unrecovered));
        let mut missing: Vec<Missing> = away.chain(unrecovered).collect();
        if missing.is_empty() && !report.remember.is_empty() {
            let lost = self.config.voters.iter();
            missing.extend(lost.map(of(Absence::StateLost)));
        }
        let completed = self.vote.as_ref().and_then(|vote| vote.founds());
        let completed = completed.map(|(cluster, _)| cluster);
        let lost = self.founding.lost_voters(now, completed, self.config.lease);
        if let Some((node, cluster, lost)) = lost.filter(|_| missing.is_empty()) {
            report.remember.push((node, cluster.id()));
            missing.extend(lost.iter().map(of(Absence::StateLost)));
        }
        missing.sort_unstable();
        overview.voters = self.config.voters.iter().copied().collect();
        overview.suffices = missing.is_empty();
        overview.missing = missing;
        overview.is_founded = false;
        overview.founding = Some(report);
        overview
    }

    /// Whether a voter that answers no renewals is there, without the state in which it became one: its
    /// file may list others, so that it does not know that it is to vote.
    fn has_lost_its_vote(&self, now: Time, node: NodeId) -> bool {
        if node == self.out.me() {
            return self.vote.is_none();
        }
        let voters = self.founding.affiliation().voters().unwrap_or_default();
        let mut voters = voters.iter().filter(|voter| voter.node == node);
        voters.any(|voter| {
            self.founding
                .is_back_without_state(now, *voter, self.config.lease)
        })
    }

    /// The voter here may have endorsed a view that nobody can certify any more: too many have lost
    /// their states of those who vote in it, or of those who voted before. The log has decided on it, so
    /// that no other comes in its place; and who has endorsed it renews leases under it only. That a
    /// voter does not renew a lease is no sign of a lost state then: it may have endorsed that view, too.
    fn tell_of_lost_certificate(&self, now: Time, overview: &mut QuorumOverview) {
        let endorser = self.vote.as_ref().map(|vote| &vote.endorser);
        let open = endorser.filter(|it| it.is_settled() && it.certified().is_none());
        let Some(ViewChange {
            parent: Some(parent),
            view_config,
        }) = open
            .and_then(|endorser| endorser.endorsed())
            .map(|endorsed| &endorsed.view_change)
        else {
            return;
        };
        let is_lost = |voter: Voter| {
            let lease = self.config.lease;
            self.founding.is_back_without_state(now, voter, lease)
        };
        let mut both = [view_config, parent].into_iter();
        let lost = both.find(|its| !its.has_majority(|voter| !is_lost(voter)));
        let Some(view_config) = lost.filter(|_| !overview.is_leased) else {
            return;
        };
        let is_silent = |member| {
            let why = Absence::Silent;
            overview.missing.contains(&Missing { member, why })
        };
        let absence = |voter: &Voter| {
            let member = voter.node;
            let why = match is_lost(*voter) {
                true => Absence::StateLost,
                false if is_silent(member) => Absence::Silent,
                false => return None,
            };
            Some(Missing { member, why })
        };
        let missing = view_config.voters.iter().filter_map(absence).collect();
        overview.voters = view_config.voters.iter().map(|its| its.node).collect();
        overview.missing = missing;
        overview.suffices = false;
    }
}
