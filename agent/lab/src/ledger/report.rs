//! What took place in worlds.

/// What happened in one world, or in many together: that what a world is for did take place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Worlds.
    pub worlds: u64,
    /// Inputs of all ledgers.
    pub steps: u64,
    /// Operations that the store has done, or refused for their versions.
    pub operations: u64,
    /// Of those: how many were done after their connection had ended.
    pub late: u64,
    /// Reads that showed what was before.
    pub stale: u64,
    /// Operations whose outcome was unknown.
    pub unknown: u64,
    /// Writes that met another version.
    pub conflicts: u64,
    /// Grants.
    pub grants: u64,
    /// Of those: how many share a lock.
    pub shared: u64,
    /// And how many were told that one before ended inside.
    pub abandoned: u64,
    /// Grants that were lost.
    pub lost: u64,
    /// How often what was granted became valid again after its lease was over.
    pub revived: u64,
    /// Requests that did not wait for a lock that was not free.
    pub busy: u64,
    /// Requests that found out nothing in time.
    pub no_answer: u64,
    /// Requests that only tried, and outwaited a holder that was gone.
    pub outwaited: u64,
    /// Requests that ended as the store was not there.
    pub unreachable: u64,
    /// Requests that were cancelled.
    pub cancelled: u64,
    /// Requests that said how the lock is served, and were wrong.
    pub wrong_spec: u64,
    /// Sessions begun.
    pub sessions: u64,
    /// Sessions that others ended.
    pub lost_sessions: u64,
    /// How often a session was declared dead.
    pub declared_dead: u64,
    /// Agents that crashed.
    pub crashes: u64,
    /// Of those: how many had somebody inside.
    pub crashes_inside: u64,
    /// Hosts that stood still.
    pub pauses: u64,
    /// Of those: how many for longer than a lease.
    pub long_pauses: u64,
    /// Connections that broke.
    pub cuts: u64,
    /// How often the store was away.
    pub outages: u64,
    /// How often it came back with less than it had.
    pub rollbacks: u64,
    /// How often a ledger noticed that.
    pub forgotten: u64,
    /// Agents that closed.
    pub closed: u64,
    /// How often an observer was told who is inside, or that nobody is.
    pub leaders: u64,
    /// How long it took until all were served after the faults, in milliseconds.
    pub healed_ms: u64,
}

impl Report {
    /// Adds up.
    pub fn add(&mut self, other: &Self) {
        self.worlds += other.worlds;
        self.steps += other.steps;
        self.operations += other.operations;
        self.late += other.late;
        self.stale += other.stale;
        self.unknown += other.unknown;
        self.conflicts += other.conflicts;
        self.grants += other.grants;
        self.shared += other.shared;
        self.abandoned += other.abandoned;
        self.lost += other.lost;
        self.revived += other.revived;
        self.busy += other.busy;
        self.no_answer += other.no_answer;
        self.outwaited += other.outwaited;
        self.unreachable += other.unreachable;
        self.cancelled += other.cancelled;
        self.wrong_spec += other.wrong_spec;
        self.sessions += other.sessions;
        self.lost_sessions += other.lost_sessions;
        self.declared_dead += other.declared_dead;
        self.crashes += other.crashes;
        self.crashes_inside += other.crashes_inside;
        self.pauses += other.pauses;
        self.long_pauses += other.long_pauses;
        self.cuts += other.cuts;
        self.outages += other.outages;
        self.rollbacks += other.rollbacks;
        self.forgotten += other.forgotten;
        self.closed += other.closed;
        self.leaders += other.leaders;
        self.healed_ms += other.healed_ms;
    }
}
