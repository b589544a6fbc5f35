//! What the store says about a lock, and what that means for the claims of this agent.

use super::collect::Collection;
use super::lock::{Missing, Seen, State};
use super::record::LockRecord;
use super::store::{Entry, Key, OpId, Reply};
use super::{Ledger, Notice, StoreRefusal, keys};
use crate::ids::LockName;
use crate::time::Time;

impl Ledger {
    /// The store has answered a read.
    pub(super) fn lock_read(&mut self, now: Time, name: &LockName, id: OpId, reply: Reply) {
        let pause = self.pause();
        let may_forget = self.link.may_forget();
        let Some(lock) = self.locks.get_mut(name) else {
            return;
        };
        // What was read before the last write is old.
        if lock.reading != Some(id) {
            return;
        }
        lock.reading = None;
        match reply {
            Reply::Value(entry) => {
                lock.is_doubted = false;
                // Where nothing is forgotten a read may be old. Where something may be, it has all that was
                // acknowledged.
                self.observe(now, name, entry, may_forget, id);
            }
            Reply::Refused(reason) => {
                let key = lock.key.clone();
                lock.quiet_until = now + self.config.lease / 6;
                self.denied(name, StoreRefusal::Denied { key, reason });
            }
            _ => {
                lock.quiet_until = now + pause;
                lock.is_doubted = true;
            }
        }
        self.dirty.insert(name.clone());
    }

    /// The store has answered a write.
    pub(super) fn lock_written(&mut self, now: Time, name: &LockName, id: OpId, reply: Reply) {
        let pause = self.pause();
        let again = now + self.config.lease / 6;
        let Some(lock) = self.locks.get_mut(name) else {
            return;
        };
        let Some(record) = lock.writing.take() else {
            return;
        };
        let expected = lock.seen.as_ref().and_then(|seen| seen.version);
        self.dirty.insert(name.clone());
        match reply {
            Reply::Done(version) => {
                lock.is_unsettled = false;
                lock.is_doubted = false;
                lock.seen = Some(Seen {
                    version: Some(version),
                    record,
                    is_fresh: true,
                    at: now,
                    by: id,
                });
                self.note_claims(now, name, id);
            }
            // The register as it is. If it had the version that was expected, this says nothing.
            Reply::Conflict(entry) if entry.as_ref().map(|entry| entry.version) != expected => {
                lock.is_unsettled = false;
                lock.is_doubted = false;
                self.observe(now, name, entry, true, id);
            }
            Reply::Refused(reason) => {
                lock.quiet_until = again;
                let key = lock.key.clone();
                self.denied(name, StoreRefusal::Denied { key, reason });
            }
            _ => {
                lock.is_unsettled = true;
                lock.quiet_until = now + pause;
            }
        }
    }

    /// The store has answered a read that followed a renewal.
    pub(super) fn confirmed(
        &mut self,
        now: Time,
        name: &LockName,
        round: u64,
        (id, reply): (OpId, Reply),
    ) {
        let Reply::Value(entry) = reply else {
            return self.confirm_anew(now);
        };
        let record = entry.map(|entry| LockRecord::parse(&entry.value));
        let record = match record {
            Some(Ok(record)) => Some(record),
            None | Some(Err(_)) => None,
        };
        if let (Some(session), Some(lock)) = (&self.session, self.locks.get_mut(name)) {
            let missing = lock.missing(&session.name, record.as_ref(), id);
            self.lose_missing(now, name, missing);
        }
        self.has_claims(now, name, round);
    }

    /// A hint.
    pub(super) fn hint(&mut self, now: Time, key: &Key, entry: Option<Entry>) {
        let Some(name) = keys::lock_at(&self.config.group, key) else {
            return;
        };
        let Some(lock) = self.locks.get(&name) else {
            return;
        };
        let is_busy = lock.writing.is_some() || lock.is_unsettled || lock.is_doubted;
        if entry.is_some() && !is_busy && !self.link.may_forget() {
            self.observe(now, &name, entry, false, OpId(0));
            self.dirty.insert(name);
        } else {
            self.read_again(&name);
        }
    }

    /// Has a lock's record read, if anything is wanted of it.
    pub(super) fn read_again(&mut self, name: &LockName) {
        if let Some(lock) = self.locks.get_mut(name) {
            lock.is_doubted = true;
            self.dirty.insert(name.clone());
        }
    }

    /// What is known of a lock may never have been, or be no more.
    pub(super) fn doubt(&mut self, name: &LockName) {
        if let Some(lock) = self.locks.get_mut(name) {
            lock.is_doubted = true;
            lock.reading = None;
            lock.doubt_grants();
            if let Some(seen) = &mut lock.seen {
                seen.is_fresh = false;
            }
        }
    }

    /// The store is another one: its versions have nothing to do with those that are known.
    pub(super) fn forget_records(&mut self) {
        for lock in self.locks.values_mut() {
            lock.seen = None;
            lock.is_unsettled = false;
            lock.highest_fence = 0;
            if let Some(observer) = &mut lock.observer {
                observer.forget_fences();
            }
        }
        self.collection = Collection::default();
    }

    /// A lock's register has, or had, that entry.
    fn observe(
        &mut self,
        now: Time,
        name: &LockName,
        entry: Option<Entry>,
        is_fresh: bool,
        op: OpId,
    ) {
        let Some(lock) = self.locks.get_mut(name) else {
            return;
        };
        // Of a version that may still be written by an earlier write nothing can take the place but the
        // answer to a later one.
        if lock.is_unsettled || lock.writing.is_some() {
            return;
        }
        let permits = self.config.permits.get(name).copied();
        let empty = LockRecord::new(permits.unwrap_or(core::num::NonZeroU32::MIN));
        let version = entry.as_ref().map(|entry| entry.version);
        let record = match entry.map(|entry| LockRecord::parse(&entry.value)) {
            None => empty,
            Some(Ok(record)) => record,
            Some(Err(error)) => {
                let key = lock.key.clone();
                lock.seen = None;
                lock.quiet_until = now + self.config.lease / 3;
                if is_fresh && let Some(session) = &self.session {
                    let missing = lock.missing(&session.name, None, op);
                    self.lose_missing(now, name, missing);
                }
                let why = StoreRefusal::Record { key, error };
                self.notice(Notice::Refused(why.clone()));
                return self.refuse_all(name, &why);
            }
        };
        let is_older = is_fresh && record.fence < lock.highest_fence;
        let key = lock.key.clone();
        lock.seen = Some(Seen {
            version,
            record,
            is_fresh,
            at: now,
            by: op,
        });
        if is_older && self.link.may_forget() {
            self.notice(Notice::StoreForgot { key });
        }
        self.note_claims(now, name, op);
    }

    /// Notes where the claims of this agent are in the record as it was seen.
    fn note_claims(&mut self, now: Time, name: &LockName, read: OpId) {
        let Some(session) = self.session.as_ref().map(|it| &it.name) else {
            return;
        };
        let Some(lock) = self.locks.get_mut(name) else {
            return;
        };
        let Some(seen) = lock.seen.take() else {
            return;
        };
        for (number, request) in &mut lock.requests {
            if request.state == State::Waiting
                && let Some((claim, true)) = seen.record.find(session, *number)
                && let Some(fence) = claim.fence
                && !self.link.may_be_outdated(fence)
            {
                let previous = claim.previous;
                request.state = State::Inside { fence, previous };
                request.inside_from = OpId(self.last_op);
            }
        }
        let mut missing = Missing::default();
        if seen.is_fresh {
            lock.highest_fence = seen.record.fence;
            missing = lock.missing(session, Some(&seen.record), read);
        }
        lock.seen = Some(seen);
        self.lose_missing(now, name, missing);
        self.tell_grants(now, name);
    }

    /// Takes away what the record has no more though it was seen inside.
    fn lose_missing(&mut self, now: Time, name: &LockName, missing: Missing) {
        for ticket in missing.told {
            self.lose(ticket);
        }
        if missing.is_any {
            let key = self.lock_key(name);
            self.claims_missing(now, key);
            self.dirty.insert(name.clone());
        }
    }

    /// The store does not do what the callers of a lock need.
    fn denied(&mut self, name: &LockName, why: StoreRefusal) {
        self.refuse_all(name, &why);
        self.notice(Notice::Refused(why));
    }
}
