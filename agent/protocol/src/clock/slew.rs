//! A clock that is corrected without ever going back.
//!
//! What is behind may be set forward at once. What is ahead must not be set back, as a later event
//! would have an earlier time; it runs slower until the difference is worked off (the lecture:
//! "slow their clocks down until some specified reduction has been achieved").

use core::time::Duration;

use crate::time::Time;

/// Another clock's readings, corrected. As long as that clock does not go back, neither does this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlewedClock {
    /// What the clock underneath showed at the last correction.
    read: Time,
    /// What this clock showed then.
    shown: Time,
    /// How many nanoseconds it had to lose from then on.
    excess_ns: u64,
    /// How much of its own time it loses meanwhile, in millionths.
    slew_ppm: u32,
}

impl SlewedClock {
    /// A clock that shows what the clock underneath does, which shows `now`. What it must lose it
    /// loses at `slew_ppm` millionths of the time that passes; NTP takes 500.
    ///
    /// # Panics
    /// `slew_ppm` is not between 1 and 999,999: the clock would never get right, or stand still.
    pub const fn new(now: Time, slew_ppm: u32) -> Self {
        assert!(
            slew_ppm > 0 && slew_ppm < 1_000_000,
            "a slew lies between 1 and 999999 millionths"
        );
        Self {
            read: now,
            shown: now,
            excess_ns: 0,
            slew_ppm,
        }
    }

    /// What this clock shows when the clock underneath shows `now`.
    pub fn time(&self, now: Time) -> Time {
        self.shown + (now.since(self.read) - self.lost(now))
    }

    /// Sets the clock forward by `correction_ns` at once; or, if that is negative, lets it lose as
    /// much in time. What it had still to lose counts.
    pub fn correct(&mut self, now: Time, correction_ns: i64) {
        let excess = self.excess(now);
        self.shown = self.time(now);
        self.read = self.read.max(now);
        let size = Duration::from_nanos(correction_ns.unsigned_abs());
        let excess = if correction_ns < 0 {
            excess.saturating_add(size)
        } else {
            self.shown = self.shown + size.saturating_sub(excess);
            excess.saturating_sub(size)
        };
        self.excess_ns = u64::try_from(excess.as_nanos()).unwrap_or(u64::MAX);
    }

    /// How much it has still to lose.
    pub fn excess(&self, now: Time) -> Duration {
        Duration::from_nanos(self.excess_ns) - self.lost(now)
    }

    /// How much it has lost since the last correction.
    fn lost(&self, now: Time) -> Duration {
        let passed = now.since(self.read).as_nanos();
        let most = passed * u128::from(self.slew_ppm) / 1_000_000;
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        Duration::from_nanos(most.min(self.excess_ns))
    }
}
