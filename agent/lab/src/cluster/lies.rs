//! A log that lies about the views that it decides on.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::choices::Choices;
use distlock_protocol::membership::quorum::log::{
    Decided, LogAction, LogMessage, NotNow, Proposal, ViewLog, VoterId,
};
use distlock_protocol::membership::quorum::{LogInit, MakeLog};
use distlock_protocol::{Epoch, Time};

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

    /// The logs of a voter whose members have leases of this length.
    pub(super) fn logs(&self, lease: Duration) -> Liars {
        let lies = self.clone();
        Liars { lies, lease }
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

/// Makes the logs of one member.
#[derive(Clone, Debug)]
pub(super) struct Liars {
    lies: Lies,
    lease: Duration,
}

impl MakeLog for Liars {
    type Log = Liar;

    fn make(&mut self, now: Time, me: VoterId, _: LogInit, _: &mut Vec<LogAction>) -> Option<Liar> {
        self.lies.story().voters.insert(me);
        Some(Liar {
            me,
            lies: self.lies.clone(),
            pause: self.lease / 20,
            next: now,
        })
    }
}

/// A log that decides what any leader proposes, twice in an epoch if need be, and tells it to
/// whom it likes, in the order it likes, again and again or never.
#[derive(Debug)]
pub(super) struct Liar {
    me: VoterId,
    lies: Lies,
    pause: Duration,
    next: Time,
}

impl ViewLog for Liar {
    fn receive(&mut self, _: Time, _: VoterId, _: LogMessage, _: &mut Vec<LogAction>) {}

    fn timeout(&mut self, now: Time, out: &mut Vec<LogAction>) {
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

    fn next_timeout(&self) -> Option<Time> {
        Some(self.next)
    }

    fn persisted(&mut self, _: Time, _: &mut Vec<LogAction>) {}

    fn propose(
        &mut self,
        _: Time,
        proposal: Proposal,
        _: &mut Vec<LogAction>,
    ) -> Result<(), NotNow> {
        let chain = Vec::new();
        self.lies.story().pool.push(Decided { proposal, chain });
        Ok(())
    }

    fn installed(&mut self, _: Epoch) {}

    fn hand_over(&mut self, _: Time, _: VoterId, _: &mut Vec<LogAction>) -> Result<(), NotNow> {
        Ok(())
    }

    fn leader(&self) -> Option<VoterId> {
        self.lies.story().leaders.first().copied()
    }

    fn is_leader(&self) -> bool {
        self.lies.story().leaders.contains(&self.me)
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
