//! Whole members, driven by hand.

mod abandonment;
mod clusters;
mod forgetful;
mod group;
mod hostile;
mod loans;
mod mishaps;
mod presumed;
mod quarantine;
mod quorum;
mod regressions;
mod removals;
mod turns;
mod voters;
mod vouching;
