//! Random times, from a number that the host gives: SplitMix64 (Steele, Lea and Flood 2014).
//!
//! The core draws nothing by itself. Members whose seeds differ try again at different times, and
//! that is all it is for; nobody is kept from guessing.

use core::time::Duration;

/// A stream of random times.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The stream of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A time below `bound`, each as likely as any; 0 if `bound` is.
    pub fn below(&mut self, bound: Duration) -> Duration {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        let nanos = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(((u128::from(z) * u128::from(nanos)) >> 64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_below_their_bound_and_all_over_it() {
        let bound = Duration::from_millis(8);
        let mut chance = Chance::new(1);
        let mut eighths = [0; 8];
        for _ in 0..8000 {
            let time = chance.below(bound);
            assert!(time < bound);
            eighths[time.as_millis() as usize] += 1;
        }
        assert!(
            eighths.iter().all(|count| (800..1200).contains(count)),
            "{eighths:?}"
        );
        assert_eq!(chance.below(Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn another_seed_is_another_stream() {
        let hour = Duration::from_secs(3600);
        let first = |seed| Chance::new(seed).below(hour);
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
    }
}
