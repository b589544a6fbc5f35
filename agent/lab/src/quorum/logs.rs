//! The logs that decide in the simulation: Raft, and one that lies.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::super::choices::Choices;
use distlock_protocol::membership::quorum::log::{
    Decided, LogAction, LogMessage, NotNow, Proposal, RaftLog, Timing, ViewLog, VoterId,
};
use distlock_protocol::membership::quorum::{LogInit, MakeLog};
use distlock_protocol::{Epoch, Time};

/// How the voters' proposals are ordered.
#[derive(Clone, Debug)]
pub(crate) enum Logs {
    Raft { lease: Duration, seed: u64 },
    Lying { lease: Duration, lies: Lies },
}

/// What the lying logs of a run share. Nobody waits for another here: a run has one thread, and nodes
/// must be fit to be sent to any.
#[derive(Clone, Debug)]
pub(crate) struct Lies(Arc<Mutex<Story>>);

#[derive(Debug)]
struct Story {
    choices: Choices,
    pool: Vec<Decided>,
    voters: BTreeSet<VoterId>,
    leaders: BTreeSet<VoterId>,
}

impl Lies {
    pub(crate) fn new(choices: Choices) -> Self {
        Self(Arc::new(Mutex::new(Story {
            choices,
            pool: Vec::new(),
            voters: BTreeSet::new(),
            leaders: BTreeSet::new(),
        })))
    }

    fn story(&self) -> MutexGuard<'_, Story> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Some voters lead from now on, and think nothing of it that others do.
    pub(crate) fn elect(&self) {
        let story = &mut *self.story();
        let voters = story.voters.iter().copied();
        story.leaders = voters.filter(|_| story.choices.chance(400)).collect();
    }
}

#[derive(Debug)]
pub(crate) enum Log {
    Raft(Box<RaftLog>),
    Lying(Liar),
}

/// A log that decides what any leader proposes, twice in an epoch if need be, and tells it to
/// whom it likes, in the order it likes, again and again or never.
#[derive(Debug)]
pub(crate) struct Liar {
    me: VoterId,
    lies: Lies,
    pause: Duration,
    next: Time,
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
        match self {
            Self::Raft { lease, seed } => {
                *seed = Choices::new(*seed).next_u64();
                let (timing, seed) = (Timing::of_lease(*lease), *seed);
                let raft = match how {
                    LogInit::Founded(voters) => RaftLog::found(me, voters, timing, seed, now, out),
                    LogInit::Joined => RaftLog::join(me, timing, seed, now, out),
                    LogInit::Restored(record) => {
                        RaftLog::restore(me, *record, timing, seed, now).ok()?
                    }
                };
                Some(Log::Raft(Box::new(raft)))
            }
            Self::Lying { lease, lies } => {
                lies.story().voters.insert(me);
                Some(Log::Lying(Liar {
                    me,
                    lies: lies.clone(),
                    pause: *lease / 20,
                    next: now,
                }))
            }
        }
    }
}

impl Liar {
    fn tell(&mut self, now: Time, out: &mut Vec<LogAction>) {
        self.next = now + self.pause;
        let mut lies = self.lies.story();
        if lies.pool.is_empty() || !lies.choices.chance(300) {
            return;
        }
        // Mostly of what is new, as otherwise nothing would ever happen.
        let recent = lies.pool.len().min(6);
        let back = lies.choices.index(recent);
        let decided = lies.pool[lies.pool.len() - 1 - back].clone();
        out.push(LogAction::Decided(decided));
    }
}

impl ViewLog for Log {
    fn receive(&mut self, now: Time, from: VoterId, message: LogMessage, out: &mut Vec<LogAction>) {
        match self {
            Self::Raft(raft) => raft.receive(now, from, message, out),
            Self::Lying(_) => {}
        }
    }

    fn timeout(&mut self, now: Time, out: &mut Vec<LogAction>) {
        match self {
            Self::Raft(raft) => raft.timeout(now, out),
            Self::Lying(liar) => liar.tell(now, out),
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        match self {
            Self::Raft(raft) => raft.next_timeout(),
            Self::Lying(liar) => Some(liar.next),
        }
    }

    fn persisted(&mut self, now: Time, out: &mut Vec<LogAction>) {
        if let Self::Raft(raft) = self {
            raft.persisted(now, out);
        }
    }

    fn propose(
        &mut self,
        now: Time,
        proposal: Proposal,
        out: &mut Vec<LogAction>,
    ) -> Result<(), NotNow> {
        match self {
            Self::Raft(raft) => raft.propose(now, proposal, out),
            Self::Lying(liar) => {
                let chain = Vec::new();
                liar.lies.story().pool.push(Decided { proposal, chain });
                Ok(())
            }
        }
    }

    fn installed(&mut self, epoch: Epoch) {
        if let Self::Raft(raft) = self {
            raft.installed(epoch);
        }
    }

    fn hand_over(
        &mut self,
        now: Time,
        to: VoterId,
        out: &mut Vec<LogAction>,
    ) -> Result<(), NotNow> {
        match self {
            Self::Raft(raft) => raft.hand_over(now, to, out),
            Self::Lying(_) => Ok(()),
        }
    }

    fn leader(&self) -> Option<VoterId> {
        match self {
            Self::Raft(raft) => raft.leader(),
            Self::Lying(liar) => liar.lies.story().leaders.first().copied(),
        }
    }

    fn is_leader(&self) -> bool {
        match self {
            Self::Raft(raft) => raft.is_leader(),
            Self::Lying(liar) => liar.lies.story().leaders.contains(&liar.me),
        }
    }

    fn term(&self) -> u64 {
        match self {
            Self::Raft(raft) => raft.term(),
            Self::Lying(_) => 0,
        }
    }

    fn decided(&self) -> Option<&Decided> {
        match self {
            Self::Raft(raft) => raft.decided(),
            Self::Lying(_) => None,
        }
    }

    fn retired(&self) -> bool {
        match self {
            Self::Raft(raft) => raft.retired(),
            Self::Lying(_) => false,
        }
    }
}
