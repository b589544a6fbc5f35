//! The phases of a run: unrest, calm, one more round for everybody, and the end of all.

use core::time::Duration;

use super::{Act, Caller, Campaign, FOUNDING};
use crate::checkers::{Violation, violation};
use distlock_protocol::{Node, NodeId, Time, Wait};

/// Within which everybody must be served once faults have stopped, besides two leases and the time
/// that those before are inside. Much longer than it ever takes, since a run ends as soon as all is
/// done.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often at most everybody enters once more before all must have been told.
const ROUNDS: u32 = 3;
impl Campaign {
    /// For how long nothing goes wrong but with the network, so that a group is founded: that takes
    /// longer than most leases here. In one run of eight everything goes wrong from the start.
    pub(super) fn founding(&mut self) -> Duration {
        if !self.by_quorum() || self.choices.chance(125) {
            return Duration::ZERO;
        }
        let lease = self.plan.settings.lease;
        FOUNDING.max(lease * 2) + lease * 4
    }

    pub(super) fn unrest(&mut self) -> Result<(), Violation> {
        let lease = self.plan.settings.lease;
        for node in self.members() {
            // Hosts are not switched on at the same instant.
            let after = self.choices.duration(Duration::ZERO..=lease / 10);
            self.cluster.plan(after, Act::Start(node));
        }
        let founded = self.cluster.now() + self.founding();
        while self.epochs.is_empty()
            && let Some(turn) = self.cluster.next(founded)?
        {
            self.take(turn)?;
        }
        let faults = self.plan.faults;
        self.plan_next(faults.crash, Act::Crash);
        self.plan_next(faults.leave, Act::Leave);
        self.plan_next(faults.partition, Act::Part);
        self.plan_next(faults.pause, Act::Pause);
        self.plan_next(faults.operate, Act::Operate);
        self.plan_next(faults.forge, Act::Forge);
        if self.lies.is_some() {
            self.cluster.plan(Duration::ZERO, Act::Elect);
        }
        let end = self.cluster.now() + self.plan.unrest.lasts;
        let until_spent = self.plan.unrest.until_spent;
        while self.report.grants < self.plan.unrest.grants
            && !(until_spent && self.choices.is_spent())
            && let Some(turn) = self.cluster.next(end)?
        {
            self.take(turn)?;
        }
        Ok(())
    }

    /// Ends all faults: from now on everybody runs, and nothing more goes wrong.
    pub(super) fn calm_down(&mut self) -> Result<(), Violation> {
        self.calm = true;
        self.choices.end_search();
        self.cluster.say(format_args!("--- faults stop ---"));
        self.cluster.network().heal();
        let mended = self.cluster.mend_file();
        for node in self.members() {
            self.cluster.resume(node);
            if self.cluster.process(node).is_none() {
                self.start(node)?;
            } else if mended == Some(node) {
                self.report.odd_files += 1;
                self.restart(node)?;
            }
        }
        Ok(())
    }

    /// Every member enters every lock once more, and everybody who waited is served. Who ended inside
    /// before is told of then.
    pub(super) fn last_round(&mut self) -> Result<(), Violation> {
        // All who wait now may wait for one lock, one after the other.
        let many = u32::try_from(self.asked.len()).unwrap_or(u32::MAX);
        let turns = self.plan.callers.stay.saturating_mul(many) * 3;
        let patience = PATIENCE + self.plan.settings.lease * 2 + turns;
        let end = self.cluster.now() + patience;
        // Members that were leaving when the faults stopped come back first.
        while self.cluster.members().any(|node| self.is_away(node)) {
            let Some(turn) = self.cluster.next(end)? else {
                return Err(self.late("a member that leaves has not come back"));
            };
            self.take(turn)?;
        }
        if self.by_quorum() {
            self.repair()?;
        }
        let end = self.cluster.now() + patience;
        // Those who wait are served though nobody asks anew.
        self.settle(end)?;
        for _ in 0..ROUNDS {
            let lost = self.report.lost;
            self.everybody_enters(end)?;
            // What was decided before may end somebody inside yet: of that the next round tells.
            if self.report.lost == lost {
                return self.cluster.checkers().all_told(self.cluster.now());
            }
        }
        Err(self.late("holders are excluded again and again"))
    }

    /// Every member enters every lock once.
    fn everybody_enters(&mut self, end: Time) -> Result<(), Violation> {
        for node in self.members() {
            for lock in 0..self.plan.locks.len() {
                let caller = Caller {
                    node,
                    number: u16::MAX,
                };
                self.ask(caller, lock, Wait::Cancelled)?;
            }
        }
        self.settle(end)
    }

    /// Goes on until nobody waits, nobody is inside, nobody is suspected, and all are in one view.
    fn settle(&mut self, end: Time) -> Result<(), Violation> {
        while !self.is_settled() {
            let Some(turn) = self.cluster.next(end)? else {
                self.cluster.checkers().at_rest(self.cluster.now())?;
                return Err(self.late("somebody is still inside, or in no view with all others"));
            };
            self.take(turn)?;
        }
        Ok(())
    }

    pub(super) fn everybody_leaves(&mut self) -> Result<(), Violation> {
        let end = self.cluster.now() + PATIENCE;
        self.closing = true;
        for node in self.members() {
            self.leave(node)?;
        }
        while !self.leaving.is_empty() {
            let Some(turn) = self.cluster.next(end)? else {
                return Err(self.late("members do not come to the end of leaving"));
            };
            self.take(turn)?;
        }
        Ok(())
    }

    pub(super) fn is_away(&self, node: NodeId) -> bool {
        let process = self.cluster.process(node);
        !self.gone.contains(&node) && process.is_none_or(|it| self.leaving.contains(&it))
    }

    /// Whether nothing is left to wait for.
    fn is_settled(&self) -> bool {
        self.asked.is_empty()
            && self.inside.is_empty()
            && self.are_together()
            && self.cluster.checkers().at_rest(self.cluster.now()).is_ok()
    }

    /// Whether all members are in one view.
    pub(super) fn are_together(&self) -> bool {
        let mut views = self
            .cluster
            .members()
            .map(|node| self.cluster.node(node).and_then(Node::view));
        let first = views.next().flatten();
        let is_whole = first.is_some_and(|it| it.members.len() == self.members().len());
        is_whole && views.all(|view| view == first)
    }

    pub(super) fn late(&self, what: &str) -> Violation {
        violation!(
            self.cluster.now(),
            Progress,
            "{what}, long after the faults stopped"
        )
    }
}
