//! Datagrams that somebody between the members forges, where nothing is sealed.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Cluster, Datagram};
use distlock_protocol::NodeId;
use distlock_protocol::wire::correct;

/// How many of the latest datagrams there are to make others of.
const MOST: usize = 1_000;

/// What was sent: from whom, to whom, and what.
#[derive(Debug, Default)]
pub(super) struct Overheard(VecDeque<(NodeId, NodeId, Vec<u8>)>);

/// How a datagram is changed.
#[derive(Clone, Copy, Debug)]
pub struct Forgery {
    /// Which: 0 is the one that was sent last.
    pub which: usize,
    /// Where, from the start on; if it is shorter, from the start again.
    pub at: usize,
    /// What that byte becomes.
    pub byte: u8,
    /// Whether it ends there.
    pub cuts: bool,
}

impl<A> Cluster<A> {
    /// From now on datagrams may be forged, and what follows from that is not judged: what nothing
    /// protects can be broken so.
    pub fn allow_forgery(&mut self) {
        self.overheard = Some(Overheard::default());
        self.checkers.distrust_datagrams();
    }

    /// A datagram that was sent comes again, changed, with the right checksum.
    pub fn forge(&mut self, forgery: Forgery) {
        let Some(Overheard(sent)) = &self.overheard else {
            return;
        };
        let which = forgery.which % sent.len().max(1);
        let Some((from, to, mut bytes)) = sent.iter().rev().nth(which).cloned() else {
            return;
        };
        let at = forgery.at % bytes.len();
        bytes[at] = forgery.byte;
        if forgery.cuts {
            bytes.truncate(at);
        }
        correct(self.group, &mut bytes);
        self.say(format_args!("forged, from {from} to {to}: {bytes:x?}"));
        let messages = 0..0;
        self.hosts.slip_in(from, to, Datagram { bytes, messages });
    }

    pub(super) fn overhear(&mut self, from: NodeId, to: NodeId, bytes: &[u8]) {
        if let Some(Overheard(sent)) = &mut self.overheard {
            if sent.len() == MOST {
                sent.pop_front();
            }
            sent.push_back((from, to, bytes.to_vec()));
        }
    }
}
