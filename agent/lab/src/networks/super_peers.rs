//! Super-peers by identifier: of the m bits of an identifier the first k are reserved (the
//! lecture's structured peer-to-peer networks).
//!
//! A key's super-peer is the node that is responsible for the key with all but its first k bits
//! cleared: in a ring of identifiers the first node from there on. It is a function of who is
//! there, and is computed anew with each view; no message is sent.
//!
//! Read so, there are at most 2^k super-peers, however many nodes there are. One can also read it
//! as "nodes whose identifier ends in zeros", of which there are about 2^(k-m) times the number of
//! nodes: [`IdentifierSpace::is_reserved`]. The lecture has it that this easily meets all four
//! requirements. By itself it bounds neither how far a super-peer is away nor how many nodes it
//! serves.

use alloc::collections::BTreeSet;

/// Identifiers of m bits, of which the first k name super-peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IdentifierSpace {
    bits: u32,
    reserved: u32,
}

impl IdentifierSpace {
    /// Identifiers of `bits` bits, 1 to 64, of which the first `reserved` name super-peers; `None`
    /// if there are no such.
    pub const fn new(bits: u32, reserved: u32) -> Option<Self> {
        if bits < 1 || bits > 64 || reserved > bits {
            return None;
        }
        Some(Self { bits, reserved })
    }

    /// The highest identifier.
    const fn last(self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    /// `key` with all but its reserved bits cleared.
    pub const fn pattern(self, key: u64) -> u64 {
        let rest = self.bits - self.reserved;
        let cleared = if rest == 64 { 0 } else { u64::MAX << rest };
        key & self.last() & cleared
    }

    /// Whether `id` is one of the 2^k identifiers that are patterns themselves.
    pub const fn is_reserved(self, id: u64) -> bool {
        id == self.pattern(id)
    }

    /// The super-peer of `key` among `nodes`, which are their identifiers; `None` if there are
    /// none.
    pub fn super_peer(self, key: u64, nodes: &BTreeSet<u64>) -> Option<u64> {
        let from_there_on = nodes.range(self.pattern(key)..=self.last());
        let around = nodes.range(..=self.last());
        from_there_on.chain(around).next().copied()
    }

    /// All super-peers among `nodes`. What is found is as many steps as there are nodes.
    pub fn super_peers(self, nodes: &BTreeSet<u64>) -> BTreeSet<u64> {
        let mut peers = BTreeSet::new();
        let mut pattern = 0;
        // From pattern to pattern, but past those that have the same super-peer.
        while let Some(peer) = self.super_peer(pattern, nodes) {
            peers.insert(peer);
            let rest = self.bits - self.reserved;
            let after = (u128::from(peer.max(pattern)) >> rest) + 1;
            let next = after << rest;
            if peer < pattern || next > u128::from(self.last()) {
                // It went round: the patterns that are left have the first node.
                break;
            }
            pattern = next as u64;
        }
        peers
    }
}
