//! How long a link waits for an acknowledgement.

use core::time::Duration;

/// The first guess at how long an acknowledgement takes.
pub(super) const FIRST_RTO: Duration = Duration::from_millis(50);
const MIN_RTO: Duration = Duration::from_millis(10);
const MAX_RTO: Duration = Duration::from_secs(1);

/// The measured round trip and the time to wait for an acknowledgement (RFC 6298).
#[derive(Debug, Default)]
pub(super) struct RoundTrip {
    /// Smoothed, and its variation.
    pub(super) measured: Option<(Duration, Duration)>,
    /// How many times in a row something had to be repeated.
    pub(super) failures: u32,
}

impl RoundTrip {
    /// RFC 6298 section 2, with alpha = 1/8 and beta = 1/4.
    pub(super) fn measure(&mut self, sample: Duration) {
        self.measured = Some(match self.measured {
            None => (sample, sample / 2),
            Some((smoothed, variation)) => {
                let variation = (3 * variation + smoothed.abs_diff(sample)) / 4;
                ((7 * smoothed + sample) / 8, variation)
            }
        });
    }

    pub(super) fn smoothed(&self) -> Duration {
        self.measured.map_or(FIRST_RTO, |(smoothed, _)| smoothed)
    }

    /// How long to wait: RFC 6298 sections 2.3 and 5.5, with bounds for local networks.
    pub(super) fn timeout(&self) -> Duration {
        let measured = self.measured.map_or(FIRST_RTO, |(smoothed, variation)| {
            (smoothed + 4 * variation).max(MIN_RTO)
        });
        measured
            .saturating_mul(1 << self.failures.min(16))
            .min(MAX_RTO)
    }
}
