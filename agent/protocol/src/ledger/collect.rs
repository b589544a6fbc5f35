//! What agents that ended without a word have left in the store: their sessions' records.
//!
//! Every now and then an agent that has a session itself lists all sessions. One whose record has kept its
//! version for ten of its leases, and so for longer than any agent that needs it would let it, is declared
//! dead; a record that has been dead for as long is removed. Claims of a session without a record are dealt
//! with like those of one that is not renewed, so nothing depends on the record but how long that takes.

use alloc::collections::BTreeMap;
use core::time::Duration;

use super::record::{SessionName, SessionRecord};
use super::store::{Entry, Key, Op, Reply, Version};
use super::{Ledger, Purpose, Timer, keys};
use crate::time::Time;

/// For how many leases a record must have kept its version.
const LEASES_TO_COLLECT: u32 = 10;
/// Of how many sessions at most something is remembered.
const MAX_REMEMBERED: usize = 10_000;

/// What is known of all sessions.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Collection {
    /// With which version each was first seen, and when.
    seen: BTreeMap<SessionName, (Version, Time)>,
    /// Those that the listing under way has come across.
    listed: BTreeMap<SessionName, (Version, Time)>,
    is_listing: bool,
}

impl Ledger {
    /// It is time to look.
    pub(super) fn collect(&mut self, now: Time) {
        let Some(every) = self.config.collect_every else {
            return;
        };
        self.timers.set(Timer::Collect, now + every);
        if self.link.is_up() && self.session.is_some() && !self.collection.is_listing {
            self.collection.is_listing = true;
            self.collection.listed.clear();
            self.list(None);
        }
    }

    fn list(&mut self, after: Option<Key>) {
        let prefix = keys::session_prefix(&self.config.group);
        self.submit(Purpose::List, Op::List { prefix, after });
    }

    /// The store has listed some.
    pub(super) fn listed(&mut self, now: Time, reply: Reply) {
        let Reply::Page { entries, more } = reply else {
            self.collection.is_listing = false;
            return;
        };
        let last = entries.last().map(|(key, _)| key.clone());
        for (key, entry) in entries {
            self.come_across(now, &key, &entry);
        }
        match last.filter(|_| more) {
            Some(last) => self.list(Some(last)),
            None => {
                let listed = core::mem::take(&mut self.collection.listed);
                self.collection.seen = listed;
                self.collection.is_listing = false;
            }
        }
    }

    fn come_across(&mut self, now: Time, key: &Key, entry: &Entry) {
        let Some(name) = keys::session_at(&self.config.group, key) else {
            return;
        };
        // What is no such record is left alone.
        let Ok(record) = SessionRecord::parse(&entry.value) else {
            return;
        };
        let is_mine = self.session.as_ref().is_some_and(|it| it.name == name);
        if is_mine || self.collection.listed.len() >= MAX_REMEMBERED {
            return;
        }
        let version = entry.version;
        let before = self.collection.seen.get(&name).copied();
        let since = match before {
            Some((known, since)) if known == version => since,
            _ => now,
        };
        self.collection
            .listed
            .insert(name.clone(), (version, since));
        let keeps = (record.lease() * LEASES_TO_COLLECT).max(Duration::from_millis(1));
        if now.since(since) < Self::outlast(keeps) {
            return;
        }
        let (key, expect) = (key.clone(), version);
        let op = if record.dead {
            Op::Remove { key, expect }
        } else {
            let value = SessionRecord::tombstone(Some(&record), record.lease()).to_bytes();
            let expect = Some(expect);
            Op::Write { key, value, expect }
        };
        self.submit(Purpose::Collect(name), op);
    }

    /// The store has answered that.
    pub(super) fn collected(&mut self, name: &SessionName, reply: &Reply) {
        if matches!(reply, Reply::Removed) {
            self.collection.seen.remove(name);
        }
    }
}
