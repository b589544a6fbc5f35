//! What a world is like: chosen from its seed.

use std::time::Duration;

use super::operator::Operator;
use super::{
    LONG_TROUBLED, LONGEST_LEASE_MS, Result, SECOND, SHORTEST_LEASE_MS, TROUBLED, Trouble, World,
};

impl World<'_> {
    /// Chooses what this world is like.
    pub(super) fn choose(&mut self) -> Result<()> {
        let operators = match self.kind {
            Trouble::Members => &Operator::ALL[1..],
            Trouble::Founding => &[
                Operator::Nothing,
                Operator::LosesAState,
                Operator::ChangesFiles,
                Operator::ExchangesKey,
            ],
            _ => Operator::ALL.as_slice(),
        };
        self.operator = operators[self.choices.index(operators.len())];
        if self.kind == Trouble::Members && self.operator == Operator::SetsLease {
            self.lease_ms = LONGEST_LEASE_MS;
        }
        self.is_sealed = self.operator == Operator::ExchangesKey || self.choices.chance(500);
        self.exchanges_soon = self.operator == Operator::ExchangesKey && self.choices.chance(500);
        // Those that serve several at a time.
        let serves_several = ["manager", "semaphore"].contains(&self.algorithm);
        match self.choices.below(3) {
            0 if serves_several => self.has_readers = true,
            1 if serves_several => self.permits = 2,
            _ => {}
        }
        self.judge.permits = self.permits;
        self.locks = 1 + usize::from(self.choices.chance(300));
        self.programs = if self.choices.chance(100) { 3 } else { 1 };
        // Where members are removed, or added, an agent must be left that can be asked for that.
        let changes_members = [Operator::Removes, Operator::AddsAHost].contains(&self.operator);
        let is_one_agentless = self.choices.chance(300) && !changes_members;
        self.agentless = is_one_agentless.then(|| self.choices.index(self.hosts));
        let differ = [Operator::LosesStates, Operator::ChangesFiles].contains(&self.operator);
        if self.kind == Trouble::Founding || differ {
            self.agentless = None;
            self.voters = self.some_voters();
        }
        if self.operator == Operator::AddsAHost {
            self.newcomer = Some(self.hosts - 1);
            self.voters.retain(|id| *id != self.hosts);
        }
        // More often, and little else befalls a host.
        self.cuts_at_sync = match self.kind {
            Trouble::All => 2,
            Trouble::Disks => 60,
            Trouble::Founding => 20,
            Trouble::Leases | Trouble::Wakes | Trouble::Members => 0,
        };
        let network = &mut self.scheduler.network;
        network.lost = self.choices.below(100) as u32;
        network.twice = self.choices.below(100) as u32;
        network.late = self.choices.below(10) as u32;
        network.delay = Duration::from_micros(50 + self.choices.below(5_000));
        let slowest = if self.choices.chance(250) {
            100_000
        } else {
            20_000
        };
        self.scheduler.disk_takes = Duration::from_micros(1 + self.choices.below(slowest));
        Ok(())
    }

    /// How late a host begins.
    pub(super) fn some_delay(&mut self) -> u64 {
        match self.choices.below(12) {
            0 => self.choices.below(LONG_TROUBLED),
            1 | 2 => self.choices.below(TROUBLED),
            _ => self.choices.below(3 * SECOND),
        }
    }

    /// By how much clocks gain: such whose rates differ by a tenth are none that leases can be measured by.
    pub(super) fn some_rate(&mut self) -> i64 {
        self.choices.below(90_000_000) as i64 - 45_000_000
    }

    pub(super) fn some_lease(&mut self) -> u64 {
        self.choices.within(SHORTEST_LEASE_MS..=LONGEST_LEASE_MS)
    }

    /// Some of the hosts, as voters.
    pub(super) fn some_voters(&mut self) -> Vec<usize> {
        let mut voters: Vec<_> = (1..=self.hosts).collect();
        voters.retain(|_| self.choices.chance(700));
        if voters.is_empty() {
            voters.push(1 + self.choices.index(self.hosts));
        }
        voters
    }
}
