//! The election of the best, among nodes whose links come and go.
//!
//! What is sent over a link arrives, perhaps twice and in another order, unless the link or a node
//! goes first; each end notices at another time. In the end links stay as they are. Then messages
//! must come to an end, and all nodes that can reach each other must know the best of them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use super::super::checkers::{Violation, violation};
use super::super::choices::{Choices, Permille};
use super::super::clock::Clock;
use super::super::hosts::{Actor, Happened, Hosts};
use super::super::network::{Conditions, Delay, Network};
use super::super::trace::{Sink, Trace};
use super::best_capacity::{BestCapacity, Candidate, Message, Sends};
use super::topology::Topology;
use distlock_protocol::{NodeId, Time};

/// What took place in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// Elections that were begun from outside, to which come those that lost links begin.
    pub started: u64,
    /// Messages.
    pub messages: u64,
    /// Copies.
    pub duplicated: u64,
    /// Messages that their link or receiver did not survive.
    pub dropped: u64,
    /// Links that were lost.
    pub lost: u64,
    /// Links that came.
    pub found: u64,
    /// Nodes that crashed.
    pub crashes: u64,
    /// Pieces of the network, in the end.
    pub pieces: u64,
}

impl Explored {
    /// Adds up.
    pub fn add(&mut self, other: &Self) {
        self.started += other.started;
        self.messages += other.messages;
        self.duplicated += other.duplicated;
        self.dropped += other.dropped;
        self.lost += other.lost;
        self.found += other.found;
        self.crashes += other.crashes;
        self.pieces += other.pieces;
    }
}

/// How long a message is under way in the mean.
const DELAY: Duration = Duration::from_millis(1);
/// Longer than any run.
const END: Duration = Duration::from_secs(3600);
/// No run takes as many steps.
const MAX_STEPS: u64 = 5_000_000;

/// Runs what `seed` says. The trace goes to `sink`, if there is one. Returns what happened, and a
/// fingerprint of it.
///
/// # Errors
/// The rule that was broken.
///
/// # Panics
/// The code under test panicked.
pub fn explore(seed: u64, sink: Option<Sink>) -> Result<(Explored, u64), Violation> {
    let mut choices = Choices::new(seed);
    let size = choices.within(1..=16) as u16;
    let extra = choices.below(u64::from(size) * 2) as u16;
    let topology = Topology::connected(size, extra, &mut choices);
    // Few capacities, so that ties are frequent.
    let capacities = topology
        .nodes()
        .map(|node| (node, choices.below(4)))
        .collect();
    let duplication = [0, 200][choices.index(2)];
    let changes = [0, 5, 30][choices.index(3)];
    let starts = choices.within(1..=4);
    let source = (choices, duplication);
    let mut air = Air::new(topology, &capacities, source, Trace::new(sink));
    for _ in 0..starts {
        air.hosts.plan_around(Some(DELAY * 10), Act::Start);
    }
    for _ in 0..changes {
        air.hosts.plan_around(Some(DELAY * 30), Act::Change);
    }
    air.run()?;
    // A piece in which nobody has ever begun has no leader yet.
    for piece in air.topology.pieces() {
        if piece.iter().all(|node| air.leader(*node).is_none()) {
            let first = piece.first().expect("a piece has nodes");
            air.start(*first);
        }
    }
    air.run()?;
    air.check()?;
    air.explored.pieces = air.topology.pieces().len() as u64;
    air.explored.duplicated = air.hosts.network.network_stats().duplicated;
    Ok((air.explored, air.hosts.trace.fingerprint()))
}

/// One election, begun by `source` in a network without faults: how many messages of each kind it
/// takes, and who is elected.
///
/// # Errors
/// The rule that was broken.
///
/// # Panics
/// `source` is none of the nodes, or not all can reach each other.
pub fn elect(
    topology: &Topology,
    capacities: &BTreeMap<NodeId, u64>,
    source: NodeId,
    seed: u64,
) -> Result<(BTreeMap<&'static str, u64>, Candidate), Violation> {
    assert_eq!(topology.pieces().len(), 1, "one election reaches one piece");
    let mut air = Air::new(
        topology.clone(),
        capacities,
        (Choices::new(seed), 0),
        Trace::new(None),
    );
    air.start(source);
    air.run()?;
    air.check()?;
    let leader = air.leader(source);
    Ok((air.counts, leader.expect("the check has seen it")))
}

#[derive(Debug)]
enum Act {
    Start,
    Change,
    /// The first notices that the second is out of reach, or in it.
    Lost(NodeId, NodeId),
    Found(NodeId, NodeId),
}

/// A message, and the number of the link that it goes over.
#[derive(Clone, Debug)]
pub(crate) struct Signal {
    link: u64,
    message: Message,
}

impl Actor for BestCapacity {
    type Message = Signal;
    type Record = ();
}

struct Air {
    topology: Topology,
    /// The number of each link, by its ends: one that comes back has another.
    numbers: BTreeMap<(NodeId, NodeId), u64>,
    /// Links that not both ends have noticed yet to have gone or come.
    unnoticed: BTreeMap<(NodeId, NodeId), u8>,
    /// When each end notices the last thing that happened to its link: in the order of things.
    notices: BTreeMap<(NodeId, NodeId), Time>,
    hosts: Hosts<BestCapacity, Act>,
    capacities: BTreeMap<NodeId, u64>,
    counts: BTreeMap<&'static str, u64>,
    explored: Explored,
}

/// The name of a link, whoever asks.
fn link(a: NodeId, b: NodeId) -> (NodeId, NodeId) {
    (a.min(b), a.max(b))
}

impl Air {
    fn new(
        topology: Topology,
        capacities: &BTreeMap<NodeId, u64>,
        (mut choices, duplication): (Choices, Permille),
        trace: Trace,
    ) -> Self {
        let conditions = Conditions {
            delay: Delay::Exponential(DELAY),
            duplication,
            in_order: false,
            ..Conditions::perfect(DELAY)
        };
        let network = Network::new(conditions, choices.fork());
        let mut hosts = Hosts::new(network, choices, trace);
        hosts.limit_steps(MAX_STEPS);
        for node in topology.nodes() {
            let capacity = capacities[&node];
            let myself = Candidate { capacity, node };
            hosts.add(node, Clock::default());
            hosts.start(node, BestCapacity::new(myself, topology.neighbours(node)));
        }
        Self {
            hosts,
            numbers: topology.links().into_iter().zip(1..).collect(),
            topology,
            unnoticed: BTreeMap::new(),
            notices: BTreeMap::new(),
            capacities: capacities.clone(),
            counts: BTreeMap::new(),
            explored: Explored::default(),
        }
    }

    /// Goes on until nothing is left to happen.
    fn run(&mut self) -> Result<(), Violation> {
        let end = self.hosts.now() + END;
        while let Some(happened) = self.hosts.next(end) {
            self.hosts.count_step()?;
            match happened {
                Happened::Arrival {
                    process,
                    from,
                    message,
                } => self.arrive((from, process.node), &message),
                Happened::Act(act) => self.befalls(act),
                Happened::Alarm(_) | Happened::Written(_) => {}
            }
        }
        Ok(())
    }

    fn befalls(&mut self, act: Act) {
        match act {
            Act::Start => {
                let nodes = self.nodes();
                let node = nodes[self.hosts.choices.index(nodes.len())];
                self.start(node);
            }
            Act::Change => self.change(),
            Act::Lost(me, peer) => {
                self.notice(me, peer);
                self.step(me, |node, out| node.lose(peer, out));
            }
            Act::Found(me, peer) => {
                self.notice(me, peer);
                self.step(me, |node, out| node.find(peer, out));
            }
        }
    }

    fn nodes(&self) -> Vec<NodeId> {
        self.hosts.actors().map(|(node, _)| node).collect()
    }

    fn leader(&self, node: NodeId) -> Option<Candidate> {
        self.hosts.actor(node)?.leader()
    }

    fn start(&mut self, node: NodeId) {
        self.explored.started += 1;
        self.step(node, BestCapacity::start);
    }

    fn step(&mut self, me: NodeId, step: impl FnOnce(&mut BestCapacity, &mut Sends)) {
        let Some(node) = self.hosts.actor_mut(me) else {
            return;
        };
        let mut out = Sends::new();
        step(node, &mut out);
        for (to, message) in out {
            self.hosts.trace.mix_u64(self.hosts.now().as_nanos());
            self.hosts.say(format_args!("{me} to {to}: {message:?}"));
            *self.counts.entry(message.kind()).or_default() += 1;
            self.explored.messages += 1;
            match self.numbers.get(&link(me, to)) {
                Some(&link) => _ = self.hosts.send(me, to, &Signal { link, message }),
                None => self.explored.dropped += 1,
            }
        }
    }

    fn arrive(&mut self, (from, to): (NodeId, NodeId), signal: &Signal) {
        if self.numbers.get(&link(from, to)) == Some(&signal.link) {
            self.step(to, |node, out| node.receive(from, signal.message, out));
        } else {
            self.explored.dropped += 1;
        }
    }

    /// A link goes or comes, or a node crashes.
    fn change(&mut self) {
        let nodes = self.nodes();
        if self.hosts.choices.chance(100) && nodes.len() > 1 {
            let node = nodes[self.hosts.choices.index(nodes.len())];
            self.explored.crashes += 1;
            self.hosts.say(format_args!("{node} crashes"));
            let neighbours: Vec<NodeId> = self.topology.neighbours(node).collect();
            for neighbour in neighbours {
                self.break_link(node, neighbour);
            }
            self.topology.remove(node);
            self.hosts.crash(node);
            return;
        }
        let [a, b] = [(); 2].map(|()| nodes[self.hosts.choices.index(nodes.len())]);
        if a == b || self.unnoticed.contains_key(&link(a, b)) {
            return;
        }
        let links = self.topology.links();
        if self.hosts.choices.chance(500) && !links.is_empty() {
            let (a, b) = links[self.hosts.choices.index(links.len())];
            if !self.unnoticed.contains_key(&link(a, b)) {
                self.break_link(a, b);
            }
        } else if !self.numbers.contains_key(&link(a, b)) {
            self.hosts.say(format_args!("{a} and {b} come into reach"));
            self.explored.found += 1;
            self.topology.link(a, b);
            let number = u64::MAX - self.explored.found;
            self.numbers.insert(link(a, b), number);
            self.plan_notices(a, b, Act::Found);
        }
    }

    fn break_link(&mut self, a: NodeId, b: NodeId) {
        self.hosts.say(format_args!("{a} and {b} lose each other"));
        self.explored.lost += 1;
        self.topology.unlink(a, b);
        self.numbers.remove(&link(a, b));
        self.plan_notices(a, b, Act::Lost);
    }

    fn plan_notices(&mut self, a: NodeId, b: NodeId, notice: impl Fn(NodeId, NodeId) -> Act) {
        *self.unnoticed.entry(link(a, b)).or_default() += 2;
        for (me, peer) in [(a, b), (b, a)] {
            let last = self.notices.entry((me, peer)).or_default();
            let (now, after) = (self.hosts.now(), self.hosts.choices.exponential(DELAY * 5));
            *last = (now + after).max(*last);
            self.hosts.plan(last.since(now), notice(me, peer));
        }
    }

    fn notice(&mut self, a: NodeId, b: NodeId) {
        let left = self.unnoticed.entry(link(a, b)).or_insert(1);
        *left -= 1;
        if *left == 0 {
            self.unnoticed.remove(&link(a, b));
        }
    }

    fn check(&self) -> Result<(), Violation> {
        for piece in self.topology.pieces() {
            let best = piece
                .iter()
                .map(|node| (self.capacities[node], *node))
                .max();
            for node in &piece {
                let leader = self.leader(*node);
                let leader = leader.map(|leader| (leader.capacity, leader.node));
                if leader != best {
                    return Err(violation!(
                        self.hosts.now(),
                        Leaders,
                        "{node} takes {leader:?} for the best, which is {best:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}
