//! Whole members, driven by hand.

mod clusters;
mod group;
mod hostile;
mod legacies;
mod mishaps;
mod presumed;
mod quorum;
mod regressions;
mod turns;
mod voters;
mod vouching;
