//! Quorum views by themselves: voters, members and their leases over a network, and one lock, which
//! the production table and engines serve over links that lose nothing. A run is short, so that
//! many can be had.
//!
//! Hosts have clocks that gain and lose up to the bound, disks that lose what was not yet written,
//! and pauses, in which nothing runs but the time; processes crash and come back with what is on
//! disk, networks part in both directions or in one, members leave, voters are replaced. Then all
//! that ends, and everybody must enter once more. The log that decides on views is Raft, or one
//! that lies; with that one nothing need go on, but nothing may go wrong either.

mod channels;
pub(super) mod checker;
mod faults;
mod inputs;
mod lock;
pub(super) mod logs;
mod plan;
mod world;

use core::time::Duration;

use self::plan::Plan;
use self::world::World;
use super::checkers::Violation;
use super::network::NetworkStats;
use super::trace::{Sink, Trace};

/// Which log decides on views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogKind {
    /// The one that agents use.
    Raft,
    /// One that decides several views in an epoch, and tells them to whom it likes.
    Lying,
}

/// What took place in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// Inputs of all processes.
    pub steps: u64,
    /// Entries into the lock.
    pub entries: u64,
    /// Views put in force, counted once an epoch.
    pub views: u64,
    /// Times a view in force had other voters than the one before.
    pub new_voters: u64,
    /// Memberships that ended because a view went on without them.
    pub exclusions: u64,
    /// Times a lease ran out under somebody who was inside.
    pub lapses: u64,
    /// Processes that crashed.
    pub crashes: u64,
    /// Of those: how many were inside.
    pub crashes_inside: u64,
    /// Processes that stood still for a while.
    pub pauses: u64,
    /// Partitions.
    pub partitions: u64,
    /// Members that left.
    pub leaves: u64,
    /// Voters that came back without their state.
    pub lost_states: u64,
    /// What the network did.
    pub network_stats: NetworkStats,
    /// Simulated time, in milliseconds.
    pub simulated_ms: u64,
}

impl Explored {
    /// Adds up.
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.entries += other.entries;
        self.views += other.views;
        self.new_voters += other.new_voters;
        self.exclusions += other.exclusions;
        self.lapses += other.lapses;
        self.crashes += other.crashes;
        self.crashes_inside += other.crashes_inside;
        self.pauses += other.pauses;
        self.partitions += other.partitions;
        self.leaves += other.leaves;
        self.lost_states += other.lost_states;
        self.network_stats.add(&other.network_stats);
        self.simulated_ms += other.simulated_ms;
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
pub fn explore(log: LogKind, seed: u64, sink: Option<Sink>) -> Result<(Explored, u64), Violation> {
    let mut world = World::new(log, Plan::new(seed), seed, Trace::new(sink));
    world.run()?;
    Ok(world.outcome())
}

/// How long it takes in a group of `hosts`, in which nothing else goes wrong, from the crash of a
/// host that is inside until another enters.
///
/// # Errors
/// The rule that was broken.
pub fn take_over(hosts: u16, lease: Duration, seed: u64) -> Result<Duration, Violation> {
    let plan = Plan::calm(hosts, lease);
    World::new(LogKind::Raft, plan, seed, Trace::new(None)).take_over()
}
