//! Super-peers by repelling tokens, among nodes in a plane, some of which crash.
//!
//! Messages between neighbours arrive, in any order, unless the receiver crashes or the view
//! changes. At any time every token must be at one node, or be offered by one to the next. In the
//! end nothing crashes any more: tokens must come to rest, and their holders be super-peers.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use super::super::checkers::{Violation, violation};
use super::super::choices::Choices;
use super::super::clock::Clock;
use super::super::hosts::{Actor, Happened, Hosts};
use super::super::network::{Conditions, Delay, Network};
use super::super::trace::{Sink, Trace};
use super::repelling::{Message, Place, Repelling, Rules, Token, census};
use super::topology::Topology;
use distlock_protocol::{NodeId, Time};

/// What took place in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// Moves of tokens.
    pub moves: u64,
    /// Offers that were refused.
    pub refused: u64,
    /// Messages of gossip.
    pub gossip: u64,
    /// Views after the first.
    pub views: u64,
    /// Tokens that were issued anew.
    pub reissued: u64,
    /// Moves that a new view cut off.
    pub cut_off: u64,
    /// Nodes that crashed.
    pub crashes: u64,
    /// Super-peers, in the end.
    pub super_peers: u64,
    /// The shortest distance between two tokens, where they were put at random.
    pub closest_before: u64,
    /// And in the end.
    pub closest_after: u64,
}

impl Explored {
    /// Adds up.
    pub fn add(&mut self, other: &Self) {
        self.moves += other.moves;
        self.refused += other.refused;
        self.gossip += other.gossip;
        self.views += other.views;
        self.reissued += other.reissued;
        self.cut_off += other.cut_off;
        self.crashes += other.crashes;
        self.super_peers += other.super_peers;
        self.closest_before += other.closest_before;
        self.closest_after += other.closest_after;
    }
}

/// How long a message is under way in the mean.
const DELAY: Duration = Duration::from_millis(50);
/// Between two messages of gossip of one node, and between two looks at its token, in the mean.
const GOSSIP: Duration = Duration::from_millis(50);
const LOOK: Duration = Duration::from_millis(200);
const UNREST: Duration = Duration::from_secs(10);
/// How long it goes on after that, and how long of it all tokens must have been at rest.
const CALM: Duration = Duration::from_secs(30);
const REST: Duration = Duration::from_secs(10);
/// The side of the square in which the nodes are.
const SIDE: u64 = 10_000;

/// At 7,000 the force is 1,020, and a token without moves would go as far. One that has moved n
/// times bears 300 (n + 1).
const RULES: Rules = Rules {
    strength: 50_000_000_000,
    threshold: 300,
    stiffness: 1,
    hold: Duration::from_secs(5),
    memory: Duration::from_secs(2),
    gossip: 16,
};

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
    let size = choices.within(20..=40) as u16;
    let count = choices.within(2..=6) as u32;
    let coordinate = |choices: &mut Choices| choices.below(SIDE) as i32;
    let mut places = BTreeMap::new();
    for node in (1..=size).filter_map(NodeId::new) {
        places.insert(
            node,
            Place([coordinate(&mut choices), coordinate(&mut choices)]),
        );
    }
    let conditions = Conditions {
        delay: Delay::Exponential(DELAY),
        in_order: false,
        ..Conditions::perfect(DELAY)
    };
    let network = Network::new(conditions, choices.fork());
    let mut plane = Plane {
        places,
        count,
        topology: Topology::default(),
        epoch: 0,
        last_move: Time::ZERO,
        hosts: Hosts::new(network, choices, Trace::new(sink)),
        explored: Explored::default(),
    };
    plane.run()?;
    Ok((plane.explored, plane.hosts.trace.fingerprint()))
}

#[derive(Debug)]
enum Act {
    Gossip(NodeId),
    Look(NodeId),
    View,
}

/// A message, and the view that it is of.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    epoch: u64,
    message: Message<2>,
}

impl Actor for Repelling<2> {
    type Message = Letter;
    type Record = ();
}

struct Plane {
    /// Of those that live.
    places: BTreeMap<NodeId, Place<2>>,
    count: u32,
    /// Of the present view.
    topology: Topology,
    epoch: u64,
    last_move: Time,
    hosts: Hosts<Repelling<2>, Act>,
    explored: Explored,
}

impl Plane {
    fn run(&mut self) -> Result<(), Violation> {
        for node in self.places.keys() {
            self.hosts.add(*node, Clock::default());
        }
        self.install();
        self.explored.reissued = 0;
        self.explored.closest_before = self.closest();
        for node in self.places.keys().copied().collect::<Vec<_>>() {
            self.hosts.plan_around(Some(GOSSIP), Act::Gossip(node));
            self.hosts.plan_around(Some(LOOK), Act::Look(node));
        }
        for _ in 0..[0, 0, 4, 12][self.hosts.choices.index(4)] {
            // Most while tokens still move.
            let until = UNREST / [1, 4][self.hosts.choices.index(2)];
            let at = self.hosts.choices.duration(Duration::ZERO..=until);
            self.hosts.plan(at, Act::View);
        }
        let end = Time::ZERO + UNREST + CALM;
        while let Some(happened) = self.hosts.next(end) {
            match happened {
                Happened::Arrival {
                    process,
                    from,
                    message,
                } => self.arrive((from, process.node), message),
                Happened::Act(act) => self.befalls(act),
                Happened::Alarm(_) | Happened::Written(_) => {}
            }
            self.check()?;
        }
        self.explored.closest_after = self.closest();
        self.judge_end()
    }

    fn befalls(&mut self, act: Act) {
        let now = self.hosts.now();
        match act {
            Act::Gossip(me) => {
                let Some(node) = self.hosts.actor(me) else {
                    return;
                };
                let message = node.gossip(now);
                let neighbours: Vec<NodeId> = self.topology.neighbours(me).collect();
                if !neighbours.is_empty() {
                    let to = neighbours[self.hosts.choices.index(neighbours.len())];
                    self.explored.gossip += 1;
                    self.send(me, to, message);
                }
                self.hosts.plan_around(Some(GOSSIP), Act::Gossip(me));
            }
            Act::Look(me) => {
                let Some(node) = self.hosts.actor_mut(me) else {
                    return;
                };
                if let Some((to, message)) = node.consider(now) {
                    self.send(me, to, message);
                }
                self.hosts.plan_around(Some(LOOK), Act::Look(me));
            }
            Act::View => self.change(),
        }
    }

    fn arrive(&mut self, (from, to): (NodeId, NodeId), letter: Letter) {
        let now = self.hosts.now();
        if letter.epoch == self.epoch
            && let Some(node) = self.hosts.actor_mut(to)
            && let Some((back, answer)) = node.receive(from, letter.message, now)
        {
            self.send(to, back, answer);
        }
    }

    fn send(&mut self, from: NodeId, to: NodeId, message: Message<2>) {
        match &message {
            Message::Taken(token) => {
                let now = self.hosts.now();
                self.hosts.trace.mix_u64(now.as_nanos());
                self.hosts
                    .say(format_args!("{to} gives {token:?} to {from}"));
                self.explored.moves += 1;
                self.last_move = now;
            }
            Message::Refused(_) => self.explored.refused += 1,
            Message::Gossip(_) | Message::Move(_) => {}
        }
        let epoch = self.epoch;
        self.hosts.send(from, to, &Letter { epoch, message });
    }

    /// Some crash, as long as enough are left, and those who are left go on in a new view.
    fn change(&mut self) {
        for _ in 0..self.hosts.choices.below(3) {
            let nodes: Vec<NodeId> = self.places.keys().copied().collect();
            if nodes.len() > 2 * self.count as usize {
                let node = nodes[self.hosts.choices.index(nodes.len())];
                self.hosts.say(format_args!("{node} crashes"));
                self.explored.crashes += 1;
                self.places.remove(&node);
                self.hosts.crash(node);
            }
        }
        self.explored.views += 1;
        self.install();
    }

    fn install(&mut self) {
        self.epoch += 1;
        let offered = self.nodes().filter(|node| node.is_offered());
        self.explored.cut_off += offered.count() as u64;
        let held: BTreeMap<NodeId, Option<Token>> = self
            .places
            .keys()
            .map(|node| (*node, self.hosts.actor(*node).and_then(Repelling::token)))
            .collect();
        let mut order: Vec<NodeId> = held.keys().copied().collect();
        for place in (1..order.len()).rev() {
            order.swap(place, self.hosts.choices.index(place + 1));
        }
        let known: Vec<u32> = held.values().flatten().map(|token| token.id).collect();
        let missing = (0..self.count).filter(|id| !known.contains(id)).count();
        self.explored.reissued += missing as u64;
        let tokens = census(&held, self.count, order);
        self.topology = Topology::nearest(&self.places, 4);
        for (node, place) in &self.places {
            let neighbours = self
                .topology
                .neighbours(*node)
                .map(|neighbour| (neighbour, self.places[&neighbour]));
            let token = tokens.get(node).copied();
            let now = self.hosts.now();
            let fresh = Repelling::new(*place, neighbours, RULES, token, now);
            self.hosts.stop(*node);
            self.hosts.start(*node, fresh);
        }
    }

    /// Every token is somewhere, and at two places only while one gives it to the other.
    fn check(&self) -> Result<(), Violation> {
        let mut at: BTreeMap<u32, Vec<(u64, bool)>> = BTreeMap::new();
        for node in self.nodes() {
            if let Some(token) = node.token() {
                let here = (token.version, node.is_offered());
                at.entry(token.id).or_default().push(here);
            }
        }
        for id in 0..self.count {
            let places = at.remove(&id).unwrap_or_default();
            let sure = places.iter().filter(|(_, offered)| !offered).count();
            let newest = places.iter().map(|(version, _)| *version).max();
            let is_one = |(version, offered): &(u64, bool)| *offered || Some(*version) == newest;
            if places.is_empty() || sure > 1 || !places.iter().all(is_one) {
                return Err(violation!(
                    self.hosts.now(),
                    Exclusion,
                    "token {id} is at {} places, at {sure} of them for good",
                    places.len()
                ));
            }
        }
        Ok(())
    }

    fn judge_end(&mut self) -> Result<(), Violation> {
        let (now, nodes) = (self.hosts.now(), self.nodes());
        let peers = nodes.filter(|node| node.is_super_peer(now)).count();
        self.explored.super_peers = peers as u64;
        if now.since(self.last_move) < REST || peers != self.count as usize {
            return Err(violation!(
                now,
                Restraint,
                "{peers} of {} tokens have made super-peers, and the last moved at {:?}",
                self.count,
                self.last_move
            ));
        }
        Ok(())
    }

    fn nodes(&self) -> impl Iterator<Item = &Repelling<2>> {
        self.hosts.actors().map(|(_, node)| node)
    }

    /// The shortest distance between two tokens.
    fn closest(&self) -> u64 {
        let actors = self.hosts.actors();
        let holders = actors.filter(|(_, node)| node.token().is_some());
        let places: Vec<Place<2>> = holders.map(|(node, _)| self.places[&node]).collect();
        let pairs = places.iter().enumerate().flat_map(|(index, a)| {
            let later = places[index + 1..].iter();
            later.map(|b| a.distance_squared(*b).isqrt() as u64)
        });
        pairs.min().unwrap_or_default()
    }
}
