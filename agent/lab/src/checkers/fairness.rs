//! Fairness: how often a request is overtaken by later ones.

use alloc::collections::BTreeMap;

use super::{Call, Violation, violation};
use distlock_protocol::{Mode, NodeId, Time};

/// How often one member may be let in by requests that were made later than one that waits: once in the
/// place of a caller that gave up, and once as a reader among those that the waiting one is behind anyway.
const OVERTAKES: u32 = 2;

/// Where a manager has a list, requests are served in its order: once all know of a request, each other
/// member goes before it by later requests as often as it may, and no more. A reader does not mind other
/// readers.
///
/// Nobody outside can see when all know of a request. Whoever carries messages says when any number of
/// messages of consequence have arrived since a place was asked for. One that only tries gets no place, and
/// one that takes the place of a caller that gave up may lose it.
#[derive(Debug, Default)]
pub struct Fairness {
    waiting: BTreeMap<Call, Waiting>,
    asked: u64,
    /// How many callers of one member may enter in a row.
    batch: u32,
}

#[derive(Debug)]
struct Waiting {
    mode: Mode,
    /// Its place in the order of requests.
    asked: u64,
    /// What was asked before all knew of it.
    known_at: Option<u64>,
    overtaken_by: BTreeMap<NodeId, u32>,
}

impl Fairness {
    /// So many callers of one member may enter in a row before others that wait, since they ask as soon as the
    /// one before them has left.
    pub fn allow_batches(&mut self, batch: u32) {
        self.batch = batch;
    }

    /// `call` asks to enter.
    pub fn asks(&mut self, call: Call, mode: Mode) {
        self.asked += 1;
        let waiting = Waiting {
            mode,
            asked: self.asked,
            known_at: None,
            overtaken_by: BTreeMap::new(),
        };
        self.waiting.insert(call, waiting);
    }

    /// A place was asked for, on behalf of `call`: its first, or one in place of one that was lost. Or it has
    /// been served, and does not know yet.
    pub fn is_unknown(&mut self, call: Call) {
        if let Some(waiting) = self.waiting.get_mut(&call) {
            waiting.known_at = None;
            waiting.overtaken_by.clear();
        }
    }

    /// All know of `call`.
    pub fn is_known(&mut self, call: Call) {
        if let Some(waiting) = self.waiting.get_mut(&call) {
            waiting.known_at = Some(self.asked);
        }
    }

    /// `call` does not wait any more.
    pub fn ends(&mut self, call: Call) {
        self.waiting.remove(&call);
    }

    /// A view has begun: all requests are made once more.
    pub fn begins_view(&mut self) {
        for waiting in self.waiting.values_mut() {
            waiting.known_at = None;
            waiting.overtaken_by.clear();
        }
    }

    /// `call` is let in.
    ///
    /// # Errors
    /// Its member went before another too often.
    pub fn grants(&mut self, now: Time, call: Call) -> Result<(), Violation> {
        let Some(granted) = self.waiting.remove(&call) else {
            return Ok(());
        };
        let node = call.process.node;
        for (waiter, waiting) in &mut self.waiting {
            let is_later = waiting.known_at.is_some_and(|known| granted.asked > known);
            let together = granted.mode == Mode::Shared && waiting.mode == Mode::Shared;
            if !is_later || together || waiter.process.node == node {
                continue;
            }
            let count = waiting.overtaken_by.entry(node).or_default();
            *count += 1;
            if *count > OVERTAKES + self.batch {
                return Err(violation!(
                    now,
                    Fairness,
                    "{call} is let in before {waiter}, which was known to all before, as the {count}th of its member"
                ));
            }
        }
        Ok(())
    }
}
