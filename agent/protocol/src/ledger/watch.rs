//! Sessions of others that keep this agent's callers waiting: whether each is renewed, and its end if it is
//! not.

use alloc::collections::BTreeSet;
use core::time::Duration;

use super::record::{SessionName, SessionRecord};
use super::store::{Entry, Op, Reply, Version};
use super::{Ledger, Notice, Purpose, StoreRefusal, Timer};
use crate::ids::LockName;
use crate::time::Time;

/// Of how many leases ago a holder's last renewal must be, by the wall clock, for a caller that only tries
/// to watch it.
const LEASES_TO_TRY: u32 = 10;

/// What is known of another's session.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Watch {
    /// For which locks' sake.
    by: BTreeSet<LockName>,
    /// Whether it is watched until it is renewed, or dead, also for none.
    lingers: bool,
    /// Whether it was this agent's own: nobody renews it any more, so it is declared dead at once.
    is_former: bool,
    known: Option<Known>,
    /// Whether an operation is under way.
    is_busy: bool,
    /// When it was read last, or that was tried.
    read_at: Option<Time>,
    /// No operation is submitted before.
    quiet_until: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Known {
    Alive {
        /// `None` if there is no record.
        version: Option<Version>,
        /// Since when it is known to have this version.
        since: Time,
        lease: Duration,
        /// Whether it had another version before, since it is watched.
        is_renewed: bool,
        /// When the record was written, by its agent's wall clock.
        written_at: Option<Duration>,
    },
    Dead {
        since: Time,
    },
}

impl Watch {
    /// Whether nobody wants to know more.
    fn is_over(&self) -> bool {
        let is_open = match self.known {
            None => self.is_former,
            Some(Known::Dead { .. } | Known::Alive { version: None, .. }) => false,
            Some(Known::Alive { is_renewed, .. }) => self.is_former || self.lingers && !is_renewed,
        };
        self.by.is_empty() && !is_open
    }
}

impl Ledger {
    /// From now on these sessions are watched for the sake of that lock, and no others; but for those inside
    /// that a caller has given up to wait for. They are watched until they are renewed, or dead: a caller that
    /// comes again and again, and never waits for as long as a session is outwaited, enters in the end.
    pub(super) fn set_watched(
        &mut self,
        now: Time,
        name: &LockName,
        wanted: BTreeSet<SessionName>,
    ) {
        let Some(lock) = self.locks.get_mut(name) else {
            return;
        };
        if lock.watched == wanted {
            return;
        }
        let before = core::mem::replace(&mut lock.watched, wanted.clone());
        let me = self.session.as_ref().map(|session| &session.name);
        let inside = lock.seen.iter().flat_map(|seen| &seen.record.inside);
        let inside: BTreeSet<&SessionName> = inside.map(|claim| &claim.session).collect();
        let was_given_up = wanted.is_empty() && me.is_none_or(|me| !inside.contains(me));
        for session in before.difference(&wanted) {
            if let Some(watch) = self.watches.get_mut(session) {
                watch.by.remove(name);
                watch.lingers |= was_given_up && inside.contains(session);
                if watch.is_over() {
                    self.watches.remove(session);
                    self.timers.clear(&Timer::Watch(session.clone()));
                }
            }
        }
        for session in wanted.difference(&before) {
            let watch = self.watches.entry(session.clone()).or_default();
            watch.by.insert(name.clone());
            watch.lingers = false;
            self.watch(now, session);
        }
    }

    /// Declares a session of this agent dead that has ended, and may be in the store still: so nobody waits for
    /// the locks that it had until it is outwaited.
    pub(super) fn end_former(&mut self, now: Time, session: SessionName) {
        let watch = self.watches.entry(session.clone()).or_default();
        watch.is_former = true;
        self.watch(now, &session);
    }

    /// Nothing that is known of sessions counts any more.
    pub(super) fn forget_watches(&mut self) {
        let timers = &mut self.timers;
        self.watches.retain(|name, watch| {
            watch.known = None;
            watch.read_at = None;
            watch.lingers = false;
            if watch.is_over() {
                timers.clear(&Timer::Watch(name.clone()));
            }
            !watch.is_over()
        });
    }

    /// Since when a session is known to be dead.
    pub(super) fn dead_since(&self, session: &SessionName) -> Option<Time> {
        match self.watches.get(session)?.known? {
            Known::Dead { since } => Some(since),
            Known::Alive { .. } => None,
        }
    }

    /// Whether a session was renewed since it is watched, and is not dead.
    pub(super) fn is_renewed(&self, session: &SessionName) -> bool {
        let known = self.watches.get(session).and_then(|watch| watch.known);
        matches!(
            known,
            Some(Known::Alive {
                is_renewed: true,
                ..
            })
        )
    }

    /// Whether a session may have ended: it is dead, has no record, was last renewed ten leases ago, or
    /// nothing is known of it.
    pub(super) fn may_be_over(&self, now: Time, session: &SessionName) -> bool {
        if self
            .session
            .as_ref()
            .is_some_and(|mine| mine.name == *session)
        {
            return false;
        }
        let known = self.watches.get(session).and_then(|watch| watch.known);
        let Some(Known::Alive {
            version: Some(_),
            lease,
            written_at,
            ..
        }) = known
        else {
            return true;
        };
        let (Some(wall), Some(written_at)) = (self.wall.at(now), written_at) else {
            return false;
        };
        wall.saturating_sub(written_at) >= lease * LEASES_TO_TRY
    }

    /// How long it takes at most until all these sessions are renewed, or dead and their locks free, if the
    /// store answers; `None` if it is not known yet.
    pub(super) fn longest_watch(&self, sessions: &BTreeSet<SessionName>) -> Option<Duration> {
        let mut longest = Duration::ZERO;
        for session in sessions {
            let watch = self.watches.get(session)?;
            let takes = match watch.known? {
                Known::Alive { lease, .. } => Self::outlast(lease),
                Known::Dead { .. } => Duration::ZERO,
            };
            longest = longest.max(takes);
        }
        Some(longest + self.config.lock_delay + self.config.lease)
    }

    /// Does what is due for a session that is watched, and sets its timer.
    pub(super) fn watch(&mut self, now: Time, name: &SessionName) {
        let timer = Timer::Watch(name.clone());
        self.timers.clear(&timer);
        let is_up = self.link.is_up();
        let own_lease = self.config.lease;
        let Some(watch) = self.watches.get_mut(name) else {
            return;
        };
        if watch.is_over() {
            self.watches.remove(name);
            return;
        }
        if watch.is_busy || !is_up || matches!(watch.known, Some(Known::Dead { .. })) {
            return;
        }
        if now < watch.quiet_until {
            let quiet_until = watch.quiet_until;
            return self.timers.set(timer, quiet_until);
        }
        let mut poll_every = own_lease / 3;
        let mut over_at = Time::MAX;
        if let Some(Known::Alive {
            version,
            since,
            lease,
            ..
        }) = watch.known
        {
            over_at = match watch.is_former {
                true => now,
                false => since + Self::outlast(lease),
            };
            poll_every = poll_every.min(lease / 3);
            if now >= over_at {
                watch.is_busy = true;
                return self.kill(name, version, lease);
            }
        }
        let read_at = watch.read_at.map_or(now, |at| at + poll_every);
        if now < read_at {
            return self.timers.set(timer, read_at.min(over_at));
        }
        watch.is_busy = true;
        watch.read_at = Some(now);
        let key = self.session_key(name);
        self.submit(Purpose::Watch(name.clone()), Op::Read { key });
    }

    /// Declares a session dead, unless it was renewed meanwhile.
    fn kill(&mut self, name: &SessionName, expect: Option<Version>, lease: Duration) {
        let key = self.session_key(name);
        let record = SessionRecord::tombstone(None, lease);
        let value = record.to_bytes();
        self.submit(
            Purpose::Kill(name.clone()),
            Op::Write { key, value, expect },
        );
    }

    /// The store has answered a read.
    pub(super) fn watch_read(&mut self, now: Time, name: &SessionName, reply: Reply) {
        let pause = self.pause();
        let Some(watch) = self.watches.get_mut(name) else {
            return;
        };
        watch.is_busy = false;
        match reply {
            Reply::Value(entry) => self.observe_session(now, name, entry),
            _ => watch.quiet_until = now + pause,
        }
        self.watch(now, name);
    }

    /// The store has answered the write that declares a session dead.
    pub(super) fn killed(&mut self, now: Time, name: &SessionName, reply: Reply) {
        let pause = self.pause();
        let later = now + self.config.lease / 6;
        let Some(watch) = self.watches.get_mut(name) else {
            return;
        };
        watch.is_busy = false;
        let expected = match watch.known {
            Some(Known::Alive { version, .. }) => version,
            _ => None,
        };
        match reply {
            Reply::Done(_) => {
                self.counters.declared_dead += 1;
                self.is_dead(now, name);
            }
            Reply::Conflict(entry) if entry.as_ref().map(|entry| entry.version) != expected => {
                self.observe_session(now, name, entry);
            }
            Reply::Refused(reason) => {
                watch.quiet_until = later;
                let key = self.session_key(name);
                self.notice(Notice::Refused(StoreRefusal::Denied { key, reason }));
            }
            // The same again: it does no harm to be done late.
            _ => watch.quiet_until = now + pause,
        }
        self.watch(now, name);
    }

    fn is_dead(&mut self, now: Time, name: &SessionName) {
        if let Some(watch) = self.watches.get_mut(name) {
            watch.known = Some(Known::Dead { since: now });
            self.dirty.extend(watch.by.iter().cloned());
        }
    }

    /// A session's record is, or was, that.
    fn observe_session(&mut self, now: Time, name: &SessionName, entry: Option<Entry>) {
        let own_lease = self.config.lease;
        let Some(watch) = self.watches.get_mut(name) else {
            return;
        };
        let version = entry.as_ref().map(|entry| entry.version);
        let record = match entry.map(|entry| SessionRecord::parse(&entry.value)) {
            None => None,
            Some(Ok(record)) if record.dead => return self.is_dead(now, name),
            Some(Ok(record)) => Some(record),
            Some(Err(error)) => {
                watch.known = None;
                watch.quiet_until = now + own_lease / 3;
                let by: alloc::vec::Vec<LockName> = watch.by.iter().cloned().collect();
                let key = self.session_key(name);
                let why = StoreRefusal::Record { key, error };
                self.notice(Notice::Refused(why.clone()));
                for name in by {
                    self.refuse_all(&name, &why);
                }
                return;
            }
        };
        let mut is_renewed = false;
        if let Some(Known::Alive { version: known, .. }) = watch.known {
            if known == version {
                return;
            }
            is_renewed = version.is_some();
        }
        watch.known = Some(Known::Alive {
            version,
            since: now,
            // Of one that has none its own is as good as any: nothing is known to have been written.
            lease: record.as_ref().map_or(own_lease, SessionRecord::lease),
            is_renewed,
            written_at: record.as_ref().and_then(SessionRecord::written_at),
        });
        self.dirty.extend(watch.by.iter().cloned());
    }
}
