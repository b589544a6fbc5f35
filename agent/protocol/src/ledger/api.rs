//! What goes into a [`Ledger`](super::Ledger) and what comes out of it, beside the commands and events
//! that it shares with a [`Node`](crate::Node).

use alloc::collections::BTreeMap;
use alloc::string::String;
use core::num::NonZeroU32;
use core::time::Duration;

use super::leader::LedgerLeader;
use super::record::RecordError;
use super::store::{Key, Op, OpId, StoreEvent};
use crate::api::{Command, Event};
use crate::ids::{LockName, Ticket};

/// What a ledger must know before it starts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LedgerConfig {
    /// The group: records are below `distlock/GROUP/`.
    pub group: String,
    /// How long the agent may act after it sent a renewal that was done. At least a millisecond.
    pub lease: Duration,
    /// After a session ended its locks stay closed for so much longer, for resources that cannot check
    /// fences (Burrows 2006, section 2.4).
    ///
    /// If the store forgets that an agent was inside which has crashed, nobody is left who knows for what
    /// to wait: then no two are valid together, as long as the store was away for longer than a lease, but
    /// the next may enter as soon as the lease is over.
    pub lock_delay: Duration,
    /// Where the agent runs, for whoever looks.
    pub host: String,
    /// How many permits the listed locks have. Others have one.
    pub permits: BTreeMap<LockName, NonZeroU32>,
    /// How often to look for the sessions of agents that ended without a word, and to remove them; `None`
    /// is never.
    pub collect_every: Option<Duration>,
    /// By chance, and another one in each start of each agent: names of sessions and nonces come of it.
    pub seed: u64,
}

/// What goes in.
#[derive(Clone, Debug)]
pub enum LedgerInput<'a> {
    /// A local caller wants something.
    Command(&'a Command),
    /// Who asks by this ticket, for whoever looks at the record. Said before [`Command::Acquire`]; of no
    /// other consequence.
    Caller {
        /// The request that follows.
        ticket: Ticket,
        /// The process.
        pid: u32,
        /// Its command. At most [`LedgerInput::MAX_COMMAND`] bytes of it are kept.
        command: String,
    },
    /// From now on it is to be told who is inside of that lock, or no longer. Answered by
    /// [`LedgerOutput::Leader`] as soon as it is known, also if it was told before.
    Observe {
        /// Which.
        lock: LockName,
        /// Whether it is wanted.
        is_wanted: bool,
    },
    /// The store says something.
    Store(StoreEvent),
    /// The wall clock shows that much time since 2025-01-01 00:00 UTC. To be said at the start, and
    /// whenever the clock was set.
    Wall(Duration),
    /// The time that [`poll_timeout`](super::Ledger::poll_timeout) named has come (or not: it does no
    /// harm to say so too early).
    Timeout,
}

impl LedgerInput<'_> {
    /// How much of a command is kept in a record, in bytes.
    pub const MAX_COMMAND: usize = 64;
}

/// What comes out. Drain it after every input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerOutput {
    /// Have the store do this. It counts as sent now, whenever it is.
    Submit(OpId, Op),
    /// Tell whom it concerns. Of the events of a node these come: `Granted`, `Ended`, `Lost`, `Lease`,
    /// `Excluded` (the session has ended; its epoch is the wall clock's time in seconds, as in fences),
    /// `Unchangeable` and `Left`.
    Event(Event),
    /// The request is over, without a grant, for a reason that only stores have.
    Refused {
        /// Which.
        ticket: Ticket,
        /// Why.
        why: StoreRefusal,
    },
    /// Of a lock that is observed: another is inside, or nobody is. Reads may be old, so this may be news
    /// from before; what is told last is right a third of a lease later, as long as the store answers.
    Leader {
        /// Which.
        lock: LockName,
        /// The one that entered first of those inside.
        leader: Option<LedgerLeader>,
    },
    /// Something about the store that an operator should know.
    Notice(Notice),
}

/// Why a request ended that only a store could have served.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum StoreRefusal {
    /// The store has not answered for one lease.
    #[error("the store cannot be reached: {reason}")]
    Unreachable {
        /// As far as it is known.
        reason: String,
    },
    /// The store does not do what the request takes.
    #[error("the store refuses to write {key}: {reason}")]
    Denied {
        /// Which register.
        key: Key,
        /// What the store says.
        reason: String,
    },
    /// A record is none of distlock's, or a later version's. It is not touched.
    #[error("the record {key} cannot be used: {error}")]
    Record {
        /// Which register.
        key: Key,
        /// What is wrong with it.
        error: RecordError,
    },
    /// So many wait for the lock that no more can.
    #[error("the queue in {key} is full: {claims} requests wait")]
    QueueFull {
        /// Which register.
        key: Key,
        /// How many wait.
        claims: usize,
    },
    /// The last fence has been given.
    #[error("the record {key} has a fence above which there is none")]
    FencesUsedUp {
        /// Which register.
        key: Key,
    },
}

/// Something about the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Notice {
    /// The store has lost a write that it had acknowledged. Whoever held what is lost is told by
    /// `Event::Lost`.
    StoreForgot {
        /// In which register it was noticed.
        key: Key,
    },
    /// The store has another identity than before: it was replaced, or restored from a backup. The session
    /// has ended.
    StoreReplaced,
    /// The store does not do a write, or a record cannot be used.
    Refused(StoreRefusal),
}
