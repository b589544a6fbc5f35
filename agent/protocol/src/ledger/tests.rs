//! The rules, one by one, against a store of a few lines. No clock, no socket.

mod claims;
mod forgetting;
mod leading;
mod leases;
mod settling;
mod surveying;
mod watching;

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::time::Duration;

use super::*;
use crate::api::{Command, Refusal, Wait};
use crate::ids::Fence;
use crate::lock::{Mode, Previous, Release};

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(9);
const NOBODY: [u64; 0] = [];

/// Agents and the store that they share. Operations are done when they are submitted, but for those that
/// a test holds back.
struct Bench {
    now: Time,
    registers: BTreeMap<Key, Entry>,
    versions: u64,
    may_forget: bool,
    identity: String,
    agents: Vec<Ledger>,
    /// What each has said, of all but operations.
    said: Vec<Vec<LedgerOutput>>,
    /// Operations of an agent that are not done yet, if it is held back.
    held: BTreeMap<usize, Vec<(OpId, Op)>>,
}

impl Bench {
    fn new(agents: usize) -> Self {
        Self::with(agents, false, Duration::ZERO)
    }

    fn with(agents: usize, may_forget: bool, lock_delay: Duration) -> Self {
        let mut bench = Self {
            now: Time::from_nanos(1),
            registers: BTreeMap::new(),
            versions: 0,
            may_forget,
            identity: "a".to_string(),
            agents: Vec::new(),
            said: Vec::new(),
            held: BTreeMap::new(),
        };
        for seed in 0..agents {
            let config = LedgerConfig {
                group: "g".to_string(),
                lease: LEASE,
                lock_delay,
                host: "h".to_string(),
                permits: BTreeMap::new(),
                collect_every: None,
                seed: seed as u64,
            };
            bench.agents.push(Ledger::new(config, bench.now));
            bench.said.push(Vec::new());
            bench.input(seed, LedgerInput::Wall(Duration::from_secs(1000)));
            bench.up(seed);
        }
        bench
    }

    fn up(&mut self, agent: usize) {
        let facts = StoreFacts {
            doubts: Vec::new(),
            may_forget: self.may_forget,
            identity: self.identity.clone(),
        };
        self.input(agent, LedgerInput::Store(StoreEvent::Up(facts)));
    }

    fn down(&mut self, agent: usize) {
        let down = StoreEvent::Down("pulled".to_string());
        self.input(agent, LedgerInput::Store(down));
    }

    fn input(&mut self, agent: usize, input: LedgerInput<'_>) {
        self.agents[agent].handle(self.now, input);
        while let Some(output) = self.agents[agent].poll_output() {
            match output {
                LedgerOutput::Submit(id, op) => match self.held.get_mut(&agent) {
                    Some(held) => held.push((id, op)),
                    None => {
                        let reply = self.apply(&op);
                        self.reply(agent, id, reply);
                    }
                },
                said => self.said[agent].push(said),
            }
        }
    }

    fn reply(&mut self, agent: usize, id: OpId, reply: Reply) {
        self.input(agent, LedgerInput::Store(StoreEvent::Reply(id, reply)));
    }

    fn apply(&mut self, op: &Op) -> Reply {
        let (key, expect) = match op {
            Op::Read { key } => return Reply::Value(self.registers.get(key).cloned()),
            Op::List { prefix, .. } => {
                let is_it = |(key, _): &(&Key, &Entry)| key.as_str().starts_with(prefix.as_str());
                let all = self.registers.iter().filter(is_it);
                let entries = all
                    .map(|(key, entry)| (key.clone(), entry.clone()))
                    .collect();
                return Reply::Page {
                    entries,
                    more: false,
                };
            }
            Op::Write { key, expect, .. } => (key, *expect),
            Op::Remove { key, expect } => (key, Some(*expect)),
        };
        let present = self.registers.get(key).cloned();
        if present.as_ref().map(|entry| entry.version) != expect {
            return Reply::Conflict(present);
        }
        match op {
            Op::Write { key, value, .. } => {
                let version = self.put(key, value.clone());
                Reply::Done(version)
            }
            _ => {
                self.registers.remove(key);
                Reply::Removed
            }
        }
    }

    fn put(&mut self, key: &Key, value: Vec<u8>) -> Version {
        self.versions += 1;
        let version = Version(self.versions);
        self.registers.insert(key.clone(), Entry { value, version });
        version
    }

    /// Holds back an agent's operations from now on.
    fn hold(&mut self, agent: usize) {
        self.held.entry(agent).or_default();
    }

    /// Takes what is held back.
    fn taken(&mut self, agent: usize) -> Vec<(OpId, Op)> {
        core::mem::take(self.held.get_mut(&agent).unwrap())
    }

    /// Lets an agent's operations be done again, and those that were held back.
    fn let_go(&mut self, agent: usize) {
        for (id, op) in self.held.remove(&agent).unwrap() {
            let reply = self.apply(&op);
            self.reply(agent, id, reply);
        }
    }

    /// Time passes, in which the agents named do what is due.
    fn wait(&mut self, time: Duration, agents: &[usize]) {
        let end = self.now + time;
        loop {
            let due = agents.iter().filter_map(|agent| {
                let at = self.agents[*agent].poll_timeout()?;
                Some((at, *agent))
            });
            let Some((at, agent)) = due.min().filter(|(at, _)| *at <= end) else {
                break;
            };
            self.now = self.now.max(at);
            self.input(agent, LedgerInput::Timeout);
        }
        self.now = end;
    }

    fn ask(&mut self, agent: usize, ticket: u64) {
        self.ask_for(agent, ticket, Mode::Exclusive, Wait::Cancelled);
    }

    fn ask_for(&mut self, agent: usize, ticket: u64, mode: Mode, wait: Wait) {
        let command = Command::Acquire {
            ticket: Ticket(ticket),
            lock: lock(),
            spec: None,
            mode,
            wait,
        };
        self.input(agent, LedgerInput::Command(&command));
    }

    fn release(&mut self, agent: usize, ticket: u64) {
        self.leave(agent, ticket, Release::Given);
    }

    fn leave(&mut self, agent: usize, ticket: u64, how: Release) {
        let ticket = Ticket(ticket);
        let command = Command::Release { ticket, how };
        self.input(agent, LedgerInput::Command(&command));
    }

    fn cancel(&mut self, agent: usize, ticket: u64) {
        let ticket = Ticket(ticket);
        self.input(agent, LedgerInput::Command(&Command::Cancel { ticket }));
    }

    /// The grants of an agent so far: ticket, fence, and what it was told of the one before.
    fn grants(&self, agent: usize) -> Vec<(u64, Fence, Previous)> {
        let grants = self.said[agent].iter().filter_map(|output| match output {
            LedgerOutput::Event(Event::Granted {
                ticket,
                fence,
                previous,
            }) => Some((ticket.0, *fence, *previous)),
            _ => None,
        });
        grants.collect()
    }

    fn granted(&self, agent: usize) -> Vec<u64> {
        let grants = self.grants(agent).into_iter();
        grants.map(|(ticket, ..)| ticket).collect()
    }

    fn has_said(&self, agent: usize, event: &Event) -> bool {
        let mut said = self.said[agent].iter();
        said.any(|output| matches!(output, LedgerOutput::Event(it) if it == event))
    }

    fn is_lost(&self, agent: usize, ticket: u64) -> bool {
        let ticket = Ticket(ticket);
        self.has_said(agent, &Event::Lost { ticket })
    }

    fn has_ended(&self, agent: usize, ticket: u64, refusal: Refusal) -> bool {
        let ticket = Ticket(ticket);
        self.has_said(agent, &Event::Ended { ticket, refusal })
    }

    /// When the lease of an agent ends, as it was told last.
    fn lease(&self, agent: usize) -> Time {
        let mut leases = self.said[agent].iter().filter_map(|output| match output {
            LedgerOutput::Event(Event::Lease { until }) => Some(*until),
            _ => None,
        });
        leases.next_back().unwrap_or(Time::ZERO)
    }

    fn lock_key(&self) -> Key {
        self.agents[0].lock_key(&lock())
    }

    fn record(&self) -> LockRecord {
        LockRecord::parse(&self.registers[&self.lock_key()].value).unwrap()
    }

    fn session_key(&self, agent: usize) -> Key {
        let ledger = &self.agents[agent];
        ledger.session_key(ledger.session().unwrap())
    }

    fn is_dead(&self, key: &Key) -> bool {
        SessionRecord::parse(&self.registers[key].value)
            .unwrap()
            .dead
    }
}

fn lock() -> LockName {
    LockName::new("a/b").unwrap()
}
