//! What goes wrong: processes crash, stand still and leave, records are lost, networks part.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::operator::voters_of;
use super::{Act, Caller, Campaign};
use crate::checkers::{Process, Violation};
use crate::cluster::Forgery;
use distlock_protocol::membership::quorum::Voter;
use distlock_protocol::membership::quorum::log::{LogRecord, VoterId};
use distlock_protocol::{Command, Epoch, NodeId};

/// A member whose record was lost.
pub(super) struct Lost {
    node: NodeId,
    /// Where all are needed, a process that knew its former incarnation. That one must live until a
    /// view has it: if all who knew it were gone, nobody could know.
    witness: Option<Process>,
    /// Where it voted, which voter it was. None of the others may be lost before it is replaced: a
    /// view without it comes first, and the log needs it until then.
    voter: Option<VoterId>,
    /// Whether it was lost in the midst of an exchange of voters, in which no fewer may vote than before:
    /// no majority is lost with it.
    amid_exchange: bool,
}

impl Campaign {
    pub(super) fn start(&mut self, node: NodeId) -> Result<(), Violation> {
        if self.cluster.process(node).is_some() {
            return Ok(());
        }
        self.gone.remove(&node);
        let name = self.cluster_to_name(node);
        self.cluster.name_cluster(name);
        self.cluster.start(node)?;
        for number in 0..self.plan.callers.per_member {
            self.want_later(Caller { node, number });
        }
        Ok(())
    }

    pub(super) fn crash_some(&mut self) -> Result<(), Violation> {
        if self.calm {
            return Ok(());
        }
        self.plan_next(self.plan.faults.crash, Act::Crash);
        let members = self.members();
        let victims = if self.choices.chance(self.plan.faults.crash_all) {
            members
        } else {
            vec![members[self.choices.index(members.len())]]
        };
        for node in victims {
            self.crash(node);
        }
        Ok(())
    }

    pub(super) fn crash(&mut self, node: NodeId) {
        self.crash_and_forget(node, false);
    }

    /// What may befall a member between two of its steps.
    pub(super) fn strike_after_step(&mut self, process: Process) -> Result<(), Violation> {
        let node = process.node;
        let runs = self.cluster.process(node) == Some(process) && !self.cluster.is_paused(node);
        if self.calm || !runs {
            return Ok(());
        }
        let kinds = if self.by_quorum() { 5 } else { 4 };
        match self.choices.index(kinds) {
            1 => self.crash(node),
            2 => self.leave(node)?,
            3 => self.part_from_all(node),
            4 => self.pause(node),
            _ => {}
        }
        Ok(())
    }

    /// `surely`: its record is lost with it, where that is allowed, and not by chance.
    pub(super) fn crash_and_forget(&mut self, node: NodeId, surely: bool) {
        let Some(process) = self.cluster.process(node) else {
            return;
        };
        if self.is_witness(process) {
            return;
        }
        self.report.crashes += 1;
        let inside = self.inside.iter().any(|(whose, _)| *whose == process);
        self.report.crashes_inside += u64::from(inside);
        self.cluster.crash(node);
        self.note_end(process);
        if self.choices.chance(self.plan.faults.lost_record) || surely {
            self.lose_record(process);
        }
        self.forget(process);
        self.plan_start(node);
    }

    /// Takes the record of a process that has crashed from its disk, where that is allowed.
    fn lose_record(&mut self, process: Process) {
        // The others take who said good-bye for one that ended in order. That it was alone in
        // knowing of an abandoned grant is on its disk only.
        if self.leaving.contains(&process) {
            return;
        }
        let node = process.node;
        let lost = if self.by_quorum() {
            let may = self.epochs.contains_key(&process) && self.may_forget(node);
            may.then(|| Lost {
                node,
                witness: None,
                voter: self.log_of(node).map(|log| log.voter),
                amid_exchange: self.vote_at_least > 0,
            })
        } else {
            let witness = self.witness_of(process).filter(|_| self.lost.is_empty());
            witness.map(|witness| Lost {
                node,
                witness: Some(witness),
                voter: None,
                amid_exchange: false,
            })
        };
        if let Some(lost) = lost {
            self.report.lost_records += 1;
            self.lost.push(lost);
            self.report.lost_together += u64::from(self.lost.len() > 1);
            self.cluster.lose_record(node);
        }
    }

    /// Fewer than half of the voters may have lost their states, until others are in their places:
    /// with a majority that has forgotten what it endorsed, nothing is promised. That goes for the
    /// view before, too: a voter may be alone in knowing that what follows it is certified. None may
    /// while the cluster is founded, which is done by all. A member that does not vote may forget at
    /// any time.
    fn may_forget(&self, node: NodeId) -> bool {
        let record = self.cluster.disk(node).and_then(|disk| disk.voter.as_ref());
        let Some(view_change) = record.and_then(|record| record.endorsed.as_ref()) else {
            return record.is_none();
        };
        let forgetful = 1 + self.forgetful();
        let remember = |voters: usize| voters.max(self.vote_at_least) > 2 * forgetful;
        if !self.fewest_voters().is_none_or(remember) {
            return false;
        }
        let newest = self.newest_view_config();
        let view_configs = [
            Some(&view_change.view_config),
            view_change.parent.as_ref(),
            newest,
        ];
        let deciding = self.log_of(node).and_then(LogRecord::deciding);
        view_configs.into_iter().all(|view_config| {
            view_config.is_some_and(|view_config| {
                remember(view_config.voters.len()) && remember(voters_of(&view_config.overrides))
            })
        }) && deciding.is_some_and(remember)
    }

    /// How many voters have lost their states, and are not replaced yet.
    pub(super) fn forgetful(&self) -> usize {
        self.lost.iter().filter(|lost| lost.voter.is_some()).count()
    }

    /// Whether faults left the newest view without a majority of voters that have their states. Faults
    /// can take the states of all voters at once. Or they take those of a minority while the next view,
    /// with fewer voters, is on its way: then that minority is half of them.
    pub(super) fn was_majority_lost(&self) -> bool {
        let is_lost = |voter: &Voter| {
            let mut lost = self.lost.iter();
            self.memory_of(*voter).is_none()
                && lost
                    .any(|its| its.node == voter.node && its.voter.is_some() && !its.amid_exchange)
        };
        let newest = self.newest_view_config();
        self.report.lost_majorities > 0
            || newest.is_some_and(|newest| !newest.has_majority(|voter| !is_lost(&voter)))
    }

    /// The log of a voter's, as its disk has it.
    fn log_of(&self, node: NodeId) -> Option<&LogRecord> {
        self.cluster.disk(node)?.voter.as_ref()?.log.as_ref()
    }

    /// Who votes in the view of `epoch`, as any disk tells.
    pub(super) fn voters_of(&self, epoch: Epoch) -> Option<&[Voter]> {
        let disks = self
            .cluster
            .members()
            .filter_map(|node| self.cluster.disk(node));
        let mut view_configs = disks.filter_map(|disk| disk.voter.as_ref()?.view_config());
        let view_config = view_configs.find(|view_config| view_config.epoch == epoch);
        view_config.map(|view_config| view_config.voters.as_slice())
    }

    /// A view is in force in `process`. Who lost its record has one again when it is in a view; who
    /// voted is replaced when no voter's log counts on it any more.
    pub(super) fn note_found(&mut self, process: Process, epoch: Epoch) {
        self.newest = self.newest.max(epoch);
        let mut lost = core::mem::take(&mut self.lost);
        lost.retain(|lost| !self.is_found(lost, process, epoch));
        self.lost = lost;
    }

    fn is_found(&self, lost: &Lost, process: Process, epoch: Epoch) -> bool {
        let Some(voter) = lost.voter else {
            return process.node == lost.node;
        };
        self.voters_of(epoch).is_some_and(|voters| {
            let mut logs = voters.iter().map(|its| self.log_of(its.node));
            logs.all(|log| log.is_some_and(|log| !log.counts_on(voter)))
        })
    }

    pub(super) fn is_witness(&self, process: Process) -> bool {
        self.lost.iter().any(|lost| lost.witness == Some(process))
    }

    /// Another process that was in a view with `process`, and runs.
    pub(super) fn witness_of(&self, process: Process) -> Option<Process> {
        let epoch = self.epochs.get(&process)?;
        let running = self
            .cluster
            .members()
            .filter_map(|node| self.cluster.process(node));
        running
            .filter(|other| *other != process && !self.leaving.contains(other))
            .find(|other| self.epochs.get(other) == Some(epoch))
    }

    pub(super) fn leave_one(&mut self) -> Result<(), Violation> {
        if self.calm {
            return Ok(());
        }
        self.plan_next(self.plan.faults.leave, Act::Leave);
        let members = self.members();
        let all = self.by_quorum() && self.choices.chance(self.plan.faults.leave_all);
        let leavers = if all {
            members
        } else {
            vec![members[self.choices.index(members.len())]]
        };
        for node in leavers {
            // Nobody can tell a host that stands still.
            if !self.cluster.is_paused(node) {
                self.leave(node)?;
            }
        }
        Ok(())
    }

    pub(super) fn pause_one(&mut self) {
        if self.calm {
            return;
        }
        self.plan_next(self.plan.faults.pause, Act::Pause);
        let members = self.members();
        let node = members[self.choices.index(members.len())];
        self.pause(node);
    }

    fn pause(&mut self, node: NodeId) {
        if self.cluster.pause(node) {
            self.report.pauses += 1;
            let paused = self.choices.exponential(self.plan.faults.paused);
            self.cluster.plan(paused, Act::Resume(node));
        }
    }

    pub(super) fn leave(&mut self, node: NodeId) -> Result<(), Violation> {
        let Some(process) = self.cluster.process(node) else {
            return Ok(());
        };
        if !self.is_witness(process) && self.leaving.insert(process) {
            self.report.leaves += 1;
            // What is inside ends by leaving; what waits will be refused.
            let (asked, inside) = (&mut self.asked, &self.inside);
            asked.retain(|key, _| key.0 != process || !inside.contains(key));
            self.inside.retain(|(whose, _)| *whose != process);
            self.cluster.command(node, &Command::Leave)?;
        }
        Ok(())
    }

    /// What ended with `process`.
    pub(super) fn forget(&mut self, process: Process) {
        self.leaving.remove(&process);
        self.epochs.remove(&process);
        self.asked.retain(|(whose, _), _| *whose != process);
        self.inside.retain(|(whose, _)| *whose != process);
        self.campaigns.retain(|(whose, _)| *whose != process);
        self.note_end(process);
    }

    fn note_end(&mut self, process: Process) {
        if self.wishes.contains_key(&process) {
            self.ended.insert(process, self.cluster.now());
        }
    }

    pub(super) fn part(&mut self) {
        if self.calm {
            return;
        }
        self.plan_next(self.plan.faults.partition, Act::Part);
        self.plan_join();
        let members = self.members();
        if self.by_quorum() && members.len() > 3 && self.choices.chance(200) {
            return self.part_into_ring(&members);
        }
        let (one, other): (Vec<NodeId>, Vec<NodeId>) =
            if self.by_quorum() && self.choices.chance(300) {
                // Two members that do not reach each other, though all others do.
                [0; 2]
                    .map(|_| vec![members[self.choices.index(members.len())]])
                    .into()
            } else {
                members.iter().partition(|_| self.choices.chance(500))
            };
        self.part_between(&one, &other);
    }

    fn plan_join(&mut self) {
        let parted = self.choices.exponential(self.plan.faults.parted);
        self.cluster.plan(parted, Act::Join);
        self.report.partitions += 1;
    }

    /// Both directions between the two sides, or one of them.
    fn part_between(&mut self, one: &[NodeId], other: &[NodeId]) {
        let directions = self.choices.below(3);
        self.cluster.network().part(one, other, directions);
    }

    /// One member reaches no other for a while, is reached by none, or both.
    fn part_from_all(&mut self, node: NodeId) {
        self.plan_join();
        let mut others = self.members();
        others.retain(|other| *other != node);
        self.part_between(&[node], &others);
    }

    /// Each reaches its neighbours, which are a majority with it, and no two of them the same.
    fn part_into_ring(&mut self, members: &[NodeId]) {
        let count = members.len();
        let reach = count.div_ceil(2) / 2;
        for (i, &a) in members.iter().enumerate() {
            for (j, &b) in members.iter().enumerate() {
                let apart = i.abs_diff(j);
                if apart.min(count - apart) > reach {
                    self.cluster.network().cut(a, b);
                }
            }
        }
    }

    pub(super) fn forge(&mut self) {
        if self.calm {
            return;
        }
        self.plan_next(self.plan.faults.forge, Act::Forge);
        self.report.forged += 1;
        self.cluster.forge(Forgery {
            which: self.choices.index(256),
            at: self.choices.index(1 << 16),
            byte: self.choices.index(256) as u8,
            cuts: self.choices.chance(500),
        });
    }

    pub(super) fn plan_start(&mut self, node: NodeId) {
        let away = self.choices.exponential(self.plan.faults.away);
        self.cluster.plan(away, Act::Start(node));
    }

    pub(super) fn plan_next(&mut self, mean: Option<Duration>, act: Act) {
        if let Some(mean) = mean {
            let after = self.choices.exponential(mean);
            self.cluster.plan(after, act);
        }
    }
}
