//! The logs that decide in the simulation: Raft, and one that lies.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::time::Duration;

use super::super::rng::Rng;
use crate::protocol::membership::quorum::log::{
    Decided, LogAction, LogMessage, NotNow, Proposal, RaftLog, Timing, ViewLog, VoterId,
};
use crate::protocol::membership::quorum::{Beginning, MakeLog};
use crate::protocol::{Epoch, Time};

/// How the voters' proposals are ordered.
#[derive(Clone, Debug)]
pub(super) enum Logs {
    Raft {
        lease: Duration,
        seed: u64,
    },
    Lying {
        lease: Duration,
        lies: Rc<RefCell<Lies>>,
    },
}

/// What the lying logs share.
#[derive(Debug)]
pub(super) struct Lies {
    rng: Rng,
    pool: Vec<Decided>,
    voters: BTreeSet<VoterId>,
    leaders: BTreeSet<VoterId>,
}

impl Lies {
    pub(super) fn new(rng: Rng) -> Self {
        Self {
            rng,
            pool: Vec::new(),
            voters: BTreeSet::new(),
            leaders: BTreeSet::new(),
        }
    }

    /// Some voters lead from now on, and think nothing of it that others do.
    pub(super) fn elect(&mut self) {
        let voters: Vec<_> = self.voters.iter().copied().collect();
        self.leaders = voters
            .into_iter()
            .filter(|_| self.rng.chance(400))
            .collect();
    }
}

#[derive(Debug)]
pub(super) enum Log {
    Raft(Box<RaftLog>),
    Lying(Liar),
}

/// A log that decides what any leader proposes, twice in an epoch if need be, and tells it to
/// whom it likes, in the order it likes, again and again or never.
#[derive(Debug)]
pub(super) struct Liar {
    me: VoterId,
    lies: Rc<RefCell<Lies>>,
    pause: Duration,
    next: Time,
}

impl MakeLog for Logs {
    type Log = Log;

    fn make(
        &mut self,
        now: Time,
        me: VoterId,
        how: Beginning,
        out: &mut Vec<LogAction>,
    ) -> Option<Log> {
        match self {
            Self::Raft { lease, seed } => {
                *seed = Rng::new(*seed).next_u64();
                let (timing, seed) = (Timing::of_lease(*lease), *seed);
                let raft = match how {
                    Beginning::Founded(voters) => {
                        RaftLog::found(me, voters, timing, seed, now, out)
                    }
                    Beginning::Joined => RaftLog::join(me, timing, seed, now, out),
                    Beginning::Restored(record) => {
                        RaftLog::restore(me, *record, timing, seed, now).ok()?
                    }
                };
                Some(Log::Raft(Box::new(raft)))
            }
            Self::Lying { lease, lies } => {
                lies.borrow_mut().voters.insert(me);
                Some(Log::Lying(Liar {
                    me,
                    lies: Rc::clone(lies),
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
        let mut lies = self.lies.borrow_mut();
        if lies.pool.is_empty() || !lies.rng.chance(300) {
            return;
        }
        // Mostly of what is new, as otherwise nothing would ever happen.
        let recent = lies.pool.len().min(6);
        let back = lies.rng.index(recent);
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
                liar.lies
                    .borrow_mut()
                    .pool
                    .push(Decided { proposal, chain });
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
            Self::Lying(liar) => liar.lies.borrow().leaders.first().copied(),
        }
    }

    fn is_leader(&self) -> bool {
        match self {
            Self::Raft(raft) => raft.is_leader(),
            Self::Lying(liar) => liar.lies.borrow().leaders.contains(&liar.me),
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
