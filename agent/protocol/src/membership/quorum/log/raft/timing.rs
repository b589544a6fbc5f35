//! How often a leader is heard of, and when others want to lead.

use core::time::Duration;

/// How long a log waits for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    pub(super) heartbeat: Duration,
    pub(super) election: Duration,
}

impl Timing {
    /// A leader is heard of every `heartbeat`; who hears of none for `election`, and up to that
    /// again by chance, wants to lead.
    ///
    /// # Panics
    /// If `heartbeat` is zero, or more than half of `election`: then a single loss would topple
    /// the leader.
    pub fn new(heartbeat: Duration, election: Duration) -> Self {
        assert!(
            !heartbeat.is_zero() && heartbeat * 2 <= election,
            "two heartbeats must fit an election's time-out"
        );
        Self {
            heartbeat,
            election,
        }
    }

    /// What goes with a lease: a leader that died has a successor before its members' leases end.
    ///
    /// # Panics
    /// If the lease is shorter than 20 ns.
    pub fn of_lease(lease: Duration) -> Self {
        Self::new(lease / 20, lease / 4)
    }
}
