//! What callers know, and what must hold of it.

use std::collections::{BTreeMap, BTreeSet};

use super::LEASE;
use distlock_agent::protocol::{
    Command, Event, Failure, Fence, LockName, Mode, NodeId, Previous, Refusal, Ticket, Time,
};

/// Which rules there are in this world.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judged {
    pub(super) failure: Failure,
    /// Whether nothing but bad weather happens to datagrams.
    pub(super) weather_only: bool,
    /// Whether the algorithm of the lock with one permit excludes for sure.
    pub(super) excludes: bool,
}

/// All requests, and how far they have come.
pub(super) struct Ledger {
    judged: Judged,
    calls: BTreeMap<Ticket, Call>,
    /// Until when what a member was granted is valid.
    leases: BTreeMap<NodeId, Time>,
    fences: BTreeMap<LockName, Fence>,
    /// Whether somebody was presumed gone.
    is_split: bool,
}

struct Call {
    node: NodeId,
    lock: LockName,
    mode: Mode,
    permits: usize,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Inside,
    /// Its member has crashed or leaves; it may act until then.
    Until(Time),
}

impl Ledger {
    pub(super) fn new(judged: Judged) -> Self {
        Self {
            judged,
            calls: BTreeMap::new(),
            leases: BTreeMap::new(),
            fences: BTreeMap::new(),
            is_split: false,
        }
    }

    /// The requests of `node` that are not over.
    pub(super) fn tickets(&self, node: NodeId) -> impl Iterator<Item = Ticket> + Clone {
        let own = move |(_, call): &(&Ticket, &Call)| {
            call.node == node && !matches!(call.stage, Stage::Until(_))
        };
        self.calls.iter().filter(own).map(|(ticket, _)| *ticket)
    }

    pub(super) fn is_waiting(&self, ticket: Ticket) -> bool {
        let call = self.calls.get(&ticket);
        call.is_some_and(|call| call.stage == Stage::Waiting)
    }

    /// Who waits.
    pub(super) fn waiting(&self) -> BTreeSet<NodeId> {
        let waiting = self.calls.values();
        let waiting = waiting.filter(|call| call.stage == Stage::Waiting);
        waiting.map(|call| call.node).collect()
    }

    /// Some request that is inside.
    pub(super) fn inside(&self) -> Option<(NodeId, Ticket)> {
        let mut calls = self.calls.iter();
        let found = calls.find(|(_, call)| call.stage == Stage::Inside)?;
        Some((found.1.node, *found.0))
    }

    /// A caller says that to its node.
    pub(super) fn commands(&mut self, node: NodeId, permits: usize, command: &Command) {
        match command {
            Command::Acquire {
                ticket, lock, mode, ..
            } => self.asks(node, *ticket, lock, *mode, permits),
            Command::Campaign { ticket, lock, .. } => {
                self.asks(node, *ticket, lock, Mode::Exclusive, permits);
            }
            Command::Release { ticket, .. } => {
                if let Some(call) = self.calls.get(ticket)
                    && call.stage == Stage::Inside
                {
                    self.calls.remove(ticket);
                }
            }
            Command::Leave => {
                for call in self.calls.values_mut().filter(|call| call.node == node) {
                    if call.stage == Stage::Inside {
                        call.stage = Stage::Until(Time::ZERO);
                    }
                }
            }
            Command::Cancel { .. } | Command::Note { .. } | Command::Change(_) => {}
        }
    }

    fn asks(&mut self, node: NodeId, ticket: Ticket, lock: &LockName, mode: Mode, permits: usize) {
        let call = Call {
            node,
            lock: lock.clone(),
            mode,
            permits,
            stage: Stage::Waiting,
        };
        assert!(self.calls.insert(ticket, call).is_none());
    }

    /// `node` has come to an end without a word. Whom it let in may act until its lease ends; where
    /// there are none, processes end with their member.
    pub(super) fn crashes(&mut self, node: NodeId) {
        let end = match self.judged.failure {
            Failure::Quorum => self.leases.remove(&node),
            _ => None,
        };
        self.calls.retain(|_, call| {
            if call.node == node && call.stage == Stage::Inside {
                call.stage = Stage::Until(end.unwrap_or(Time::ZERO));
                return end.is_some();
            }
            call.node != node || matches!(call.stage, Stage::Until(end) if end > Time::ZERO)
        });
    }

    /// A node says that to its callers.
    pub(super) fn hears(&mut self, now: Time, node: NodeId, event: &Event) {
        match event {
            Event::Granted {
                ticket,
                fence,
                previous,
            } => self.granted(now, *ticket, *fence, *previous),
            Event::Ended { ticket, refusal } => {
                let call = self.calls.remove(ticket);
                let call = call.unwrap_or_else(|| panic!("{ticket:?} is over, and {refusal:?}"));
                assert_eq!(call.stage, Stage::Waiting, "{ticket:?} {refusal:?}");
                if self.judged.weather_only {
                    assert!(!matches!(refusal, Refusal::WrongSpec { .. }), "{refusal:?}");
                }
            }
            Event::Lost { ticket } => {
                let call = self.calls.remove(ticket);
                let stage = call.map(|call| call.stage);
                assert!(
                    matches!(stage, Some(Stage::Inside | Stage::Until(_))),
                    "{ticket:?} is lost and was {stage:?}"
                );
            }
            Event::Lease { until } => self.extends(now, node, *until),
            Event::Excluded { .. } => {
                let mut held = self.calls.values().filter(|call| call.node == node);
                assert!(
                    !held.any(|call| call.stage == Stage::Inside),
                    "left out, and not told to stop"
                );
                self.leases.remove(&node);
            }
            Event::Left => assert_eq!(self.tickets(node).next(), None, "not told"),
            Event::Suspect { .. } => self.is_split = true,
            Event::Superseded { .. } | Event::Disagreement { .. } | Event::VoterBroken { .. } => {
                assert!(!self.judged.weather_only, "{node}: {event:?}");
            }
            _ => {}
        }
    }

    fn extends(&mut self, now: Time, node: NodeId, until: Time) {
        if self.judged.failure == Failure::Quorum && self.judged.weather_only {
            assert!(until <= now + LEASE, "longer than a lease");
        }
        let before = self.leases.insert(node, until);
        if before.is_some_and(|before| before <= now) {
            // What it had been granted is valid again.
            let locks: BTreeSet<_> = self.calls.values().map(|call| call.lock.clone()).collect();
            locks.iter().for_each(|lock| self.judge(now, lock));
        }
    }

    fn granted(&mut self, now: Time, ticket: Ticket, fence: Fence, _previous: Previous) {
        let call = self.calls.get_mut(&ticket);
        let call = call.unwrap_or_else(|| panic!("{ticket:?} is granted and was over"));
        assert_eq!(call.stage, Stage::Waiting, "{ticket:?}");
        call.stage = Stage::Inside;
        let lock = call.lock.clone();
        let is_alone = call.permits == 1 && call.mode == Mode::Exclusive;
        if self.is_safe() {
            let before = self.fences.get(&lock).copied();
            let is_fenced = self.judged.failure != Failure::PresumeFailed;
            if is_fenced && (is_alone || before == Some(fence)) && self.excludes(&lock) {
                assert!(before < Some(fence), "{lock}: {fence} after {before:?}");
            }
            self.fences
                .insert(lock.clone(), before.max(Some(fence)).unwrap_or(fence));
        }
        self.judge(now, &lock);
    }

    fn is_safe(&self) -> bool {
        let presumes = self.judged.failure == Failure::PresumeFailed;
        self.judged.weather_only && !(presumes && self.is_split)
    }

    fn excludes(&self, lock: &LockName) -> bool {
        self.judged.excludes || lock.as_bytes() == b"pool"
    }

    /// No more are inside `lock` than may be.
    fn judge(&self, now: Time, lock: &LockName) {
        if !self.is_safe() || !self.excludes(lock) {
            return;
        }
        let acts = |call: &&Call| match call.stage {
            Stage::Waiting => false,
            Stage::Inside => self.leases.get(&call.node).is_none_or(|end| now < *end),
            Stage::Until(end) => now < end,
        };
        let inside: Vec<_> = self.calls.values().filter(|it| it.lock == *lock).collect();
        let inside: Vec<_> = inside.into_iter().filter(acts).collect();
        let share = |mode| inside.iter().all(|call| call.mode == mode);
        let permits = inside.first().map_or(1, |call| call.permits);
        assert!(
            share(Mode::Shared) || share(Mode::Exclusive) && inside.len() <= permits,
            "inside {lock}: {:?}",
            inside
                .iter()
                .map(|it| (it.node, it.mode, it.stage))
                .collect::<Vec<_>>()
        );
    }
}
