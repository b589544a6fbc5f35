//! What is told to nobody in particular: traces, counters, the watchdog.

pub(crate) mod counters;
pub mod trace;
pub(crate) mod watchdog;
