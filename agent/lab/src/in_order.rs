//! What links do for algorithms that need it: the order of sending, between any two members.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use distlock_protocol::NodeId;

/// Keeps what overtakes others until it is its turn. What comes a second time, and late, is passed
/// on as it comes.
#[derive(Debug)]
pub(super) struct InOrder<T>(BTreeMap<(NodeId, NodeId), Way<T>>);

#[derive(Debug)]
struct Way<T> {
    sent: u64,
    passed: u64,
    early: BTreeMap<u64, Vec<T>>,
}

impl<T> Default for InOrder<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> Default for Way<T> {
    fn default() -> Self {
        let early = BTreeMap::new();
        Self {
            sent: 0,
            passed: 0,
            early,
        }
    }
}

impl<T> InOrder<T> {
    /// The number of the next message from `from` to `to`; all its copies have it.
    pub(super) fn number(&mut self, from: NodeId, to: NodeId) -> u64 {
        let way = self.0.entry((from, to)).or_default();
        way.sent += 1;
        way.sent
    }

    /// A message arrives. Returns all whose turn it is now, in order.
    pub(super) fn arrives(&mut self, from: NodeId, to: NodeId, number: u64, message: T) -> Vec<T> {
        let way = self.0.entry((from, to)).or_default();
        if number <= way.passed {
            return vec![message];
        }
        way.early.entry(number).or_default().push(message);
        let mut next = Vec::new();
        while let Some(copies) = way.early.remove(&(way.passed + 1)) {
            way.passed += 1;
            next.extend(copies);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overtakes_and_copies_may_come_late() {
        let [a, b] = [1, 2].map(|id| NodeId::new(id).expect("not zero"));
        let mut ways = InOrder::default();
        let numbers = [1, 2, 3].map(|_| ways.number(a, b));
        assert_eq!(numbers, [1, 2, 3]);
        assert_eq!(ways.number(b, a), 1, "another way");
        assert_eq!(ways.arrives(a, b, 3, "third"), [""; 0]);
        assert_eq!(ways.arrives(a, b, 2, "second"), [""; 0]);
        assert_eq!(ways.arrives(a, b, 2, "second"), [""; 0]);
        let all = ["first", "second", "second", "third"];
        assert_eq!(ways.arrives(a, b, 1, "first"), all);
        assert_eq!(ways.arrives(a, b, 1, "first"), ["first"]);
    }
}
