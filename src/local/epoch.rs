//! Where the group's times begin.

use std::time::{Duration, SystemTime};

/// Where the group's times begin.
pub(super) fn epoch_2025() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_735_689_600)
}

/// How long ago that is, by the wall clock.
pub(super) fn since_2025() -> Duration {
    let since = SystemTime::now().duration_since(epoch_2025());
    since.unwrap_or_default()
}
