//! Super-peers by repelling tokens (Lo, Zhou, Liu and others 2005; the lecture's second way).
//!
//! Nodes have places in a space. As many tokens as there are to be super-peers lie at different
//! nodes, push each other away, and so spread out. Who has held a token for long enough is a
//! super-peer.
//!
//! Messages: `GOSSIP(sightings)`, `MOVE(token)`, `TAKEN(token)`, `REFUSED(token)`. Nodes gossip
//! where tokens were seen last. A token is pushed by each other one with strength / distance²; if
//! that adds up to more than the threshold, it is offered to the neighbour nearest to where the
//! force points. Who has a token already refuses, and the next best neighbour is asked.
//!
//! Invariant: tokens are neither lost nor doubled. A token is the receiver's once that takes it,
//! and its version goes up; the giver lets go when it hears so. In a new view messages of the old
//! are dead; of two that have the same token then, the higher version counts, and tokens that are
//! gone are issued anew ([`census`]).
//!
//! The lecture has neither the law of the force, nor refusals, nor what stops tokens from moving
//! for ever. Here a token grows heavier with every move: the threshold is as many times higher. As
//! the force is bounded, so are its moves. Everything is done in integers, so that all hosts
//! compute the same.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use distlock_protocol::{NodeId, Time};

/// A place in a space of `D` dimensions, by integers so that the unit is yours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place<const D: usize>(pub [i32; D]);

impl<const D: usize> Place<D> {
    /// The square of the distance.
    pub fn distance_squared(self, other: Self) -> u128 {
        let pairs = self.0.into_iter().zip(other.0);
        pairs.map(|(a, b)| u128::from(a.abs_diff(b)).pow(2)).sum()
    }
}

/// How tokens behave; the same everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The force at distance 1; it falls with the square of the distance.
    pub strength: u64,
    /// A token that has never moved stays where the force is at most this; after its first move it
    /// takes twice as much, and so on. At least 1.
    pub threshold: u64,
    /// A token is to move as far as the force, divided by this; at least 1.
    pub stiffness: u64,
    /// How long a token must lie at a node before that is a super-peer.
    pub hold: Duration,
    /// Sightings older than this count no more.
    pub memory: Duration,
    /// How many sightings go with a message.
    pub gossip: usize,
}

/// A token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Token {
    /// Its number.
    pub id: u32,
    /// Goes up whenever it changes hands.
    pub version: u64,
    /// How often it has moved in this view.
    pub moves: u32,
}

/// Where a token was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting<const D: usize> {
    /// Which.
    pub id: u32,
    /// Its version then.
    pub version: u64,
    /// Where.
    pub place: Place<D>,
    /// How long ago.
    pub age: Duration,
}

/// What neighbours say to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<const D: usize> {
    /// Tokens were seen there.
    Gossip(Vec<Sighting<D>>),
    /// Take this token.
    Move(Token),
    /// I have it.
    Taken(Token),
    /// I have one already.
    Refused(Token),
}

/// One node's part, in one view.
#[derive(Clone, Debug)]
pub struct Repelling<const D: usize> {
    place: Place<D>,
    neighbours: BTreeMap<NodeId, Place<D>>,
    rules: Rules,
    /// The token here, and since when.
    held: Option<(Token, Time)>,
    /// To whom it is offered, and who has refused it since it was decided to move it.
    offered: Option<NodeId>,
    refused: BTreeSet<NodeId>,
    /// Tokens elsewhere: version, place, and when they were there.
    seen: BTreeMap<u32, (u64, Place<D>, Time)>,
}

impl<const D: usize> Repelling<D> {
    /// A node at `place`, with `token` from now on, if there is one for it.
    pub fn new(
        place: Place<D>,
        neighbours: impl IntoIterator<Item = (NodeId, Place<D>)>,
        rules: Rules,
        token: Option<Token>,
        now: Time,
    ) -> Self {
        const { assert!(D > 0, "a space has a dimension") };
        Self {
            place,
            neighbours: neighbours.into_iter().collect(),
            rules,
            held: token.map(|token| (token, now)),
            offered: None,
            refused: BTreeSet::new(),
            seen: BTreeMap::new(),
        }
    }

    /// The token here. While it is offered to another node, that may have it already.
    pub fn token(&self) -> Option<Token> {
        self.held.map(|(token, _)| token)
    }

    /// Whether the token here is offered to another node.
    pub const fn is_offered(&self) -> bool {
        self.offered.is_some()
    }

    /// Whether this node is a super-peer.
    pub fn is_super_peer(&self, now: Time) -> bool {
        self.held
            .is_some_and(|(_, since)| now.since(since) >= self.rules.hold)
    }

    /// What to tell a neighbour, any one at a time and each from time to time.
    pub fn gossip(&self, now: Time) -> Message<D> {
        let own = self.held.map(|(token, _)| Sighting {
            id: token.id,
            version: token.version,
            place: self.place,
            age: Duration::ZERO,
        });
        let mut seen: Vec<Sighting<D>> = self
            .seen
            .iter()
            .map(|(id, (version, place, at))| Sighting {
                id: *id,
                version: *version,
                place: *place,
                age: now.since(*at),
            })
            .filter(|sighting| sighting.age <= self.rules.memory)
            .collect();
        seen.sort_by_key(|sighting| (sighting.age, sighting.id));
        seen.truncate(self.rules.gossip);
        Message::Gossip(own.into_iter().chain(seen).collect())
    }

    /// A neighbour says something. The answer, if it wants one, goes back.
    pub fn receive(
        &mut self,
        from: NodeId,
        message: Message<D>,
        now: Time,
    ) -> Option<(NodeId, Message<D>)> {
        match message {
            Message::Gossip(sightings) => {
                for sighting in sightings {
                    self.see(sighting, now);
                }
                None
            }
            Message::Move(token) if self.held.is_some() => Some((from, Message::Refused(token))),
            Message::Move(token) => {
                let token = Token {
                    version: token.version + 1,
                    moves: token.moves.saturating_add(1),
                    ..token
                };
                self.held = Some((token, now));
                self.seen.remove(&token.id);
                Some((from, Message::Taken(token)))
            }
            Message::Taken(token) => {
                if self.offered == Some(from) {
                    (self.held, self.offered) = (None, None);
                    self.refused.clear();
                    if let Some(place) = self.neighbours.get(&from) {
                        self.seen.insert(token.id, (token.version, *place, now));
                    }
                }
                None
            }
            Message::Refused(_) => {
                if self.offered.take_if(|to| *to == from).is_some() {
                    self.refused.insert(from);
                    return self.offer(now);
                }
                None
            }
        }
    }

    /// Looks whether the token here has to move: an offer to a neighbour, if so. To be called from
    /// time to time, and not more often than gossip goes round.
    pub fn consider(&mut self, now: Time) -> Option<(NodeId, Message<D>)> {
        if self.offered.is_some() {
            return None;
        }
        self.refused.clear();
        self.offer(now)
    }

    fn offer(&mut self, now: Time) -> Option<(NodeId, Message<D>)> {
        let (token, _) = self.held?;
        let force = self.force(token.id, now);
        let weight = u128::from(token.moves) + 1;
        if length(force) <= u128::from(self.rules.threshold.max(1)) * weight {
            return None;
        }
        let mut goal = [0; D];
        for (axis, coordinate) in goal.iter_mut().enumerate() {
            let far = force[axis] / i128::from(self.rules.stiffness.max(1));
            let there = i128::from(self.place.0[axis]) + far;
            *coordinate = there.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
        }
        let goal = Place(goal);
        let free = self
            .neighbours
            .iter()
            .filter(|(node, _)| !self.refused.contains(node));
        let nearest = free.min_by_key(|(node, place)| (goal.distance_squared(**place), **node));
        let (to, _) = nearest.filter(|(_, place)| {
            goal.distance_squared(**place) < goal.distance_squared(self.place)
        })?;
        self.offered = Some(*to);
        Some((*to, Message::Move(token)))
    }

    fn see(&mut self, sighting: Sighting<D>, now: Time) {
        let Sighting {
            id,
            version,
            place,
            age,
        } = sighting;
        if self.token().is_some_and(|token| token.id == id) {
            return;
        }
        let at = now - age;
        let known = self.seen.get(&id);
        if known.is_none_or(|(known, _, seen)| (*known, *seen) < (version, at)) {
            self.seen.insert(id, (version, place, at));
        }
    }

    /// The sum of what pushes token `id` here.
    fn force(&self, id: u32, now: Time) -> [i128; D] {
        let mut sum = [0; D];
        let fresh = |at: Time| now.since(at) <= self.rules.memory;
        for (other, (_, place, _)) in self.seen.iter().filter(|(_, (.., at))| fresh(*at)) {
            let squared = self.place.distance_squared(*place) as i128;
            let strength = i128::from(self.rules.strength);
            if squared == 0 {
                // At one place there is no direction: one is made of the two numbers.
                let axis = id.wrapping_add(*other) as usize % D;
                sum[axis] += if id < *other { strength } else { -strength };
                continue;
            }
            let distance = squared.isqrt();
            for (axis, component) in sum.iter_mut().enumerate() {
                let far = i128::from(self.place.0[axis]) - i128::from(place.0[axis]);
                *component += strength * far / (squared * distance);
            }
        }
        sum
    }
}

fn length<const D: usize>(vector: [i128; D]) -> u128 {
    let squares = vector.map(|component| component.unsigned_abs().saturating_pow(2));
    squares
        .into_iter()
        .fold(0_u128, u128::saturating_add)
        .isqrt()
}

/// Which tokens the nodes of a new view begin with: each of those numbered from 0 to `count` once,
/// and no node with two. `held` has what each node held when the view before ended, and
/// `tokenless`, in the order in which they are to be used, nodes for tokens that are gone.
///
/// If there are more tokens than nodes the last are left out.
pub fn census(
    held: &BTreeMap<NodeId, Option<Token>>,
    count: u32,
    tokenless: impl IntoIterator<Item = NodeId>,
) -> BTreeMap<NodeId, Token> {
    let mut holders: BTreeMap<u32, (Token, NodeId)> = BTreeMap::new();
    let mut highest = 0;
    for (node, token) in held {
        let Some(token) = token.filter(|token| token.id < count) else {
            continue;
        };
        highest = token.version.max(highest);
        let holder = holders.entry(token.id).or_insert((token, *node));
        if holder.0.version < token.version {
            *holder = (token, *node);
        }
    }
    let mut places: BTreeMap<NodeId, Token> = holders
        .values()
        .map(|(token, node)| (*node, Token { moves: 0, ..*token }))
        .collect();
    let mut free: Vec<NodeId> = Vec::new();
    for node in tokenless {
        let is_free = held.contains_key(&node) && !places.contains_key(&node);
        if is_free && !free.contains(&node) {
            free.push(node);
        }
    }
    let missing = (0..count).filter(|id| !holders.contains_key(id));
    for (id, node) in missing.zip(free) {
        // What was seen of the one that is gone is forgotten with the view.
        let version = highest + 1;
        let moves = 0;
        places.insert(node, Token { id, version, moves });
    }
    places
}
