//! The layer above the logs, as far as a schedule has one: it wants views.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::{Group, MOST_VOTERS, host, voter};
use crate::checkers::Violation;
use distlock_protocol::membership::quorum::log::library::Library;
use distlock_protocol::membership::quorum::log::{
    LogAction, NotNow, Proposal, RaftLog, ViewLog, VoterId,
};
use distlock_protocol::{Epoch, Time};

impl<L: Library> Group<L> {
    /// Whoever leads is asked for the next view.
    pub(super) fn work(&mut self) -> Result<(), Violation> {
        let actors = self.hosts.actors();
        let leaders = actors.filter(|(_, voter)| voter.log.is_leader());
        let leaders: Vec<_> = leaders.map(|(node, _)| voter(node)).collect();
        self.stop_retired();
        if leaders.is_empty() {
            return Ok(());
        }
        let leader = leaders[self.hosts.choices.index(leaders.len())];
        let Some(log) = self.log(leader) else {
            return Ok(());
        };
        let decided = log.decided();
        let epoch = decided.map_or(Epoch::ZERO, |decided| decided.proposal.epoch);
        let voters = decided.map_or_else(
            || self.founders.clone(),
            |decided| decided.proposal.voters.clone(),
        );
        if self.hosts.choices.chance(self.plan.hand_overs) {
            let others: Vec<_> = voters.iter().filter(|voter| **voter != leader).collect();
            if others.is_empty() {
                return Ok(());
            }
            let to = *others[self.hosts.choices.index(others.len())];
            return self.lead(leader, |log, now, out| {
                // Busy, or no leader any more.
                let _ = log.hand_over(now, to, out);
            });
        }
        let mut wanted = voters.clone();
        if self.hosts.choices.chance(self.plan.changes) && !self.healed {
            self.change(&mut wanted);
        }
        let skip = if self.hosts.choices.chance(50) {
            1000
        } else {
            0
        };
        self.proposals += 1;
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&self.proposals.to_be_bytes());
        let proposal = Proposal {
            epoch: Epoch::new(epoch.as_u32() + 1 + skip).expect("few views"),
            digest,
            voters: wanted,
            view: digest[..8].to_vec(),
        };
        self.propose(leader, &voters, proposal)
    }

    fn propose(
        &mut self,
        leader: VoterId,
        voters: &BTreeSet<VoterId>,
        proposal: Proposal,
    ) -> Result<(), Violation> {
        let mut result = Ok(());
        let changes = proposal.voters != *voters;
        let heir = proposal.voters.first().copied();
        self.lead(leader, |log, now, out| {
            if let Some(decided) = log.decided() {
                let epoch = decided.proposal.epoch;
                log.installed(epoch);
            }
            result = log.propose(now, proposal, out);
            if let (Err(NotNow::RemovesLeader), Some(heir)) = (result, heir) {
                // Busy, or no leader any more.
                let _ = log.hand_over(now, heir, out);
            }
        })?;
        if result.is_ok() {
            self.report.proposed += 1;
            self.report.changes += u64::from(changes);
        }
        Ok(())
    }

    /// One more, or one less.
    fn change(&mut self, voters: &mut BTreeSet<VoterId>) {
        let all = self.voters();
        let fresh = VoterId(all.len() as u64 + 1);
        // One that was started for a proposal that came to nothing is as good as a fresh one.
        let mut all = all.into_iter();
        let unused = all.rfind(|voter| !self.checker.has_voted(*voter));
        let unused = unused.filter(|voter| !self.founders.contains(voter));
        if voters.len() < 7 && (voters.len() < 2 || self.hosts.choices.chance(500)) {
            if let Some(voter) = unused {
                voters.insert(voter);
            } else if fresh.0 <= MOST_VOTERS {
                self.add(fresh);
                voters.insert(fresh);
            }
        } else if voters.len() > 1 {
            let gone = *voters
                .iter()
                .nth(self.hosts.choices.index(voters.len()))
                .expect("an index");
            voters.remove(&gone);
        }
    }

    /// Of the removed voters some stop; the others trouble the group for longer.
    fn stop_retired(&mut self) {
        for me in self.voters() {
            let retired = self.log(me).is_some_and(ViewLog::retired);
            if retired && self.hosts.choices.chance(300) {
                self.report.stopped += 1;
                self.hosts.say(format_args!("{me} stops"));
                self.hosts.stop(host(me));
                self.stopped.insert(me);
            }
        }
    }

    fn lead(
        &mut self,
        leader: VoterId,
        act: impl FnOnce(&mut RaftLog<L>, Time, &mut Vec<LogAction>),
    ) -> Result<(), Violation> {
        match self.hosts.process(host(leader)) {
            Some(process) => self.with_log(process, act),
            None => Ok(()),
        }
    }
}
