//! The world of a run: hosts, the network between them, and what is going to happen.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use super::channels::{Channels, Parcel, Way};
use super::checker::Checker;
use super::lock::Lock;
use super::logs::{Lies, Logs};
use super::plan::Plan;
use super::{Explored, LogKind};
use crate::checkers::{Process, Violation, violation};
use crate::choices::Choices;
use crate::clock::Clock;
use crate::network::Network;
use crate::queue::Queue;
use crate::trace::Trace;
use distlock_protocol::membership::quorum::{
    Affiliation, Quorum, QuorumMessage, Voter, VoterRecord,
};
use distlock_protocol::{Epoch, NodeId, Time};

/// Within which everybody must have entered once faults have stopped. It never takes nearly so
/// long, as a run ends when all is done.
const PATIENCE: Duration = Duration::from_secs(120);
/// Within which a cluster is founded where nothing goes wrong.
const FOUNDING: Duration = Duration::from_secs(6);

pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) choices: Choices,
    pub(super) now: Time,
    pub(super) queue: Queue<Happening>,
    pub(super) network: Network,
    pub(super) hosts: BTreeMap<NodeId, Host>,
    pub(super) logs: Logs,
    pub(super) lies: Option<Lies>,
    /// Those who shall vote, as configuration files say now.
    pub(super) voters: BTreeSet<NodeId>,
    /// A voter that lost its state, until a view with its new birth is in force.
    pub(super) reborn: Option<NodeId>,
    pub(super) lives: u64,
    pub(super) calm: bool,
    /// Who has entered since the faults stopped.
    pub(super) entered: BTreeSet<NodeId>,
    pub(super) checker: Checker,
    pub(super) trace: Trace,
    pub(super) explored: Explored,
    pub(super) epochs: BTreeMap<Epoch, Vec<Voter>>,
    pub(super) channels: Channels,
}

pub(super) struct Host {
    pub(super) clock: Clock,
    /// What is on disk of the voter.
    pub(super) disk: Option<VoterRecord>,
    /// What is on disk of its cluster.
    pub(super) affiliation: Option<Affiliation>,
    pub(super) life: u32,
    pub(super) running: Option<Running>,
    /// What happens to it when its pause is over.
    pub(super) paused: Option<VecDeque<Happening>>,
}

pub(super) struct Running {
    pub(super) quorum: Quorum<Logs>,
    pub(super) lock: Lock,
    pub(super) alarm: Option<Time>,
    pub(super) writing: Option<VoterRecord>,
    pub(super) leaves: bool,
    pub(super) lapsed: bool,
    /// The lives of the hosts that it has heard.
    pub(super) met: BTreeMap<NodeId, u32>,
}

#[derive(Clone, Debug)]
pub(super) enum Happening {
    Arrival {
        from: NodeId,
        to: NodeId,
        message: QuorumMessage,
    },
    /// What an engine said arrives, or is to be sent again if it has not.
    Carried(Way, Parcel),
    Resend(Way, u64),
    /// A ring's token has stayed for long enough.
    Hop(Process, u64),
    Alarm(Process, Time),
    /// That it takes part in an epoch is on disk.
    EpochWritten(Process),
    VoterWritten(Process),
    /// A caller may want something.
    Beat(Process),
    Exit(Process),
    Resume(NodeId),
    Start(NodeId),
    Gone(Process),
    Crash,
    Pause,
    Part,
    Join,
    Leave,
    Revote,
    Elect,
}

impl Happening {
    /// Whose process it happens to.
    fn whose(&self) -> Option<NodeId> {
        match self {
            Self::Arrival { to, .. } => Some(*to),
            Self::Carried((_, to), _) => Some(*to),
            Self::Alarm(process, _)
            | Self::Hop(process, _)
            | Self::EpochWritten(process)
            | Self::VoterWritten(process)
            | Self::Beat(process)
            | Self::Exit(process) => Some(process.node),
            _ => None,
        }
    }
}

impl World {
    pub(super) fn new(log: LogKind, plan: Plan, seed: u64, trace: Trace) -> Self {
        let mut choices = Choices::new(!seed);
        let lease = plan.lease;
        let (logs, lies) = match log {
            LogKind::Raft => {
                let seed = choices.next_u64();
                (Logs::Raft { lease, seed }, None)
            }
            LogKind::Lying => {
                let lies = Lies::new(choices.fork());
                let logs = Logs::Lying {
                    lease,
                    lies: lies.clone(),
                };
                (logs, Some(lies))
            }
        };
        let host = |node| Host {
            clock: plan.clocks[&node],
            disk: None,
            affiliation: None,
            life: 0,
            running: None,
            paused: None,
        };
        let nodes = (1..=plan.hosts).filter_map(NodeId::new);
        Self {
            network: Network::new(plan.conditions, choices.fork()),
            hosts: nodes.map(|node| (node, host(node))).collect(),
            voters: (1..=plan.voters).filter_map(NodeId::new).collect(),
            plan,
            choices,
            now: Time::ZERO,
            queue: Queue::new(),
            logs,
            lies,
            reborn: None,
            lives: 0,
            calm: false,
            entered: BTreeSet::new(),
            checker: Checker::default(),
            trace,
            explored: Explored::default(),
            epochs: BTreeMap::new(),
            channels: Channels::default(),
        }
    }

    /// What took place, and a fingerprint of it.
    pub(super) fn outcome(mut self) -> (Explored, u64) {
        self.explored.network_stats = self.network.network_stats();
        self.explored.simulated_ms = self.now.as_nanos() / 1_000_000;
        (self.explored, self.trace.fingerprint())
    }

    pub(super) fn run(&mut self) -> Result<(), Violation> {
        self.trace.say(self.now, format_args!("{:#?}", self.plan));
        for node in self.nodes() {
            let after = self.choices.duration(Duration::ZERO..=self.plan.lease / 10);
            self.plan_in(after, Happening::Start(node));
        }
        // In one run of eight things go wrong before there is a view.
        let founded = match self.choices.chance(125) {
            true => self.now,
            false => self.now + FOUNDING,
        };
        while self.epochs.is_empty() && self.step(founded)? {}
        let faults = self.plan.faults;
        self.plan_next(faults.crash, Happening::Crash);
        self.plan_next(faults.pause, Happening::Pause);
        self.plan_next(faults.partition, Happening::Part);
        self.plan_next(faults.leave, Happening::Leave);
        self.plan_next(faults.revote, Happening::Revote);
        if self.lies.is_some() {
            self.plan_in(Duration::ZERO, Happening::Elect);
        }
        let end = self.now + self.plan.unrest;
        while self.step(end)? {}
        self.calm_down()?;
        if self.lies.is_some() {
            // A log that lies lets nobody down here: what is endorsed twice may stop all.
            return Ok(());
        }
        let end = self.now + PATIENCE;
        while !self.is_done() {
            if !self.step(end)? {
                let mut missing = self.nodes();
                missing.retain(|node| !self.entered.contains(node));
                return Err(violation!(
                    self.now,
                    Progress,
                    "hosts {missing:?} have not entered, or not all are in one view, long after \
                     the faults stopped"
                ));
            }
        }
        Ok(())
    }

    pub(super) fn nodes(&self) -> Vec<NodeId> {
        self.hosts.keys().copied().collect()
    }

    /// Crashes a host that has entered and not left, and returns how long it takes until another
    /// enters.
    pub(super) fn take_over(&mut self) -> Result<Duration, Violation> {
        for node in self.nodes() {
            self.plan_in(Duration::ZERO, Happening::Start(node));
        }
        let end = self.now + self.plan.unrest;
        // Somewhere between two renewals, at some time of some caller's stay.
        let after = self
            .choices
            .duration(self.plan.lease * 5..=self.plan.lease * 6);
        let steady = self.now + after;
        while self.step(steady)? {}
        let holder = loop {
            let inside = |node: &NodeId| {
                let running = self.hosts[node].running.as_ref();
                running.is_some_and(|running| running.lock.caller().is_inside())
            };
            if let Some(holder) = self.nodes().into_iter().find(inside) {
                break holder;
            }
            if !self.step(end)? {
                return Err(violation!(self.now, Progress, "nobody enters"));
            }
        };
        let (crashed, entries) = (self.now, self.explored.entries);
        self.crash(holder, "crashes");
        while self.explored.entries == entries {
            if !self.step(end)? {
                return Err(violation!(
                    self.now,
                    Progress,
                    "nobody enters after a crash"
                ));
            }
        }
        Ok(self.now.since(crashed))
    }

    /// Whether everybody has entered, and is in one view with everybody.
    fn is_done(&self) -> bool {
        let views: BTreeSet<Option<(Epoch, usize)>> = self
            .hosts
            .values()
            .map(|host| {
                let view = host.running.as_ref()?.quorum.view()?;
                Some((view.epoch, view.members.len()))
            })
            .collect();
        let all = self.hosts.len();
        views.len() == 1
            && views
                .first()
                .is_some_and(|view| view.is_some_and(|(_, members)| members == all))
            && self.hosts.keys().all(|node| self.entered.contains(node))
    }

    fn calm_down(&mut self) -> Result<(), Violation> {
        self.calm = true;
        self.trace
            .say(self.now, format_args!("--- faults stop ---"));
        self.network.heal();
        for node in self.nodes() {
            self.resume(node)?;
            if self.hosts[&node].running.is_none() {
                self.start(node)?;
            }
        }
        Ok(())
    }

    /// Lets the next thing happen; `false` if there is none until `end`.
    fn step(&mut self, end: Time) -> Result<bool, Violation> {
        let Some((at, happening)) = self.queue.pop_by(end) else {
            self.now = self.now.max(end);
            return Ok(false);
        };
        self.now = at;
        if let Some(node) = happening.whose()
            && let Some(paused) = &mut self.hosts.get_mut(&node).expect("a host").paused
        {
            paused.push_back(happening);
            return Ok(true);
        }
        self.happen(happening)?;
        Ok(true)
    }

    pub(super) fn happen(&mut self, happening: Happening) -> Result<(), Violation> {
        match happening {
            Happening::Arrival { from, to, message } => self.arrive(from, to, message),
            Happening::Carried(way, parcel) => self.carry(way, parcel),
            Happening::Resend(way, number) => {
                self.resend(way, number);
                Ok(())
            }
            Happening::Hop(process, number) => self.hop(process, number),
            Happening::Alarm(process, at) => self.ring(process, at),
            Happening::EpochWritten(process) => {
                self.input(process, |quorum, now| quorum.persisted(now))
            }
            Happening::VoterWritten(process) => self.voter_written(process),
            Happening::Beat(process) => self.beat(process),
            Happening::Exit(process) => self.exit(process),
            Happening::Resume(node) => self.resume(node),
            Happening::Start(node) => self.start(node),
            Happening::Gone(process) => {
                self.gone(process);
                Ok(())
            }
            Happening::Join => {
                self.network.join();
                Ok(())
            }
            Happening::Elect => {
                if let Some(lies) = &self.lies {
                    lies.elect();
                }
                self.plan_in(self.plan.lease / 2, Happening::Elect);
                Ok(())
            }
            _ if self.calm => Ok(()),
            Happening::Crash => self.crash_some(),
            Happening::Pause => {
                self.pause_one();
                Ok(())
            }
            Happening::Part => {
                self.part();
                Ok(())
            }
            Happening::Leave => self.leave_one(),
            Happening::Revote => self.revote(),
        }
    }

    pub(super) fn plan_in(&mut self, after: Duration, happening: Happening) {
        self.queue.plan(self.now + after, happening);
    }

    pub(super) fn plan_next(&mut self, mean: Option<Duration>, happening: Happening) {
        if let Some(mean) = mean {
            let after = self.choices.exponential(mean);
            self.plan_in(after, happening);
        }
    }
}
