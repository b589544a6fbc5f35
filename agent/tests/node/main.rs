//! Whole members, driven by hand.

mod group;
mod hostile;
mod legacies;
mod regressions;
mod turns;
