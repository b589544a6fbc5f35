//! The one source of choices: whatever a simulated world decides by chance, it draws here.
//!
//! The choices come from a seed; or from bytes, those that a fuzzer makes up, or those that were
//! recorded while a seed's run chose ([`Choices::record`]), so that what any world does can be written
//! down as its schedule, be played again, and be changed byte by byte; or from a [`Search`], which
//! plays every run that deviates from the ordinary one in few choices.
//!
//! From a seed they are drawn by the protocol's generator ([`Chance`]). Everything is done in integers,
//! so that a seed means the same run on every machine too.
//!
//! From bytes each choice takes as few as it can: none where there is nothing to choose, one for a
//! coin, a short list or a time, more for larger numbers. Where the bytes are used up, nothing more
//! goes wrong: no coin comes up, the first of a list is taken, and every wait is as long as the mean.
//! What comes in masses, such as the fate of each datagram, is drawn from a fork: of that only the seed
//! is chosen, so that a schedule has little but what its world does.
//!
//! In a search each choice has few alternatives: both sides of a coin, the first and the last time of
//! a range, the mean of an exponential time, an eighth of it and the eightfold, all numbers below eight
//! or less. Of more numbers it takes the first. A fork is searched like what it was forked from.

mod walk;

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError};

use self::walk::Walk;
pub use self::walk::{Deviation, Deviations, Search};
use distlock_protocol::chance::Chance;

/// Shares of a thousand, for probabilities.
pub type Permille = u32;

/// A stream of choices.
#[derive(Clone, Debug)]
pub struct Choices(Source);

#[derive(Clone, Debug)]
enum Source {
    Seed(Chance),
    /// The same, and where its choices are written down.
    Recorded(Chance, Schedule),
    Bytes(Schedule),
    Search(Walk),
}

/// The choices of a whole world, as bytes; its copies share them.
#[derive(Clone, Debug, Default)]
pub struct Schedule(Arc<Mutex<Tape>>);

#[derive(Debug, Default)]
struct Tape {
    bytes: Vec<u8>,
    /// How many of them are used.
    at: usize,
}

impl Schedule {
    /// What was recorded so far.
    pub fn bytes(&self) -> Vec<u8> {
        self.tape().bytes.clone()
    }

    fn tape(&self) -> MutexGuard<'_, Tape> {
        // A world that panics leaves what it has chosen.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, bytes: &[u8]) {
        self.tape().bytes.extend_from_slice(bytes);
    }

    /// The next `len` bytes as a number, the lowest first; zeros where there are none.
    fn take(&self, len: usize) -> u64 {
        let mut tape = self.tape();
        let rest = tape.bytes.get(tape.at..).unwrap_or_default();
        let mut number = [0; 8];
        let len = len.min(number.len());
        let known = len.min(rest.len());
        number[..known].copy_from_slice(&rest[..known]);
        tape.at += len;
        u64::from_le_bytes(number)
    }
}

/// Stands before what is said exactly: a time in nanoseconds, a seed, or bytes.
const EXACTLY: u8 = 0xff;
/// No exponential time that is drawn from a seed is longer: −ln(2^−64) is less.
const MOST_MEANS: u64 = 45;
/// The sides of a coin.
const NO: u8 = 0;
const YES: u8 = 0xff;
/// Of how many numbers at most a search takes each.
const FEW: u64 = 8;

/// How many bytes numbers below `bound` take.
const fn width(bound: u64) -> usize {
    (64 - (bound - 1).leading_zeros()).div_ceil(8) as usize
}

impl Choices {
    /// The stream of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(Source::Seed(Chance::new(seed)))
    }

    /// The same, and the schedule that it writes down.
    pub fn record(seed: u64) -> (Self, Schedule) {
        let schedule = Schedule::default();
        let recorded = Source::Recorded(Chance::new(seed), schedule.clone());
        (Self(recorded), schedule)
    }

    /// What `bytes` choose, recorded or made up.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let bytes = bytes.to_vec();
        let tape = Tape { bytes, at: 0 };
        Self(Source::Bytes(Schedule(Arc::new(Mutex::new(tape)))))
    }

    /// A stream of its own, from a seed, so that drawing more from one does not shift the other.
    pub fn fork(&mut self) -> Self {
        Self::new(match &mut self.0 {
            Source::Search(walk) => return Self(Source::Search(walk.clone())),
            Source::Seed(chance) => chance.next_u64(),
            Source::Recorded(chance, schedule) => {
                let drawn = chance.next_u64();
                schedule.put(&[EXACTLY]);
                schedule.put(&drawn.to_le_bytes());
                drawn
            }
            Source::Bytes(schedule) => match schedule.take(1) {
                exactly if exactly == u64::from(EXACTLY) => schedule.take(8),
                seed => seed | schedule.take(1) << 8,
            },
        })
    }

    /// Whether the bytes that it is made of are used up. A seed's never are.
    pub fn is_spent(&self) -> bool {
        match &self.0 {
            Source::Bytes(schedule) => {
                let tape = schedule.tape();
                tape.at >= tape.bytes.len()
            }
            _ => false,
        }
    }

    /// Whether they are those of a search.
    pub(super) const fn are_searched(&self) -> bool {
        matches!(self.0, Source::Search(_))
    }

    /// From now on a search has nothing to choose any more; any other source goes on.
    pub fn end_search(&mut self) {
        if let Source::Search(walk) = &self.0 {
            walk.close();
        }
    }

    /// 64 bits, each as likely as not.
    pub fn next_u64(&mut self) -> u64 {
        match &mut self.0 {
            Source::Seed(chance) => chance.next_u64(),
            Source::Recorded(chance, schedule) => {
                let drawn = chance.next_u64();
                schedule.put(&drawn.to_le_bytes());
                drawn
            }
            Source::Bytes(schedule) => schedule.take(8),
            Source::Search(_) => 0,
        }
    }

    /// A number below `bound`, which may not be 0. From a seed its bias is below `bound` / 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number lies below 0");
        match &mut self.0 {
            Source::Seed(chance) => scale(chance.next_u64(), bound),
            Source::Recorded(chance, schedule) => {
                let drawn = scale(chance.next_u64(), bound);
                schedule.put(&drawn.to_le_bytes()[..width(bound)]);
                drawn
            }
            Source::Bytes(schedule) => schedule.take(width(bound)) % bound,
            Source::Search(walk) => walk.choose(if bound <= FEW { bound } else { 1 }),
        }
    }

    /// An index into something with `len` elements.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// One of `range`.
    pub fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        range.start() + self.below(range.end() - range.start() + 1)
    }

    /// So many bytes that mean nothing. Made of bytes they are mostly all the same.
    pub fn filler(&mut self, len: usize) -> Vec<u8> {
        match &mut self.0 {
            Source::Seed(chance) => (0..len).map(|_| chance.next_u64() as u8).collect(),
            Source::Recorded(chance, schedule) => {
                let drawn: Vec<u8> = (0..len).map(|_| chance.next_u64() as u8).collect();
                schedule.put(&[EXACTLY]);
                schedule.put(&drawn);
                drawn
            }
            Source::Bytes(schedule) => match schedule.take(1) as u8 {
                EXACTLY => (0..len).map(|_| schedule.take(1) as u8).collect(),
                byte => vec![byte; len],
            },
            Source::Search(_) => vec![0; len],
        }
    }

    /// A duration in `range`, to the nanosecond; from bytes a multiple of a 254th of the range.
    pub fn duration(&mut self, range: RangeInclusive<Duration>) -> Duration {
        let (start, end) = (nanos(*range.start()), nanos(*range.end()));
        let bound = end - start + 1;
        let after = match &mut self.0 {
            Source::Seed(chance) => scale(chance.next_u64(), bound),
            Source::Recorded(chance, schedule) => {
                let drawn = scale(chance.next_u64(), bound);
                if bound > 1 {
                    schedule.put(&[EXACTLY]);
                    schedule.put(&drawn.to_le_bytes());
                }
                drawn
            }
            Source::Bytes(_) | Source::Search(_) if bound == 1 => 0,
            Source::Search(walk) => walk.choose(2) * (end - start),
            Source::Bytes(schedule) => match schedule.take(1) as u8 {
                EXACTLY => schedule.take(8) % bound,
                part => scale_up(end - start, part.into(), 254),
            },
        };
        Duration::from_nanos(start + after)
    }

    /// True in `share` of a thousand cases. Of a seed's stream it draws even if the answer is certain,
    /// so that a rate of zero does not shift the rest.
    pub fn chance(&mut self, share: Permille) -> bool {
        let is_open = (1..1000).contains(&share);
        match &mut self.0 {
            Source::Seed(chance) => scale(chance.next_u64(), 1000) < u64::from(share),
            Source::Recorded(chance, schedule) => {
                let drawn = scale(chance.next_u64(), 1000) < u64::from(share);
                if is_open {
                    schedule.put(&[if drawn { YES } else { NO }]);
                }
                drawn
            }
            Source::Bytes(schedule) if is_open => {
                let of_256 = (u64::from(share) * 256 / 1000).max(1);
                schedule.take(1) >= 256 - of_256
            }
            Source::Search(walk) if is_open => walk.choose(2) == 1,
            Source::Bytes(_) | Source::Search(_) => share > 0,
        }
    }

    /// An exponentially distributed duration: mean · −ln(u), u uniform in (0, 1]. From bytes the mean
    /// times a square, up to the sixteenfold.
    pub fn exponential(&mut self, mean: Duration) -> Duration {
        match &mut self.0 {
            Source::Seed(chance) => exponential(chance.next_u64(), mean),
            Source::Recorded(chance, schedule) => {
                let drawn = exponential(chance.next_u64(), mean);
                if !mean.is_zero() {
                    schedule.put(&[EXACTLY]);
                    schedule.put(&nanos(drawn).to_le_bytes());
                }
                drawn
            }
            Source::Bytes(_) | Source::Search(_) if mean.is_zero() => Duration::ZERO,
            Source::Search(walk) => match walk.choose(3) {
                0 => mean,
                1 => mean / 8,
                _ => mean * 8,
            },
            Source::Bytes(schedule) => Duration::from_nanos(match schedule.take(1) {
                0 => nanos(mean),
                exactly if exactly == u64::from(EXACTLY) => {
                    schedule.take(8).min(scale_up(nanos(mean), MOST_MEANS, 1))
                }
                times => scale_up(nanos(mean), times * times, 64 * 64),
            }),
        }
    }
}

/// Brings 64 bits below `bound`.
fn scale(drawn: u64, bound: u64) -> u64 {
    ((u128::from(drawn) * u128::from(bound)) >> 64) as u64
}

/// `whole` · `times` / `of`.
fn scale_up(whole: u64, times: u64, of: u64) -> u64 {
    let part = u128::from(whole) * u128::from(times) / u128::from(of);
    u64::try_from(part).unwrap_or(u64::MAX)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX >> 1)
}

fn exponential(drawn: u64, mean: Duration) -> Duration {
    // −ln(u / 2^64) = (64 − log2 u) · ln 2, both as fixed-point numbers with 32 binary places.
    const LN2: u64 = 2_977_044_472; // ln 2 · 2^32
    let bits = (64_u64 << FRACTION) - log2(drawn | 1);
    let nats = (u128::from(bits) * u128::from(LN2)) >> 32;
    let nanos = (mean.as_nanos() * nats) >> FRACTION;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
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
        let mut choices = Choices::new(1);
        let mean = Duration::from_millis(10);
        let draws: Vec<f64> = (0..100_000)
            .map(|_| choices.exponential(mean).as_secs_f64() / 0.01)
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
        let mut choices = Choices::new(2);
        let hits = (0..100_000).filter(|_| choices.chance(200)).count();
        assert!((19_500..20_500).contains(&hits), "{hits} of 100000 at 20 %");
        assert!(!(0..1000).any(|_| choices.chance(0)) && (0..1000).all(|_| choices.chance(1000)));
    }

    #[test]
    fn ranges_are_covered_end_to_end() {
        let mut choices = Choices::new(3);
        let mut seen = [0; 5];
        for _ in 0..1000 {
            seen[choices.within(3..=7) as usize - 3] += 1;
        }
        assert!(seen.iter().all(|n| (120..280).contains(n)), "{seen:?}");
    }

    /// Everything that can be chosen, once.
    fn all_kinds(choices: &mut Choices) -> (Vec<u64>, Vec<bool>, Vec<Duration>, Vec<u8>) {
        let second = Duration::from_secs(1);
        let numbers = [1, 2, 256, 257, u64::MAX].map(|bound| choices.below(bound));
        let coins = [0, 1, 500, 999, 1000].map(|share| choices.chance(share));
        let times = [
            choices.duration(second..=second),
            choices.duration(second..=second * 2),
            choices.exponential(second),
            choices.exponential(Duration::ZERO),
        ];
        let mut numbers = numbers.to_vec();
        numbers.push(choices.next_u64());
        numbers.push(choices.fork().below(1000));
        (numbers, coins.into(), times.into(), choices.filler(5))
    }

    #[test]
    fn what_is_recorded_plays_again() {
        for seed in 0..100 {
            let (mut recorded, schedule) = Choices::record(seed);
            let chosen = all_kinds(&mut recorded);
            assert_eq!(
                chosen,
                all_kinds(&mut Choices::new(seed)),
                "as the seed says"
            );
            let mut replayed = Choices::from_bytes(&schedule.bytes());
            assert_eq!(chosen, all_kinds(&mut replayed), "{seed}");
            assert!(replayed.is_spent());
        }
    }

    #[test]
    fn nothing_goes_wrong_where_bytes_are_used_up() {
        let second = Duration::from_secs(1);
        let (numbers, coins, times, filler) = all_kinds(&mut Choices::from_bytes(&[]));
        assert_eq!(numbers[..6], [0; 6]);
        assert_eq!(coins, [false, false, false, false, true]);
        assert_eq!(times, [second, second, second, Duration::ZERO]);
        assert_eq!(filler, [0; 5]);
    }
}
