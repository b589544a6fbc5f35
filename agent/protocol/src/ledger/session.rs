//! This agent's session: its record is created, renewed and removed here, and the lease counted.
//!
//! | state | what is in the store | leaves it when |
//! |-|-|-|
//! | none | nothing of this agent | a caller wants a lock |
//! | creating | perhaps the record | the write is done; else the name is given up, and another one drawn |
//! | live | the record, at the known version or at that of an unknown renewal | it is refused, or not needed |
//!
//! A name that may or may not have a record is never used: no claim can have that session. So a record
//! that comes to be late is of no consequence, and is collected some day.

use alloc::collections::{BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::lock::Lock;
use super::record::{SessionName, SessionRecord};
use super::store::{Entry, Op, Reply, Version};
use super::{Ledger, Notice, Purpose, Stage, StoreRefusal, Timer};
use crate::api::Event;
use crate::ids::{Epoch, LockName, Ticket};
use crate::time::Time;

/// How many acknowledged renewals are remembered, to be recognized when a store has forgotten later ones.
const REMEMBERED: usize = 16;
/// How many renewals of unknown outcome are remembered on one version.
const MAX_UNKNOWN: usize = 64;

/// A session of this agent.
#[derive(Clone, Debug, Hash)]
pub(super) struct Session {
    pub(super) name: SessionName,
    /// That of the record as it is known; `None` while the record is being created.
    version: Option<Version>,
    /// The write under way.
    renewing: Option<Renewal>,
    /// Writes on the known version of which nobody knows whether they were done.
    unknown: Vec<Renewal>,
    /// The nonces of renewals that were done, the last in the end.
    done: VecDeque<String>,
    /// The renewal that will count when all locks held were seen to have their claims.
    confirming: Option<Confirming>,
    /// When the lease ends.
    until: Time,
    /// When the next renewal is due.
    renew_at: Time,
    /// Whether the record is being removed, as the session is not needed.
    is_ending: bool,
    /// That is not tried again before.
    end_from: Time,
    /// Counts the renewals that were done.
    round: u64,
    /// In which register claims were missing that had been acknowledged, if the session still lives.
    missed: Option<super::Key>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Renewal {
    nonce: String,
    /// When it was sent.
    sent: Time,
}

#[derive(Clone, Debug, Hash)]
struct Confirming {
    sent: Time,
    /// Which locks were not read yet.
    missing: BTreeSet<LockName>,
}

impl Session {
    const fn is_live(&self) -> bool {
        self.version.is_some()
    }
}

impl Ledger {
    /// Whether what is granted is valid.
    pub(super) fn has_lease(&self, now: Time) -> bool {
        let session = self.session.as_ref();
        session.is_some_and(|session| session.is_live() && now < session.until)
    }

    /// Whether claims may be written: the session exists, and is known to have been renewed lately.
    pub(super) fn can_claim(&self, now: Time) -> bool {
        let is_ending = |session: &Session| session.is_ending;
        self.has_lease(now) && !self.session.as_ref().is_some_and(is_ending)
    }

    /// Whether a caller holds or waits, or something of one is under way.
    fn needs_session(&self) -> bool {
        !self.census.unsettled.is_empty()
    }

    /// Does what is due for the session, and sets its timer.
    pub(super) fn drive_session(&mut self, now: Time) {
        let is_needed = self.needs_session();
        let is_up = self.link.is_up();
        match &self.session {
            None if is_needed && is_up && self.wants_new_session() => {
                if now < self.session_from {
                    return self.timers.set(Timer::Session, self.session_from);
                }
                self.create_session(now);
            }
            None => {}
            Some(session) if session.renewing.is_some() || session.is_ending => {}
            Some(session) if !session.is_live() => {}
            Some(session) if is_needed => {
                if is_up && now >= session.renew_at {
                    self.renew(now);
                } else if is_up {
                    let renew_at = session.renew_at;
                    return self.timers.set(Timer::Session, renew_at);
                }
            }
            // It lives on for the next caller, until its lease is over.
            Some(session) => {
                let end_at = if self.is_closing() {
                    session.end_from
                } else {
                    session.end_from.max(session.until)
                };
                if now < end_at {
                    return self.timers.set(Timer::Session, end_at);
                }
                self.end_session();
            }
        }
        self.timers.clear(&Timer::Session);
    }

    fn is_closing(&self) -> bool {
        matches!(self.stage, Stage::Closing(_))
    }

    /// Whether a new session would be of use: someone waits, and the store was not found to refuse.
    fn wants_new_session(&self) -> bool {
        self.stage == Stage::Open && !self.census.waited.is_empty()
    }

    fn create_session(&mut self, now: Time) {
        let bits = u128::from(self.chance.next_u64()) << 64 | u128::from(self.chance.next_u64());
        let name = SessionName::new(bits);
        let renewal = self.write_session(now, &name, None);
        self.counters.sessions += 1;
        self.session = Some(Session {
            name,
            version: None,
            renewing: Some(renewal),
            unknown: Vec::new(),
            done: VecDeque::new(),
            confirming: None,
            until: Time::ZERO,
            renew_at: now,
            is_ending: false,
            end_from: now,
            round: 0,
            missed: None,
        });
    }

    fn renew(&mut self, now: Time) {
        let Some(session) = &self.session else {
            return;
        };
        let (name, version) = (session.name.clone(), session.version);
        let renewal = self.write_session(now, &name, version);
        if let Some(session) = &mut self.session {
            session.renewing = Some(renewal);
        }
    }

    fn write_session(&mut self, now: Time, name: &SessionName, expect: Option<Version>) -> Renewal {
        let nonce = self.chance.next_u64();
        let (lease, wall) = (self.config.lease, self.wall.at(now));
        let record = SessionRecord::new(nonce, lease, &self.config.host, wall);
        let key = self.session_key(name);
        let value = record.to_bytes();
        self.submit(
            Purpose::Renew(name.clone()),
            Op::Write { key, value, expect },
        );
        Renewal {
            nonce: record.nonce,
            sent: now,
        }
    }

    /// The store has answered a renewal, or the write that creates the record.
    pub(super) fn renewal_answered(&mut self, now: Time, name: &SessionName, reply: Reply) {
        let pause = self.pause();
        let Some(session) = self.session.as_mut().filter(|it| it.name == *name) else {
            return;
        };
        let Some(renewal) = session.renewing.take() else {
            return;
        };
        let expected = session.version;
        match reply {
            Reply::Done(version) => self.renewed(now, version, renewal),
            // It is not known whether there is a record, or it is another's.
            Reply::Unknown | Reply::Conflict(_) if expected.is_none() => {
                self.session = None;
                self.session_from = now + pause;
            }
            Reply::Unknown => self.renewal_unknown(now + pause, renewal),
            Reply::Conflict(Some(entry)) if Some(entry.version) == expected => {
                self.renewal_unknown(now + pause, renewal);
            }
            Reply::Conflict(entry) => self.renewal_refused(now, entry.as_ref()),
            Reply::Refused(reason) => self.renewal_denied(now, reason),
            Reply::Value(_) | Reply::Removed | Reply::Page { .. } => {
                self.renewal_unknown(now + pause, renewal);
            }
        }
    }

    fn renewal_unknown(&mut self, again: Time, renewal: Renewal) {
        let Some(session) = &mut self.session else {
            return;
        };
        session.unknown.push(renewal);
        if session.unknown.len() > MAX_UNKNOWN {
            session.unknown.remove(0);
        }
        session.renew_at = again;
    }

    /// The record has that version, by that renewal.
    fn renewed(&mut self, now: Time, version: Version, renewal: Renewal) {
        let may_forget = self.link.may_forget();
        let lease = self.config.lease;
        // Where nothing is forgotten it does not matter what is held.
        let asked = self.census.unsettled.iter().filter(|_| may_forget);
        let held = asked.filter(|name| self.locks.get(*name).is_some_and(Lock::is_held));
        let held: BTreeSet<LockName> = held.cloned().collect();
        let Some(session) = &mut self.session else {
            return;
        };
        session.version = Some(version);
        // Whatever was written on the version before will never be done.
        session.unknown.clear();
        session.done.push_back(renewal.nonce);
        if session.done.len() > REMEMBERED {
            session.done.pop_front();
        }
        session.renew_at = renewal.sent + lease / 3;
        let missed = session.missed.take();
        if !held.is_empty() {
            session.confirming = Some(Confirming {
                sent: renewal.sent,
                missing: held.clone(),
            });
            session.round += 1;
            let round = session.round;
            for name in held {
                self.confirm(&name, round);
            }
        } else {
            session.confirming = None;
            self.extend_lease(now, renewal.sent + lease);
        }
        if let Some(key) = missed {
            self.notice(Notice::StoreForgot { key });
        }
    }

    /// A renewal counts.
    fn extend_lease(&mut self, now: Time, until: Time) {
        let Some(session) = &mut self.session else {
            return;
        };
        if until <= session.until || until <= now {
            return;
        }
        let was_over = session.until <= now;
        session.until = until;
        self.tell(Event::Lease { until });
        if !was_over {
            // What could be claimed and told can still be.
            return;
        }
        let names: Vec<LockName> = self.census.unsettled.iter().cloned().collect();
        for name in names {
            self.tell_grants(now, &name);
            self.dirty.insert(name);
        }
    }

    /// Reads the record of a lock that is held, so that the last renewal may count.
    fn confirm(&mut self, name: &LockName, round: u64) {
        let key = self.lock_key(name);
        self.submit(Purpose::Confirm(name.clone(), round), Op::Read { key });
    }

    /// That lock has all claims that it should have, in a read since that renewal was done.
    pub(super) fn has_claims(&mut self, now: Time, name: &LockName, round: u64) {
        let lease = self.config.lease;
        let Some(session) = &mut self.session else {
            return;
        };
        let Some(confirming) = session
            .confirming
            .as_mut()
            .filter(|_| session.round == round)
        else {
            return;
        };
        confirming.missing.remove(name);
        if confirming.missing.is_empty() {
            let until = confirming.sent + lease;
            session.confirming = None;
            self.extend_lease(now, until);
        }
    }

    /// Nobody knows whether a lock has its claims: another renewal will tell.
    pub(super) fn confirm_anew(&mut self, now: Time) {
        let again = now + self.pause();
        if let Some(session) = &mut self.session {
            session.renew_at = session.renew_at.min(again);
        }
    }

    /// Acknowledged claims of this session are missing in the record of `key`: either somebody has declared
    /// the session dead, or the store has forgotten. The next renewal tells.
    pub(super) fn claims_missing(&mut self, now: Time, key: super::Key) {
        if let Some(session) = &mut self.session {
            session.missed = Some(key);
            session.renew_at = now;
        }
    }

    /// The record had another version than the renewal expected.
    fn renewal_refused(&mut self, now: Time, entry: Option<&Entry>) {
        let record = entry.map(|entry| SessionRecord::parse(&entry.value));
        let Some(session) = &mut self.session else {
            return;
        };
        if let (Some(entry), Some(Ok(record))) = (entry, &record)
            && !record.dead
        {
            let is_it = |earlier: &&Renewal| earlier.nonce == record.nonce;
            if let Some(earlier) = session.unknown.iter().find(is_it).cloned() {
                self.renewed(now, entry.version, earlier);
                // This one was not done; the next one is due.
                if let Some(session) = &mut self.session {
                    session.renew_at = now;
                }
                return;
            }
            if self.link.may_forget() && session.done.contains(&record.nonce) {
                // It goes on from where the store went back to; this is no renewal yet.
                session.version = Some(entry.version);
                session.unknown.clear();
                session.confirming = None;
                session.missed = None;
                session.renew_at = now;
                let key = session.name.clone();
                let key = self.session_key(&key);
                return self.notice(Notice::StoreForgot { key });
            }
        }
        let is_dead = matches!(&record, Some(Ok(record)) if record.dead);
        if !is_dead && self.link.may_forget() {
            let name = session.name.clone();
            let key = self.session_key(&name);
            self.notice(Notice::StoreForgot { key });
        }
        self.lose_session(now);
    }

    /// The store does not write the record.
    fn renewal_denied(&mut self, now: Time, reason: String) {
        let Some(session) = &mut self.session else {
            return;
        };
        let name = session.name.clone();
        session.renew_at = now + self.config.lease / 6;
        let is_live = session.is_live();
        let key = self.session_key(&name);
        let why = StoreRefusal::Denied { key, reason };
        self.notice(Notice::Refused(why.clone()));
        if !is_live {
            self.session = None;
            let names: Vec<LockName> = self.locks.keys().cloned().collect();
            for name in names {
                self.refuse_all(&name, &why);
            }
        }
    }

    /// The session has ended: what it held is lost, and who waits asks anew in the next.
    pub(super) fn lose_session(&mut self, now: Time) {
        let Some(session) = self.session.take() else {
            return;
        };
        if !session.is_live() {
            return;
        }
        self.counters.lost_sessions += 1;
        let tickets: Vec<Ticket> = self.tickets.keys().copied().collect();
        for ticket in tickets {
            self.lose(ticket);
        }
        for (name, lock) in &mut self.locks {
            lock.forget_session();
            self.dirty.insert(name.clone());
        }
        let secs = self.wall.at(now).map_or(0, |wall| wall.as_secs());
        let epoch = u32::try_from(secs).ok().and_then(Epoch::new);
        let epoch = epoch.unwrap_or_default();
        self.tell(Event::Excluded { epoch });
    }

    /// Removes the record of a session that nobody needs.
    fn end_session(&mut self) {
        if !self.link.is_up() {
            return;
        }
        let Some(session) = &mut self.session else {
            return;
        };
        let Some(expect) = session.version else {
            return;
        };
        session.is_ending = true;
        let name = session.name.clone();
        let key = self.session_key(&name);
        self.submit(Purpose::EndSession(name), Op::Remove { key, expect });
    }

    /// The store has answered that.
    pub(super) fn session_ended(&mut self, now: Time, name: &SessionName, reply: Reply) {
        let pause = self.pause();
        let may_retry = self.is_closing();
        let Some(session) = self.session.as_mut().filter(|it| it.name == *name) else {
            return;
        };
        session.is_ending = false;
        let is_mine = |entry: &Entry, session: &Session| {
            let record = SessionRecord::parse(&entry.value);
            let mut unknown = session.unknown.iter();
            record.is_ok_and(|it| unknown.any(|renewal| renewal.nonce == it.nonce))
        };
        match reply {
            Reply::Conflict(Some(entry)) if is_mine(&entry, session) => {
                session.version = Some(entry.version);
                session.unknown.clear();
            }
            Reply::Unknown if may_retry => session.end_from = now + pause,
            // What is left, if anything, is collected some day. Nothing of this session is used again.
            _ => self.forget_ended_session(),
        }
    }

    fn forget_ended_session(&mut self) {
        self.session = None;
        for (name, lock) in &mut self.locks {
            lock.forget_session();
            self.dirty.insert(name.clone());
        }
    }

    /// When a session that others have in the store ends at the earliest, on this agent's clock, if it
    /// keeps its version from now on: 11/9 of its lease, as clocks may run a tenth too fast or too slow.
    pub(super) fn outlast(lease: Duration) -> Duration {
        let nanos = (lease.as_nanos() * 11).div_ceil(9);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}
