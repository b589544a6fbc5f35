//! Agents, each with a ledger and a link to the store.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::time::Duration;

use super::callers::Caller;
use super::observers::Observed;
use super::{Local, MOST_STEPS, Planned, Report, World};
use crate::checkers::{Process, Violation, violation};
use crate::clock::Clock;
use distlock_protocol::ledger::{
    Key, Ledger, LedgerConfig, LedgerInput, LedgerOutput, LockRecord, Op, OpId, Reply, SessionName,
    SessionRecord, StoreEvent, keys,
};
use distlock_protocol::{Command, LockName, NodeId, Ticket, Time};

/// An operation without reply for longer than this, or than a third of a lease, ends its connection.
const LONGEST_SILENCE: Duration = Duration::from_secs(2);

/// A host, and the agent on it.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) process: Process,
    pub(super) clock: Clock,
    pub(super) lease: Duration,
    /// Time since 2025 when the world began, by the host's wall clock.
    pub(super) wall: Duration,
    /// `None` while no agent runs.
    pub(super) ledger: Option<Ledger>,
    /// Its session, as far as it has one.
    pub(super) session: Option<SessionName>,
    /// The connection, if there is one, and what was asked over it.
    pub(super) connection: Option<u64>,
    /// Which of the store's starts the connection was made to.
    boot: u64,
    pub(super) asked: BTreeSet<OpId>,
    alarm: Option<Time>,
    /// While the host stands still: what waits, and since when.
    pub(super) paused: Option<(Time, Vec<(Process, Local)>)>,
    pub(super) callers: BTreeMap<Ticket, Caller>,
    pub(super) tickets: u64,
    pub(super) observed: BTreeMap<LockName, Observed>,
    pub(super) is_closing: bool,
    counted: Report,
}

impl Agent {
    /// Which of the store's starts it hears, as far as it knows.
    pub(super) fn heard_boot(&self) -> Option<u64> {
        self.connection.map(|_| self.boot)
    }

    /// What the ledgers on this host have counted.
    pub(super) fn counted(&self) -> Report {
        let mut counted = self.counted;
        counted.add(&self.count());
        counted
    }

    fn count(&self) -> Report {
        let Some(ledger) = &self.ledger else {
            return Report::default();
        };
        let counters = ledger.counters();
        Report {
            unknown: counters.unknown,
            conflicts: counters.conflicts,
            sessions: counters.sessions,
            lost_sessions: counters.lost_sessions,
            declared_dead: counters.declared_dead,
            forgotten: counters.forgotten,
            ..Report::default()
        }
    }
}

impl World {
    /// One more host, and an agent on it.
    pub(super) fn add(&mut self, node: NodeId) {
        let widest = self.plan.drift_ppm;
        let drift = self.choices.within(0..=2 * widest) as i64 - widest as i64;
        // The extremes are what it is about.
        let drift = match self.choices.below(4) {
            0 => widest as i64,
            1 => -(widest as i64),
            _ => drift,
        };
        let clock = Clock {
            offset: self
                .choices
                .duration(Duration::ZERO..=Duration::from_secs(100)),
            drift_ppm: drift as i32,
        };
        let skew = self.choices.duration(Duration::ZERO..=self.plan.wall_skew);
        let agent = Agent {
            process: Process {
                node,
                incarnation: 0,
            },
            clock,
            lease: self.plan.leases[usize::from(node.as_u16()) - 1],
            wall: Duration::from_secs(60_000_000) + skew,
            ledger: None,
            session: None,
            connection: None,
            boot: 0,
            asked: BTreeSet::new(),
            alarm: None,
            paused: None,
            callers: BTreeMap::new(),
            tickets: 0,
            observed: BTreeMap::new(),
            is_closing: false,
            counted: Report::default(),
        };
        self.agents.insert(node, agent);
        self.start(node);
    }

    /// Starts an agent on a host on which none runs.
    pub(super) fn start(&mut self, node: NodeId) {
        let seed = self.choices.next_u64();
        let collect_every = self.plan.collects.then(|| self.plan.longest_lease() * 4);
        let (now, lock_delay) = (self.now, self.plan.lock_delay);
        let locks = self.plan.locks.clone();
        let Some(agent) = self.agents.get_mut(&node) else {
            return;
        };
        if agent.ledger.is_some() {
            return;
        }
        agent.process.incarnation += 1;
        let config = LedgerConfig {
            group: super::store::GROUP.to_string(),
            lease: agent.lease,
            lock_delay,
            host: format!("host {node}"),
            permits: locks.iter().cloned().collect(),
            collect_every,
            seed,
        };
        let local = agent.clock.shows(now);
        let mut ledger = Ledger::new(config, local);
        ledger.handle(local, LedgerInput::Wall(agent.wall + now.since(Time::ZERO)));
        for (name, _) in &locks {
            self.locks.insert(ledger.lock_key(name), name.clone());
        }
        agent.ledger = Some(ledger);
        agent.is_closing = false;
        let process = agent.process;
        self.say(format_args!("{process} starts"));
        self.plan_for(Duration::ZERO, process, Local::Connect);
        self.plan_for(Duration::ZERO, process, Local::Observe);
        if !self.is_healed {
            for _ in 0..self.plan.callers {
                let after = self.choices.exponential(self.plan.pause);
                self.plan_for(after, process, Local::Want);
            }
        }
        self.set_alarm(node);
    }

    /// Ends the agent on a host, without a word or after all was said.
    pub(super) fn stop(&mut self, node: NodeId) {
        let Some(agent) = self.agents.get_mut(&node) else {
            return;
        };
        agent.counted = agent.counted();
        agent.ledger = None;
        agent.connection = None;
        agent.asked.clear();
        agent.alarm = None;
        agent.paused = None;
        agent.callers.clear();
        agent.observed.clear();
        self.dead.extend(agent.session.take());
    }

    /// Something happens on a host.
    pub(super) fn local(&mut self, process: Process, local: Local) -> Result<(), Violation> {
        let Some(agent) = self.agents.get_mut(&process.node) else {
            return Ok(());
        };
        if agent.process != process || agent.ledger.is_none() {
            return Ok(());
        }
        if let Some((_, waiting)) = &mut agent.paused {
            waiting.push((process, local));
            return Ok(());
        }
        match local {
            Local::Reply(connection, id, reply) => {
                if agent.connection == Some(connection) && agent.asked.remove(&id) {
                    self.trace.mix_u64(id.0);
                    self.hears_of_store(process.node, StoreEvent::Reply(id, reply))?;
                }
                Ok(())
            }
            Local::Hint(connection, event) => {
                if agent.connection == Some(connection) {
                    self.hears_of_store(process.node, event)?;
                }
                Ok(())
            }
            Local::Connect => self.connect(process),
            Local::Silence(connection, id) => {
                if agent.connection == Some(connection) && agent.asked.contains(&id) {
                    return self.breaks(process);
                }
                Ok(())
            }
            Local::Break(connection) => {
                if agent.connection == Some(connection) {
                    return self.breaks(process);
                }
                Ok(())
            }
            Local::Alarm(at) => {
                if agent.alarm.take_if(|set| *set == at).is_some() {
                    self.input(process.node, LedgerInput::Timeout)?;
                }
                Ok(())
            }
            Local::Observe => self.observe_some(process),
            Local::Want => self.want(process),
            Local::GiveUp(ticket) => self.give_up(process, ticket),
            Local::Exit(ticket) => self.exit(process, ticket),
            Local::Close => self.close(process),
        }
    }

    fn hears_of_store(&mut self, node: NodeId, event: StoreEvent) -> Result<(), Violation> {
        self.input(node, LedgerInput::Store(event))
    }

    /// Gives a ledger an input, and does what it says.
    pub(super) fn input(&mut self, node: NodeId, input: LedgerInput<'_>) -> Result<(), Violation> {
        self.report.steps += 1;
        if self.report.steps > MOST_STEPS {
            let words = "this world takes more than";
            return Err(violation!(
                self.now,
                Restraint,
                "{words} {MOST_STEPS} steps"
            ));
        }
        let (now, sets_clock) = (self.now, self.plan.kind.rolls_back());
        let Some(agent) = self.agents.get_mut(&node) else {
            return Ok(());
        };
        let Some(ledger) = &mut agent.ledger else {
            return Ok(());
        };
        let local = agent.clock.shows(now);
        if self.trace.is_read() {
            let process = agent.process;
            self.trace.say(now, format_args!("{process} <- {input:?}"));
        }
        if sets_clock {
            // Fences rest on it that rise although the store forgets.
            ledger.handle(local, LedgerInput::Wall(agent.wall + now.since(Time::ZERO)));
        }
        ledger.handle(local, input);
        let mut outputs = Vec::new();
        while let Some(output) = ledger.poll_output() {
            outputs.push(output);
        }
        let session = ledger.session().cloned();
        let process = agent.process;
        if let Some(session) = &session {
            self.records.has(process, session);
        }
        for output in outputs {
            if self.trace.is_read() {
                self.trace.say(now, format_args!("{process} -> {output:?}"));
            }
            match output {
                LedgerOutput::Submit(id, op) => self.submit(process, id, op),
                LedgerOutput::Event(event) => self.hears(process, &event)?,
                LedgerOutput::Refused { ticket, why } => self.refused(process, ticket, &why)?,
                LedgerOutput::Leader { lock, leader } => self.leads(process, &lock, leader)?,
                LedgerOutput::Notice(notice) => self.notices(process, &notice)?,
            }
        }
        self.judge.requests.settles(self.now)?;
        // What was said of a session was said of the one before.
        if let Some(agent) = self.agents.get_mut(&node).filter(|it| it.ledger.is_some()) {
            agent.session = session;
        }
        self.set_alarm(node);
        Ok(())
    }

    fn set_alarm(&mut self, node: NodeId) {
        let Some(agent) = self.agents.get_mut(&node) else {
            return;
        };
        let due = agent.ledger.as_ref().and_then(Ledger::poll_timeout);
        let due = due.map(|due| agent.clock.when(due).max(self.now));
        if due == agent.alarm {
            return;
        }
        agent.alarm = due;
        let process = agent.process;
        if let Some(at) = due {
            self.queue.plan(at, Planned::For(process, Local::Alarm(at)));
        }
    }

    /// Sends an operation to the store.
    fn submit(&mut self, process: Process, id: OpId, op: Op) {
        let faults = self.plan.faults;
        let Some(agent) = self.agents.get_mut(&process.node) else {
            return;
        };
        let Some(connection) = agent.connection else {
            // The connection is breaking, and the ledger does not know it yet.
            agent.asked.insert(id);
            return;
        };
        agent.asked.insert(id);
        let local = agent.clock.shows(self.now);
        let silent_at = agent
            .clock
            .when(local + (agent.lease / 3).min(LONGEST_SILENCE));
        let silence = Local::Silence(connection, id);
        self.queue.plan(silent_at, Planned::For(process, silence));
        let mut delay = self.choices.exponential(faults.delay);
        if !self.is_healed {
            if self.choices.chance(faults.lost) {
                return;
            }
            if self.choices.chance(faults.late) {
                let longest = self.plan.longest_lease() * 3;
                delay = self.choices.duration(Duration::ZERO..=longest);
            }
        }
        let operation = Planned::Operation {
            from: process,
            connection,
            boot: agent.boot,
            sent: local,
            id,
            op,
        };
        self.plan_in(delay, operation);
    }

    /// An operation arrives at the store.
    pub(super) fn operation(
        &mut self,
        from: Process,
        connection: u64,
        (boot, sent): (u64, Time),
        (id, op): (OpId, &Op),
    ) -> Result<(), Violation> {
        // What is asked on a connection to a store that has restarted since is never done.
        if self.is_away || boot != self.boot {
            return Ok(());
        }
        self.report.operations += 1;
        let is_current = self
            .agents
            .get(&from.node)
            .is_some_and(|agent| agent.process == from && agent.connection == Some(connection));
        self.report.late += u64::from(!is_current);
        let (reply, has_changed) = self.store.apply(self.now, op, &mut self.choices);
        if self.trace.is_read() {
            let (at, trace) = (self.now, &mut self.trace);
            trace.say(at, format_args!("store: {from} {id:?}: {reply:?}"));
        }
        if let (Op::Read { key }, Reply::Value(value)) = (op, &reply)
            && value.as_ref() != self.store.entry(key)
        {
            self.report.stale += 1;
        }
        if has_changed && let Op::Write { key, value, .. } = op {
            if let Some(lock) = self.locks.get(key) {
                let record = LockRecord::parse(value).expect("ledgers write records");
                self.records.written(self.now, from, lock, record)?;
            } else {
                if SessionRecord::parse(value).is_ok_and(|record| record.dead) {
                    self.judge.loses_session();
                    let session = keys::session_at(super::store::GROUP, key);
                    self.records.dies(session.expect("a session's key"));
                } else {
                    let last = self.renewals.entry(key.clone()).or_insert(sent);
                    *last = sent.max(*last);
                }
            }
            let key = key.clone();
            self.hint(&key);
        }
        let faults = self.plan.faults;
        if !self.is_healed && self.choices.chance(faults.reply_lost) {
            return Ok(());
        }
        let delay = self.choices.exponential(faults.delay);
        self.plan_for(delay, from, Local::Reply(connection, id, reply));
        Ok(())
    }

    /// Tells those that are connected that a lock's record has changed, as far as hints come.
    pub(super) fn hint(&mut self, key: &Key) {
        if !self.locks.contains_key(key) {
            return;
        }
        let faults = self.plan.faults;
        let connected = self.agents.values();
        let connected: Vec<(Process, u64)> = connected
            .filter_map(|agent| Some((agent.process, agent.connection?)))
            .collect();
        for (process, connection) in connected {
            if !self.choices.chance(faults.hints) {
                continue;
            }
            let event = match self.choices.below(8) {
                0 => StoreEvent::Missed,
                1..=3 => StoreEvent::Changed(key.clone(), None),
                _ => {
                    let entry = self.store.read(key, &mut self.choices);
                    StoreEvent::Changed(key.clone(), entry)
                }
            };
            let delay = self.choices.exponential(faults.delay);
            self.plan_for(delay, process, Local::Hint(connection, event));
        }
    }

    fn connect(&mut self, process: Process) -> Result<(), Violation> {
        let delay = self.choices.exponential(self.plan.faults.delay * 4);
        if self.is_away {
            self.plan_for(delay, process, Local::Connect);
            return Ok(());
        }
        self.connections += 1;
        let connection = self.connections;
        let facts = self.store.facts();
        let Some(agent) = self.agents.get_mut(&process.node) else {
            return Ok(());
        };
        if agent.connection.is_some() {
            return Ok(());
        }
        agent.connection = Some(connection);
        agent.boot = self.boot;
        self.hears_of_store(process.node, StoreEvent::Up(facts))
    }

    /// The connection of a process breaks.
    pub(super) fn breaks(&mut self, process: Process) -> Result<(), Violation> {
        self.report.cuts += 1;
        let Some(agent) = self.agents.get_mut(&process.node) else {
            return Ok(());
        };
        agent.connection = None;
        // The link says so of each operation, or leaves it at the connection.
        if self.choices.chance(500) {
            agent.asked.clear();
        }
        while let Some(agent) = self.agents.get_mut(&process.node)
            && let Some(id) = agent.asked.pop_first()
        {
            self.hears_of_store(process.node, StoreEvent::Reply(id, Reply::Unknown))?;
        }
        self.hears_of_store(process.node, StoreEvent::Down("cut".to_string()))?;
        if let Some(agent) = self.agents.get_mut(&process.node) {
            agent.asked.clear();
        }
        let delay = self.choices.exponential(self.plan.faults.delay * 4);
        self.plan_for(delay, process, Local::Connect);
        Ok(())
    }

    /// Has an agent close.
    fn close(&mut self, process: Process) -> Result<(), Violation> {
        let Some(agent) = self.agents.get_mut(&process.node) else {
            return Ok(());
        };
        if agent.is_closing {
            return Ok(());
        }
        agent.is_closing = true;
        self.judge.closes(process);
        self.input(process.node, LedgerInput::Command(&Command::Leave))
    }
}
