//! What is measured: engines, with or without nodes around them.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::time::Duration;

use super::Setup;
use crate::bare::{self, Bare};
use crate::checkers::{Violation, violation};
use crate::choices::Choices;
use crate::cluster::{self, Cluster, Surroundings};
use crate::history::Moment;
use crate::network::NetworkStats;
use distlock_protocol::{
    Command, ElectionAlgorithm, Event, Failure, Incarnation, LockName, Mode, NodeId, Release,
    RequestId, Settings, Ticket, Time, Wait,
};

/// A request: its member, and its number there.
pub(super) type Key = (NodeId, u64);

/// What is planned for callers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    Want(NodeId),
    Exit(Key),
    Crash(NodeId),
    Nothing,
}

/// What happens.
pub(super) enum Step {
    Entered(Key),
    /// The holder is taken for dead.
    Lost(Key),
    Act(Act),
}

/// What is measured: engines, with or without nodes around them.
pub(super) trait World {
    fn members(&self) -> Vec<NodeId>;
    fn now(&self) -> Time;
    fn plan(&mut self, delay: Duration, act: Act);
    fn ask(&mut self, node: NodeId) -> Result<Key, Violation>;
    fn release(&mut self, key: Key) -> Result<(), Violation>;
    fn crash(&mut self, node: NodeId);
    /// Whether somebody waits.
    fn is_contended(&self) -> bool;
    fn next(&mut self, end: Time) -> Result<Option<Step>, Violation>;
    /// How much longer than messages take it can last until somebody enters.
    fn patience(&self) -> Duration;
    /// Messages sent since the start, by kind.
    fn counts(&self) -> BTreeMap<&'static str, u64>;
    fn history(&self) -> &[Moment];
    fn network_stats(&self) -> NetworkStats;
}

impl World for Bare<Act> {
    fn members(&self) -> Vec<NodeId> {
        self.members().to_vec()
    }

    fn now(&self) -> Time {
        self.now()
    }

    fn plan(&mut self, delay: Duration, act: Act) {
        self.plan(delay, act);
    }

    fn ask(&mut self, node: NodeId) -> Result<Key, Violation> {
        self.ask(node, Mode::Exclusive, false)
            .map(|id| (node, id.seq))
    }

    fn release(&mut self, (node, seq): Key) -> Result<(), Violation> {
        let incarnation = Incarnation(1);
        let id = RequestId {
            node,
            incarnation,
            seq,
        };
        self.release(id, Release::Given)
    }

    fn crash(&mut self, node: NodeId) {
        unreachable!("{node} has no node around its engine that the others could miss");
    }

    fn is_contended(&self) -> bool {
        self.waiting() > 0
    }

    fn next(&mut self, end: Time) -> Result<Option<Step>, Violation> {
        loop {
            match self.next(end)? {
                Some(bare::Turn::Granted(id)) => return Ok(Some(Step::Entered((id.node, id.seq)))),
                Some(bare::Turn::Act(act)) => return Ok(Some(Step::Act(act))),
                Some(bare::Turn::Busy(_)) => {}
                None => return Ok(None),
            }
        }
    }

    fn patience(&self) -> Duration {
        Duration::ZERO
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.counts().clone()
    }

    fn history(&self) -> &[Moment] {
        self.history()
    }

    fn network_stats(&self) -> NetworkStats {
        self.network_stats()
    }
}

/// Whole nodes, with a view in force.
pub(super) struct Nodes {
    cluster: Cluster<Act>,
    lock: LockName,
    lease: Duration,
    tickets: BTreeMap<NodeId, u64>,
    /// What was sent by members that have crashed.
    gone: BTreeMap<&'static str, u64>,
}

/// The lease where nobody crashes: the default of configured groups.
const LONG_LEASE: Duration = Duration::from_secs(5);

/// How many one-way delays the lease is where somebody does: what is left to wait for then is short
/// enough to look at.
const LEASE: u32 = 50;

impl Nodes {
    pub(super) fn new(setup: &Setup, quorum: bool) -> Result<Self, Violation> {
        let lock = LockName::new("printer").expect("a good name");
        let lease = if setup.crashes.is_empty() {
            LONG_LEASE
        } else {
            setup.unit() * LEASE
        };
        let settings = Settings {
            group: String::from("costs"),
            lease,
            failure: match quorum {
                // No quorum has it served.
                true if setup.algorithm.is_probabilistic() => Failure::PresumeFailed,
                true => Failure::Quorum,
                false => Failure::Unanimity,
            },
            lock_delay: Duration::ZERO,
            election: ElectionAlgorithm::Bully,
            algorithm: setup.algorithm,
            locks: BTreeMap::new(),
        };
        let locks = BTreeMap::from([(lock.clone(), NonZeroU32::MIN)]);
        let surroundings = Surroundings {
            conditions: setup.conditions(),
            ..Surroundings::perfect(setup.unit())
        };
        let (choices, trace) = (Choices::new(setup.seed), setup.trace());
        let mut nodes = Self {
            cluster: Cluster::new(setup.members, settings, surroundings, locks, choices, trace),
            lock,
            lease,
            tickets: BTreeMap::new(),
            gone: BTreeMap::new(),
        };
        nodes.form()?;
        Ok(nodes)
    }

    /// Starts all, and waits until all are in one view.
    fn form(&mut self) -> Result<(), Violation> {
        let members = self.members();
        for &node in &members {
            self.cluster.start(node)?;
        }
        let limit = self.cluster.now() + self.lease * 100;
        loop {
            // Long enough for greetings and, where all are needed, for a view.
            let end = self.cluster.now() + Duration::from_secs(1);
            while self.cluster.next(end)?.is_some() {}
            let all = members.iter().all(|node| {
                let node = self.cluster.node(*node).and_then(|node| node.view());
                node.is_some_and(|view| view.members.len() == members.len())
            });
            if all {
                return Ok(());
            }
            if end > limit {
                return Err(violation!(end, Progress, "the group does not form"));
            }
        }
    }
}

impl World for Nodes {
    fn members(&self) -> Vec<NodeId> {
        self.cluster.members().collect()
    }

    fn now(&self) -> Time {
        self.cluster.now()
    }

    fn plan(&mut self, delay: Duration, act: Act) {
        self.cluster.plan(delay, act);
    }

    fn ask(&mut self, node: NodeId) -> Result<Key, Violation> {
        let number = self.tickets.entry(node).or_default();
        *number += 1;
        let ticket = Ticket(*number);
        let (lock, wait) = (self.lock.clone(), Wait::Cancelled);
        let acquire = Command::Acquire {
            ticket,
            lock,
            spec: None,
            mode: Mode::Exclusive,
            wait,
        };
        self.cluster.command(node, &acquire)?;
        Ok((node, ticket.0))
    }

    fn release(&mut self, (node, ticket): Key) -> Result<(), Violation> {
        let ticket = Ticket(ticket);
        self.cluster.command(
            node,
            &Command::Release {
                ticket,
                how: Release::Given,
            },
        )?;
        Ok(())
    }

    fn crash(&mut self, node: NodeId) {
        if let Some(node) = self.cluster.node(node) {
            for ((_, kind), count) in &node.counters().engine_messages {
                *self.gone.entry(*kind).or_default() += count;
            }
        }
        self.cluster.crash(node);
    }

    fn is_contended(&self) -> bool {
        self.cluster.checkers().waiting() > 0
    }

    fn next(&mut self, end: Time) -> Result<Option<Step>, Violation> {
        loop {
            match self.cluster.next(end)? {
                Some(cluster::Turn::Told(process, Event::Granted { ticket, .. })) => {
                    return Ok(Some(Step::Entered((process.node, ticket.0))));
                }
                Some(cluster::Turn::Told(process, Event::Lost { ticket })) => {
                    return Ok(Some(Step::Lost((process.node, ticket.0))));
                }
                Some(cluster::Turn::Told(..) | cluster::Turn::Stepped(_)) => {}
                Some(cluster::Turn::Act(act)) => return Ok(Some(Step::Act(act))),
                None => return Ok(None),
            }
        }
    }

    fn patience(&self) -> Duration {
        self.lease * 20
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        let mut sum = self.gone.clone();
        for node in self
            .cluster
            .members()
            .filter_map(|node| self.cluster.node(node))
        {
            for ((_, kind), count) in &node.counters().engine_messages {
                *sum.entry(*kind).or_default() += count;
            }
        }
        sum
    }

    fn history(&self) -> &[Moment] {
        self.cluster.history()
    }

    fn network_stats(&self) -> NetworkStats {
        self.cluster.network_stats()
    }
}
