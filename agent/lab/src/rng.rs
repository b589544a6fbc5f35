//! The only source of chance in a simulation: the protocol's generator, with more to draw.
//!
//! Everything is done in integers, so that a seed means the same run on every machine too.

use core::ops::RangeInclusive;
use core::time::Duration;

use distlock_protocol::chance::Chance;

/// Shares of a thousand, for probabilities.
pub type Permille = u32;

/// A seeded stream of numbers.
#[derive(Clone, Debug)]
pub struct Rng(Chance);

impl Rng {
    /// The stream of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(Chance::new(seed))
    }

    /// A stream of its own, so that drawing more from one does not shift the other.
    pub fn fork(&mut self) -> Self {
        Self::new(self.next_u64())
    }

    /// 64 bits, each as likely as not.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`, which may not be 0. Its bias is below `bound` / 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number lies below 0");
        self.0.number_below(bound)
    }

    /// An index into something with `len` elements.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// One of `range`.
    pub fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        range.start() + self.below(range.end() - range.start() + 1)
    }

    /// A duration in `range`, to the nanosecond.
    pub fn duration(&mut self, range: RangeInclusive<Duration>) -> Duration {
        let nanos = |d: &Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX >> 1);
        Duration::from_nanos(self.within(nanos(range.start())..=nanos(range.end())))
    }

    /// True in `share` of a thousand cases. Draws even if the answer is certain, so that a rate of
    /// zero does not shift the rest of the stream.
    pub fn chance(&mut self, share: Permille) -> bool {
        self.below(1000) < u64::from(share)
    }

    /// An exponentially distributed duration: mean · −ln(u), u uniform in (0, 1].
    pub fn exponential(&mut self, mean: Duration) -> Duration {
        // −ln(u / 2^64) = (64 − log2 u) · ln 2, both as fixed-point numbers with 32 binary places.
        const LN2: u64 = 2_977_044_472; // ln 2 · 2^32
        let bits = (64_u64 << FRACTION) - log2(self.next_u64() | 1);
        let nats = (u128::from(bits) * u128::from(LN2)) >> 32;
        let nanos = (mean.as_nanos() * nats) >> FRACTION;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// Binary places of [`log2`].
pub(crate) const FRACTION: u32 = 32;

/// The binary logarithm of `x`, which is not 0, with [`FRACTION`] places of which the first 16
/// are exact: the integer part is the place of the highest bit, and squaring what is left brings
/// out one more place at a time (Majithia and Levan 1973).
pub(crate) fn log2(x: u64) -> u64 {
    const PLACES: u32 = 16;
    let whole = 63 - x.leading_zeros();
    let mut mantissa = x << x.leading_zeros(); // in [1, 2), scaled by 2^63
    let mut places = 0;
    for _ in 0..PLACES {
        let square = (u128::from(mantissa) * u128::from(mantissa)) >> 63;
        let carry = (square >> 64) as u64; // 1 if the square is 2 or more
        mantissa = (square >> carry) as u64;
        places = (places << 1) | carry;
    }
    (u64::from(whole) << FRACTION) | (places << (FRACTION - PLACES))
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn log2_is_right_to_16_places() {
        for x in [
            1,
            2,
            3,
            7,
            1000,
            u64::from(u32::MAX),
            u64::MAX / 3,
            u64::MAX,
        ] {
            let fixed = log2(x) as f64 / f64::from(FRACTION).exp2();
            let exact = (x as f64).log2();
            assert!(
                (fixed - exact).abs() < 2e-5,
                "log2({x}) = {exact}, here {fixed}"
            );
        }
    }

    /// Mean and variance of 100,000 draws, and the tail P(X > 3 mean) = e^−3.
    #[test]
    fn exponential_delays_are_exponential() {
        let mut rng = Rng::new(1);
        let mean = Duration::from_millis(10);
        let draws: Vec<f64> = (0..100_000)
            .map(|_| rng.exponential(mean).as_secs_f64() / 0.01)
            .collect();
        let count = draws.len() as f64;
        let average = draws.iter().sum::<f64>() / count;
        let variance = draws.iter().map(|d| (d - average).powi(2)).sum::<f64>() / count;
        let tail = draws.iter().filter(|d| **d > 3.0).count() as f64 / count;
        assert!((average - 1.0).abs() < 0.01, "mean {average}");
        assert!((variance - 1.0).abs() < 0.03, "variance {variance}");
        assert!((tail - 0.0498).abs() < 0.003, "tail {tail}");
    }

    #[test]
    fn shares_come_out_as_asked() {
        let mut rng = Rng::new(2);
        let hits = (0..100_000).filter(|_| rng.chance(200)).count();
        assert!((19_500..20_500).contains(&hits), "{hits} of 100000 at 20 %");
        assert!(!(0..1000).any(|_| rng.chance(0)) && (0..1000).all(|_| rng.chance(1000)));
    }

    #[test]
    fn ranges_are_covered_end_to_end() {
        let mut rng = Rng::new(3);
        let mut seen = [0; 5];
        for _ in 0..1000 {
            seen[rng.within(3..=7) as usize - 3] += 1;
        }
        assert!(seen.iter().all(|n| (120..280).contains(n)), "{seen:?}");
    }
}
