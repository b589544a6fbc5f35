//! How a voter's log is made: in an agent with Raft, and chance that is its own.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use super::{LogAction, LogRecord, RaftLog, Timing, ViewLog, VoterId};
use crate::membership::Member;
use crate::time::Time;

/// How a voter's log is made.
pub trait MakeLog: fmt::Debug {
    type Log: ViewLog + fmt::Debug;

    /// `how`: how it begins.
    fn make(
        &mut self,
        now: Time,
        me: VoterId,
        how: LogInit,
        out: &mut Vec<LogAction>,
    ) -> Option<Self::Log>;
}

/// How a voter's log begins.
#[derive(Clone, Debug)]
pub enum LogInit {
    /// As one of the first voters, which are these.
    Founded(BTreeSet<VoterId>),
    /// As one that is added to others.
    Joined,
    /// With what was on disk.
    Restored(Box<LogRecord>),
}

/// Makes Raft logs.
#[derive(Clone, Debug)]
pub struct Rafts {
    lease: Duration,
    seed: u64,
}

impl Rafts {
    /// For the process that is `me`.
    pub(crate) fn new(me: Member, lease: Duration) -> Self {
        // Elections need members whose chances differ, and nothing more of them.
        let seed = me.incarnation.0 ^ u64::from(me.node.as_u16()).rotate_right(16);
        Self { lease, seed }
    }
}

impl MakeLog for Rafts {
    type Log = RaftLog;

    fn make(
        &mut self,
        now: Time,
        me: VoterId,
        how: LogInit,
        out: &mut Vec<LogAction>,
    ) -> Option<RaftLog> {
        let (timing, seed) = (Timing::of_lease(self.lease), self.seed);
        match how {
            LogInit::Founded(voters) => Some(RaftLog::found(me, voters, timing, seed, now, out)),
            LogInit::Joined => Some(RaftLog::join(me, timing, seed, now, out)),
            LogInit::Restored(record) => RaftLog::restore(me, *record, timing, seed, now).ok(),
        }
    }
}
