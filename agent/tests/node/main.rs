//! Whole members, driven by hand.

mod group;
mod hostile;
mod regressions;
mod turns;
