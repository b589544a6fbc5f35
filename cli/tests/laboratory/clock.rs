//! The one clock of all logs.

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds that all processes of this host count alike.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("Linux has it");
    let [secs, nanos] = [now.tv_sec(), now.tv_nsec()].map(u64::try_from);
    secs.expect("positive") * 1_000_000_000 + nanos.expect("positive")
}
