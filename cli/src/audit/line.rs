//! A line of the audit log.

use std::time::SystemTime;

use distlock::audit::{AuditCaller, AuditEntry, AuditEvent, AuditRecord};
use distlock_agent::protocol::Time;
use distlock_agent::runtime::clock;
use serde::{Deserialize, Serialize};

/// A line, as JSON. Fields may be added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Line {
    /// Counts the lines, from 1.
    pub(super) seq: u64,
    /// The wall clock's time, in RFC 3339.
    pub(super) ts: String,
    /// The time by `CLOCK_BOOTTIME`, in nanoseconds.
    pub(super) boot_ns: u64,
    pub(super) member: u16,
    pub(super) event: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lock: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fence: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) uid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) command_pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) command: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
    /// Of a grant: whether the holder before ended inside.
    #[serde(skip_serializing_if = "is_false")]
    pub(super) after_abandoned: bool,
    /// Of a release: whether the caller never knew of its grant.
    #[serde(skip_serializing_if = "is_false")]
    pub(super) unused: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) epoch: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) members: Option<Vec<u16>>,
    /// Of a change: the member that was added or removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) address: Option<String>,
    /// Of a gap: how many lines are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lost: Option<u64>,
    /// The hash of the line before, in hexadecimal digits; zeros in the first line.
    pub(super) prev: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_false(value: &bool) -> bool {
    !value
}

impl Line {
    pub(super) fn at(wall: SystemTime, at: Time) -> Self {
        Self {
            ts: clock::rfc3339(wall),
            boot_ns: at.as_nanos(),
            ..Self::default()
        }
    }

    /// `event` at this moment.
    pub(super) fn now(event: &str) -> Self {
        Self {
            event: event.to_owned(),
            ..Self::at(SystemTime::now(), clock::now())
        }
    }

    fn of(self, event: &str, entry: AuditEntry) -> Self {
        let mode = if entry.is_shared {
            "shared"
        } else {
            "exclusive"
        };
        Self {
            event: event.to_owned(),
            lock: Some(entry.lock),
            mode: Some(mode.to_owned()),
            fence: entry.fence,
            ..self.by(Some(entry.caller))
        }
    }

    fn by(self, caller: Option<AuditCaller>) -> Self {
        let Some(caller) = caller else {
            return self;
        };
        Self {
            uid: Some(caller.uid),
            pid: Some(caller.pid),
            command_pid: caller.command_pid,
            command: Some(caller.command).filter(|command| !command.is_empty()),
            ..self
        }
    }
}

impl From<AuditRecord> for Line {
    fn from(record: AuditRecord) -> Self {
        let line = Self::at(record.wall, record.at);
        let named = |event: &str| event.to_owned();
        let why = |why: &str| Some(why.to_owned());
        match record.event {
            AuditEvent::Granted {
                entry,
                is_abandoned,
            } => Self {
                after_abandoned: is_abandoned,
                ..line.of("grant", entry)
            },
            AuditEvent::Released { entry, is_unused } => Self {
                unused: is_unused,
                ..line.of("release", entry)
            },
            AuditEvent::Abandoned { entry } => line.of("abandon", entry),
            AuditEvent::Lost { entry, why: word } => Self {
                why: why(word),
                ..line.of("loss", entry)
            },
            AuditEvent::Refused { entry, why: word } => Self {
                why: why(word),
                ..line.of("refuse", entry)
            },
            AuditEvent::View { epoch, members } => Self {
                event: named("view"),
                epoch: Some(epoch),
                members: Some(members),
                ..line
            },
            AuditEvent::Excluded { epoch } => Self {
                event: named("excluded"),
                epoch: Some(epoch),
                ..line
            },
            AuditEvent::MemberAdded { id, address, by } => Self {
                event: named("member-add"),
                id: Some(id),
                address: Some(address),
                ..line.by(by)
            },
            AuditEvent::MemberRemoved { id, by } => Self {
                event: named("member-remove"),
                id: Some(id),
                ..line.by(by)
            },
            AuditEvent::Voters { ids, by } => Self {
                event: named("voters"),
                members: Some(ids),
                ..line.by(by)
            },
        }
    }
}
