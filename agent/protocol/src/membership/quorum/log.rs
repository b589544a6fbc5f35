//! What orders the proposals for the next view among the voters.
//!
//! A [`ViewLog`] decides, one after the other, which view follows which. Only progress rests on
//! it: a voter endorses one view an epoch whatever the log says, so a log that errs stops the
//! group and splits it not. The one log there is, [`RaftLog`], is Raft (Ongaro and Ousterhout
//! 2014) as a library does it, under rules that make it live.
//!
//! The voters of a log are those of the last view that it decided: after the decision the leader
//! moves the library to them by joint consensus, and takes no other proposal before that is done.
//! A leader that finds the move undone, because the last one died, does it.
//!
//! Nothing here knows a clock, a socket or a file: time and messages come in, and what shall be
//! sent or made durable comes out. What depends on durable state comes out after
//! [`ViewLog::persisted`] has said that it is durable.

mod entry;
pub mod library;
mod make;
mod message;
mod proposal;
mod raft;
mod record;
mod view_log;

pub use entry::{LogEntry, Snapshot};
pub use make::{LogInit, MakeLog, Rafts};
pub use message::{Body, LogMessage};
pub use proposal::{
    Decided, Digest, MAX_CHAIN, MAX_VIEW, MAX_VOTERS, NotNow, Proposal, ViewRef, VoterId,
};
pub use raft::{RaftLog, Timing};
pub use record::{BadRecord, LogRecord};
pub use view_log::{LogAction, ViewLog};

#[cfg(test)]
mod tests;
