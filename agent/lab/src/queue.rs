//! What is going to happen, in order of time; what is planned for the same instant happens in the
//! order in which it was planned.

use alloc::collections::BTreeMap;

use distlock_protocol::Time;

/// The future of a simulation.
#[derive(Debug)]
pub(super) struct Queue<E> {
    events: BTreeMap<(Time, u64), E>,
    planned: u64,
}

impl<E> Queue<E> {
    pub(super) const fn new() -> Self {
        Self {
            events: BTreeMap::new(),
            planned: 0,
        }
    }

    pub(super) fn plan(&mut self, at: Time, event: E) {
        self.planned += 1;
        self.events.insert((at, self.planned), event);
    }

    /// The next event, if it is due by `end`.
    pub(super) fn pop_by(&mut self, end: Time) -> Option<(Time, E)> {
        let next = self
            .events
            .first_entry()
            .filter(|next| next.key().0 <= end)?;
        let ((at, _), event) = next.remove_entry();
        Some((at, event))
    }
}
