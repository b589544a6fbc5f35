//! Times of traces, as users write and read them.

use std::time::{Duration, UNIX_EPOCH};

use distlock_agent::runtime::clock::rfc3339;

/// A time of a trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum When {
    /// So many seconds after the beginning.
    After(f64),
    /// So many nanoseconds after 1970-01-01 00:00 UTC.
    At(u64),
}

impl When {
    /// Reads seconds, or RFC 3339 in UTC.
    ///
    /// # Errors
    /// What a time looks like.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let seconds: Option<f64> = text.parse().ok();
        if let Some(seconds) = seconds.filter(|seconds| (0.0..=1e9).contains(seconds)) {
            return Ok(Self::After(seconds));
        }
        parse_date(text).map(Self::At).ok_or_else(|| {
            "a time is a number of seconds after the beginning, like 12.5, or a date in UTC, like \
             2026-01-31T12:00:00.250Z"
                .to_owned()
        })
    }

    /// As nanoseconds since 1970, in a trace that begins at `start`.
    pub(super) fn nanos(self, start: u64) -> u64 {
        match self {
            Self::After(seconds) => start.saturating_add((seconds * 1e9) as u64),
            Self::At(nanos) => nanos,
        }
    }
}

/// `2026-01-31T12:00:00Z`, with or without a fraction, in nanoseconds since 1970.
fn parse_date(text: &str) -> Option<u64> {
    let (day, time) = text.strip_suffix(['Z', 'z'])?.split_once(['T', 't', ' '])?;
    let numbers = |text: &str, between: char| -> Option<[u64; 3]> {
        let parts: Option<Vec<_>> = text.split(between).map(number).collect();
        parts?.try_into().ok()
    };
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [year, month, day] = numbers(day, '-')?;
    let [hour, minute, second] = numbers(time, ':')?;
    let is_there = (1970..=2500).contains(&year)
        && (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !is_there || fraction.len() > 9 {
        return None;
    }
    let fraction = number(fraction)? * 10_u64.pow(9 - fraction.len() as u32);
    let seconds = ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
    Some(seconds * 1_000_000_000 + fraction)
}

/// The time that is so many nanoseconds after 1970-01-01 00:00 UTC, as agents write it.
pub(super) fn date(nanos: u64) -> String {
    rfc3339(UNIX_EPOCH + Duration::from_nanos(nanos))
}

/// A number of digits only.
fn number(text: &str) -> Option<u64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// Days from 1970-01-01 to a Gregorian date. Years are counted from March, so that the leap day is
/// a year's last.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let from_march = (month + 9) % 12;
    let leaps = year / 4 - year / 100 + year / 400;
    year * 365 + leaps + (153 * from_march + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_agents_write() {
        for secs in [0, 951_782_399, 951_782_400, 1_735_689_600, 4_107_542_399] {
            let nanos = secs * 1_000_000_000 + 250_000_000;
            let text = rfc3339(UNIX_EPOCH + Duration::from_nanos(nanos));
            assert_eq!(When::parse(&text), Ok(When::At(nanos)), "{text}");
        }
        let [after, at] = ["12.5", "1970-01-01T00:00:01Z"].map(|text| When::parse(text).unwrap());
        assert_eq!(after.nanos(5), 12_500_000_005);
        assert_eq!(at.nanos(5), 1_000_000_000);
    }

    #[test]
    fn refuses_what_is_no_time() {
        for text in [
            "",
            "-1",
            "x",
            "2026-13-01T00:00:00Z",
            "2026-01-01",
            "nan",
            "1:00",
        ] {
            assert!(When::parse(text).is_err(), "{text}");
        }
        assert!(When::parse("2026-01-01T00:00:00").is_err(), "no zone");
        assert!(When::parse("2026-01-01T00:00:00.1234567890Z").is_err());
    }
}
