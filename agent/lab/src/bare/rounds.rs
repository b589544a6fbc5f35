//! When all that follows from a request can have been said.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::checkers::Call;

/// So many times all messages that were under way have arrived since a request was made: then whoever lets
/// it wait knows of it. It is asked for, and told to the one before it; that one may have been about to
/// pass the token to a try, so that the manager hears that first, and says it again; and shares are
/// recalled.
const ROUNDS: u32 = 6;

/// Counts for each request that waits how often all that was under way has arrived.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    under_way: BTreeSet<u64>,
    sent: u64,
    /// How many rounds are left, and the last message of the present one.
    waiting: BTreeMap<Call, (u32, u64)>,
}

impl Rounds {
    pub(super) fn sends(&mut self, number: u64) {
        self.under_way.insert(number);
        self.sent = number;
    }

    /// A request for a place has been sent, on behalf of that one.
    pub(super) fn begin(&mut self, call: Call) {
        self.waiting.insert(call, (ROUNDS, self.sent));
    }

    pub(super) fn ends(&mut self, call: Call) {
        self.waiting.remove(&call);
    }

    /// What was under way is gone.
    pub(super) fn begins_view(&mut self) {
        self.under_way.clear();
        let sent = self.sent;
        for rounds in self.waiting.values_mut() {
            *rounds = (ROUNDS, sent);
        }
    }

    /// Returns the requests of which all know from now on.
    pub(super) fn arrives(&mut self, number: u64) -> BTreeSet<Call> {
        self.under_way.remove(&number);
        let oldest = self.under_way.first().copied().unwrap_or(u64::MAX);
        let mut known = BTreeSet::new();
        for (call, (left, last)) in &mut self.waiting {
            if *left > 0 && oldest > *last {
                (*left, *last) = (*left - 1, self.sent);
                if *left == 0 {
                    known.insert(*call);
                }
            }
        }
        known
    }
}
