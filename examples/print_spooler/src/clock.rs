//! Time that goes on in suspend and is the same in every process of a machine.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Time since the machine started.
pub(crate) fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME)
        .expect("every Linux since 2.6.39 has it")
        .into()
}
