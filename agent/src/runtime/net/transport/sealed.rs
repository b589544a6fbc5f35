//! What is sealed on its way out, and opened on its way in.

use super::sender_faults::Fault;
use super::{Received, Transport};
use crate::protocol::{NodeId, wire};
use crate::runtime::net::aead::{self, KeyId, KeyRing, Opened, Why};
use crate::runtime::os::clock;

impl Transport {
    /// Opens, in `buffer`, what came there, and counts it.
    pub(super) fn unseal(
        &mut self,
        came: Received,
        by_multicast: bool,
        buffer: &mut [u8],
    ) -> Received {
        let opened = self.try_unseal(came, by_multicast, buffer);
        if let Received::Datagram { at, .. } = &opened {
            self.counters.received += 1;
            self.counters.received_bytes += at.len() as u64;
        }
        opened
    }

    fn try_unseal(&mut self, came: Received, by_multicast: bool, buffer: &mut [u8]) -> Received {
        let Received::Datagram { from, at } = came else {
            return came;
        };
        let Some(sealing) = &mut self.sealing else {
            if buffer[at.clone()].first() == Some(&aead::VERSION) {
                self.counters.dropped_sealed += 1;
                self.sender_faults.note(clock::now(), from, Fault::Sealed);
                return Received::Dropped;
            }
            self.heed_version(from, buffer[at.clone()].first());
            return Received::Datagram { from, at };
        };
        match sealing.seals.open(from, by_multicast, &mut buffer[at]) {
            Opened::Datagram(at) => {
                self.heed_version(from, buffer[at.clone()].first());
                return Received::Datagram { from, at };
            }
            Opened::Reply { bytes, to } => {
                match to {
                    aead::Asked::Unproven => self.counters.dropped_unproven += 1,
                    aead::Asked::Challenged => self.counters.handshakes += 1,
                }
                if let Some(address) = self.peers.get(&from).cloned() {
                    self.send_out(&address, &bytes);
                }
            }
            Opened::Believed => self.counters.handshakes += 1,
            Opened::Dropped(why) => {
                let counters = &mut self.counters;
                *match why {
                    Why::Unsealed => &mut counters.dropped_unsealed,
                    Why::Malformed | Why::OtherVersion(_) => &mut counters.dropped_malformed,
                    Why::UnknownKey(_) => &mut counters.dropped_unknown_key,
                    Why::Forged => &mut counters.dropped_forged,
                    Why::Replayed => &mut counters.dropped_replayed,
                    Why::Stale => &mut counters.dropped_stale,
                    Why::Strange => &mut counters.dropped_strange,
                } += 1;
                let fault = match why {
                    Why::Unsealed => Fault::NotSealed,
                    Why::UnknownKey(key) => Fault::OtherKey(key),
                    Why::OtherVersion(version) => Fault::OtherVersion(version),
                    _ => return Received::Dropped,
                };
                self.sender_faults.note(clock::now(), from, fault);
            }
        }
        Received::Dropped
    }

    /// Another turn, in which a bounded number of datagrams is received.
    pub(crate) fn begin_turn(&mut self) {
        if let Some(sealing) = &mut self.sealing {
            sealing.seals.begin_turn();
        }
    }

    /// The keys that are good from now on.
    pub(crate) fn change_keys(&mut self, keys: KeyRing) {
        if let Some(sealing) = &mut self.sealing {
            self.sender_faults.forget();
            sealing.seals.change_keys(keys);
        }
    }

    /// The first byte of what came from that member, and could be opened, says its version.
    fn heed_version(&mut self, from: NodeId, version: Option<&u8>) {
        match version {
            Some(&version) if version != wire::VERSION => {
                let fault = Fault::OtherVersion(aead::version_of(version));
                self.sender_faults.note(clock::now(), from, fault);
            }
            _ => self.sender_faults.clear(from),
        }
    }

    /// What is wrong with all that comes from that member's address, if that is certain.
    pub(crate) fn fault_of(&self, member: NodeId) -> Option<Fault> {
        self.sender_faults.of(member)
    }

    /// The ids of the keys that are good; that of the one that seals comes first. None where this
    /// group has no key.
    pub(crate) fn keys(&self) -> impl Iterator<Item = KeyId> {
        let sealing = self.sealing.iter();
        sealing.flat_map(|sealing| sealing.seals.keys().ids())
    }
}
