//! A test switch: outgoing datagrams are dropped, duplicated and damaged, by a seed.
//!
//! For tests alone. No configuration file, flag or environment variable reaches it.

use crate::protocol::chance::Chance;

/// How many of a thousand outgoing datagrams suffer what. Each is drawn for itself, so a datagram
/// can be both duplicated and damaged.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// What the draws follow from.
    pub seed: u64,
    /// Never sent.
    pub drop_per_mille: u16,
    /// Sent twice.
    pub duplicate_per_mille: u16,
    /// Sent with one bit flipped.
    pub corrupt_per_mille: u16,
}

/// Draws the faults.
#[derive(Debug)]
pub(super) struct Injector {
    faults: Faults,
    chance: Chance,
}

impl Injector {
    pub(super) fn new(faults: Faults) -> Self {
        Self {
            faults,
            chance: Chance::new(faults.seed),
        }
    }

    /// What is to be sent in place of `bytes`, in order.
    pub(super) fn suffer(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        if self.happens(self.faults.drop_per_mille) {
            return sent;
        }
        sent.push(self.perhaps_damaged(bytes));
        if self.happens(self.faults.duplicate_per_mille) {
            sent.push(self.perhaps_damaged(bytes));
        }
        sent
    }

    fn perhaps_damaged(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        if self.happens(self.faults.corrupt_per_mille) && !bytes.is_empty() {
            let bit = self.chance.number_below(bytes.len() as u64 * 8) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        bytes
    }

    fn happens(&mut self, per_mille: u16) -> bool {
        self.chance.number_below(1_000) < u64::from(per_mille)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_as_asked_and_follow_the_seed() {
        let faults = Faults {
            seed: 7,
            drop_per_mille: 100,
            duplicate_per_mille: 100,
            corrupt_per_mille: 100,
        };
        let original = [0u8; 64];
        let run = || {
            let mut injector = Injector::new(faults);
            (0..20_000)
                .map(|_| injector.suffer(&original))
                .collect::<Vec<_>>()
        };
        let sent = run();
        assert_eq!(sent, run());
        let count = |n| sent.iter().filter(|copies| copies.len() == n).count();
        let damaged = sent
            .iter()
            .flatten()
            .filter(|copy| copy[..] != original)
            .count();
        assert!((1_800..2_200).contains(&count(0)), "dropped {}", count(0));
        assert!(
            (1_600..2_000).contains(&count(2)),
            "duplicated {}",
            count(2)
        );
        assert!((1_800..2_200).contains(&damaged), "damaged {damaged}");
    }
}
