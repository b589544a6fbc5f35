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

/// RFC 3339 in UTC, in nanoseconds since 1970. Small letters and a blank for the T will do.
fn parse_date(text: &str) -> Option<u64> {
    let text = text.to_ascii_uppercase().replace(' ', "T");
    let date = humantime::parse_rfc3339(&text).ok()?;
    let since_1970 = date.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since_1970.as_nanos()).ok()
}

/// The time that is so many nanoseconds after 1970-01-01 00:00 UTC, as agents write it.
pub(super) fn date(nanos: u64) -> String {
    rfc3339(UNIX_EPOCH + Duration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_agents_write() {
        for secs in [0, 951_782_399, 951_782_400, 1_735_689_600, 4_107_542_399] {
            let nanos = secs * 1_000_000_000 + 250_000_000;
            let text = date(nanos);
            assert_eq!(When::parse(&text), Ok(When::At(nanos)), "{text}");
        }
        let [after, at] = ["12.5", "1970-01-01 00:00:01z"].map(|text| When::parse(text).unwrap());
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
            "2026-02-31T00:00:00Z",
            "9999-01-01T00:00:00Z",
            "2026-01-01",
            "nan",
            "1:00",
        ] {
            assert!(When::parse(text).is_err(), "{text}");
        }
        assert!(When::parse("2026-01-01T00:00:00").is_err(), "no zone");
    }
}
