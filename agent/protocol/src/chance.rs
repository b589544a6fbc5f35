//! Chance that follows from a seed: SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable
//! pseudorandom number generators").
//!
//! Written out, because a seed must mean the same run for as long as the code under test is the same: a
//! library may change its generator between two versions.
//!
//! The core draws nothing by itself. Members whose seeds differ try again at different times, and
//! that is all it is for there; nobody is kept from guessing.

use core::time::Duration;

/// A stream of random numbers and times.
#[derive(Clone, Debug, Hash)]
pub struct Chance(u64);

impl Chance {
    /// The stream of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 bits, each as likely as not.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, 0 if `bound` is. Its bias is below `bound` / 2^64.
    pub fn number_below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A time below `bound`, each as likely as any; 0 if `bound` is.
    pub fn below(&mut self, bound: Duration) -> Duration {
        let nanos = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.number_below(nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs of the published reference implementation for the seed 1234567.
    #[test]
    fn the_stream_is_splitmix64() {
        let mut chance = Chance::new(1_234_567);
        let expected: [u64; 5] = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(expected.map(|_| chance.next_u64()), expected);
    }

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
