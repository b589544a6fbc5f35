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
use super::super::queue::Queue;
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
    let mut air = Air::new(topology, &capacities, choices, Trace::new(sink));
    air.duplication = [0, 200][air.choices.index(2)];
    let changes = [0, 5, 30][air.choices.index(3)];
    for _ in 0..air.choices.within(1..=4) {
        let after = air.choices.exponential(DELAY * 10);
        air.queue.plan(air.now + after, Happening::Start);
    }
    for _ in 0..changes {
        let after = air.choices.exponential(DELAY * 30);
        air.queue.plan(air.now + after, Happening::Change);
    }
    air.run()?;
    // A piece in which nobody has ever begun has no leader yet.
    for piece in air.topology.pieces() {
        if piece.iter().all(|node| air.nodes[node].leader().is_none()) {
            let first = piece.first().expect("a piece has nodes");
            air.start(*first);
        }
    }
    air.run()?;
    air.check()?;
    air.explored.pieces = air.topology.pieces().len() as u64;
    Ok((air.explored, air.trace.fingerprint()))
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
        Choices::new(seed),
        Trace::new(None),
    );
    air.start(source);
    air.run()?;
    air.check()?;
    let leader = air.nodes[&source].leader();
    Ok((air.counts, leader.expect("the check has seen it")))
}

#[derive(Debug)]
enum Happening {
    Start,
    Change,
    Arrival {
        way: (NodeId, NodeId),
        link: u64,
        message: Message,
    },
    /// The first notices that the second is out of reach, or in it.
    Lost(NodeId, NodeId),
    Found(NodeId, NodeId),
}

struct Air {
    topology: Topology,
    /// The number of each link, by its ends: one that comes back has another.
    numbers: BTreeMap<(NodeId, NodeId), u64>,
    /// Links that not both ends have noticed yet to have gone or come.
    unnoticed: BTreeMap<(NodeId, NodeId), u8>,
    /// When each end notices the last thing that happened to its link: in the order of things.
    notices: BTreeMap<(NodeId, NodeId), Time>,
    nodes: BTreeMap<NodeId, BestCapacity>,
    capacities: BTreeMap<NodeId, u64>,
    queue: Queue<Happening>,
    now: Time,
    choices: Choices,
    duplication: Permille,
    counts: BTreeMap<&'static str, u64>,
    explored: Explored,
    trace: Trace,
}

/// The name of a link, whoever asks.
fn link(a: NodeId, b: NodeId) -> (NodeId, NodeId) {
    (a.min(b), a.max(b))
}

impl Air {
    fn new(
        topology: Topology,
        capacities: &BTreeMap<NodeId, u64>,
        choices: Choices,
        trace: Trace,
    ) -> Self {
        let node = |node| {
            let capacity = capacities[&node];
            let myself = Candidate { capacity, node };
            (node, BestCapacity::new(myself, topology.neighbours(node)))
        };
        Self {
            nodes: topology.nodes().map(node).collect(),
            numbers: topology.links().into_iter().zip(1..).collect(),
            topology,
            unnoticed: BTreeMap::new(),
            notices: BTreeMap::new(),
            capacities: capacities.clone(),
            queue: Queue::new(),
            now: Time::ZERO,
            choices,
            duplication: 0,
            counts: BTreeMap::new(),
            explored: Explored::default(),
            trace,
        }
    }

    /// Goes on until nothing is left to happen.
    fn run(&mut self) -> Result<(), Violation> {
        for _ in 0..MAX_STEPS {
            let Some((at, happening)) = self.queue.pop_by(Time::MAX) else {
                return Ok(());
            };
            self.now = at;
            self.take(happening);
        }
        Err(violation!(self.now, Restraint, "messages go on for ever"))
    }

    fn take(&mut self, happening: Happening) {
        match happening {
            Happening::Start => {
                let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
                let node = nodes[self.choices.index(nodes.len())];
                self.start(node);
            }
            Happening::Change => self.change(),
            Happening::Arrival { way, link, message } => self.arrive(way, link, message),
            Happening::Lost(me, peer) => {
                self.notice(me, peer);
                self.step(me, |node, out| node.lose(peer, out));
            }
            Happening::Found(me, peer) => {
                self.notice(me, peer);
                self.step(me, |node, out| node.find(peer, out));
            }
        }
    }

    fn start(&mut self, node: NodeId) {
        self.explored.started += 1;
        self.step(node, BestCapacity::start);
    }

    fn step(&mut self, me: NodeId, step: impl FnOnce(&mut BestCapacity, &mut Sends)) {
        let Some(node) = self.nodes.get_mut(&me) else {
            return;
        };
        let mut out = Sends::new();
        step(node, &mut out);
        for (to, message) in out {
            self.trace.mix_u64(self.now.as_nanos());
            self.trace
                .say(self.now, format_args!("{me} to {to}: {message:?}"));
            *self.counts.entry(message.kind()).or_default() += 1;
            self.explored.messages += 1;
            let Some(number) = self.numbers.get(&link(me, to)).copied() else {
                self.explored.dropped += 1;
                continue;
            };
            let again = self.choices.chance(self.duplication);
            self.explored.duplicated += u64::from(again);
            for _ in 0..1 + u8::from(again) {
                let at = self.now + self.choices.exponential(DELAY);
                let arrival = Happening::Arrival {
                    way: (me, to),
                    link: number,
                    message,
                };
                self.queue.plan(at, arrival);
            }
        }
    }

    fn arrive(&mut self, (from, to): (NodeId, NodeId), number: u64, message: Message) {
        if self.numbers.get(&link(from, to)) == Some(&number) {
            self.step(to, |node, out| node.receive(from, message, out));
        } else {
            self.explored.dropped += 1;
        }
    }

    /// A link goes or comes, or a node crashes.
    fn change(&mut self) {
        let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
        if self.choices.chance(100) && nodes.len() > 1 {
            let node = nodes[self.choices.index(nodes.len())];
            self.explored.crashes += 1;
            self.trace.say(self.now, format_args!("{node} crashes"));
            let neighbours: Vec<NodeId> = self.topology.neighbours(node).collect();
            for neighbour in neighbours {
                self.break_link(node, neighbour);
            }
            self.topology.remove(node);
            self.nodes.remove(&node);
            return;
        }
        let [a, b] = [(); 2].map(|()| nodes[self.choices.index(nodes.len())]);
        if a == b || self.unnoticed.contains_key(&link(a, b)) {
            return;
        }
        let links = self.topology.links();
        if self.choices.chance(500) && !links.is_empty() {
            let (a, b) = links[self.choices.index(links.len())];
            if !self.unnoticed.contains_key(&link(a, b)) {
                self.break_link(a, b);
            }
        } else if !self.numbers.contains_key(&link(a, b)) {
            self.trace
                .say(self.now, format_args!("{a} and {b} come into reach"));
            self.explored.found += 1;
            self.topology.link(a, b);
            let number = u64::MAX - self.explored.found;
            self.numbers.insert(link(a, b), number);
            self.plan_notices(a, b, Happening::Found);
        }
    }

    fn break_link(&mut self, a: NodeId, b: NodeId) {
        self.trace
            .say(self.now, format_args!("{a} and {b} lose each other"));
        self.explored.lost += 1;
        self.topology.unlink(a, b);
        self.numbers.remove(&link(a, b));
        self.plan_notices(a, b, Happening::Lost);
    }

    fn plan_notices(&mut self, a: NodeId, b: NodeId, notice: impl Fn(NodeId, NodeId) -> Happening) {
        *self.unnoticed.entry(link(a, b)).or_default() += 2;
        for (me, peer) in [(a, b), (b, a)] {
            let last = self.notices.entry((me, peer)).or_default();
            *last = (self.now + self.choices.exponential(DELAY * 5)).max(*last);
            self.queue.plan(*last, notice(me, peer));
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
                let leader = self.nodes[node].leader();
                let leader = leader.map(|leader| (leader.capacity, leader.node));
                if leader != best {
                    return Err(violation!(
                        self.now,
                        Leaders,
                        "{node} takes {leader:?} for the best, which is {best:?}"
                    ));
                }
            }
        }
        Ok(())
    }
}
