//! Everything that a group has in a store, read page by page: for `status`, `who` and `store gc`.
//!
//! A survey reads and nothing else, and needs no session. Pages are read one after the other, so that what
//! changes meanwhile may be seen as it was or as it is; a claim may have a session that was not listed.
//!
//! Submit what [`Survey::op`] wants until it wants nothing more, and hand each answer to
//! [`Survey::reply`]; then [`Survey::finish`].

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::keys;
use super::record::{Claim, LockRecord, RecordError, SessionName, SessionRecord};
use super::store::{Entry, Key, Op, Reply, Version};
use crate::ids::{Fence, LockName};
use crate::lock::Mode;

/// Reads everything that a group has.
#[derive(Clone, Debug)]
pub struct Survey {
    group: String,
    stage: Stage,
    /// The last key that was listed.
    after: Option<Key>,
    is_asked: bool,
    overview: Overview,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Locks,
    Sessions,
    Done,
    Failed,
}

/// Everything that a group has in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// The records of locks: also of those that nobody wants, which keep their last fence.
    pub locks: BTreeMap<LockName, (LockRecord, Version)>,
    /// The records of sessions.
    pub sessions: BTreeMap<SessionName, (SessionRecord, Version)>,
    /// What is below the group's prefixes and no record that this version can read, and why.
    pub unreadable: Vec<(Key, RecordError)>,
}

/// Who holds a lock, or waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Party<'a> {
    /// The claim's session.
    pub session: &'a SessionName,
    /// Where its agent runs; empty if nobody says.
    pub host: &'a str,
    /// The process.
    pub pid: Option<u32>,
    /// Its command.
    pub command: Option<&'a str>,
    /// With whom it may be inside.
    pub mode: Mode,
    /// Its fence, if it is inside.
    pub fence: Option<Fence>,
    /// How it is with the session.
    pub life: Life,
}

/// How it is with a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Life {
    /// Its record says nothing else. Its agent may be gone all the same: that shows when the record is
    /// not renewed for a while.
    Alive,
    /// It was declared dead: its claims go when somebody wants the lock.
    Dead,
    /// It has no record: it was removed, or was begun during the survey.
    Absent,
}

impl Survey {
    /// A survey of that group.
    pub fn new(group: &str) -> Self {
        Self {
            group: group.to_string(),
            stage: Stage::Locks,
            after: None,
            is_asked: false,
            overview: Overview::default(),
        }
    }

    /// The same from the beginning, after an answer that was lost.
    #[must_use]
    pub fn again(&self) -> Self {
        Self::new(&self.group)
    }

    /// What to submit now; `None` while that is under way, and when nothing is left to be asked.
    pub fn op(&mut self) -> Option<Op> {
        let prefix = self.prefix().filter(|_| !self.is_asked)?;
        self.is_asked = true;
        let after = self.after.clone();
        Some(Op::List { prefix, after })
    }

    /// The store's answer.
    ///
    /// # Errors
    /// Why the survey is over without a result, in words.
    pub fn reply(&mut self, reply: Reply) -> Result<(), String> {
        let taken = self.take(reply);
        if taken.is_err() {
            self.stage = Stage::Failed;
        }
        taken
    }

    /// Whether nothing more is to be asked.
    pub const fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Done | Stage::Failed)
    }

    /// What there is; `None` unless everything was read.
    pub fn finish(self) -> Option<Overview> {
        (self.stage == Stage::Done).then_some(self.overview)
    }

    /// What is being listed.
    fn prefix(&self) -> Option<Key> {
        match self.stage {
            Stage::Locks => Some(keys::lock_prefix(&self.group)),
            Stage::Sessions => Some(keys::session_prefix(&self.group)),
            Stage::Done | Stage::Failed => None,
        }
    }

    fn take(&mut self, reply: Reply) -> Result<(), String> {
        let Some(prefix) = self.prefix().filter(|_| self.is_asked) else {
            return Err("the store answers what it was not asked".to_string());
        };
        self.is_asked = false;
        let (entries, more) = match reply {
            Reply::Page { entries, more } => (entries, more),
            Reply::Unknown => return Err(format!("the store does not list {prefix}")),
            Reply::Refused(why) => return Err(format!("the store does not list {prefix}: {why}")),
            Reply::Value(_) | Reply::Done(_) | Reply::Removed | Reply::Conflict(_) => {
                return Err(format!(
                    "the store answers the listing of {prefix} with no page"
                ));
            }
        };
        if entries.is_empty() && more {
            return Err(format!(
                "the store says that there is more in {prefix}, and shows none"
            ));
        }
        for (key, entry) in entries {
            // Or a survey might never end.
            if self.after.as_ref().is_some_and(|after| key <= *after) {
                return Err(format!("the store lists {key} out of order"));
            }
            if !key.as_str().starts_with(prefix.as_str()) {
                return Err(format!("the store lists {key}, which is not in {prefix}"));
            }
            self.note(&key, &entry);
            self.after = Some(key);
        }
        if !more {
            self.after = None;
            self.stage = match self.stage {
                Stage::Locks => Stage::Sessions,
                _ => Stage::Done,
            };
        }
        Ok(())
    }

    fn note(&mut self, key: &Key, entry: &Entry) {
        let overview = &mut self.overview;
        let noted = if self.stage == Stage::Locks {
            let record = LockRecord::parse(&entry.value);
            record.and_then(|record| {
                let name = keys::lock_at(&self.group, key).ok_or_else(no_name)?;
                overview.locks.insert(name, (record, entry.version));
                Ok(())
            })
        } else {
            let record = SessionRecord::parse(&entry.value);
            record.and_then(|record| {
                let name = keys::session_at(&self.group, key).ok_or_else(no_name)?;
                overview.sessions.insert(name, (record, entry.version));
                Ok(())
            })
        };
        if let Err(error) = noted {
            overview.unreadable.push((key.clone(), error));
        }
    }
}

fn no_name() -> RecordError {
    RecordError::Malformed("nothing has such a key".to_string())
}

impl Overview {
    /// Who holds `lock`.
    pub fn inside<'a>(&'a self, lock: &LockName) -> impl Iterator<Item = Party<'a>> {
        let record = self.locks.get(lock).map(|(record, _)| record);
        let claims = record.into_iter().flat_map(|record| &record.inside);
        claims.map(|claim| self.party(claim))
    }

    /// Who waits for `lock`, the first in front.
    pub fn waiting<'a>(&'a self, lock: &LockName) -> impl Iterator<Item = Party<'a>> {
        let record = self.locks.get(lock).map(|(record, _)| record);
        let claims = record.into_iter().flat_map(|record| &record.queue);
        claims.map(|claim| self.party(claim))
    }

    /// How it is with a session.
    pub fn life(&self, session: &SessionName) -> Life {
        match self.sessions.get(session) {
            None => Life::Absent,
            Some((record, _)) if record.dead => Life::Dead,
            Some(_) => Life::Alive,
        }
    }

    /// Sessions of which no lock has a claim.
    pub fn idle_sessions(&self) -> impl Iterator<Item = &SessionName> {
        let locks = self.locks.values();
        let claims = locks.flat_map(|(record, _)| record.claims());
        let used: alloc::collections::BTreeSet<&SessionName> =
            claims.map(|claim| &claim.session).collect();
        self.sessions.keys().filter(move |it| !used.contains(it))
    }

    fn party<'a>(&'a self, claim: &'a Claim) -> Party<'a> {
        let session = self.sessions.get(&claim.session);
        let host = match claim.host.as_str() {
            "" => session.map_or("", |(record, _)| record.host.as_str()),
            host => host,
        };
        Party {
            session: &claim.session,
            host,
            pid: claim.pid,
            command: claim.command.as_deref(),
            mode: claim.mode,
            fence: claim.fence,
            life: self.life(&claim.session),
        }
    }
}
