//! The audit log: a line for each grant and how it ended, for refusals, views, and changes of members. Each line
//! has the hash of the line before, so that what is changed or taken out later shows.
//!
//! An agent never waits for it: records go through a queue of bounded length to a thread of their own. What
//! finds no room there, or on the disk, is told of by a line of its own, the gap.

mod line;
mod log;
mod verify;

pub(crate) use log::{AuditFile, open};
pub(crate) use verify::audit;
