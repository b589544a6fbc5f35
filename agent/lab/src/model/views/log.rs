//! What decides on views here: nobody. The world itself tells any voter of any sound step.

use alloc::vec::Vec;

use distlock_protocol::Time;
use distlock_protocol::membership::quorum::log::{
    Decided, LogAction, LogMessage, NotNow, Proposal, ViewLog, VoterId,
};
use distlock_protocol::membership::quorum::{LogInit, MakeLog};

/// A log that never says anything.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Mute;

impl MakeLog for Mute {
    type Log = Self;

    fn make(&mut self, _: Time, _: VoterId, _: LogInit, _: &mut Vec<LogAction>) -> Option<Self> {
        Some(Self)
    }
}

impl ViewLog for Mute {
    fn receive(&mut self, _: Time, _: VoterId, _: LogMessage, _: &mut Vec<LogAction>) {}

    fn timeout(&mut self, _: Time, _: &mut Vec<LogAction>) {}

    fn next_timeout(&self) -> Option<Time> {
        None
    }

    fn persisted(&mut self, _: Time, _: &mut Vec<LogAction>) {}

    fn propose(&mut self, _: Time, _: Proposal, _: &mut Vec<LogAction>) -> Result<(), NotNow> {
        Err(NotNow::NotLeader)
    }

    fn installed(&mut self, _: distlock_protocol::Epoch) {}

    fn hand_over(&mut self, _: Time, _: VoterId, _: &mut Vec<LogAction>) -> Result<(), NotNow> {
        Err(NotNow::NotLeader)
    }

    fn leader(&self) -> Option<VoterId> {
        None
    }

    fn is_leader(&self) -> bool {
        false
    }

    fn term(&self) -> u64 {
        0
    }

    fn decided(&self) -> Option<&Decided> {
        None
    }

    fn retired(&self) -> bool {
        false
    }
}
