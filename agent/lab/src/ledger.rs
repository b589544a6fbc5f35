//! Ledgers of agents that share a store, with everything that may befall them.
//!
//! A seed makes one to six agents, their clocks, their callers and a store. Operations come late, also
//! long after their connection has ended, or never; replies are lost; reads show what was before; hints are
//! lost, or come for nothing; connections break, and the store restarts. Agents crash and come back, close,
//! and stand still for longer than their leases; clocks run as differently as they may, and wall clocks are
//! set. In some worlds the store comes back with less than it had. Some observe who is inside.
//!
//! Then all is healed, every agent enters every lock once more, and nothing may be left behind.
//!
//! Judged in true time: a guard is valid from when its caller is told until it leaves, as long as its
//! agent's lease runs on the agent's own clock; with a process that crashes its callers go on for as long.

mod agents;
mod callers;
mod faults;
mod judge;
mod observers;
mod plan;
mod records;
mod report;
mod store;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU32;
use core::time::Duration;

use self::agents::Agent;
use self::faults::Fault;
use self::judge::Judge;
use self::plan::Plan;
use self::records::Records;
pub use self::report::Report;
use self::store::Store;
use super::checkers::{Process, Violation, violation};
use super::choices::Choices;
use super::queue::Queue;
use super::trace::{Sink, Trace};
use distlock_protocol::ledger::{Key, LockRecord, Op, OpId, Reply, SessionName, StoreEvent};
use distlock_protocol::{LockName, NodeId, Ticket, Time};

/// More inputs than this no world has that makes sense.
const MOST_STEPS: u64 = 200_000;
/// Of how many leases healing takes at most: those that ended inside, or waited, are found one after the
/// other.
const PATIENCE: u32 = 60;

/// Plays the world of `seed`. The trace goes to `sink`, if there is one. Returns what happened, and a
/// fingerprint of it.
///
/// # Errors
/// The rule that was broken.
///
/// # Panics
/// A ledger panicked.
pub fn run(seed: u64, sink: Option<Sink>) -> Result<(Report, u64), Violation> {
    let mut world = World::new(seed, Trace::new(sink));
    world.unrest()?;
    world.heal()?;
    world.finish()?;
    world.report.worlds = 1;
    Ok((world.report, world.trace.fingerprint()))
}

struct World {
    now: Time,
    queue: Queue<Planned>,
    choices: Choices,
    trace: Trace,
    plan: Plan,
    report: Report,
    store: Store,
    /// Whether the store answers, and how often it has started.
    is_away: bool,
    boot: u64,
    /// Connections so far.
    connections: u64,
    agents: BTreeMap<NodeId, Agent>,
    is_healed: bool,
    /// Whether every agent runs for good.
    is_last_round: bool,
    judge: Judge,
    records: Records,
    /// Sessions that ended against their agents' will, or with them.
    dead: BTreeSet<SessionName>,
    /// Of those the ones whose agents closed without a connection to the store, and so left it as it was.
    left_behind: BTreeSet<SessionName>,
    /// By the keys of their records.
    locks: BTreeMap<Key, LockName>,
    /// When the last renewal of each session that was done was sent, on its agent's clock.
    renewals: BTreeMap<Key, Time>,
}

/// What is going to happen.
#[derive(Debug)]
enum Planned {
    /// An operation arrives at the store.
    Operation {
        from: Process,
        connection: u64,
        boot: u64,
        /// When it was sent, on the agent's clock.
        sent: Time,
        id: OpId,
        op: Op,
    },
    /// Something for the process on a host; while the host stands still it waits.
    For(Process, Local),
    /// Something befalls somebody.
    Fault(Fault),
}

/// What happens on a host.
#[derive(Debug)]
enum Local {
    /// The store's reply.
    Reply(u64, OpId, Reply),
    /// A hint.
    Hint(u64, StoreEvent),
    /// The link tries to connect.
    Connect,
    /// An operation has had no reply for too long.
    Silence(u64, OpId),
    /// A connection breaks.
    Break(u64),
    /// The ledger wanted to be woken at this time.
    Alarm(Time),
    /// Somebody observes some locks.
    Observe,
    /// A caller wants something.
    Want,
    /// A caller waits no longer.
    GiveUp(Ticket),
    /// A caller leaves.
    Exit(Ticket),
    /// All is to be given back.
    Close,
}

impl World {
    fn new(seed: u64, trace: Trace) -> Self {
        let mut choices = Choices::new(seed);
        let plan = Plan::new(&mut choices);
        let draws_versions = choices.chance(500);
        let (may_forget, stale) = (plan.kind.may_forget(), plan.faults.stale);
        let permits: BTreeMap<LockName, NonZeroU32> = plan.locks.iter().cloned().collect();
        let mut world = Self {
            now: Time::ZERO,
            queue: Queue::new(),
            trace,
            report: Report::default(),
            store: Store::new(draws_versions, may_forget, stale),
            is_away: false,
            boot: 0,
            connections: 0,
            agents: BTreeMap::new(),
            is_healed: false,
            is_last_round: false,
            judge: Judge::new(permits, plan.lock_delay),
            records: Records::default(),
            dead: BTreeSet::new(),
            left_behind: BTreeSet::new(),
            locks: BTreeMap::new(),
            renewals: BTreeMap::new(),
            choices,
            plan,
        };
        for number in 1..=world.plan.agents as u16 {
            let node = NodeId::new(number).expect("from 1");
            world.add(node);
        }
        world
    }

    fn unrest(&mut self) -> Result<(), Violation> {
        let end = self.now + self.plan.unrest;
        self.plan_faults();
        self.play(end)
    }

    /// Ends all faults, and demands that everybody is served.
    fn heal(&mut self) -> Result<(), Violation> {
        self.is_healed = true;
        self.say(format_args!("healed"));
        self.store.heal();
        self.store_returns(true);
        self.start_all()?;
        let lease = self.plan.longest_lease();
        let start = self.now;
        // Until whatever is still under way has arrived.
        self.play(start + lease * 4)?;
        self.is_last_round = true;
        self.start_all()?;
        self.want_all();
        let end = self.now + lease * PATIENCE;
        while self.judge.requests.waiting() > 0 || self.has_holders() {
            if !self.step_by(end)? {
                return self.judge.requests.all_over(self.now).and(Err(violation!(
                    self.now,
                    Progress,
                    "a caller has not left in time"
                )));
            }
        }
        self.report.healed_ms = self.now.since(start).as_millis() as u64;
        Ok(())
    }

    /// Nobody wants anything any more: nothing may be left.
    fn finish(&mut self) -> Result<(), Violation> {
        let lease = self.plan.longest_lease();
        let closes = self.choices.chance(500);
        if closes {
            self.close_all();
        }
        // An agent without callers removes its session when the lease is over.
        let end = self.now + lease * 3;
        self.play(end)?;
        self.observers_know()?;
        for (key, entry) in self.store.entries() {
            let mine = self.agents.values().filter_map(|it| it.session.as_ref());
            let mut mine: Vec<&SessionName> = mine.collect();
            mine.retain(|name| key.as_str().ends_with(name.as_str()));
            if let Some(name) = mine.first() {
                return Err(violation!(
                    self.now,
                    Progress,
                    "session {name} is still in the store, though nobody needs it"
                ));
            }
            if !self.locks.contains_key(key) {
                continue;
            }
            let record = LockRecord::parse(&entry.value).expect("ledgers write records");
            // Where something was forgotten claims come back of sessions that ended well.
            let was_forgotten = self.report.rollbacks > 0;
            let mut live = record.claims().filter(|it| {
                let mut agents = self.agents.values();
                agents.any(|agent| agent.session.as_ref() == Some(&it.session))
                    || !was_forgotten && !self.dead.contains(&it.session)
            });
            if let Some(claim) = live.next() {
                return Err(violation!(
                    self.now,
                    Progress,
                    "a claim is left in {key} that nobody waits for: {claim:?}"
                ));
            }
            let mut left = record.claims().map(|claim| &claim.session);
            let is_left = left.any(|session| !self.left_behind.contains(session));
            if record.permits.get() == 1 && is_left {
                return Err(violation!(
                    self.now,
                    Progress,
                    "claims of dead sessions are left in {key}, though all have entered since"
                ));
            }
        }
        for (node, agent) in &self.agents {
            if closes && agent.ledger.is_some() {
                return Err(violation!(
                    self.now,
                    Progress,
                    "agent {node} was told to close and has not"
                ));
            }
            self.report.add(&agent.counted());
        }
        Ok(())
    }

    /// Plays what happens until `end`.
    fn play(&mut self, end: Time) -> Result<(), Violation> {
        while self.step_by(end)? {}
        Ok(())
    }

    /// Plays what happens next, if something does by `end`; then it is `end`.
    fn step_by(&mut self, end: Time) -> Result<bool, Violation> {
        let Some((at, planned)) = self.queue.pop_by(end) else {
            self.now = end;
            return Ok(false);
        };
        self.now = at;
        match planned {
            Planned::Operation {
                from,
                connection,
                boot,
                sent,
                id,
                op,
            } => self.operation(from, connection, (boot, sent), (id, &op))?,
            Planned::For(process, local) => self.local(process, local)?,
            Planned::Fault(fault) => self.fault(fault)?,
        }
        Ok(true)
    }

    fn say(&mut self, words: fmt::Arguments<'_>) {
        self.trace.say(self.now, words);
    }

    fn plan_in(&mut self, delay: Duration, planned: Planned) {
        self.queue.plan(self.now + delay, planned);
    }

    fn plan_for(&mut self, delay: Duration, process: Process, local: Local) {
        self.plan_in(delay, Planned::For(process, local));
    }
}
