//! The quorum as this member sees it: who votes, and who of them is missing.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Session, nodes};
use crate::ids::NodeId;
use crate::membership::quorum::overview::{Absence, Missing, QuorumOverview};
use crate::time::Time;

impl Session {
    /// The quorum as this member sees it. Before there is a cluster all voters must be there; after
    /// that a voter that has lost its state counts for nothing, though it answers.
    /// `absent`: the members that are not up.
    pub(in crate::membership::quorum) fn overview(
        &self,
        now: Time,
        absent: &[NodeId],
    ) -> QuorumOverview {
        // Whom others have told of, and not whom the file of one lists that is in no view.
        let is_told = self.known.is_none() && !self.told.is_empty();
        let mut voters = if is_told {
            self.told.clone()
        } else {
            self.voters()
        };
        voters.sort_unstable();
        let patience = self.lease / 2;
        let exists = self.exists();
        let is_founded = exists || !self.recorded.is_empty();
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
            cluster: None,
            founding: None,
        }
    }

    /// Whether there has been a view of this group.
    pub(in crate::membership::quorum) fn exists(&self) -> bool {
        self.known.is_some() || !self.told.is_empty()
    }

    /// Whether a voter has known of no view for so long that it must have lost its state.
    fn is_ignorant(&self, now: Time, node: NodeId) -> bool {
        let since = self.ignorant.get(&node);
        since.is_some_and(|since| *since + self.lease / 2 <= now)
    }

    /// Those who are to vote, and whether each does, as far as is known; empty before there is a view.
    pub(in crate::membership::quorum) fn votes(&self, now: Time) -> BTreeMap<NodeId, bool> {
        if !self.exists() {
            return BTreeMap::new();
        }
        let voters = match &self.known {
            Some(known) => nodes(&known.view_config.voters),
            None => self.told.clone(),
        };
        let all = self.overrides.wanted_voters().chain(voters.iter().copied());
        all.map(|node| (node, voters.contains(&node) && !self.is_ignorant(now, node)))
            .collect()
    }
}
