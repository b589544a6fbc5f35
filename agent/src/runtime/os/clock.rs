//! The only clocks: `CLOCK_BOOTTIME` for everything the protocol measures, because it counts
//! suspend and nobody can set it; the wall clock for what people read, and for the first epoch of
//! a member without any state.

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::sys::stat::stat;
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::protocol::Time;

/// 2025-01-01 00:00 UTC, in seconds since 1970.
const EPOCH_2025_SECS: u64 = 1_735_689_600;

/// The time now.
///
/// # Panics
/// If the system has no `CLOCK_BOOTTIME`, which every Linux since 2.6.39 has.
pub fn now() -> Time {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("Linux has CLOCK_BOOTTIME");
    let secs = u64::try_from(now.tv_sec()).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec()).unwrap_or(0);
    Time::from_nanos(secs.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// Does nothing for so long.
pub fn sleep(time: Duration) {
    std::thread::sleep(time);
}

/// What a process says of its clock to another one on the same host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// Its time namespace: 0 where the kernel has but one, `None` if it cannot be known.
    namespace: Option<u64>,
    /// The time there.
    now: u64,
}

impl Reading {
    pub(crate) fn take() -> Self {
        Self {
            namespace: time_namespace(),
            now: now().as_nanos(),
        }
    }

    /// One that is always the same.
    #[cfg(test)]
    pub(crate) const fn golden() -> Self {
        Self {
            namespace: Some(300),
            now: 1 << 40,
        }
    }
}

/// Turns times of another process's clock into ours.
///
/// Both are the same clock of one kernel, unless the processes are in different time namespaces:
/// then they differ by an offset that never changes while both run. Nobody tells it; but a reading
/// that is made after `before` on our clock, and shows `now` on theirs, says that theirs is at most
/// `now - before` ahead. Taken to be that much ahead, no time of theirs becomes too late a time of
/// ours, and so no lease is believed in for too long. It is too early by as long as the reading took
/// to be made, which is why processes that are known to be in one namespace do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shift {
    ahead_nanos: i128,
}

impl Shift {
    /// Of times of our own.
    pub(crate) const NONE: Self = Self { ahead_nanos: 0 };

    /// `theirs` was made after `before`, and `ours` at any time.
    pub(crate) fn new(theirs: Reading, ours: Reading, before: Time) -> Self {
        let is_same = theirs.namespace.is_some() && theirs.namespace == ours.namespace;
        let ahead = i128::from(theirs.now) - i128::from(before.as_nanos());
        Self {
            ahead_nanos: if is_same { 0 } else { ahead },
        }
    }

    /// What is at `theirs` is at this time or later. The start and the end of the clock have
    /// meanings of their own, and stay.
    pub(crate) fn ours(self, theirs: u64) -> Time {
        let ends = [0, u64::MAX];
        if ends.contains(&theirs) {
            return Time::from_nanos(theirs);
        }
        let ours = (i128::from(theirs) - self.ahead_nanos).clamp(1, i128::from(u64::MAX) - 1);
        Time::from_nanos(u64::try_from(ours).expect("it was brought into this range"))
    }
}

/// What tells this boot of the host from others.
pub(crate) fn boot() -> io::Result<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(boot.trim().to_owned())
}

/// What tells the time namespace of this process from others, where it can be known.
pub(crate) fn time_namespace() -> Option<u64> {
    match stat("/proc/self/ns/time") {
        Ok(stat) => Some(stat.st_ino),
        // Before Linux 5.6, or built without.
        Err(Errno::ENOENT) if Path::new("/proc/self/ns").is_dir() => Some(0),
        Err(_) => None,
    }
}

/// A moment by both clocks: to be told by the one, and measured from by the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) wall: SystemTime,
    pub(crate) at: Time,
}

impl Moment {
    pub(crate) fn now() -> Self {
        Self {
            wall: SystemTime::now(),
            at: now(),
        }
    }

    /// The one that was at `at`, as the wall clock goes now.
    pub(crate) fn of(at: Time) -> Self {
        let wall = SystemTime::now() - now().since(at);
        Self { wall, at }
    }
}

/// Wall-clock time since 2025-01-01 00:00 UTC; zero if the clock is set before that.
pub fn wall() -> Duration {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    let since_1970 = since_1970.unwrap_or(Duration::ZERO);
    since_1970.saturating_sub(Duration::from_secs(EPOCH_2025_SECS))
}

/// The wall-clock time that long after 2025-01-01 00:00 UTC.
#[cfg(feature = "store")]
pub(crate) fn since_2025(time: Duration) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(EPOCH_2025_SECS) + time
}

/// `time` as RFC 3339 in UTC with milliseconds, such as `2025-01-01T00:00:00.000Z`.
///
/// Times before 1970 are given as 1970. Written out, since a crate for dates would be in every program
/// with the library.
pub fn rfc3339(time: SystemTime) -> String {
    let since_1970 = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let secs = since_1970.as_secs();
    let (year, month, day) = civil_from_days(secs / 86_400);
    let (hour, minute, second) = (secs / 3_600 % 24, secs / 60 % 60, secs % 60);
    let millis = since_1970.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// The Gregorian date that lies `days` after 1970-01-01. Years are counted from March, so that
/// the leap day is a year's last, and in eras of 400 years, after which the calendar repeats.
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let since_0000_03_01 = days + 719_468;
    let (era, day_of_era) = (since_0000_03_01 / 146_097, since_0000_03_01 % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_goes_back() {
        let mut last = now();
        for _ in 0..1_000 {
            let next = now();
            assert!(next >= last);
            last = next;
        }
    }

    #[test]
    fn one_namespace_has_one_clock() {
        let before = now();
        let (theirs, ours) = (Reading::take(), Reading::take());
        assert!(theirs.namespace.is_some(), "/proc is mounted");
        let until = theirs.now + 5_000_000_000;
        let same = Shift::new(theirs, ours, before);
        assert_eq!(same.ours(until), Time::from_nanos(until));
    }

    /// Whatever the offset, and whenever within the greeting their clock was read.
    #[test]
    fn another_namespace_never_makes_a_lease_longer() {
        let reading = |namespace, now| Reading { namespace, now };
        let (before, until) = (1_000_000_u64, 9_000_000_u64);
        for namespaces in [
            (Some(1), Some(2)),
            (None, Some(2)),
            (Some(1), None),
            (None, None),
        ] {
            for offset in [-900_000_i64, -1, 0, 1, 70_000_000] {
                for delay in [0, 1, 50_000] {
                    let there = |ours: u64| ours.checked_add_signed(offset).unwrap();
                    let theirs = reading(namespaces.0, there(before + delay));
                    let ours = reading(namespaces.1, before + delay);
                    let shift = Shift::new(theirs, ours, Time::from_nanos(before));
                    let told = shift.ours(there(until));
                    assert_eq!(told, Time::from_nanos(until - delay), "{offset} {delay}");
                    assert_eq!(shift.ours(0), Time::ZERO);
                    assert_eq!(shift.ours(u64::MAX), Time::MAX);
                }
            }
        }
        let far = Shift::new(reading(None, 5), reading(None, 0), Time::from_nanos(1_000));
        assert_eq!(far.ours(u64::MAX - 1), Time::from_nanos(u64::MAX - 1));
        let near = Shift::new(reading(None, 1_000), reading(None, 0), Time::from_nanos(5));
        assert_eq!(near.ours(1), Time::from_nanos(1));
    }

    #[test]
    fn writes_dates() {
        let at = |secs, millis| {
            rfc3339(UNIX_EPOCH + Duration::from_secs(secs) + Duration::from_millis(millis))
        };
        assert_eq!(at(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(EPOCH_2025_SECS, 7), "2025-01-01T00:00:00.007Z");
        assert_eq!(at(951_782_399, 0), "2000-02-28T23:59:59.000Z");
        assert_eq!(at(951_782_400, 0), "2000-02-29T00:00:00.000Z");
        assert_eq!(at(951_868_800, 999), "2000-03-01T00:00:00.999Z");
        assert_eq!(at(4_107_542_399, 0), "2100-02-28T23:59:59.000Z");
        assert_eq!(at(4_107_542_400, 0), "2100-03-01T00:00:00.000Z");
    }
}
