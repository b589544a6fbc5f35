//! Views by quorum: what survives crashes, pauses and partitions.
//!
//! [`log`] orders the proposals for the next view among the voters. Only progress rests on it.

pub mod log;
