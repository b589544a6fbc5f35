//! Clocks: each host has its own, and no two run alike.

use core::time::Duration;

use distlock_protocol::Time;

/// The bound on clock rates that the protocol counts on: two clocks differ by less than this share
/// of the time that passes, each to its side of real time.
const DRIFT_BOUND_PERMILLE: u32 = 100;

/// The longest wait for what an earlier incarnation's clients may still do, on the clock of the
/// incarnation that waits: lease · (1 + ρ) / (1 − ρ).
pub fn quarantine(lease: Duration) -> Duration {
    lease * (1000 + DRIFT_BOUND_PERMILLE) / (1000 - DRIFT_BOUND_PERMILLE)
}

/// A member's clock, against the simulation's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Clock {
    /// What it shows when the simulation starts.
    pub offset: Duration,
    /// How many millionths it gains; negative if it loses.
    pub drift_ppm: i32,
}

impl Clock {
    /// What it shows at `at`.
    pub fn shows(self, at: Time) -> Time {
        Time::from_nanos(self.run(at.as_nanos())) + self.offset
    }

    /// The first time at which it shows `local` or more.
    pub fn when(self, local: Time) -> Time {
        let local = (local - self.offset).as_nanos();
        let mut at = (u128::from(local) * 1_000_000 / self.rate()) as u64;
        while self.run(at) < local {
            at += 1;
        }
        Time::from_nanos(at)
    }

    fn run(self, nanos: u64) -> u64 {
        (u128::from(nanos) * self.rate() / 1_000_000) as u64
    }

    fn rate(self) -> u128 {
        u128::from(1_000_000_u32.saturating_add_signed(self.drift_ppm))
    }
}
