//! What decides on views: Raft, as in an agent; or nobody, and the world tells any voter of any step.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::hash::{Hash, Hasher};

use super::host::LEASE;
use distlock_protocol::membership::quorum::log::{
    Decided, LogAction, LogMessage, NotNow, Proposal, RaftLog, Timing, ViewLog, VoterId,
};
use distlock_protocol::membership::quorum::{LogInit, MakeLog};
use distlock_protocol::{Epoch, NodeId, Time};

/// What decides on views.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deciding {
    /// Raft and what proposes views to it, as in an agent.
    Raft,
    /// Nobody: any voter may propose any view, and be told of any, as by a log that lies.
    Anybody,
}

/// Makes the log of an incarnation.
#[derive(Clone, Debug, Hash)]
pub(super) struct Logs {
    pub(super) deciding: Deciding,
    pub(super) node: NodeId,
}

impl MakeLog for Logs {
    type Log = Log;

    fn make(
        &mut self,
        now: Time,
        me: VoterId,
        how: LogInit,
        out: &mut Vec<LogAction>,
    ) -> Option<Log> {
        if self.deciding == Deciding::Anybody {
            return Some(Log::Mute);
        }
        let timing = Timing::of_lease(LEASE);
        // So elections of different hosts are due at different times; which comes first is for the world.
        let seed = self.node.as_u16().into();
        let log = match how {
            LogInit::Founded(voters) => RaftLog::found(me, voters, timing, seed, now, out),
            LogInit::Joined => RaftLog::join(me, timing, seed, now, out),
            LogInit::Restored(record) => RaftLog::restore(me, *record, timing, seed, now).ok()?,
        };
        Some(Log::Raft(Box::new(log)))
    }
}

/// A log.
#[derive(Clone, Debug)]
pub(super) enum Log {
    /// One that never says anything.
    Mute,
    Raft(Box<RaftLog>),
}

/// The library has no hash of its node. What it is made of can all be written.
impl Hash for Log {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if let Self::Raft(log) = self {
            let written = write!(Text(state), "{log:?}");
            written.expect("nothing is refused");
        }
    }
}

/// Takes in what is written.
struct Text<'a, H>(&'a mut H);

impl<H: Hasher> Write for Text<'_, H> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

impl ViewLog for Log {
    fn receive(&mut self, now: Time, from: VoterId, message: LogMessage, out: &mut Vec<LogAction>) {
        if let Self::Raft(log) = self {
            log.receive(now, from, message, out);
        }
    }

    fn answer_former(&self, from: VoterId, message: &LogMessage) -> Option<LogMessage> {
        match self {
            Self::Raft(log) => log.answer_former(from, message),
            Self::Mute => None,
        }
    }

    fn timeout(&mut self, now: Time, out: &mut Vec<LogAction>) {
        if let Self::Raft(log) = self {
            log.timeout(now, out);
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        match self {
            Self::Raft(log) => log.next_timeout(),
            Self::Mute => None,
        }
    }

    fn persisted(&mut self, now: Time, out: &mut Vec<LogAction>) {
        if let Self::Raft(log) = self {
            log.persisted(now, out);
        }
    }

    fn propose(
        &mut self,
        now: Time,
        proposal: Proposal,
        out: &mut Vec<LogAction>,
    ) -> Result<(), NotNow> {
        match self {
            Self::Raft(log) => log.propose(now, proposal, out),
            Self::Mute => Err(NotNow::NotLeader),
        }
    }

    fn installed(&mut self, epoch: Epoch) {
        if let Self::Raft(log) = self {
            log.installed(epoch);
        }
    }

    fn hand_over(
        &mut self,
        now: Time,
        to: VoterId,
        out: &mut Vec<LogAction>,
    ) -> Result<(), NotNow> {
        match self {
            Self::Raft(log) => log.hand_over(now, to, out),
            Self::Mute => Err(NotNow::NotLeader),
        }
    }

    fn leader(&self) -> Option<VoterId> {
        match self {
            Self::Raft(log) => log.leader(),
            Self::Mute => None,
        }
    }

    fn is_leader(&self) -> bool {
        matches!(self, Self::Raft(log) if log.is_leader())
    }

    fn term(&self) -> u64 {
        match self {
            Self::Raft(log) => log.term(),
            Self::Mute => 0,
        }
    }

    fn decided(&self) -> Option<&Decided> {
        match self {
            Self::Raft(log) => log.decided(),
            Self::Mute => None,
        }
    }

    fn retired(&self) -> bool {
        matches!(self, Self::Raft(log) if log.retired())
    }
}
