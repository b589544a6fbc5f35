//! What keeps a cluster from being founded.

use core::time::Duration;

use super::super::affiliation::Permit;
use super::super::config::QuorumConfig;
use super::super::coordinator::longest_lease;
use super::super::message::Stance;
use super::super::overview::FoundingReport;
use super::super::proposer::PASSES_EPOCHS;
use super::{FoundingPart, HEARD, Heard, digest_of, voters_of};
use crate::time::Time;

impl FoundingPart {
    /// What keeps a cluster from being founded by this file, and whose files differ; `None` if there is
    /// one.
    pub(in crate::membership::quorum) fn report(
        &self,
        now: Time,
        config: &QuorumConfig,
    ) -> Option<FoundingReport> {
        if self.own.membership().is_some() {
            return None;
        }
        let mut report = FoundingReport {
            is_under_way: self.own.accepted().is_some(),
            ..FoundingReport::default()
        };
        let permit = self.own.permit.as_ref().map(Permit::id);
        if !self.is_for_voters(config.voters.iter().copied()) {
            report.without_permit.push(self.me.node);
        }
        // Who is in a cluster says so once a lease only.
        let window = config.lease * HEARD;
        let is_heard = |heard: &&Heard| {
            let is_member = matches!(heard.status.stance, Stance::Member(_));
            let patience = if is_member { window } else { config.lease / 2 };
            now < heard.at + patience
        };
        let wait = self.wait(config);
        let mut until = self.started + wait;
        for node in self.parties(config).filter(|node| *node != self.me.node) {
            let heard = self.heard.get(&node);
            let Some(Heard { at, status }) = heard.filter(is_heard) else {
                report.absent.push(node);
                continue;
            };
            until = until.max(*at + wait.saturating_sub(status.running_for));
            report.is_under_way |=
                matches!(status.stance, Stance::Accepted(_) | Stance::Completed(_));
            if status.permit != permit {
                report.without_permit.push(node);
            }
        }
        let (voters, members) = (voters_of(config), digest_of(config));
        // So do members of which neither is to vote by the other's file.
        let differs = |heard: &Heard| {
            let (status, is_fresh) = (&heard.status, now < heard.at + window);
            is_fresh && (status.members != members || status.voters != voters)
        };
        let files = self.heard.iter().filter(|(_, heard)| differs(heard));
        report.differ = files.map(|(&node, _)| node).collect();
        let others = self.others_in_clusters(now, config);
        report.remember = others.map(|(node, cluster)| (node, cluster.id())).collect();
        report.waits_until = Some(until).filter(|until| now < *until);
        Some(report)
    }

    /// How long all must have been up: no lease that an incarnation before renewed runs any more, and
    /// the wall clock has passed the epoch of any view before.
    fn wait(&self, config: &QuorumConfig) -> Duration {
        longest_lease(self.longest_of_all(config)).max(PASSES_EPOCHS)
    }
}
