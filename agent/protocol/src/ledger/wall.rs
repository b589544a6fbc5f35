//! Wall-clock time in records and fences.
//!
//! Time of day decides nothing about who holds a lock. It is the floor of fences, so that they rise even if
//! the store forgot the last one; and it tells a caller that only tries whether the holder was renewed
//! lately.

use alloc::format;
use alloc::string::String;
use core::time::Duration;

use crate::time::Time;

/// 2025-01-01 00:00 UTC, in seconds since 1970.
const EPOCH_UNIX_SECS: u64 = 1_735_689_600;
const DAY_SECS: u64 = 86_400;
/// 2090-01-01 00:00 UTC, in seconds since 2025: later clocks are not believed.
const LAST_SECS: u64 = 2_051_222_400;

/// The wall clock as it was told last.
#[derive(Clone, Copy, Debug, Default, Hash)]
pub(super) struct Wall(Option<(Duration, Time)>);

impl Wall {
    /// At `now` the wall clock shows that much time since 2025-01-01 00:00 UTC.
    pub(super) const fn set(&mut self, wall: Duration, now: Time) {
        self.0 = Some((wall, now));
    }

    /// Time since 2025-01-01 00:00 UTC; `None` if nobody knows, or the clock is not to be believed.
    pub(super) fn at(self, now: Time) -> Option<Duration> {
        let (wall, then) = self.0?;
        let wall = wall.saturating_add(now.since(then));
        (wall.as_secs() < LAST_SECS).then_some(wall)
    }

    /// The lowest fence that is given now: seconds since 2025 with 32 binary places. 0 if the time is
    /// unknown.
    pub(super) fn fence_floor(self, now: Time) -> u64 {
        self.at(now).map_or(0, |wall| {
            let fraction = (u64::from(wall.subsec_nanos()) << 32) / 1_000_000_000;
            wall.as_secs() << 32 | fraction
        })
    }
}

/// A time since 2025-01-01 00:00 UTC, as in RFC 3339, to the second.
pub(super) fn format_utc(wall: Duration) -> String {
    let secs = EPOCH_UNIX_SECS + wall.as_secs();
    let (days, secs) = (secs / DAY_SECS, secs % DAY_SECS);
    // Days since 1970 to a date: Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (secs / 3600, secs / 60 % 60, secs % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The same, read back; `None` if it is no such time, or before 2025.
pub(super) fn parse_utc(text: &str) -> Option<Duration> {
    let bytes = text.as_bytes();
    let is_shaped = bytes.len() == 20
        && bytes.iter().enumerate().all(|(at, byte)| match at {
            4 | 7 => *byte == b'-',
            10 => *byte == b'T',
            13 | 16 => *byte == b':',
            19 => *byte == b'Z',
            _ => byte.is_ascii_digit(),
        });
    if !is_shaped {
        return None;
    }
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 {
        return None;
    }
    // days_from_civil, of the same paper.
    let year = year - u64::from(month <= 2);
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    let days = days.checked_sub(719_468)?;
    let secs = days * DAY_SECS + hour * 3600 + minute * 60 + second;
    secs.checked_sub(EPOCH_UNIX_SECS).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_and_read_back() {
        let of = |text: &str| parse_utc(text).map(|wall| wall.as_secs());
        assert_eq!(of("2025-01-01T00:00:00Z"), Some(0));
        assert_eq!(of("2090-01-01T00:00:00Z"), Some(LAST_SECS));
        for secs in [0, 59, 86_399, 86_400, 5_097_600, 99_999_999, LAST_SECS - 1] {
            let wall = Duration::from_secs(secs);
            assert_eq!(parse_utc(&format_utc(wall)), Some(wall));
        }
        assert_eq!(
            format_utc(Duration::from_secs(59_954_400)),
            "2026-11-25T22:00:00Z"
        );
        for wrong in [
            "",
            "2024-12-31T23:59:59Z",
            "2026-13-01T00:00:00Z",
            "2026-11-25 22:00:00Z",
        ] {
            assert_eq!(parse_utc(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_fence_floor_is_the_time_and_only_a_clock_that_can_be_right() {
        let mut wall = Wall::default();
        let start = Time::from_nanos(5_000_000_000);
        assert_eq!(wall.fence_floor(start), 0);
        wall.set(Duration::from_millis(7500), start);
        assert_eq!(wall.fence_floor(start), (7 << 32) | (1 << 31));
        assert_eq!(
            wall.fence_floor(start + Duration::from_millis(500)),
            8 << 32
        );
        wall.set(Duration::from_secs(LAST_SECS), start);
        assert_eq!(wall.fence_floor(start), 0);
    }
}
