//! Time as the core sees it: nanoseconds of one clock that never goes back and counts suspend.
//!
//! The runtime fills it from `CLOCK_BOOTTIME`, the simulator from its event queue. The core never
//! asks for the time: it is told.

use core::ops::{Add, Sub};
use core::time::Duration;

/// The bound on the rate error of clocks that count for leases: 1 in so many.
pub const DRIFT: u32 = 10;

/// A point on the local clock, in nanoseconds since an arbitrary start (the host's boot).
///
/// Times of two hosts cannot be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The start of the clock.
    pub const ZERO: Self = Self(0);
    /// The end of the clock, some 584 years after its start: never.
    pub const MAX: Self = Self(u64::MAX);

    /// The time `nanos` nanoseconds after the clock's start.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's start.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The last time not after this one that is a multiple of `step` after the clock's start: what is
    /// rounded so comes together, and wakes an agent once. Agents of one host have one clock.
    #[must_use]
    pub fn floor_to(self, step: Duration) -> Self {
        let step = u64::try_from(step.as_nanos()).unwrap_or(u64::MAX).max(1);
        Self(self.0 - self.0 % step)
    }

    /// How long after `earlier` this is; zero if it is not.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Saturates at the end of the clock, some 584 years after its start.
impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, delay: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

/// Saturates at the clock's start.
impl Sub<Duration> for Time {
    type Output = Self;

    fn sub(self, delay: Duration) -> Self {
        Self(
            self.0
                .saturating_sub(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}
