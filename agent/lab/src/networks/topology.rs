//! Who reaches whom.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::super::choices::Choices;
use super::repelling::Place;
use distlock_protocol::NodeId;

/// Nodes and the links between them, which work both ways.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    neighbours: BTreeMap<NodeId, BTreeSet<NodeId>>,
}

impl Topology {
    /// These nodes, without any links.
    pub fn new(nodes: impl IntoIterator<Item = NodeId>) -> Self {
        let alone = |node| (node, BTreeSet::new());
        Self {
            neighbours: nodes.into_iter().map(alone).collect(),
        }
    }

    /// Nodes 1 to `size` in one piece: a tree drawn at random, and about `extra` links more.
    pub fn connected(size: u16, extra: u16, choices: &mut Choices) -> Self {
        let nodes: Vec<NodeId> = (1..=size).filter_map(NodeId::new).collect();
        let mut topology = Self::new(nodes.iter().copied());
        for (place, node) in nodes.iter().enumerate().skip(1) {
            topology.link(*node, nodes[choices.index(place)]);
        }
        for _ in 0..extra {
            let [a, b] = [(); 2].map(|()| nodes[choices.index(nodes.len())]);
            topology.link(a, b);
        }
        topology
    }

    /// Nodes in a plane: each is linked with the `nearest` that are nearest to it, and with what
    /// else it takes to make one piece.
    pub fn nearest(places: &BTreeMap<NodeId, Place<2>>, nearest: usize) -> Self {
        let mut topology = Self::new(places.keys().copied());
        let by_distance = |from: NodeId| {
            let others = places.keys().filter(|node| **node != from).copied();
            let mut others: Vec<NodeId> = others.collect();
            others.sort_by_key(|node| (places[node].distance_squared(places[&from]), *node));
            others
        };
        for node in places.keys() {
            for neighbour in by_distance(*node).into_iter().take(nearest) {
                topology.link(*node, neighbour);
            }
        }
        while let [piece, _, ..] = &topology.pieces()[..] {
            let pairs = piece.iter().filter_map(|node| {
                let outside = by_distance(*node)
                    .into_iter()
                    .find(|it| !piece.contains(it))?;
                Some((
                    places[node].distance_squared(places[&outside]),
                    *node,
                    outside,
                ))
            });
            let (_, a, b) = pairs.min().expect("there is another piece");
            topology.link(a, b);
        }
        topology
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.neighbours.keys().copied()
    }

    /// Who reaches `node`.
    pub fn neighbours(&self, node: NodeId) -> impl Iterator<Item = NodeId> {
        self.neighbours.get(&node).into_iter().flatten().copied()
    }

    /// The links, each once, with the lower id first.
    pub fn links(&self) -> Vec<(NodeId, NodeId)> {
        let both = self.neighbours.iter();
        both.flat_map(|(a, others)| others.range(*a..).map(|b| (*a, *b)))
            .collect()
    }

    /// Links two nodes, if they are two.
    pub fn link(&mut self, a: NodeId, b: NodeId) {
        if a != b {
            self.neighbours.entry(a).or_default().insert(b);
            self.neighbours.entry(b).or_default().insert(a);
        }
    }

    /// Ends a link.
    pub fn unlink(&mut self, a: NodeId, b: NodeId) {
        for (from, to) in [(a, b), (b, a)] {
            if let Some(others) = self.neighbours.get_mut(&from) {
                others.remove(&to);
            }
        }
    }

    /// Removes a node with its links.
    pub fn remove(&mut self, node: NodeId) {
        for other in self.neighbours.remove(&node).unwrap_or_default() {
            self.unlink(node, other);
        }
    }

    /// The nodes, by who can reach whom over any number of links.
    pub fn pieces(&self) -> Vec<BTreeSet<NodeId>> {
        let mut left: BTreeSet<NodeId> = self.nodes().collect();
        let mut pieces = Vec::new();
        while let Some(first) = left.pop_first() {
            let (mut piece, mut edge) = (BTreeSet::from([first]), Vec::from([first]));
            while let Some(node) = edge.pop() {
                for other in self.neighbours(node) {
                    if piece.insert(other) {
                        left.remove(&other);
                        edge.push(other);
                    }
                }
            }
            pieces.push(piece);
        }
        pieces
    }
}
