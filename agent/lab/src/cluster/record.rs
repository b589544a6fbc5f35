//! The history of a simulated cluster, where it is kept: what diagrams are drawn from.

use alloc::collections::BTreeSet;
use core::ops::Range;

use super::Cluster;
use crate::history::What;
use distlock_protocol::dissect;
use distlock_protocol::ids::Incarnation;
use distlock_protocol::wire::Header;
use distlock_protocol::{Command, Event, NodeId};

/// The engines' messages that went out, where the history is kept.
#[derive(Debug, Default)]
pub(super) struct Transmissions {
    count: u64,
    /// Those that went out before: from which incarnation of whom, to whom, with which number.
    known: BTreeSet<(NodeId, Incarnation, NodeId, u64)>,
}

impl<A> Cluster<A> {
    /// Adds the engines' messages in a datagram that goes out to the history; their numbers there.
    pub(super) fn record_messages(&mut self, header: &Header, payload: &[u8]) -> Range<u64> {
        let Transmissions { count, known } = &mut self.transmissions;
        let first = *count + 1;
        if !self.hosts.trace.has_history() {
            return first..first;
        }
        let (from, to) = (header.from, header.to);
        let messages = dissect::engine_messages(header, payload).into_iter();
        for message in messages.filter(|message| !message.elects) {
            *count += 1;
            let sent = What::Sent {
                message: *count,
                to,
                kind: message.kind,
                again: !known.insert((from, header.from_incarnation, to, message.number)),
            };
            self.hosts.trace.record(self.hosts.now(), from, sent);
        }
        first..*count + 1
    }

    /// Adds to the history what a caller at `node` wants.
    pub(super) fn record_command(&mut self, node: NodeId, command: &Command) {
        let what = match command {
            Command::Acquire { ticket, .. } => What::Asked {
                request: ticket.0,
                stamp: None,
            },
            Command::Release { ticket, .. } => What::Left { request: ticket.0 },
            _ => return,
        };
        self.hosts.trace.record(self.hosts.now(), node, what);
    }

    /// Adds to the history what a node tells its callers.
    pub(super) fn record_event(&mut self, node: NodeId, event: &Event) {
        let what = match event {
            Event::Granted { ticket, fence, .. } => What::Entered {
                request: ticket.0,
                fence: *fence,
            },
            Event::Lost { ticket } => What::Lost { request: ticket.0 },
            Event::View { epoch, members } => What::View {
                epoch: *epoch,
                members: members.clone(),
            },
            _ => return,
        };
        self.hosts.trace.record(self.hosts.now(), node, what);
    }
}
