//! Totally ordered multicast over production links, on simulated hosts whose network loses,
//! doubles and reorders datagrams; members crash, join, and are removed though they live.
//!
//! Who belongs to a view is decided at one place, as agreed views are: it freezes those who are to
//! stay, hears from all of them, and tells them the next view, each at another time. Nobody tells a
//! member that was removed by mistake. In the end all that stops, and everybody in the last view
//! must have delivered everything. A checker that shares no code with the order watches.

mod member;
mod views;
mod world;

use core::time::Duration;

use self::world::World;
use super::checkers::Violation;
use super::choices::{Choices, Permille};
use super::network::{Conditions, Delay, NetworkStats};
use super::plan::Misfortunes;
use super::trace::{Sink, Trace};

/// What took place in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// Messages multicast.
    pub multicasts: u64,
    /// Deliveries, at all members together.
    pub deliveries: u64,
    /// Messages of a crashed or removed member that nobody delivered.
    pub lost_with_sender: u64,
    /// Deliveries that came with a new view.
    pub settled: u64,
    /// Acknowledgements that nothing could stand for.
    pub acknowledgements: u64,
    /// Views after the first.
    pub views: u64,
    /// Views that were given up because a member crashed before they were decided.
    pub given_up: u64,
    /// Members that crashed.
    pub crashes: u64,
    /// Members that were removed alive.
    pub removed: u64,
    /// Members that joined.
    pub joined: u64,
    /// Times a member had to wait because too many of its messages did.
    pub full: u64,
    /// What the network did.
    pub network_stats: NetworkStats,
}

impl Explored {
    /// Adds up.
    pub fn add(&mut self, other: &Self) {
        self.multicasts += other.multicasts;
        self.deliveries += other.deliveries;
        self.lost_with_sender += other.lost_with_sender;
        self.settled += other.settled;
        self.acknowledgements += other.acknowledgements;
        self.views += other.views;
        self.given_up += other.given_up;
        self.crashes += other.crashes;
        self.removed += other.removed;
        self.joined += other.joined;
        self.full += other.full;
        self.network_stats.add(&other.network_stats);
    }
}

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
    let plan = Plan::new(&mut choices);
    World::new(plan, choices, Trace::new(sink)).run()
}

/// How long a datagram is under way in the mean.
const DELAY: Duration = Duration::from_millis(2);

/// One run, before it begins.
#[derive(Clone, Copy, Debug)]
struct Plan {
    size: u16,
    window: usize,
    conditions: Conditions,
    /// Between two messages of a member, in the mean.
    pace: Duration,
    /// How long an acknowledgement waits for something that can stand for it.
    patience: Duration,
    /// Between two changes of the view, in the mean; `None` for never.
    change: Option<Duration>,
    /// Crashes.
    faults: Misfortunes,
    /// How many of a thousand changes remove a member that lives.
    mistakes: Permille,
    /// How many of a thousand changes bring a newcomer.
    newcomers: Permille,
    unrest: Duration,
}

impl Plan {
    fn new(choices: &mut Choices) -> Self {
        let harsh = choices.chance(700);
        Self {
            size: choices.within(1..=5) as u16,
            window: [1, 4, 64][choices.index(3)],
            conditions: Conditions {
                delay: Delay::Exponential(DELAY),
                loss: if harsh { 100 } else { 0 },
                duplication: if harsh { 100 } else { 0 },
                corruption: 0,
                late: (0, Duration::ZERO),
                in_order: choices.chance(200),
            },
            pace: DELAY * [1, 5, 25][choices.index(3)],
            patience: DELAY * [0, 0, 3][choices.index(3)],
            change: choices
                .chance(900)
                .then(|| DELAY * [10, 40][choices.index(2)]),
            faults: Misfortunes {
                crash: choices.chance(700).then_some(DELAY * 60),
                ..Misfortunes::NONE
            },
            mistakes: [0, 100, 300][choices.index(3)],
            newcomers: [0, 300][choices.index(2)],
            unrest: DELAY * 200,
        }
    }
}
