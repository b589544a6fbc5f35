//! Ledgers that share a store, of two or three agents that want one lock.
//!
//! Whatever an agent submits is done at some time later, in order as over one connection, with its reply; or
//! it has an unknown outcome: then the agent is told so at once, and the operation may be done at any later
//! time, or never. Time goes on in leaps, and each agent's clock at its own rate: the odd agents' clocks are as slow as they may be, the
//! even ones' as fast. Three leaps are a lease of the slow ones, and as long as the fast ones watch. An
//! agent notices that time has gone on at any time after that, or never.
//!
//! Reads show the present here, and the store forgets nothing; the simulator has more of that.

mod turn;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::time::Duration;

use self::turn::Turn;
use super::pool::{Pool, Shared};
use super::{Goal, Seen, System, nodes, place, within_reach};
use crate::checkers::{Exclusion, Fences, Requests, Violation};
use crate::clock::Clock;
use distlock_protocol::ledger::{Entry, Key, Ledger, Op, OpId, Reply, Version};
use distlock_protocol::{LockName, NodeId, Ticket, Time};

const LEAP: Duration = Duration::from_secs(10);
/// Of a clock that is a tenth too slow: three leaps. What a clock shows in that time that is a tenth too
/// fast is 11/9 of it.
const LEASE: Duration = Duration::from_secs(27);
const DRIFT_PPM: i32 = 100_000;

/// How many times what may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// Requests of each agent's callers.
    pub rounds: u8,
    /// Callers that wait no longer.
    pub cancels: u8,
    /// Operations of unknown outcome.
    pub unknown: u8,
    /// Leaps of time.
    pub leaps: u8,
    /// Agents that crash.
    pub crashes: u8,
    /// Agents that come back after that.
    pub restarts: u8,
}

/// What is explored.
#[derive(Debug)]
pub struct LedgerModel {
    /// How many agents there are.
    pub agents: u16,
    /// How much of everything.
    pub bounds: Bounds,
    ledgers: Pool<Agent>,
    stores: Pool<Store>,
    checkers: Pool<Checkers>,
}

/// A state of all agents, the store, and what is on its way there.
#[derive(Clone, Debug, PartialEq, Hash)]
pub struct State {
    now: Time,
    /// By agent; `None` after a crash.
    agents: Vec<Option<Shared<Agent>>>,
    incarnations: Vec<u32>,
    rounds: Vec<u8>,
    store: Shared<Store>,
    left: Bounds,
    checkers: Shared<Checkers>,
    broken: Option<Box<Violation>>,
    seen: Seen,
}

/// One agent.
#[derive(Clone, Debug, Hash)]
struct Agent {
    ledger: Ledger,
    /// What it has asked of the store, and has no answer to.
    asked: Vec<(OpId, Op)>,
    waiting: Option<Ticket>,
    inside: Option<Ticket>,
    /// How often its lease was told, and until when it runs.
    until: Time,
}

#[derive(Clone, Debug, Default, Hash)]
struct Store {
    registers: BTreeMap<Key, Entry>,
    versions: u64,
    /// Operations whose outcome is unknown, and that may still be done.
    late: Vec<Op>,
}

#[derive(Clone, Debug, Hash)]
struct Checkers {
    exclusion: Exclusion,
    fences: Fences,
    requests: Requests,
}

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A caller of this agent wants in.
    Want(NodeId),
    /// It waits no longer.
    Cancel(NodeId),
    /// It leaves.
    Leave(NodeId),
    /// The first operation of the agent that is under way is done, and the agent hears of it.
    Done(NodeId),
    /// The outcome of that one is unknown.
    Unknown(NodeId),
    /// An operation of unknown outcome is done.
    Late(usize),
    /// Time goes on.
    Leap,
    /// An agent does what is due.
    Wake(NodeId),
    /// An agent crashes.
    Crash(NodeId),
    /// It comes back.
    Restart(NodeId),
}

const ENTERED: Goal = 0;
const ALL_ENTERED: Goal = 1;
const DONE_LATE: Goal = 2;
const DECLARED_DEAD: Goal = 3;
const ABANDONED: Goal = 4;
const CANCEL_MEETS_UNKNOWN: Goal = 5;
const REVIVED: Goal = 6;

fn lock() -> LockName {
    LockName::new("l").expect("a name")
}

fn clock(node: NodeId) -> Clock {
    let is_slow = node.as_u16() % 2 == 1;
    Clock {
        offset: Duration::ZERO,
        drift_ppm: if is_slow { -DRIFT_PPM } else { DRIFT_PPM },
    }
}

impl LedgerModel {
    /// A model of that many agents.
    pub fn new(agents: u16, bounds: Bounds) -> Self {
        Self {
            agents,
            bounds,
            ledgers: Pool::default(),
            stores: Pool::default(),
            checkers: Pool::default(),
        }
    }
}

impl System for LedgerModel {
    type State = State;
    type Action = Action;

    fn start(&self) -> State {
        let permits: BTreeMap<_, _> = [(lock(), NonZeroU32::MIN)].into();
        let checkers = Checkers {
            exclusion: Exclusion::new(permits.clone()),
            fences: Fences::new(&permits),
            requests: Requests::default(),
        };
        let mut state = State {
            now: Time::ZERO,
            agents: nodes(self.agents).map(|_| None).collect(),
            incarnations: nodes(self.agents).map(|_| 0).collect(),
            rounds: nodes(self.agents).map(|_| self.bounds.rounds).collect(),
            store: self.stores.share(Store::default()),
            left: self.bounds,
            checkers: self.checkers.share(checkers),
            broken: None,
            seen: Seen::default(),
        };
        for node in nodes(self.agents) {
            let mut turn = Turn::new(self, &state, node);
            turn.begin();
            state = turn.finish();
        }
        state
    }

    fn actions(&self, state: &State, out: &mut Vec<Action>) {
        if state.broken.is_some() {
            return;
        }
        for node in nodes(self.agents) {
            let Some(agent) = &state.agents[place(node)] else {
                if state.left.restarts > 0 {
                    out.push(Action::Restart(node));
                }
                continue;
            };
            if !agent.asked.is_empty() {
                out.push(Action::Done(node));
                if state.left.unknown > 0 {
                    out.push(Action::Unknown(node));
                }
            }
            let is_idle = agent.waiting.is_none() && agent.inside.is_none();
            if is_idle && state.rounds[place(node)] > 0 {
                out.push(Action::Want(node));
            }
            if agent.waiting.is_some() && state.left.cancels > 0 {
                out.push(Action::Cancel(node));
            }
            if agent.inside.is_some() {
                out.push(Action::Leave(node));
            }
            let local = clock(node).shows(state.now);
            if agent.ledger.poll_timeout().is_some_and(|at| at <= local) {
                out.push(Action::Wake(node));
            }
            if state.left.crashes > 0 {
                out.push(Action::Crash(node));
            }
        }
        out.extend((0..state.store.late.len()).map(Action::Late));
        if state.left.leaps > 0 {
            out.push(Action::Leap);
        }
    }

    fn after(&self, state: &State, action: &Action) -> Option<State> {
        let node = match action {
            Action::Leap => {
                let mut next = state.clone();
                next.left.leaps -= 1;
                next.now = state.now + LEAP;
                return Some(next);
            }
            Action::Late(at) => {
                let mut next = state.clone();
                let mut store = (*state.store).clone();
                let op = store.late.remove(*at);
                if matches!(store.apply(&op), Reply::Done(_) | Reply::Removed) {
                    next.seen.note(DONE_LATE);
                }
                next.store = self.stores.share(store);
                return Some(next);
            }
            Action::Want(node)
            | Action::Cancel(node)
            | Action::Leave(node)
            | Action::Done(node)
            | Action::Unknown(node)
            | Action::Wake(node)
            | Action::Crash(node)
            | Action::Restart(node) => *node,
        };
        let mut turn = Turn::new(self, state, node);
        if let Err(violation) = turn.play(action) {
            turn.next.broken = Some(Box::new(violation));
        }
        Some(turn.finish())
    }

    fn is_misfortune(action: &Action) -> bool {
        matches!(
            action,
            Action::Crash(_) | Action::Unknown(_) | Action::Cancel(_) | Action::Leap
        )
    }

    fn violation(state: &State) -> Option<&Violation> {
        state.broken.as_deref()
    }

    fn goals(&self) -> Vec<(&'static str, Goal)> {
        let Bounds {
            cancels,
            unknown,
            leaps,
            crashes,
            ..
        } = self.bounds;
        let dies = leaps > 2;
        within_reach([
            (true, "somebody enters", ENTERED),
            (true, "all enter", ALL_ENTERED),
            (unknown > 0, "an unknown write is done late", DONE_LATE),
            (dies, "a session is declared dead", DECLARED_DEAD),
            (
                dies && crashes > 0,
                "who enters is told that one ended inside",
                ABANDONED,
            ),
            (
                cancels > 0 && unknown > 0,
                "a cancel meets an unknown write",
                CANCEL_MEETS_UNKNOWN,
            ),
            (leaps > 2, "a guard becomes valid again", REVIVED),
        ])
    }

    fn reached(state: &State, goal: Goal) -> bool {
        state.seen.has(goal)
    }
}

impl Store {
    fn apply(&mut self, op: &Op) -> Reply {
        let (key, expect) = match op {
            Op::Read { key } => return Reply::Value(self.registers.get(key).cloned()),
            Op::Write { key, expect, .. } => (key, *expect),
            Op::Remove { key, expect } => (key, Some(*expect)),
            Op::List { .. } => return Reply::Unknown,
        };
        let present = self.registers.get(key);
        if present.map(|entry| entry.version) != expect {
            return Reply::Conflict(present.cloned());
        }
        let Op::Write { value, .. } = op else {
            self.registers.remove(key);
            return Reply::Removed;
        };
        self.versions += 1;
        let version = Version(self.versions);
        let value = value.clone();
        self.registers.insert(key.clone(), Entry { value, version });
        Reply::Done(version)
    }
}
