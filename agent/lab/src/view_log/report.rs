//! What took place in schedules.

use crate::network::NetworkStats;

/// What happened in one schedule, or in many together: that what a schedule is for did take place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Schedules.
    pub schedules: u64,
    /// Events.
    pub steps: u64,
    /// Proposals that a leader took.
    pub proposed: u64,
    /// Of those: with another voter, or one less.
    pub changes: u64,
    /// Decisions, counted at each voter that was told of one.
    pub told: u64,
    /// Crashes of voters that were up.
    pub crashes: u64,
    /// Of those: with a record on its way to the disk.
    pub torn: u64,
    /// Times that power failed: most voters crashed at once.
    pub blackouts: u64,
    /// Voters that crashed right after their vote for another was durable.
    pub voter_flaps: u64,
    /// Times that a voter stood still.
    pub pauses: u64,
    /// Times that links were cut.
    pub cuts: u64,
    /// What the network did.
    pub network_stats: NetworkStats,
    /// Snapshots for voters that had missed something.
    pub snapshots: u64,
    /// Words to removed voters.
    pub retired: u64,
    /// Voters asked to lead.
    pub take_overs: u64,
    /// Removed voters that stopped for good.
    pub stopped: u64,
    /// Schedules that healed without one of the voters.
    pub spared: u64,
    /// How long healing took, in milliseconds.
    pub healed_ms: u64,
    /// How long it took at most.
    pub slowest_ms: u64,
}

impl Report {
    /// Adds up.
    pub fn add(&mut self, other: &Self) {
        self.schedules += other.schedules;
        self.steps += other.steps;
        self.proposed += other.proposed;
        self.changes += other.changes;
        self.told += other.told;
        self.crashes += other.crashes;
        self.torn += other.torn;
        self.blackouts += other.blackouts;
        self.voter_flaps += other.voter_flaps;
        self.pauses += other.pauses;
        self.cuts += other.cuts;
        self.network_stats.add(&other.network_stats);
        self.snapshots += other.snapshots;
        self.retired += other.retired;
        self.take_overs += other.take_overs;
        self.stopped += other.stopped;
        self.spared += other.spared;
        self.healed_ms += other.healed_ms;
        self.slowest_ms = self.slowest_ms.max(other.slowest_ms);
    }
}
