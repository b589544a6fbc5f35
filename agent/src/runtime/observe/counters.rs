//! What an agent counts.

use crate::protocol::node;
use crate::protocol::wire::Drop as Dropped;
use crate::runtime::net::transport::TransportCounters;

/// What an agent has counted since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// What the protocol counted: engines' messages by kind, datagrams dropped by reason.
    pub node: node::Counters,
    /// What the sockets saw.
    pub transport: TransportCounters,
    /// Notes of other agents that found no room.
    pub notes_lost: u64,
    /// Notes of other agents that could not be read, as of another version.
    pub notes_malformed: u64,
}

impl Counters {
    /// What was dropped, by reason; without reasons for which nothing was. First the datagrams that do
    /// not count as received, then those that do, then what was in datagrams that were taken, of which
    /// there may be several in one, and last what was to be sent.
    pub(crate) fn dropped(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let socket = &self.transport;
        let by_socket = [
            ("by-kernel", socket.dropped_by_kernel),
            ("foreign", socket.dropped_foreign),
            ("too-long", socket.dropped_truncated),
            ("malformed", socket.dropped_malformed),
            ("not-sealed", socket.dropped_unsealed),
            ("sealed", socket.dropped_sealed),
            ("unknown-key", socket.dropped_unknown_key),
            ("forged", socket.dropped_forged),
            ("replayed", socket.dropped_replayed),
            ("unproven", socket.dropped_unproven),
            ("stale-handshake", socket.dropped_stale),
            ("strange", socket.dropped_strange),
            ("receive-error", socket.receive_errors),
            ("malformed-multicast", socket.dropped_multicast),
        ];
        let by_core = self.node.dropped.iter().map(|(why, &count)| {
            let why = match why {
                Dropped::Length => "length",
                Dropped::Version => "version",
                Dropped::Checksum => "checksum",
                Dropped::Group => "group",
                Dropped::Address => "address",
                Dropped::Malformed => "malformed-content",
                Dropped::Stale => "stale",
                Dropped::Stranger => "stranger",
                Dropped::Early => "early",
            };
            (why, count)
        });
        let messages = [
            ("past-view", self.node.past_view),
            ("misplaced", self.node.misplaced),
            ("too-many-notes", self.notes_lost),
            ("malformed-note", self.notes_malformed),
            ("unsent-note", self.node.notes_lost),
            ("unsent-notice", self.node.notices_unsent),
        ];
        let all: Vec<_> = by_socket
            .into_iter()
            .chain(by_core)
            .chain(messages)
            .collect();
        all.into_iter().filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// What sockets and nodes count as dropped, each under a word of its own.
    #[test]
    fn all_that_is_dropped_is_shown() {
        let mut counters = Counters::default();
        assert_eq!(counters.dropped().count(), 0);
        let socket = &mut counters.transport;
        (socket.receive_errors, socket.dropped_multicast) = (1, 2);
        (socket.dropped_malformed, socket.dropped_strange) = (3, 4);
        let node = &mut counters.node;
        (node.past_view, node.misplaced) = (5, 6);
        (node.notes_lost, node.notices_unsent) = (10, 11);
        node.dropped = BTreeMap::from([(Dropped::Malformed, 7)]);
        (counters.notes_lost, counters.notes_malformed) = (8, 9);
        let dropped: BTreeMap<_, _> = counters.dropped().collect();
        let expected = [
            ("receive-error", 1),
            ("malformed-multicast", 2),
            ("malformed", 3),
            ("strange", 4),
            ("past-view", 5),
            ("misplaced", 6),
            ("malformed-content", 7),
            ("too-many-notes", 8),
            ("malformed-note", 9),
            ("unsent-note", 10),
            ("unsent-notice", 11),
        ];
        assert_eq!(dropped, BTreeMap::from(expected));
    }
}
