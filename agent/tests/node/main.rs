//! Whole members, driven by hand.

mod group;
mod hostile;
mod legacies;
mod presumed;
mod quorum;
mod regressions;
mod turns;
