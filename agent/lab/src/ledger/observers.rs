//! Who observes who is inside, without wanting in.

use super::World;
use super::plan::Kind;
use crate::checkers::{Process, Violation, violation};
use distlock_protocol::LockName;
use distlock_protocol::ledger::{LedgerInput, LedgerLeader};

/// What an agent was told of a lock that it observes.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// The last leader, or that there was none; `None` before the first time.
    told: Option<Option<LedgerLeader>>,
    /// The highest fence of all leaders that were told.
    highest: u64,
}

impl World {
    /// On a host that has just been started somebody observes some locks.
    pub(super) fn observe_some(&mut self, process: Process) -> Result<(), Violation> {
        for (lock, _) in self.plan.locks.clone() {
            if self.choices.chance(self.plan.wishes.observes) {
                self.observe(process, lock, true)?;
            }
        }
        Ok(())
    }

    /// Somebody begins to observe a lock, or no longer does; now and then.
    pub(super) fn change_observed(&mut self, process: Process) -> Result<(), Violation> {
        if !self.choices.chance(self.plan.wishes.observes / 4) {
            return Ok(());
        }
        let at = self.choices.index(self.plan.locks.len());
        let (lock, _) = self.plan.locks[at].clone();
        let is_wanted = self.choices.chance(600);
        self.observe(process, lock, is_wanted)
    }

    fn observe(
        &mut self,
        process: Process,
        lock: LockName,
        is_wanted: bool,
    ) -> Result<(), Violation> {
        let agent = self.agents.get_mut(&process.node).expect("it runs there");
        if is_wanted {
            agent.observed.insert(lock.clone(), Observed::default());
        } else {
            agent.observed.remove(&lock);
        }
        self.input(process.node, LedgerInput::Observe { lock, is_wanted })
    }

    /// A ledger says who is inside.
    pub(super) fn leads(
        &mut self,
        process: Process,
        lock: &LockName,
        leader: Option<LedgerLeader>,
    ) -> Result<(), Violation> {
        let now = self.now;
        let agent = self.agents.get_mut(&process.node).expect("it runs there");
        let Some(observed) = agent.observed.get_mut(lock) else {
            let words = "says who is inside of a lock that nobody observes";
            return Err(violation!(now, Leaders, "{process} {words}: {lock:?}"));
        };
        if observed.told.as_ref() == Some(&leader) {
            let words = "says again who is inside";
            return Err(violation!(now, Leaders, "{process} {words} of {lock:?}"));
        }
        self.report.leaders += 1;
        if let Some(leader) = &leader {
            let fence = leader.fence;
            if !self.records.was_inside(lock, &leader.session, fence) {
                let words = "which it never was";
                return Err(violation!(
                    now,
                    Leaders,
                    "{process} says that {leader:?} is inside of {lock:?}, {words}"
                ));
            }
            // Where something is forgotten, the one before may come back.
            if self.plan.kind == Kind::Keeps && fence.as_u64() < observed.highest {
                let words = "though it knew of one after that";
                return Err(violation!(
                    now,
                    Leaders,
                    "{process} says that {leader:?} is inside of {lock:?}, {words}"
                ));
            }
            observed.highest = fence.as_u64();
        }
        observed.told = Some(leader);
        Ok(())
    }

    /// Nothing has changed for leases: everybody knows who is inside.
    pub(super) fn observers_know(&self) -> Result<(), Violation> {
        for agent in self.agents.values() {
            for (lock, observed) in &agent.observed {
                let record = self.store.record(lock);
                let inside = record.as_ref().and_then(|it| it.inside.first());
                let is_right = match (&observed.told, inside) {
                    (Some(Some(leader)), Some(claim)) => {
                        leader.session == claim.session && Some(leader.fence) == claim.fence
                    }
                    (Some(None), None) => true,
                    _ => false,
                };
                if !is_right {
                    return Err(violation!(
                        self.now,
                        Leaders,
                        "{} was told {observed:?} of {lock:?}, and inside is {inside:?}",
                        agent.process
                    ));
                }
            }
        }
        Ok(())
    }
}
