//! What an agent tells an audit: each grant and how it ends, refusals, views, and changes of members.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use crate::protocol::Time;

/// Takes what an agent tells an audit. While there is one, no lock is lent to callers, so that each entry is
/// a request, and is told.
#[derive(Clone)]
pub struct Auditor {
    note: Arc<dyn Fn(AuditRecord) + Send + Sync>,
    lost: Arc<AtomicU64>,
}

impl Auditor {
    /// Has `note` called for each record, in the order in which things happen. It must not wait: locks wait
    /// for it. What it cannot take it counts in `lost`, which the agent's metrics show.
    pub fn new(note: impl Fn(AuditRecord) + Send + Sync + 'static, lost: Arc<AtomicU64>) -> Self {
        Self {
            note: Arc::new(note),
            lost,
        }
    }

    pub(crate) fn note(&self, record: AuditRecord) {
        (self.note)(record);
    }

    /// How many records found no place.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Auditor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Auditor");
        debug.field("lost", &self.lost()).finish_non_exhaustive()
    }
}

/// Two are the same if they are copies of one.
impl PartialEq for Auditor {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.note, &other.note)
    }
}

impl Eq for Auditor {}

/// Something that happened at an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    /// The wall clock's time.
    pub wall: SystemTime,
    /// The time by `CLOCK_BOOTTIME`.
    pub at: Time,
    /// What.
    pub event: AuditEvent,
}

/// What can happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditEvent {
    /// A caller is inside.
    Granted {
        /// Which, and where.
        entry: AuditEntry,
        /// Whether the holder before ended inside.
        is_abandoned: bool,
    },
    /// The caller has left in order.
    Released {
        /// Which, and where.
        entry: AuditEntry,
        /// Whether nothing was done under the lock: the caller had given up, or ended, before it knew of its grant, or
        /// says so.
        is_unused: bool,
    },
    /// The caller has ended inside, or has said that it gives up in the middle.
    Abandoned {
        /// Which, and where.
        entry: AuditEntry,
    },
    /// A grant is void: others may be let in.
    Lost {
        /// Whose, and where.
        entry: AuditEntry,
        /// `excluded`, `expired`, `closed` or `failed`, as in the metrics.
        why: &'static str,
    },
    /// A caller was not let in, or has given up.
    Refused {
        /// Which, and where.
        entry: AuditEntry,
        /// As in the metrics.
        why: &'static str,
    },
    /// A view has come into force.
    View {
        /// Its epoch.
        epoch: u32,
        /// Its members.
        members: Vec<u16>,
    },
    /// The group has gone on without this member, in this epoch.
    Excluded {
        /// The epoch.
        epoch: u32,
    },
    /// A member was added to the group.
    MemberAdded {
        /// Its number.
        id: u16,
        /// Its address.
        address: String,
        /// The operator who asked for it, if it was asked for at this member.
        by: Option<AuditCaller>,
    },
    /// A member was removed.
    MemberRemoved {
        /// Its number.
        id: u16,
        /// As of one that is added.
        by: Option<AuditCaller>,
    },
    /// Other members vote.
    Voters {
        /// Their numbers.
        ids: Vec<u16>,
        /// As above.
        by: Option<AuditCaller>,
    },
}

/// A caller's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// The lock, as people write it.
    pub lock: String,
    /// Whether the caller shares it with others.
    pub is_shared: bool,
    /// The fence; `None` where none is given, or nothing was granted.
    pub fence: Option<u64>,
    /// The caller.
    pub caller: AuditCaller,
}

/// A program that calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditCaller {
    /// Its user.
    pub uid: u32,
    /// Its process; for `distlock run` the runner.
    pub pid: u32,
    /// The process that `distlock run` runs, if that is known.
    pub command_pid: Option<u32>,
    /// The name of its program, or its whole command line, as the group is told of it.
    pub command: String,
}
