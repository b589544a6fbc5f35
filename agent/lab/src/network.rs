//! A network that delays, loses, duplicates, reorders, corrupts and parts, as its conditions and
//! its seed say.
//!
//! It decides the fate of a datagram and leaves carrying it to the caller, so that the simulator
//! sends bytes through it and the explorer sends the engines' messages.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use super::choices::{Choices, Permille};
use distlock_protocol::chance::Chance;
use distlock_protocol::{NodeId, Time};

/// How long a datagram is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// Always that long: nothing overtakes, and costs can be counted in it.
    Constant(Duration),
    /// Exponentially distributed around that mean, each datagram for itself: neighbours overtake
    /// each other all the time, and a few come very late.
    Exponential(Duration),
}

/// What a network does to what it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// How long datagrams are under way.
    pub delay: Delay,
    /// How many of a thousand never arrive.
    pub loss: Permille,
    /// How many of a thousand are sent once more by the network itself.
    pub duplication: Permille,
    /// How many of a thousand copies arrive with bits flipped or bytes missing.
    pub corruption: Permille,
    /// How many of a thousand copies take longer, and how much longer in the mean: so late that
    /// nobody counts on them any more.
    pub late: (Permille, Duration),
    /// Whether datagrams from one member to another arrive in the order of sending.
    pub in_order: bool,
}

impl Conditions {
    /// A network without faults in which everything takes as long as `delay`.
    pub const fn perfect(delay: Duration) -> Self {
        Self {
            delay: Delay::Constant(delay),
            loss: 0,
            duplication: 0,
            corruption: 0,
            late: (0, Duration::ZERO),
            in_order: true,
        }
    }
}

/// What becomes of one copy of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When it arrives.
    pub at: Time,
    /// Whether it is to be handed to [`Network::corrupt`] first.
    pub corrupted: bool,
}

/// How often the network did what, so that a campaign can show that its faults took place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkStats {
    /// Datagrams given to the network.
    pub sent: u64,
    /// Copies lost by chance.
    pub lost: u64,
    /// Copies that a partition stopped.
    pub parted: u64,
    /// Second copies.
    pub duplicated: u64,
    /// Copies that overtook an earlier one between the same two members.
    pub reordered: u64,
    /// Copies with bits flipped or bytes missing.
    pub corrupted: u64,
    /// Copies that came very late.
    pub late: u64,
}

impl NetworkStats {
    /// Adds up.
    pub fn add(&mut self, other: &Self) {
        let Self {
            sent,
            lost,
            parted,
            duplicated,
            reordered,
            corrupted,
            late,
        } = other;
        self.sent += sent;
        self.lost += lost;
        self.parted += parted;
        self.duplicated += duplicated;
        self.reordered += reordered;
        self.corrupted += corrupted;
        self.late += late;
    }
}

/// The network between the members.
#[derive(Debug)]
pub struct Network {
    conditions: Conditions,
    choices: Choices,
    /// Ordered pairs between which nothing passes.
    cut: BTreeSet<(NodeId, NodeId)>,
    /// Ordered pairs between which everything takes so much longer.
    slow: BTreeMap<(NodeId, NodeId), Duration>,
    latest: BTreeMap<(NodeId, NodeId), Time>,
    network_stats: NetworkStats,
}

impl Network {
    /// A network under `conditions`, everybody in reach of everybody.
    pub const fn new(conditions: Conditions, choices: Choices) -> Self {
        Self {
            conditions,
            choices,
            cut: BTreeSet::new(),
            slow: BTreeMap::new(),
            latest: BTreeMap::new(),
            network_stats: NetworkStats {
                sent: 0,
                lost: 0,
                parted: 0,
                duplicated: 0,
                reordered: 0,
                corrupted: 0,
                late: 0,
            },
        }
    }

    /// A stream of random times of its own. Nothing is drawn from the network's.
    pub(super) fn chance(&self) -> Chance {
        Chance::new(self.choices.clone().next_u64())
    }

    /// What happened so far.
    pub const fn network_stats(&self) -> NetworkStats {
        self.network_stats
    }

    /// Decides what becomes of one datagram: no, one or two arrivals.
    pub fn send(
        &mut self,
        now: Time,
        from: NodeId,
        to: NodeId,
    ) -> impl Iterator<Item = Arrival> + use<> {
        self.network_stats.sent += 1;
        let first = self.copy(now, from, to, false);
        let again = self.choices.chance(self.conditions.duplication);
        let second = if again {
            // Where delays are constant, one that comes at once as well meets nothing new.
            self.copy(now, from, to, self.choices.are_searched())
        } else {
            None
        };
        self.network_stats.duplicated += u64::from(second.is_some());
        [first, second].into_iter().flatten()
    }

    /// Flips one to three bits of `bytes`, or cuts off its end.
    pub fn corrupt(&mut self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        if self.choices.chance(250) {
            bytes.truncate(self.choices.index(bytes.len()));
            return;
        }
        for _ in 0..self.choices.within(1..=3) {
            let bit = self.choices.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    /// From now on nothing passes from `from` to `to`; the other direction is not affected.
    pub fn cut(&mut self, from: NodeId, to: NodeId) {
        self.cut.insert((from, to));
    }

    /// From now on nothing passes between the two sides: in both directions, or, if `directions` is 1 or
    /// 2, in that from `other` to `one`, or that from `one` to `other`.
    pub fn part(&mut self, one: &[NodeId], other: &[NodeId], directions: u64) {
        for (&a, &b) in one.iter().flat_map(|a| other.iter().map(move |b| (a, b))) {
            if directions != 1 {
                self.cut(a, b);
            }
            if directions != 2 {
                self.cut(b, a);
            }
        }
    }

    /// From now on everything from `from` to `to` takes so much longer; the other direction is not
    /// affected.
    pub fn slow_down(&mut self, from: NodeId, to: NodeId, by: Duration) {
        self.slow.insert((from, to), by);
    }

    /// Ends all partitions, and nothing is slowed down any more.
    pub fn join(&mut self) {
        self.cut.clear();
        self.slow.clear();
    }

    /// Ends all faults: from now on datagrams are only delayed.
    pub fn heal(&mut self) {
        self.join();
        self.conditions = Conditions {
            loss: 0,
            duplication: 0,
            corruption: 0,
            late: (0, Duration::ZERO),
            ..self.conditions
        };
    }

    /// What becomes of one copy. `is_late`: it takes longer in any case.
    fn copy(&mut self, now: Time, from: NodeId, to: NodeId, is_late: bool) -> Option<Arrival> {
        let lost = self.choices.chance(self.conditions.loss);
        let corrupted = self.choices.chance(self.conditions.corruption);
        let mut delay = match self.conditions.delay {
            Delay::Constant(delay) => delay,
            Delay::Exponential(mean) => self.choices.exponential(mean),
        };
        let (late, later) = self.conditions.late;
        let is_late = is_late || late > 0 && self.choices.chance(late);
        if is_late {
            delay += self.choices.exponential(later);
        }
        if self.cut.contains(&(from, to)) {
            self.network_stats.parted += 1;
            return None;
        }
        if lost {
            self.network_stats.lost += 1;
            return None;
        }
        let latest = self.latest.entry((from, to)).or_default();
        let slower = self.slow.get(&(from, to)).copied().unwrap_or_default();
        let mut at = now + delay + slower;
        if self.conditions.in_order {
            at = at.max(*latest);
        }
        self.network_stats.reordered += u64::from(at < *latest);
        *latest = at.max(*latest);
        self.network_stats.corrupted += u64::from(corrupted);
        self.network_stats.late += u64::from(is_late);
        Some(Arrival { at, corrupted })
    }
}
