//! What befalls agents, their connections and the store.

use alloc::vec::Vec;
use core::time::Duration;

use super::plan::Kind;
use super::{Local, Planned, World};
use crate::checkers::{Process, Violation};
use distlock_protocol::ledger::{Key, LedgerInput};
use distlock_protocol::{NodeId, Time};

/// Something that befalls somebody.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// An agent ends without a word.
    Crash,
    /// One is started.
    Restart(NodeId),
    /// A host stands still.
    Pause,
    /// It goes on.
    Resume(NodeId),
    /// A connection breaks.
    Cut,
    /// The store goes away.
    Outage,
    /// It is back; and whether it has less than it had.
    Return,
    /// An agent is told to close.
    Close,
    /// A hint comes for nothing.
    Hint,
    /// A wall clock is set.
    SetWall,
}

impl World {
    pub(super) fn plan_faults(&mut self) {
        let faults = self.plan.faults;
        self.plan_fault(faults.crash, Fault::Crash);
        self.plan_fault(faults.pause, Fault::Pause);
        self.plan_fault(faults.cut, Fault::Cut);
        self.plan_fault(faults.outage, Fault::Outage);
        self.plan_fault(faults.close, Fault::Close);
        self.plan_fault(faults.spurious, Fault::Hint);
        self.plan_fault(faults.set_wall, Fault::SetWall);
    }

    fn plan_fault(&mut self, mean: Option<Duration>, fault: Fault) {
        if let Some(mean) = mean {
            let after = self.choices.exponential(mean);
            self.plan_in(after, Planned::Fault(fault));
        }
    }

    fn any_process(&mut self) -> Process {
        let at = self.choices.index(self.agents.len());
        let mut agents = self.agents.values();
        agents.nth(at).expect("an index").process
    }

    /// Something befalls somebody.
    pub(super) fn fault(&mut self, fault: Fault) -> Result<(), Violation> {
        // What makes up for a fault is done also when there are none any more.
        match fault {
            Fault::Restart(_) if self.is_last_round => {}
            Fault::Restart(node) => self.start(node),
            Fault::Resume(node) => self.resume(node)?,
            Fault::Return => self.store_returns(false),
            _ if self.is_healed => {}
            fault => {
                self.befalls(fault)?;
                let faults = self.plan.faults;
                let mean = match fault {
                    Fault::Crash => faults.crash,
                    Fault::Pause => faults.pause,
                    Fault::Cut => faults.cut,
                    Fault::Outage => faults.outage,
                    Fault::Close => faults.close,
                    Fault::Hint => faults.spurious,
                    _ => faults.set_wall,
                };
                self.plan_fault(mean, fault);
            }
        }
        Ok(())
    }

    fn befalls(&mut self, fault: Fault) -> Result<(), Violation> {
        let process = self.any_process();
        let lease = self.plan.longest_lease();
        match fault {
            Fault::Crash => {
                self.crash(process);
                let after = self.choices.exponential(lease);
                self.plan_in(after, Planned::Fault(Fault::Restart(process.node)));
            }
            Fault::Pause => {
                let now = self.now;
                let agent = self.agents.get_mut(&process.node).expect("one of them");
                if agent.ledger.is_some() && agent.paused.is_none() {
                    agent.paused = Some((now, Vec::new()));
                    self.report.pauses += 1;
                    self.say(format_args!("{process} stands still"));
                    let lasts = self.choices.exponential(lease);
                    let resume = Planned::Fault(Fault::Resume(process.node));
                    self.plan_in(lasts, resume);
                }
            }
            Fault::Cut => {
                let agent = &self.agents[&process.node];
                if let Some(connection) = agent.connection {
                    let breaks = Local::Break(connection);
                    self.plan_for(Duration::ZERO, process, breaks);
                }
            }
            Fault::Outage if !self.is_away => self.store_leaves(),
            Fault::Close => {
                self.plan_for(Duration::ZERO, process, Local::Close);
                let after = self.choices.exponential(lease) + lease;
                self.plan_in(after, Planned::Fault(Fault::Restart(process.node)));
            }
            Fault::Hint => {
                let keys: Vec<Key> = self.locks.keys().cloned().collect();
                let key = &keys[self.choices.index(keys.len())];
                self.hint(key);
            }
            Fault::SetWall => {
                let wall = self.choices.duration(Duration::ZERO..=lease * 40);
                let wall = Duration::from_secs(60_000_000) + wall;
                let agent = self.agents.get_mut(&process.node).expect("one of them");
                agent.wall = wall;
                if agent.paused.is_none() {
                    let wall = wall + self.now.since(Time::ZERO);
                    self.input(process.node, LedgerInput::Wall(wall))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn crash(&mut self, process: Process) {
        let agent = &self.agents[&process.node];
        if agent.ledger.is_none() {
            return;
        }
        let is_inside = agent.callers.values().any(|caller| caller.is_inside);
        self.report.crashes += 1;
        self.report.crashes_inside += u64::from(is_inside);
        self.say(format_args!("{process} crashes"));
        let session = self.agents[&process.node].session.as_ref();
        self.judge.crashes(self.now, process, session, &self.store);
        self.stop(process.node);
    }

    fn resume(&mut self, node: NodeId) -> Result<(), Violation> {
        let agent = self.agents.get_mut(&node).expect("one of them");
        let Some((since, waiting)) = agent.paused.take() else {
            return Ok(());
        };
        let lease = agent.lease;
        self.report.long_pauses += u64::from(self.now.since(since) > lease);
        self.say(format_args!("{node} goes on"));
        for (process, local) in waiting {
            self.queue.plan(self.now, Planned::For(process, local));
        }
        Ok(())
    }

    fn store_leaves(&mut self) {
        self.is_away = true;
        self.boot += 1;
        self.report.outages += 1;
        self.say(format_args!("the store goes away"));
        let connected = self.agents.values();
        let connected: Vec<(Process, u64)> = connected
            .filter_map(|agent| Some((agent.process, agent.connection?)))
            .collect();
        for (process, connection) in connected {
            self.plan_for(Duration::ZERO, process, Local::Break(connection));
        }
        let lease = self.plan.longest_lease();
        let least = match self.plan.kind {
            Kind::Forgets | Kind::Restored => lease,
            _ => Duration::ZERO,
        };
        let lasts = least + self.choices.exponential(lease / 2);
        self.plan_in(lasts, Planned::Fault(Fault::Return));
    }

    pub(super) fn store_returns(&mut self, is_early: bool) {
        if !self.is_away {
            return;
        }
        self.is_away = false;
        let keeps = is_early && self.plan.kind != Kind::ForgetsAtOnce;
        let written = self.store.written();
        if self.plan.kind.rolls_back() && !keeps && written > 0 && self.choices.chance(800) {
            // Mostly the last few, as it is with stores that forget.
            let most = [3, 10, written + 1][self.choices.index(3)].min(written);
            let forgets = self.choices.below(most as u64 + 1) as usize;
            self.store.forget(self.now, forgets);
            self.report.rollbacks += u64::from(forgets > 0);
            self.say(format_args!("the store is back, without {forgets} writes"));
            let at_once = self.plan.kind == Kind::ForgetsAtOnce;
            let until = self.now + self.plan.longest_lease();
            self.judge
                .forgets(at_once.then_some(until), &self.store, self.boot);
            self.records.forgets(&self.store);
        } else {
            self.say(format_args!("the store is back"));
        }
    }

    /// Has an agent run on every host.
    pub(super) fn start_all(&mut self) -> Result<(), Violation> {
        let nodes: Vec<NodeId> = self.agents.keys().copied().collect();
        for node in nodes {
            self.resume(node)?;
            self.start(node);
        }
        Ok(())
    }

    /// Has all agents close.
    pub(super) fn close_all(&mut self) {
        let processes: Vec<Process> = self.agents.values().map(|it| it.process).collect();
        for process in processes {
            self.plan_for(Duration::ZERO, process, Local::Close);
        }
    }
}
