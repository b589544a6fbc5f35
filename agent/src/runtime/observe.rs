//! What is told to nobody in particular: traces, counts and times, the watchdog.

pub(crate) mod counters;
pub(crate) mod measured;
#[cfg(any(test, not(feature = "trace")))]
#[cfg_attr(
    feature = "trace",
    expect(dead_code, reason = "its tests run with every set of features")
)]
pub(crate) mod no_trace;
#[cfg(feature = "trace")]
pub mod trace;
pub(crate) mod watchdog;

#[cfg(not(feature = "trace"))]
pub(crate) use no_trace as trace;
