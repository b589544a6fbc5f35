//! What goes wrong: processes crash, stand still and leave, disks are lost, networks part.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::lock::Lock;
use super::logs::Logs;
use super::world::{Happening, Running, World};
use crate::checkers::{Process, Violation};
use crate::clock::Clock;
use distlock_protocol::ids::Incarnation;
use distlock_protocol::membership::Member;
use distlock_protocol::membership::quorum::{
    Affiliation, Quorum, QuorumConfig, RecoveredState, ViewConfig, VoterRecord,
};
use distlock_protocol::{Change, NodeId, Time};

/// What the wall clock shows when the simulation starts.
const WALL: Duration = Duration::from_secs(60_000_000);

impl World {
    pub(super) fn start(&mut self, node: NodeId) -> Result<(), Violation> {
        let host = self.hosts.get_mut(&node).expect("a host");
        if host.running.is_some() {
            return Ok(());
        }
        self.lives += 1;
        host.life += 1;
        let process = Process {
            node,
            life: host.life,
        };
        let me = Member {
            node,
            incarnation: Incarnation(self.lives),
        };
        let config = QuorumConfig {
            group: "sim".into(),
            lease: self.plan.lease,
            members: (1..=self.plan.hosts).filter_map(NodeId::new).collect(),
            voters: self.voters.clone(),
            cluster: None,
            wall: WALL + self.now.since(Time::ZERO),
            lock_delay: Duration::ZERO,
        };
        let new = || Affiliation::new(me.incarnation);
        let affiliation = host.affiliation.get_or_insert_with(new).clone();
        let before = RecoveredState {
            voter: host.disk.clone(),
            ..RecoveredState::default()
        };
        let settings = self.plan.settings();
        let local = host.clock.shows(self.now);
        self.trace.say(
            self.now,
            format_args!("{process} starts as {me:?}, on disk: {:?}", host.disk),
        );
        host.running = Some(Running {
            quorum: Quorum::new((me, affiliation), config, before, self.logs.clone(), local),
            lock: Lock::new(me, &settings),
            alarm: None,
            writing: None,
            leaves: false,
            lapsed: false,
            met: BTreeMap::new(),
        });
        // Each log has a chance of its own.
        if let Logs::Raft { seed, .. } = &mut self.logs {
            *seed = self.choices.next_u64();
        }
        self.plan_in(self.plan.lease / 20, Happening::Beat(process));
        self.input(process, |quorum, now| quorum.timeout(now))
    }

    pub(super) fn running(&mut self, process: Process) -> Option<(&mut Running, Clock)> {
        let host = self.hosts.get_mut(&process.node)?;
        let running = host
            .running
            .as_mut()
            .filter(|_| host.life == process.life)?;
        Some((running, host.clock))
    }

    pub(super) fn process(&self, node: NodeId) -> Option<Process> {
        let host = &self.hosts[&node];
        let life = host.life;
        host.running.as_ref().map(|_| Process { node, life })
    }

    pub(super) fn crash(&mut self, node: NodeId, words: &str) {
        let Some(process) = self.process(node) else {
            return;
        };
        self.trace.say(self.now, format_args!("{process} {words}"));
        let kept = self.choices.chance(500);
        let host = self.hosts.get_mut(&node).expect("a host");
        host.paused = None;
        self.channels.forget(process);
        if let Some(running) = host.running.take() {
            if let Some(record) = running.writing
                && kept
            {
                host.disk = Some(record);
            }
            let inside = running.lock.caller().is_inside();
            self.explored.crashes_inside += u64::from(inside);
        }
    }

    pub(super) fn crash_some(&mut self) -> Result<(), Violation> {
        self.plan_next(self.plan.faults.crash, Happening::Crash);
        let nodes = self.nodes();
        let victims = if self.choices.chance(self.plan.faults.crash_all) {
            nodes
        } else {
            vec![nodes[self.choices.index(nodes.len())]]
        };
        for node in victims {
            if self.process(node).is_none() {
                continue;
            }
            self.explored.crashes += 1;
            self.crash(node, "crashes");
            if self.choices.chance(self.plan.faults.lost_state) {
                self.lose_state(node);
            }
            let away = self.choices.exponential(self.plan.faults.away);
            self.plan_in(away, Happening::Start(node));
        }
        Ok(())
    }

    /// One voter at a time may lose its state, where three or more vote, and shall vote: with a
    /// majority that has forgotten what it endorsed, nothing is promised. Nor may it while the
    /// cluster is founded, which is done by all.
    pub(super) fn lose_state(&mut self, node: NodeId) {
        let host = &self.hosts[&node];
        let view_change = host
            .disk
            .as_ref()
            .and_then(|record| record.endorsed.as_ref());
        let is_settled = view_change.is_some_and(|view_change| {
            view_change.parent.is_some() && view_change.view_config.voters.len() > 2
        });
        let disks = self.hosts.values().filter_map(|host| host.disk.as_ref());
        let newest = disks
            .filter_map(VoterRecord::view_config)
            .max_by_key(|view_config| view_config.epoch);
        let many = |view_config: &ViewConfig| {
            view_config.voters.len() > 2 && view_config.overrides.voters.len() > 2
        };
        if self.reborn.is_none() && is_settled && newest.is_some_and(many) {
            self.reborn = Some(node);
            self.explored.lost_states += 1;
            let host = self.hosts.get_mut(&node).expect("a host");
            (host.disk, host.affiliation) = (None, None);
            self.trace
                .say(self.now, format_args!("the state of {node} is lost"));
        }
    }

    pub(super) fn pause_one(&mut self) {
        self.plan_next(self.plan.faults.pause, Happening::Pause);
        let nodes = self.nodes();
        let node = nodes[self.choices.index(nodes.len())];
        let host = self.hosts.get_mut(&node).expect("a host");
        if host.running.is_some() && host.paused.is_none() {
            host.paused = Some(VecDeque::new());
            self.explored.pauses += 1;
            let paused = self.choices.exponential(self.plan.faults.paused);
            self.plan_in(paused, Happening::Resume(node));
            self.trace
                .say(self.now, format_args!("{node} stands still for {paused:?}"));
        }
    }

    pub(super) fn resume(&mut self, node: NodeId) -> Result<(), Violation> {
        let Some(paused) = self.hosts.get_mut(&node).expect("a host").paused.take() else {
            return Ok(());
        };
        self.trace.say(self.now, format_args!("{node} goes on"));
        for happening in paused {
            self.happen(happening)?;
        }
        Ok(())
    }

    pub(super) fn part(&mut self) {
        self.plan_next(self.plan.faults.partition, Happening::Part);
        let parted = self.choices.exponential(self.plan.faults.parted);
        self.plan_in(parted, Happening::Join);
        self.explored.partitions += 1;
        let nodes = self.nodes();
        // Two sides, or two hosts that do not reach each other, though all others do.
        let (one, other): (Vec<NodeId>, Vec<NodeId>) = if self.choices.chance(300) {
            let pair = [
                self.choices.index(nodes.len()),
                self.choices.index(nodes.len()),
            ];
            (vec![nodes[pair[0]]], vec![nodes[pair[1]]])
        } else {
            nodes.iter().partition(|_| self.choices.chance(500))
        };
        let directions = self.choices.below(3);
        self.network.part(&one, &other, directions);
        self.trace.say(
            self.now,
            format_args!("{one:?} and {other:?} are parted ({directions}) for {parted:?}"),
        );
    }

    pub(super) fn leave_one(&mut self) -> Result<(), Violation> {
        self.plan_next(self.plan.faults.leave, Happening::Leave);
        let nodes = self.nodes();
        let node = nodes[self.choices.index(nodes.len())];
        let Some(process) = self.process(node) else {
            return Ok(());
        };
        if self.hosts[&node].paused.is_some() {
            return Ok(());
        }
        self.trace.say(self.now, format_args!("{process} leaves"));
        self.checker.leaves(process);
        if let Some((running, _)) = self.running(process) {
            running.leaves = true;
            running.lock.leave();
        }
        self.explored.leaves += 1;
        self.plan_in(self.plan.lease / 10, Happening::Gone(process));
        self.input(process, |quorum, now| quorum.leave(now))
    }

    /// It has had time to say that it leaves.
    pub(super) fn gone(&mut self, process: Process) {
        if self.process(process.node) == Some(process) {
            self.crash(process.node, "is gone");
            let away = self.choices.exponential(self.plan.faults.away);
            self.plan_in(away, Happening::Start(process.node));
        }
    }

    /// An operator names other voters at some host: any, they may have nothing in common with those
    /// before.
    pub(super) fn revote(&mut self) -> Result<(), Violation> {
        self.plan_next(self.plan.faults.revote, Happening::Revote);
        let nodes = self.nodes();
        let host = nodes[self.choices.index(nodes.len())];
        let first = nodes[self.choices.index(nodes.len())];
        let others = nodes.into_iter().filter(|_| self.choices.chance(400));
        let voters = others.take(6).chain([first]).collect();
        self.trace
            .say(self.now, format_args!("{voters:?} shall vote"));
        let is_paused = self.hosts[&host].paused.is_some();
        match self.process(host).filter(|_| !is_paused) {
            Some(process) => {
                let change = Change::Voters(voters);
                self.input(process, |quorum, now| quorum.change(now, change))
            }
            None => Ok(()),
        }
    }
}
