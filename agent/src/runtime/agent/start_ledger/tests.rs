//! Agents that share a store in memory.

use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::protocol::ledger::{
    Entry, Key, Op, OpId, Reply, StoreEvent, StoreFacts, StoreOutput, StreamId, Version,
};
use crate::protocol::{Mode, Time};
use crate::runtime::os::sync::Mutex;
use crate::runtime::{AcquireError, Agent, Caller, Grant, GuardState, Patience};

const LEASE: Duration = Duration::from_millis(600);

/// Registers in memory.
#[derive(Debug, Default)]
struct Memory {
    registers: BTreeMap<Key, Entry>,
    last: u64,
    /// Whether nobody gets an answer.
    is_away: bool,
}

impl Memory {
    fn change(&mut self, key: Key, expect: Option<Version>, value: Option<Vec<u8>>) -> Reply {
        let present = self.registers.get(&key);
        if present.map(|entry| entry.version) != expect {
            return Reply::Conflict(present.cloned());
        }
        self.last += 1;
        let version = Version(self.last);
        match value {
            Some(value) => {
                self.registers.insert(key, Entry { value, version });
                Reply::Done(version)
            }
            None => {
                self.registers.remove(&key);
                Reply::Removed
            }
        }
    }

    fn answer(&mut self, op: Op) -> Reply {
        match op {
            Op::Read { key } => Reply::Value(self.registers.get(&key).cloned()),
            Op::Write { key, value, expect } => self.change(key, expect, Some(value)),
            Op::Remove { key, expect } => self.change(key, Some(expect), None),
            Op::List { prefix, after } => {
                let is_after = |key: &Key| after.as_ref().is_none_or(|after| key > after);
                let all = self.registers.iter();
                let found = all
                    .filter(|(key, _)| key.as_str().starts_with(prefix.as_str()) && is_after(key));
                Reply::Page {
                    entries: found
                        .map(|(key, entry)| (key.clone(), entry.clone()))
                        .collect(),
                    more: false,
                }
            }
        }
    }
}

/// A client of such registers.
#[derive(Debug)]
struct MemoryStore {
    memory: Arc<Mutex<Memory>>,
    outputs: VecDeque<StoreOutput>,
    may_forget: bool,
    has_begun: bool,
}

impl Store for MemoryStore {
    fn submit(&mut self, _: Time, id: OpId, op: Op) {
        let mut memory = self.memory.lock();
        if !memory.is_away {
            let reply = StoreEvent::Reply(id, memory.answer(op));
            self.outputs.push_back(StoreOutput::Event(reply));
        }
    }

    fn interest(&mut self, _: Time, _: &BTreeSet<Key>) {}

    fn connected(&mut self, _: Time, _: StreamId) {}

    fn received(&mut self, _: Time, _: StreamId, _: &[u8]) {}

    fn disconnected(&mut self, _: Time, _: StreamId, _: &str) {}

    fn timeout(&mut self, _: Time) {
        if !std::mem::replace(&mut self.has_begun, true) {
            let facts = StoreFacts {
                may_forget: self.may_forget,
                doubts: Vec::new(),
                identity: "memory".to_owned(),
            };
            let up = StoreOutput::Event(StoreEvent::Up(facts));
            self.outputs.push_back(up);
        }
    }

    fn poll_output(&mut self) -> Option<StoreOutput> {
        self.outputs.pop_front()
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }
}

fn store(memory: &Arc<Mutex<Memory>>, may_forget: bool) -> Box<MemoryStore> {
    Box::new(MemoryStore {
        memory: Arc::clone(memory),
        outputs: VecDeque::new(),
        may_forget,
        has_begun: false,
    })
}

/// Those of an agent whose store may forget what it has acknowledged.
fn of_forgetful(memory: &Arc<Mutex<Memory>>) -> LedgerOptions {
    LedgerOptions {
        store: store(memory, true),
        ..options(memory)
    }
}

fn options(memory: &Arc<Mutex<Memory>>) -> LedgerOptions {
    LedgerOptions {
        store: store(memory, false),
        at: "memory".to_owned(),
        group: "test".to_owned(),
        lease: LEASE,
        lock_delay: Duration::ZERO,
        permits: BTreeMap::new(),
        requires_keeping: false,
        socket: None,
        state_dir: Path::new("").to_owned(),
        watchdog: None,
        auditor: None,
        command_lines: false,
    }
}

fn agent(memory: &Arc<Mutex<Memory>>) -> Agent {
    Agent::start_ledger(options(memory)).unwrap()
}

fn lock() -> LockName {
    LockName::new("x").unwrap()
}

fn acquire(agent: &Agent, patience: Patience) -> Result<Grant, AcquireError> {
    agent.acquire(&lock(), None, patience, Caller::current())
}

#[test]
fn agents_exclude_each_other_and_fences_rise() {
    let memory = Arc::default();
    let agents = [agent(&memory), agent(&memory)];
    let first = acquire(&agents[0], Patience::Forever).unwrap();
    assert!(matches!(
        acquire(&agents[1], Patience::Try),
        Err(AcquireError::Busy)
    ));
    let time = Patience::For(LEASE / 10);
    assert!(matches!(
        acquire(&agents[1], time),
        Err(AcquireError::TimedOut)
    ));
    let fence = first.fence().unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| acquire(&agents[1], Patience::Forever).unwrap());
        std::thread::sleep(LEASE / 3);
        assert!(!waits.is_finished());
        first.release().unwrap();
        let second = waits.join().unwrap();
        assert!(second.fence().unwrap() > fence);
        second.release().unwrap();
    });
    for agent in agents {
        agent.close();
    }
    // Closed in order, they leave no session and no claim.
    let memory = memory.lock();
    let keys = memory.registers.keys().map(Key::as_str);
    assert_eq!(keys.collect::<Vec<_>>(), ["distlock/test/lock/x"]);
}

#[test]
fn shared_holders_are_inside_together() {
    let memory = Arc::default();
    let agents = [agent(&memory), agent(&memory)];
    let share = |agent: &Agent| {
        let asked = agent.begin(
            &lock(),
            None,
            Mode::Shared,
            Patience::Forever,
            Caller::current(),
        );
        asked.unwrap().finish().unwrap()
    };
    let both = [share(&agents[0]), share(&agents[1])];
    assert!(both.iter().all(Grant::is_held));
    assert!(matches!(
        acquire(&agents[0], Patience::Try),
        Err(AcquireError::Busy)
    ));
}

#[test]
fn the_status_shows_what_other_agents_hold() {
    let memory = Arc::default();
    let agents = [agent(&memory), agent(&memory)];
    let held = acquire(&agents[0], Patience::Forever).unwrap();
    let status = agents[1].status().unwrap();
    assert!(status.store.is_some_and(|store| store.ok));
    let [lock] = &*status.locks else {
        panic!("{:?}", status.locks);
    };
    let [holder] = &*lock.holders else {
        panic!("{lock:?}");
    };
    let fence = held.fence().map(|fence| fence.as_u64());
    assert_eq!((lock.name.as_str(), holder.fence), ("x", fence));
    assert_eq!(holder.pid, std::process::id());
}

#[test]
fn while_the_store_is_away_a_grant_is_suspended_and_requests_say_why() {
    let memory = Arc::default();
    let agent = agent(&memory);
    let grant = acquire(&agent, Patience::Forever).unwrap();
    memory.lock().is_away = true;
    let refused = acquire(&agent, Patience::Lease);
    let unreachable =
        matches!(refused, Err(AcquireError::Unreachable { ref store, .. }) if store == "memory");
    assert!(unreachable, "{refused:?}");
    while grant.state() == GuardState::Valid {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(grant.state(), GuardState::Suspended);
}

/// It comes back with less than it had acknowledged.
#[test]
fn a_store_that_forgets_is_counted_in_the_status() {
    let memory: Arc<Mutex<Memory>> = Arc::default();
    let agent = Agent::start_ledger(of_forgetful(&memory)).unwrap();
    let held = acquire(&agent, Patience::Forever).unwrap();
    let forgot = || agent.status().unwrap().store.unwrap().forgot;
    assert_eq!(forgot(), 0);
    memory.lock().registers.clear();
    let deadline = clock::now() + 20 * LEASE;
    while forgot() == 0 {
        assert!(clock::now() < deadline, "nobody is told");
        std::thread::sleep(LEASE / 10);
    }
    assert_ne!(held.state(), GuardState::Valid);
}

/// The other agent ends without a word, as a process that is killed.
#[test]
fn a_dead_holder_is_succeeded_after_its_lease() {
    let memory = Arc::default();
    let (dead, driver) = Agent::start_driven_ledger(options(&memory)).unwrap();
    let held = acquire(&dead, Patience::Forever).unwrap();
    let other = agent(&memory);
    let begun = clock::now();
    let next = acquire(&other, Patience::Forever).unwrap();
    let waited = clock::now().since(begun);
    assert!(waited >= LEASE * 2 / 3, "it came after {waited:?}");
    assert_eq!(next.previous(), crate::protocol::Previous::Abandoned);
    assert!(!held.is_held());
    driver.process().unwrap();
    assert_eq!(held.state(), GuardState::Lost);
}

#[test]
fn a_store_that_may_forget_is_refused_where_it_must_keep() {
    let options = LedgerOptions {
        requires_keeping: true,
        ..of_forgetful(&Arc::default())
    };
    let agent = Agent::start_ledger(options).unwrap();
    let refused = acquire(&agent, Patience::Lease).unwrap_err().to_string();
    assert!(refused.contains("may forget"), "{refused}");
}
