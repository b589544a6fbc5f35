//! Reference-broadcast synchronisation (Elson, Girod and Estrin 2002).
//!
//! A sender broadcasts numbered beacons, `BEACON(k)`; the receivers note when each came, and tell
//! each other, `TIMES(k -> T)`. What a beacon waited for before it left is the same for all who
//! hear it, so the difference of two receivers' times for one beacon is the difference of their
//! clocks, up to how much longer one of them took to notice it. The sender takes no part, nobody
//! sets a clock, and it holds for those that hear one sender, without anybody between.
//!
//! `Offset[p, q]` is C_p - C_q, as in the lecture; Elson subtracts the other way. The mean is over
//! the beacons that *both* heard; the lecture divides by all that were sent. Clocks drift, so a
//! mean is soon stale; [`OffsetFit`] also has the least-squares line.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use distlock_protocol::Time;

/// When one receiver heard which beacons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BeaconLog {
    heard: BTreeMap<u64, Time>,
    capacity: usize,
}

impl BeaconLog {
    /// An empty log, which keeps the `capacity` beacons with the highest numbers.
    pub const fn new(capacity: usize) -> Self {
        Self {
            heard: BTreeMap::new(),
            capacity,
        }
    }

    /// The beacon `number` came at `at`, by the receiver's clock. If it comes again, the first time
    /// counts.
    pub fn hear(&mut self, number: u64, at: Time) {
        self.heard.entry(number).or_insert(at);
        if self.heard.len() > self.capacity {
            self.heard.pop_first();
        }
    }

    /// The beacons and when they came: what the receivers tell each other.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Time)> {
        self.heard.iter().map(|(number, at)| (*number, *at))
    }

    /// The times of the beacons that both heard.
    fn common(&self, other: &Self) -> Vec<(Time, Time)> {
        self.iter()
            .filter_map(|(number, at)| other.heard.get(&number).map(|there| (at, *there)))
            .collect()
    }
}

/// How far the clock of one receiver, p, is ahead of another's, q.
///
/// All is integers but the slope. That is a small fraction, and the differences from the mean that
/// go into it need not be exact to the nanosecond; in integers their squares would be too large.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OffsetFit {
    /// How many beacons both heard.
    pub beacons: u64,
    /// The mean offset C_p - C_q, in nanoseconds, rounded down.
    pub mean_ns: i64,
    /// The mean of the beacons' times by p's clock: when the mean offset holds.
    pub centre: Time,
    /// By how much p's clock gains on q's, as a share of its own time: 1e-5 is ten microseconds a
    /// second. Zero if both heard but one beacon.
    pub drift: f64,
}

impl OffsetFit {
    /// Compares two receivers' logs. `None` if they heard no beacon together, or their clocks are
    /// more than 292 years apart.
    pub fn between(p: &BeaconLog, q: &BeaconLog) -> Option<Self> {
        let common = p.common(q);
        let offset = |(here, there): (Time, Time)| {
            i128::from(here.as_nanos()) - i128::from(there.as_nanos())
        };
        let count = common.len() as i128;
        if count == 0 {
            return None;
        }
        let offsets: i128 = common.iter().copied().map(offset).sum();
        let times = common.iter().map(|(here, _)| i128::from(here.as_nanos()));
        let (mean, centre) = (
            offsets.div_euclid(count),
            times.sum::<i128>().div_euclid(count),
        );
        let (mut products, mut squares) = (0.0, 0.0);
        for pair in common {
            let time = (i128::from(pair.0.as_nanos()) - centre) as f64;
            products += time * (offset(pair) - mean) as f64;
            squares += time * time;
        }
        Some(Self {
            beacons: count as u64,
            mean_ns: i64::try_from(mean).ok()?,
            centre: Time::from_nanos(centre as u64),
            drift: if squares > 0.0 {
                products / squares
            } else {
                0.0
            },
        })
    }

    /// By how many nanoseconds p's clock is ahead of q's when p's shows `at`.
    pub fn offset_ns(&self, at: Time) -> i64 {
        let (at, centre) = (at.as_nanos(), self.centre.as_nanos());
        let later = if at < centre {
            -((centre - at) as f64)
        } else {
            (at - centre) as f64
        };
        self.mean_ns.saturating_add((self.drift * later) as i64)
    }

    /// What q's clock shows when p's shows `at`; `None` before q's clock began.
    pub fn translate(&self, at: Time) -> Option<Time> {
        let there = i128::from(at.as_nanos()) - i128::from(self.offset_ns(at));
        u64::try_from(there).ok().map(Time::from_nanos)
    }
}
