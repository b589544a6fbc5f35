//! What a node has counted.

use alloc::collections::BTreeMap;

use crate::lock::Algorithm;
use crate::wire::Drop;

/// Counts since the node's start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that engines sent to other members, by algorithm and kind: what the literature
    /// counts.
    pub engine_messages: BTreeMap<(Algorithm, &'static str), u64>,
    /// Messages of elections to other members, by kind.
    pub election_messages: BTreeMap<&'static str, u64>,
    /// Datagrams handed out for sending.
    pub datagrams_sent: u64,
    /// Datagrams taken in that were not dropped.
    pub datagrams_received: u64,
    /// Datagrams dropped, by reason.
    pub dropped: BTreeMap<Drop, u64>,
    /// Notes that were not sent, as too much waited to be sent to that member already.
    pub notes_lost: u64,
    /// Long notices that were not sent for the same reason: they are said again later.
    pub notices_unsent: u64,
    /// Messages between engines that made no sense where they came.
    pub misplaced: u64,
    /// Messages about locks that were said in a view that is over, or that this member was not in.
    pub past_view: u64,
}

impl Counters {
    /// All messages that engines sent.
    pub fn engine_messages_total(&self) -> u64 {
        self.engine_messages.values().sum()
    }

    pub(super) fn drop(&mut self, reason: Drop) {
        *self.dropped.entry(reason).or_default() += 1;
    }
}
