//! What the operator of a world does, in order or by mistake. What he does where a majority of the voters has lost its
//! states is `recovery.rs`.

use super::acts::Act;
use super::{Result, SECOND, Trouble, World};
use crate::sealed::ROUNDS;

/// What an operator does in a world besides. Two of these at once may well leave a group without a quorum
/// for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Nothing,
    LosesAState,
    LosesStates,
    SetsVoters,
    ChangesFiles,
    Removes,
    SetsLease,
    ExchangesKey,
    AddsAHost,
}

impl Operator {
    pub(super) const ALL: [Self; 9] = [
        Self::Nothing,
        Self::LosesAState,
        Self::LosesStates,
        Self::SetsVoters,
        Self::ChangesFiles,
        Self::Removes,
        Self::SetsLease,
        Self::ExchangesKey,
        Self::AddsAHost,
    ];

    pub(super) fn loses_states(self) -> bool {
        matches!(self, Self::LosesAState | Self::LosesStates)
    }
}

impl World<'_> {
    /// What the operator of this world does to a host, and what to undo it.
    pub(super) fn operators_act(&mut self, host: usize) -> Option<(Act, Option<Act>)> {
        Some(match self.operator {
            Operator::Nothing => return None,
            Operator::LosesAState | Operator::LosesStates if self.has_lost => return None,
            Operator::LosesAState if self.voters.len() >= 5 && self.choices.chance(500) => {
                (Act::LoseSome, None)
            }
            Operator::LosesAState => (Act::LoseState(host), None),
            Operator::LosesStates if self.waits_for_holder() => return None,
            Operator::LosesStates => (Act::LoseStates, None),
            Operator::SetsVoters => (Act::SetVoters, None),
            Operator::ChangesFiles => (Act::ChangeFiles, None),
            Operator::Removes => (Act::Remove(host), Some(Act::Add(host))),
            Operator::ExchangesKey if std::mem::take(&mut self.exchanges_soon) => {
                (Act::ExchangeKey, None)
            }
            Operator::ExchangesKey => return None,
            Operator::AddsAHost if self.newcomer.is_none() => return None,
            Operator::AddsAHost => (Act::AddHost, None),
            Operator::SetsLease if self.kind == Trouble::Members => {
                let holder = self.judge.holder().unwrap_or(host);
                (Act::SetLeaseOfOthers(holder), Some(Act::SetLease))
            }
            Operator::SetsLease => (Act::SetLease, None),
        })
    }

    /// Whether a member that does not vote is to be inside when voters lose their states, and is not.
    pub(super) fn waits_for_holder(&self) -> bool {
        let votes = |host: usize| self.voters.contains(&(host + 1));
        self.kind == Trouble::Members
            && self.voters.len() < self.hosts
            && self.judge.holder().is_none_or(votes)
    }

    /// Whether a file must not have another lease: where all voters lose their states nobody may remember
    /// one that was longer (doc/fail-closed.md).
    pub(super) fn keeps_lease(&self) -> bool {
        self.operator == Operator::LosesStates
    }

    /// Whether the file of a host need not list all members: it knows them, or the cluster is being founded. Those
    /// that have forgotten the others might found without them.
    pub(super) fn may_list_fewer(&self, host: usize) -> bool {
        let knows = self.clusters.of(host).is_some() || self.kind == Trouble::Founding;
        let is_known = self.newcomer.is_none();
        self.is_troubled && knows && is_known && !self.operator.loses_states()
    }

    /// How many hosts the files list.
    pub(super) fn listed(&self) -> usize {
        self.hosts - usize::from(self.newcomer.is_some())
    }

    /// Hosts that an operator has vote: all but one, or some.
    pub(super) fn other_voters(&mut self) -> Vec<usize> {
        let left_out = self.choices.index(self.hosts + 1);
        let are_few = self.choices.chance(500);
        // A member that comes and goes with its runner is not made one of few voters (distlock(7),
        // Membership of a group).
        let mut able: Vec<_> = (0..self.hosts).collect();
        able.retain(|host| self.agentless != Some(*host));
        let mut voters = able.clone();
        voters.retain(|host| match are_few {
            true => self.choices.chance(400),
            false => *host != left_out,
        });
        if voters.is_empty() {
            voters.push(able[self.choices.index(able.len())]);
        }
        voters
    }

    /// The ids of the hosts that the group's files do not list as voters; some voters, if they list all.
    pub(super) fn unlisted_ids(&mut self) -> Vec<usize> {
        let mut others: Vec<_> = (1..=self.hosts).collect();
        others.retain(|host| !self.voters.contains(host));
        if others.is_empty() {
            return self.some_voters();
        }
        others
    }

    /// Has all files list other voters. Half of the time none of them was listed before, if that can be.
    pub(super) fn change_files(&mut self) -> Result<()> {
        self.voters = match self.choices.chance(500) {
            true => self.unlisted_ids(),
            false => self.some_voters(),
        };
        let each_takes = match self.choices.chance(500) {
            true => 0,
            false => self.choices.below(3 * SECOND),
        };
        let mut at = self.scheduler.now();
        for host in 0..self.hosts {
            self.configure(host, self.lease_ms, None)?;
            self.plan(at, Act::EndAgent(host));
            at += each_takes;
        }
        Ok(())
    }

    /// Has an operator say `distlock members …` on a host that has an agent, if there is one. `act`: what has
    /// been played when it was done.
    pub(super) fn change_members(
        &mut self,
        act: &'static str,
        change: &[String],
        not_on: Option<usize>,
    ) -> Result<()> {
        let agents = self.agents.keys().copied();
        let agents: Vec<_> = agents.filter(|host| Some(*host) != not_on).collect();
        if agents.is_empty() {
            return Ok(());
        }
        let host = agents[self.choices.index(agents.len())];
        let mut command = self.command(host, self.program)?;
        command.arg("members").args(change);
        let pid = self.scheduler.start(host, &mut command)?;
        // Whether it does so or not. A host more does not vote.
        if self.operator != Operator::AddsAHost {
            self.known_voters = None;
        }
        self.changes.insert(pid, act);
        Ok(())
    }

    /// The operator does not wait until all have taken over what he has written.
    pub(super) fn exchange_key(&mut self) {
        for host in 0..self.hosts {
            let mut at = self.scheduler.now();
            for round in 1..=ROUNDS {
                at += self.choices.below(4 * SECOND);
                self.plan(at, Act::GiveKeys(host, round));
            }
        }
    }

    /// The same by the book, which nobody is to notice: an agent looks at its file every second, by its own clock.
    /// Returns when all have the new key only.
    pub(super) fn exchange_key_in_peace(&mut self) -> u64 {
        let mut at = self.scheduler.now();
        for round in 1..=ROUNDS {
            for host in 0..self.hosts {
                let after = self.choices.below(SECOND / 2);
                self.plan(at + after, Act::GiveKeys(host, round));
            }
            at += 2 * SECOND;
        }
        at
    }

    pub(super) fn give_keys(&mut self, host: usize, round: usize) -> Result<()> {
        if self.scheduler.is_suspended(host) {
            let later = self.scheduler.now() + SECOND;
            self.plan(later, Act::GiveKeys(host, round));
        } else if self.key_rounds[host] < round {
            self.key_rounds[host] = round;
            self.write_key(host, true)?;
            if self.key_rounds.iter().all(|round| *round == ROUNDS) {
                let name = match self.is_quiet {
                    true => "key exchanged in peace",
                    false => "key exchanged",
                };
                *self.acts.entry(name).or_default() += 1;
            }
        }
        Ok(())
    }
}
