//! What status tells of a lock.

use crate::ids::{Fence, LockName, Ticket};
use crate::lock::LockSpec;
use crate::lock::queue::LocalQueue;

/// One lock, as its member sees it.
#[derive(Debug)]
pub struct LockView<'a> {
    /// Its name.
    pub name: &'a LockName,
    /// How it is served; `None` while that is being asked.
    pub spec: Option<LockSpec>,
    /// Whether the lock waits until the lease of a lost member is over that may hold it.
    pub is_quarantined: bool,
    pub(super) queue: &'a LocalQueue,
}

impl LockView<'_> {
    /// This member's callers that are inside, with their fences.
    pub fn holders(&self) -> impl Iterator<Item = (Ticket, Fence)> + '_ {
        self.queue
            .held()
            .iter()
            .filter_map(|held| Some((held.ticket?, held.fence)))
    }

    /// This member's callers that wait, in order.
    pub fn waiters(&self) -> impl Iterator<Item = Ticket> + '_ {
        self.queue.callers().map(|caller| caller.ticket)
    }
}
