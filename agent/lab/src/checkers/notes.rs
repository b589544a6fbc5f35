//! Notes between agents.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{Process, Violation, violation};
use distlock_protocol::{NodeId, Time};

/// What one member sends to another arrives whole, once, and in the order of sending; it may be
/// lost with the incarnation of either.
#[derive(Debug, Default)]
pub struct Notes {
    /// All that was sent, by the sender's member and the receiver's.
    sent: BTreeMap<(NodeId, NodeId), Vec<Vec<u8>>>,
    /// How many of those the receiver may not get any more.
    passed: BTreeMap<(NodeId, NodeId), usize>,
}

impl Notes {
    /// `from` sends `bytes`, which differ from all it ever sent.
    pub fn sends(&mut self, from: Process, to: NodeId, bytes: &[u8]) {
        let sent = self.sent.entry((from.node, to)).or_default();
        sent.push(bytes.to_vec());
    }

    /// `to` gets `bytes`.
    ///
    /// # Errors
    /// They were never sent, or came before, or before others that came first.
    pub fn arrives(
        &mut self,
        now: Time,
        to: Process,
        from: NodeId,
        bytes: &[u8],
    ) -> Result<(), Violation> {
        let key = (from, to.node);
        let sent = self.sent.get(&key).map_or(&[][..], Vec::as_slice);
        let passed = self.passed.entry(key).or_default();
        match sent.iter().position(|note| note == bytes) {
            Some(place) if place >= *passed => {
                *passed = place + 1;
                Ok(())
            }
            place => {
                let fault: String =
                    place.map_or_else(|| "nobody sent".into(), |n| format!("is number {n}"));
                let (passed, length) = (*passed, bytes.len());
                Err(violation!(
                    now,
                    Notes,
                    "{to} gets from {from} a note of {length} bytes that {fault}, after {passed}"
                ))
            }
        }
    }
}
