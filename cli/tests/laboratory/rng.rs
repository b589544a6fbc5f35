//! Chance that follows from a seed.

use distlock_agent::protocol::chance::Chance;

/// The protocol's generator, with more to draw.
#[derive(Clone, Debug)]
pub(crate) struct Rng(Chance);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Chance::new(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// At least `from`, less than `to`.
    pub(crate) fn range(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to - from)
    }

    pub(crate) fn happens(&mut self, per_mille: u64) -> bool {
        self.range(0, 1_000) < per_mille
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.range(0, last as u64 + 1) as usize;
            items.swap(last, other);
        }
    }
}
