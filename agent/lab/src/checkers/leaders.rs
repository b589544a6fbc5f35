//! Who leads.

use alloc::collections::BTreeSet;

use super::{Call, Violation, violation};
use distlock_protocol::election::Leader;
use distlock_protocol::{Fence, LockName, NodeId, Time};

/// Whoever is said to lead was let into the lock, upon a campaign, with the fence that is told: a
/// nomination alone never makes a leader. Where the silent are presumed gone, both sides of a cut may
/// give the same fence. That there is one leader at a time is what the lock sees to.
#[derive(Debug, Default)]
pub struct Leaders {
    campaigns: BTreeSet<Call>,
    led: BTreeSet<(LockName, Fence, NodeId)>,
}

impl Leaders {
    /// `call` wants to lead.
    pub fn campaigns(&mut self, call: Call) {
        self.campaigns.insert(call);
    }

    /// `call` is granted `lock`.
    pub fn grants(&mut self, call: Call, lock: &LockName, fence: Fence) {
        if self.campaigns.contains(&call) {
            self.led.insert((lock.clone(), fence, call.process.node));
        }
    }

    /// Somebody says that `leader` leads.
    ///
    /// # Errors
    /// It was never let in.
    pub fn told(&self, now: Time, lock: &LockName, leader: Leader) -> Result<(), Violation> {
        let told = (lock.clone(), leader.fence, leader.node);
        if self.led.contains(&told) {
            return Ok(());
        }
        Err(violation!(
            now,
            Leaders,
            "member {} is said to lead {lock} with fence {}, which it was not granted",
            leader.node,
            leader.fence
        ))
    }
}
