//! Locks kept in a store: mutual exclusion by leases over registers with compare-and-swap.
//!
//! A store needs to be no more than registers: read, write if the version is as expected, list (see
//! [`store`] for what exactly is relied on). Leases, the queue, fences, shared mode, permits and what the
//! next holder is told of the one before are all here, without a clock or a socket.
//!
//! # Records
//! Each lock has a record with the claims that are inside and those that wait; each agent that holds or
//! waits has a session, with a record of its own ([`record`]). A claim belongs to a session.
//!
//! # Rules
//! - *Lease.* An agent renews its session by writing its record, version by version, three times a lease.
//!   The lease ends `lease` after the agent *sent* the last write that is known to be done.
//! - *Enter.* A claim is put inside if nobody waits and it goes with those inside, else at the queue's end.
//! - *Leave.* A claim is taken out, and those that are next are moved inside in the same write, each with a
//!   fence.
//! - *Tell.* A caller is granted the lock when its claim was seen inside and the lease runs.
//! - *Watch.* An agent whose caller waits watches the session of each claim inside, and of the queue's
//!   head; of all the queue if it is full, so that a caller finds no place in it. If a session's record has kept its version for 11/9 of that session's lease, on the watcher's
//!   clock, the watcher writes `dead` over that version. Nobody writes over `dead`. Where there is no
//!   record, `dead` is written if there still is none.
//! - *Strip.* Claims of a dead session are taken out, after the lock delay, as in leaving; the next holder
//!   is told that one was abandoned.
//! - *Lost.* A renewal that is refused, and not because an earlier one of the same version was done, ends
//!   the session: its guards are lost, and its waiting callers ask anew in the next session.
//!
//! # Safety
//! No two are valid together. A claim is stripped only after `dead` was written over some version *v* that
//! the watcher had known for 11/9 of a lease. The holder's last write that was done made *v*, so it was
//! sent before the watcher knew *v*, and its lease was over before `dead` was written; later renewals are
//! refused. This takes an atomic write-if-version, versions that do not come back, and clocks whose rates
//! differ from true time by less than a tenth. It takes no clock of the store, no fresh reads and no
//! notification.
//!
//! A write of unknown outcome may still be done later. Each agent has one write a record under way. An
//! unknown write on version *v* is followed by another one on *v*, of whatever the agent wants by then, the
//! unchanged record if nothing: that one is done, or it is refused; either way *v* is over, and with it every
//! earlier write on *v*. Reads settle nothing, as they may be old.
//!
//! Where the store may forget acknowledged writes, a renewal counts only when the records of all locks
//! held, read after it, still have their claims; and what was known of other sessions counts no more after
//! a new connection. So a store that was away for longer than a lease makes no two valid by what it forgot.
//! Lock delays are kept only where the claim is: of one that the store has forgotten, and whose agent is
//! gone, nobody knows.
//!
//! # Observing
//! Who only wants to know who is inside says so ([`LedgerInput::Observe`]): the record is read at once, at
//! hints, and when nothing was seen of it for a third of a lease. An observer writes nothing and watches
//! nobody, so a leader that is gone stays until one that waits for the lock has found that out.
//!
//! # Cost
//! Entering is one write, leaving one, and a renewal a third of a lease for all locks of an agent. After a
//! host's death its locks are free in 0.9 to 1.6 leases.
//!
//! # Order of calls
//! As with a [`Node`](crate::Node): [`Ledger::new`]; then, for every input, [`Ledger::handle`] once and
//! [`Ledger::poll_output`] until it is empty; then [`Ledger::poll_timeout`] for when to come back.

mod api;
mod callers;
mod census;
mod closing;
mod collect;
mod inputs;
pub mod keys;
mod leader;
mod lock;
mod observe;
mod reconcile;
pub mod record;
mod rules;
mod session;
pub mod store;
pub mod survey;
mod wall;
mod watch;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::{String, ToString};
use core::hash::{Hash, Hasher};
use core::time::Duration;

pub use api::{LedgerConfig, LedgerInput, LedgerOutput, Notice, StoreRefusal};
pub use leader::LedgerLeader;
pub use record::{Claim, LockRecord, RecordError, SessionName, SessionRecord};
pub use rules::{FencesUsedUp, MAX_QUEUE};
pub use store::{
    Entry, Host, Key, Op, OpId, Reply, Store, StoreEvent, StoreFacts, StoreOutput, StreamId,
    Version,
};

use self::census::Census;
use self::collect::Collection;
use self::lock::Lock;
use self::session::Session;
use self::wall::Wall;
use self::watch::Watch;
use crate::api::Event;
use crate::chance::Chance;
use crate::ids::{Fence, LockName, Ticket};
use crate::time::Time;
use crate::timers::Timers;

/// The longest pause before an operation of unknown outcome is followed by the next; a sixth of a lease if
/// that is less. The link to the store waits too, before it connects again.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The locks of one agent, kept in a store.
#[derive(Clone, Debug)]
pub struct Ledger {
    config: LedgerConfig,
    chance: Chance,
    wall: Wall,
    stage: Stage,
    link: Link,
    session: Option<Session>,
    /// No session is begun before.
    session_from: Time,
    locks: BTreeMap<LockName, Lock>,
    census: Census,
    /// Where each request of a caller is: the lock, and its number there.
    tickets: BTreeMap<Ticket, (LockName, u64)>,
    /// Who is about to ask.
    callers: BTreeMap<Ticket, (u32, String)>,
    watches: BTreeMap<SessionName, Watch>,
    collection: Collection,
    /// What is under way.
    ops: BTreeMap<OpId, Purpose>,
    last_op: u64,
    last_number: u64,
    timers: Timers<Timer>,
    /// Locks that something has changed for.
    dirty: BTreeSet<LockName>,
    counters: LedgerCounters,
    outputs: VecDeque<LedgerOutput>,
}

/// What was counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LedgerCounters {
    /// Operations submitted.
    pub operations: u64,
    /// Of those: how many had an unknown outcome.
    pub unknown: u64,
    /// Writes that met another version.
    pub conflicts: u64,
    /// Sessions begun.
    pub sessions: u64,
    /// Sessions that ended against the agent's will.
    pub lost_sessions: u64,
    /// Sessions of others that were declared dead.
    pub declared_dead: u64,
    /// How often the store was found to have forgotten.
    pub forgotten: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Open,
    /// Everything is given back until then.
    Closing(Time),
    Closed,
}

/// The way to the store.
#[derive(Clone, Debug, Hash)]
struct Link {
    facts: Option<StoreFacts>,
    /// Which store it was last.
    identity: Option<String>,
    /// Why there is no connection.
    reason: String,
    /// When the store last answered.
    answered: Time,
    /// The lowest fence that was given when this connection was made. A lower one may be from before the
    /// store forgot, and from before higher ones.
    fence_floor: u64,
}

impl Link {
    const fn is_up(&self) -> bool {
        self.facts.is_some()
    }

    fn may_forget(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| facts.may_forget)
    }

    /// Whether a grant in the record may be older than one that the store forgot.
    fn may_be_outdated(&self, fence: Fence) -> bool {
        self.may_forget() && fence.as_u64() < self.fence_floor
    }
}

/// What an operation under way is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Purpose {
    /// The session's record is created, or renewed.
    Renew(SessionName),
    /// The session's record is removed, as it is not needed.
    EndSession(SessionName),
    /// A lock's record is read.
    Read(LockName),
    /// The same, to see whether it has the claims that a renewal is to count for: which renewal.
    Confirm(LockName, u64),
    /// A lock's record is written.
    Write(LockName),
    /// The record of another's session is read.
    Watch(SessionName),
    /// Another's session is declared dead.
    Kill(SessionName),
    /// Sessions are listed, to find what ended without a word.
    List,
    /// What is known of this one is dealt with.
    Collect(SessionName),
}

/// Why the ledger wants to be woken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Timer {
    /// The session is to be renewed, or ended.
    Session,
    /// A lock's record is to be read, or written again.
    Lock(LockName),
    /// Another's session is to be read again, or has kept its version for long enough.
    Watch(SessionName),
    /// A caller has waited for as long as it wanted.
    Request(Ticket),
    /// The time to give everything back is over.
    Close,
    /// Look for what ended without a word.
    Collect,
}

/// The store has not answered for a lease, or never did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreachable {
    /// Since when it has not answered.
    pub since: Time,
    /// Why there is no connection, as far as it is known; empty if there is one.
    pub reason: String,
}

impl Ledger {
    /// The ledger of an agent that begins at `now`, without a connection.
    ///
    /// # Panics
    /// If the lease is shorter than a millisecond.
    pub fn new(config: LedgerConfig, now: Time) -> Self {
        assert!(
            config.lease >= Duration::from_millis(1),
            "a lease has a length"
        );
        let mut chance = Chance::new(config.seed);
        let mut timers = Timers::default();
        if let Some(every) = config.collect_every {
            // Agents that start together do not look together.
            timers.set(Timer::Collect, now + chance.below(every));
        }
        Self {
            config,
            chance,
            wall: Wall::default(),
            stage: Stage::Open,
            link: Link {
                facts: None,
                identity: None,
                reason: "not connected yet".to_string(),
                answered: now,
                fence_floor: 0,
            },
            session: None,
            session_from: Time::ZERO,
            locks: BTreeMap::new(),
            census: Census::default(),
            tickets: BTreeMap::new(),
            callers: BTreeMap::new(),
            watches: BTreeMap::new(),
            collection: Collection::default(),
            ops: BTreeMap::new(),
            last_op: 0,
            last_number: 0,
            timers,
            dirty: BTreeSet::new(),
            counters: LedgerCounters::default(),
            outputs: VecDeque::new(),
        }
    }

    /// Takes in what happened at `now`.
    pub fn handle(&mut self, now: Time, input: LedgerInput<'_>) {
        match input {
            LedgerInput::Command(command) => self.command(now, command),
            LedgerInput::Caller { .. } if self.stage == Stage::Closed => {}
            LedgerInput::Caller {
                ticket,
                pid,
                mut command,
            } => {
                let longest = LedgerInput::MAX_COMMAND.min(command.len());
                let kept = (0..=longest).rev().find(|at| command.is_char_boundary(*at));
                command.truncate(kept.unwrap_or(0));
                self.callers.insert(ticket, (pid, command));
            }
            LedgerInput::Wall(wall) => self.wall.set(wall, now),
            _ if self.stage == Stage::Closed => {}
            LedgerInput::Observe { lock, is_wanted } => self.observe_leader(lock, is_wanted),
            LedgerInput::Store(event) => self.store_event(now, event),
            LedgerInput::Timeout => self.timeout(now),
        }
        self.settle(now);
    }

    /// The next output; `None` when there is no more.
    pub fn poll_output(&mut self) -> Option<LedgerOutput> {
        self.outputs.pop_front()
    }

    /// When to call [`Ledger::handle`] with [`LedgerInput::Timeout`], unless something comes before.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.next()
    }

    /// The registers whose changes are worth a notification: those of the locks that callers wait for, or
    /// that are observed.
    pub fn interest(&self) -> BTreeSet<Key> {
        self.census.interest.clone()
    }

    /// The session, while there is one.
    pub fn session(&self) -> Option<&SessionName> {
        self.session.as_ref().map(|session| &session.name)
    }

    /// The record of `lock` as it was known last, which may be old; `None` if the ledger has no business
    /// with the lock now.
    pub fn record(&self, lock: &LockName) -> Option<&LockRecord> {
        Some(&self.locks.get(lock)?.seen.as_ref()?.record)
    }

    /// Whether, and since when, the store has not answered for a lease although something is wanted of it.
    pub fn unreachable(&self, now: Time) -> Option<Unreachable> {
        let since = self.link.answered;
        let is_silent = now.since(since) >= self.config.lease;
        let is_wanted = !self.link.is_up() || !self.ops.is_empty();
        (is_silent && is_wanted).then(|| Unreachable {
            since,
            reason: self.link.reason.clone(),
        })
    }

    /// Why there is no connection, as far as it is known; empty if there is one.
    pub fn reason(&self) -> &str {
        &self.link.reason
    }

    /// What was counted since the start.
    pub const fn counters(&self) -> &LedgerCounters {
        &self.counters
    }

    /// Where the record of `lock` is.
    pub fn lock_key(&self, lock: &LockName) -> Key {
        keys::lock_key(&self.config.group, lock)
    }

    /// Where the record of that session is.
    pub fn session_key(&self, session: &SessionName) -> Key {
        keys::session_key(&self.config.group, session)
    }
}

/// Of all that has a bearing on what it does later: what has been counted has none, or follows from the rest,
/// and outputs are drained.
impl Hash for Ledger {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.config.hash(hasher);
        (&self.chance, self.wall, self.stage, &self.link).hash(hasher);
        (&self.session, self.session_from).hash(hasher);
        (&self.locks, &self.tickets, &self.callers).hash(hasher);
        (&self.watches, &self.collection).hash(hasher);
        (&self.ops, self.last_op, self.last_number).hash(hasher);
        (&self.timers, &self.dirty).hash(hasher);
    }
}

/// What follows from it.
impl Ledger {
    fn submit(&mut self, purpose: Purpose, op: Op) -> OpId {
        self.last_op += 1;
        let id = OpId(self.last_op);
        self.ops.insert(id, purpose);
        self.counters.operations += 1;
        self.outputs.push_back(LedgerOutput::Submit(id, op));
        id
    }

    fn tell(&mut self, event: Event) {
        self.outputs.push_back(LedgerOutput::Event(event));
    }

    fn notice(&mut self, notice: Notice) {
        if let Notice::StoreForgot { .. } = notice {
            self.counters.forgotten += 1;
        }
        self.outputs.push_back(LedgerOutput::Notice(notice));
    }

    /// How long to wait before an operation of unknown outcome is followed by the next.
    fn pause(&mut self) -> Duration {
        self.chance
            .below((self.config.lease / 6).min(LONGEST_PAUSE))
    }
}

#[cfg(test)]
mod tests;
