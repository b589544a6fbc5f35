//! What took place in a campaign.

use super::network::NetworkStats;

/// What happened in one run, or in many together: a campaign shows by it that what it is for did
/// take place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Runs.
    pub runs: u64,
    /// Inputs of all nodes.
    pub steps: u64,
    /// Grants.
    pub grants: u64,
    /// Of those: how many entered by a loan, without their node.
    pub by_loan: u64,
    /// How many of these were inside when the loan was recalled.
    pub recalled: u64,
    /// Grants that say that a predecessor ended inside.
    pub abandoned: u64,
    /// Callers that ended inside while their members lived.
    pub deaths: u64,
    /// Requests that ended because they were cancelled.
    pub cancelled: u64,
    /// Requests that did not wait for a lock that was not free.
    pub busy: u64,
    /// Requests that could not find out whether the lock was free.
    pub no_answer: u64,
    /// Requests that gave up because members were missing.
    pub no_quorum: u64,
    /// Requests that were refused because the lock is served otherwise.
    pub wrong_spec: u64,
    /// Requests to lead.
    pub campaigns: u64,
    /// Those that did.
    pub led: u64,
    /// How often an observer was told that another leads.
    pub leaders_told: u64,
    /// Notes sent.
    pub notes: u64,
    /// Processes that crashed.
    pub crashes: u64,
    /// Of those: how many had somebody inside.
    pub crashes_inside: u64,
    /// Members that came back without their record, as if their disk had been lost.
    pub lost_records: u64,
    /// Hosts that stood still for a while.
    pub pauses: u64,
    /// Incarnations without which a view has gone on.
    pub exclusions: u64,
    /// Records that were lost while others were already.
    pub lost_together: u64,
    /// Acts of operators.
    pub operations: u64,
    /// Of those: how often files listed other members or voters.
    pub lists: u64,
    /// How often they had another lease.
    pub leases: u64,
    /// Members that ran with another file than the others until the faults stopped.
    pub odd_files: u64,
    /// How often a command named other voters.
    pub revotes: u64,
    /// How often one removed a member.
    pub removals: u64,
    /// How often all voters lost their records.
    pub lost_majorities: u64,
    /// How often an operator said that a cluster is abandoned.
    pub recoveries: u64,
    /// Members that left.
    pub leaves: u64,
    /// Views installed, counted once at each member.
    pub views: u64,
    /// Suspicions.
    pub suspicions: u64,
    /// Partitions.
    pub partitions: u64,
    /// Datagrams that were forged.
    pub forged: u64,
    /// Misfortunes that were aimed, each several together.
    pub aimed: u64,
    /// Where the silent are presumed gone: how often one was that ran.
    pub splits: u64,
    /// How often all were in one view after that.
    pub merges: u64,
    /// Grants between the two.
    pub judged: u64,
    /// Grants that were lost to another view.
    pub lost: u64,
    /// What the network did.
    pub network_stats: NetworkStats,
    /// Simulated time, in milliseconds.
    pub simulated_ms: u64,
}

impl Report {
    /// Adds up.
    pub fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.steps += other.steps;
        self.grants += other.grants;
        self.by_loan += other.by_loan;
        self.recalled += other.recalled;
        self.abandoned += other.abandoned;
        self.deaths += other.deaths;
        self.cancelled += other.cancelled;
        self.busy += other.busy;
        self.no_answer += other.no_answer;
        self.no_quorum += other.no_quorum;
        self.wrong_spec += other.wrong_spec;
        self.campaigns += other.campaigns;
        self.led += other.led;
        self.leaders_told += other.leaders_told;
        self.notes += other.notes;
        self.crashes += other.crashes;
        self.crashes_inside += other.crashes_inside;
        self.lost_records += other.lost_records;
        self.pauses += other.pauses;
        self.exclusions += other.exclusions;
        self.lost_together += other.lost_together;
        self.operations += other.operations;
        self.lists += other.lists;
        self.leases += other.leases;
        self.odd_files += other.odd_files;
        self.revotes += other.revotes;
        self.removals += other.removals;
        self.lost_majorities += other.lost_majorities;
        self.recoveries += other.recoveries;
        self.leaves += other.leaves;
        self.views += other.views;
        self.suspicions += other.suspicions;
        self.partitions += other.partitions;
        self.forged += other.forged;
        self.aimed += other.aimed;
        self.splits += other.splits;
        self.merges += other.merges;
        self.judged += other.judged;
        self.lost += other.lost;
        self.network_stats.add(&other.network_stats);
        self.simulated_ms += other.simulated_ms;
    }
}
