//! What is to become of a lock's record, and what is to be asked of the store for that.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::num::NonZeroU32;

use super::lock::{Lock, Request, State};
use super::record::{Claim, LockRecord, SessionName};
use super::rules::Place;
use super::store::{Op, OpId};
use super::{Ledger, Purpose, StoreRefusal, Timer};
use crate::api::{Refusal, Wait};
use crate::ids::{LockName, Ticket};
use crate::lock::{Mode, Previous, Release};
use crate::time::Time;

/// For how many leases after a claim was taken out a store may bring it back that forgets.
const LEASES_TO_FORGET: u32 = 10;

/// What is to become of a record.
#[derive(Debug)]
struct Plan {
    record: LockRecord,
    /// Requests whose claims it has anew.
    added: Vec<u64>,
    /// Requests that end without one.
    refused: Vec<(Ticket, Why)>,
    /// Requests that only try, and are in the way of nobody yet.
    tries: Vec<u64>,
    /// Whether there are such to whom the record is too old to be an answer.
    is_old: bool,
    /// Whether there are requests that have no place in a queue which may be full of the dead.
    is_full: bool,
    /// When a dead session's claims may be taken out that are still there.
    strip_at: Option<Time>,
}

#[derive(Debug)]
enum Why {
    Known(Refusal),
    Store(StoreRefusal),
}

impl Ledger {
    /// Does what is to be done about a lock, and sets its timer.
    pub(super) fn reconcile(&mut self, now: Time, name: &LockName) {
        let Some(lock) = self.locks.get_mut(name) else {
            return;
        };
        // What no write has ever said needs no write to be taken back.
        let is_gone = |it: &Request| matches!(it.state, State::Leaving(_)) && !it.is_written;
        lock.requests.retain(|_, request| !is_gone(request));
        if lock.writing.is_some() {
            return;
        }
        if !self.link.is_up() {
            self.timers.clear(&Timer::Lock(name.clone()));
            return self.drop_if_settled(now, name);
        }
        if now < lock.quiet_until {
            let quiet_until = lock.quiet_until;
            self.timers.set(Timer::Lock(name.clone()), quiet_until);
            return self.drop_if_settled(now, name);
        }
        self.read_if_due(now, name);
        let Some(plan) = self.plan(now, name) else {
            return self.drop_if_settled(now, name);
        };
        for (ticket, why) in plan.refused {
            match why {
                Why::Known(refusal) => self.end(ticket, refusal),
                Why::Store(why) => self.refuse(ticket, why),
            }
        }
        let lock = self.locks.get_mut(name).expect("it was planned for");
        let Some(seen) = &lock.seen else {
            return;
        };
        // Of what is to be taken out, and was written once, only a fresh record shows that it is not there.
        let is_leaving = |it: &Request| matches!(it.state, State::Leaving(_)) && it.is_written;
        let must_settle =
            lock.is_unsettled || !seen.is_fresh && lock.requests.values().any(is_leaving);
        if plan.record != seen.record || must_settle {
            return self.write(name, plan.record, &plan.added);
        }
        if seen.is_fresh {
            let before = lock.requests.len();
            lock.requests.retain(|_, request| !is_leaving(request));
            if lock.requests.len() < before && !lock.is_held() {
                lock.left_at = Some(now);
            }
        }
        if plan.is_old
            && let Some(lock) = self.locks.get_mut(name)
        {
            lock.is_doubted = true;
            self.read_if_due(now, name);
        }
        self.watch_for(now, name, (&plan.tries, plan.is_full));
        self.drop_if_settled(now, name);
        self.set_lock_timer(now, name, plan.strip_at);
    }

    /// Has the record read if it is unknown, or if it was read too long ago.
    fn read_if_due(&mut self, now: Time, name: &LockName) {
        let poll_every = self.config.lease / 3;
        let Some(lock) = self.locks.get_mut(name) else {
            return;
        };
        let is_waited = lock.is_waited() || lock.observer.is_some();
        let is_due = match &lock.seen {
            None => true,
            Some(seen) => lock.is_doubted || is_waited && now >= seen.at + poll_every,
        };
        let is_wanted =
            !lock.requests.is_empty() || lock.left_at.is_some() || lock.observer.is_some();
        if is_due && is_wanted && lock.reading.is_none() && !lock.is_unsettled {
            let key = lock.key.clone();
            let id = self.submit(Purpose::Read(name.clone()), Op::Read { key });
            if let Some(lock) = self.locks.get_mut(name) {
                lock.reading = Some(id);
            }
        }
    }

    /// What is to become of the record as it is known; `None` if nothing is known.
    fn plan(&mut self, now: Time, name: &LockName) -> Option<Plan> {
        let lock = self.locks.get(name)?;
        let seen = lock.seen.as_ref()?;
        let me = self.session.as_ref().map(|session| &session.name);
        let mut plan = Plan {
            record: seen.record.clone(),
            added: Vec::new(),
            refused: Vec::new(),
            tries: Vec::new(),
            is_old: false,
            is_full: false,
            strip_at: None,
        };
        let mut strip_at = None;
        let strips: BTreeSet<&SessionName> = {
            let sessions: BTreeSet<&SessionName> =
                seen.record.claims().map(|claim| &claim.session).collect();
            let others = sessions.into_iter().filter(|session| me != Some(*session));
            let is_ripe = |session: &&SessionName| {
                let Some(dead_since) = self.dead_since(session) else {
                    return false;
                };
                let at = dead_since + self.config.lock_delay;
                if now < at {
                    strip_at = Some(strip_at.map_or(at, |before: Time| before.min(at)));
                }
                now >= at
            };
            others.filter(is_ripe).collect()
        };
        plan.strip_at = strip_at;
        let ending = |claim: &Claim| ending(lock, me, &strips, claim);
        plan.record.take_out(ending);
        let floor = self.wall.fence_floor(now).max(self.link.fence_floor);
        let is_outdated = |claim: &Claim| self.is_outdated(lock, claim);
        let renewed = plan.record.renew_fences(floor, is_outdated);
        if renewed.and_then(|()| plan.record.promote(floor)).is_err() {
            let key = lock.key.clone();
            let undecided = lock.requests.values().filter(|it| it.state.is_undecided());
            let why = || Why::Store(StoreRefusal::FencesUsedUp { key: key.clone() });
            plan.refused = undecided.map(|it| (it.ticket, why())).collect();
            plan.record = seen.record.clone();
            return Some(plan);
        }
        self.plan_claims(now, lock, floor, &mut plan);
        Some(plan)
    }

    /// Whether a claim of this agent, of which no caller was told, needs another fence: it was moved inside
    /// before this connection, and the store may have forgotten since that others were after it.
    fn is_outdated(&self, lock: &Lock, claim: &Claim) -> bool {
        let mine = self.session.as_ref().map(|session| &session.name);
        let request = lock.requests.get(&claim.ticket);
        mine == Some(&claim.session)
            && request.is_some_and(|request| request.state == State::Waiting)
            && claim.fence.is_some_and(|it| self.link.may_be_outdated(it))
    }

    /// Adds the claims of those who wait and have none.
    fn plan_claims(&self, now: Time, lock: &Lock, floor: u64, plan: &mut Plan) {
        let known = lock.seen.as_ref().map_or(OpId(0), |seen| seen.by);
        let me = self.session.as_ref().map(|session| &session.name);
        for (number, request) in &lock.requests {
            let has_claim = |me| plan.record.find(me, *number).is_some();
            if request.state != State::Waiting || me.is_some_and(has_claim) {
                continue;
            }
            if let Some(permits) = request.permits.filter(|it| *it != plan.record.permits) {
                if !plan.record.is_idle() {
                    let actual = Self::served(plan.record.permits);
                    let why = Why::Known(Refusal::WrongSpec { actual });
                    plan.refused.push((request.ticket, why));
                    continue;
                }
                plan.record.permits = permits;
            }
            let is_one = plan.record.permits == NonZeroU32::MIN;
            if request.mode == Mode::Shared && !is_one {
                let actual = Self::served(plan.record.permits);
                let why = Why::Known(Refusal::NotShareable { actual });
                plan.refused.push((request.ticket, why));
                continue;
            }
            match plan.record.place(request.mode) {
                Place::Inside => {}
                Place::Queue | Place::Full if request.wait == Wait::Try => {
                    // An answer takes a record that was read since it was asked for.
                    if known <= request.after || lock.is_unsettled {
                        plan.is_old = true;
                        continue;
                    }
                    match self.can_try_on(now, &plan.record, request.mode) {
                        true => plan.tries.push(*number),
                        false => plan
                            .refused
                            .push((request.ticket, Why::Known(Refusal::Busy))),
                    }
                    continue;
                }
                Place::Queue => {}
                Place::Full if self.may_make_room(me, &plan.record) => {
                    plan.is_full = true;
                    continue;
                }
                Place::Full => {
                    let (key, claims) = (lock.key.clone(), plan.record.queue.len());
                    let why = Why::Store(StoreRefusal::QueueFull { key, claims });
                    plan.refused.push((request.ticket, why));
                    continue;
                }
            }
            let Some(me) = me.filter(|_| self.can_claim(now)) else {
                continue;
            };
            let mut next = plan.record.clone();
            next.queue.push(self.claim(me, *number, request));
            if next.promote(floor).is_err() {
                let why = StoreRefusal::FencesUsedUp {
                    key: lock.key.clone(),
                };
                plan.refused.push((request.ticket, Why::Store(why)));
                continue;
            }
            plan.record = next;
            plan.added.push(*number);
        }
    }

    /// Whether a full queue may have claims of sessions that are over: one of them is dead and not taken
    /// out yet, or was not renewed since it is watched. Each session comes to be either.
    fn may_make_room(&self, me: Option<&SessionName>, record: &LockRecord) -> bool {
        let sessions = record.queue.iter().map(|claim| &claim.session);
        let mut others = sessions.filter(|session| me != Some(*session));
        others.any(|session| !self.is_renewed(session))
    }

    /// Whether one that only tries may go on, though the lock is not free: if it would be free without the
    /// sessions that are dead, or have no record, or were last renewed ten of their leases ago.
    fn can_try_on(&self, now: Time, record: &LockRecord, mode: Mode) -> bool {
        let sessions: BTreeSet<&SessionName> =
            record.claims().map(|claim| &claim.session).collect();
        let old: BTreeSet<&SessionName> = sessions
            .into_iter()
            .filter(|session| self.may_be_over(now, session))
            .collect();
        let mut rest = record.clone();
        rest.take_out(|claim| old.contains(&claim.session).then_some(Release::Abandoned));
        rest.promote(0).is_ok() && rest.place(mode) == Place::Inside
    }

    fn claim(&self, me: &SessionName, number: u64, request: &Request) -> Claim {
        Claim {
            session: me.clone(),
            ticket: number,
            mode: request.mode,
            fence: None,
            previous: Previous::Clean,
            host: self.config.host.clone(),
            pid: request.caller.as_ref().map(|(pid, _)| *pid),
            command: request.caller.as_ref().map(|(_, command)| command.clone()),
        }
    }

    fn write(&mut self, name: &LockName, record: LockRecord, added: &[u64]) {
        let Some(lock) = self.locks.get_mut(name) else {
            return;
        };
        for number in added {
            if let Some(request) = lock.requests.get_mut(number) {
                request.is_written = true;
            }
        }
        let expect = lock.seen.as_ref().and_then(|seen| seen.version);
        let key = lock.key.clone();
        let value = record.to_bytes();
        lock.writing = Some(record);
        // What is read meanwhile may be from before.
        lock.reading = None;
        self.timers.clear(&Timer::Lock(name.clone()));
        self.submit(
            Purpose::Write(name.clone()),
            Op::Write { key, value, expect },
        );
    }

    /// Watches the sessions that keep this agent's callers waiting.
    fn watch_for(&mut self, now: Time, name: &LockName, (tries, is_full): (&[u64], bool)) {
        let me = self.session.as_ref().map(|session| &session.name);
        let Some(lock) = self.locks.get(name) else {
            return;
        };
        let mut wanted = BTreeSet::new();
        if let Some(seen) = &lock.seen
            && lock.is_waited()
        {
            let all = is_full || !tries.is_empty();
            let many = if all { seen.record.queue.len() } else { 1 };
            let heads = seen.record.queue.iter().take(many);
            let in_the_way = seen.record.inside.iter().chain(heads);
            let sessions = in_the_way.map(|claim| &claim.session);
            wanted.extend(sessions.filter(|session| me != Some(*session)).cloned());
        }
        if let Some(longest) = self.longest_watch(&wanted) {
            for number in tries {
                // It waits no longer for an answer, but for what it takes to watch.
                let Request { ticket, since, .. } = &lock.requests[number];
                self.timers.set(Timer::Request(*ticket), *since + longest);
            }
        }
        self.set_watched(now, name, wanted);
    }

    fn set_lock_timer(&mut self, now: Time, name: &LockName, strip_at: Option<Time>) {
        let poll_every = self.config.lease / 3;
        let Some(lock) = self.locks.get(name) else {
            return;
        };
        let is_looked_at = lock.is_waited() || lock.observer.is_some();
        let waits = is_looked_at && lock.reading.is_none();
        let poll_at = lock.seen.as_ref().filter(|_| waits);
        let poll_at = poll_at.map(|seen| (seen.at + poll_every).max(now));
        let forget_at = lock.left_at.filter(|_| lock.requests.is_empty());
        let forget_at = forget_at.map(|at| at + self.config.lease * LEASES_TO_FORGET);
        let times = [poll_at, strip_at.filter(|_| lock.is_waited()), forget_at];
        let next = times.into_iter().flatten().min();
        self.timers.set_or_clear(Timer::Lock(name.clone()), next);
    }

    /// Forgets a lock of which nothing is wanted. Where the store may forget that a claim was taken out,
    /// only after a while: the claim may have to be taken out again.
    fn drop_if_settled(&mut self, now: Time, name: &LockName) {
        let Some(lock) = self.locks.get_mut(name) else {
            return;
        };
        if !lock.is_settled() {
            return;
        }
        let keeps_until = lock
            .left_at
            .map(|at| at + self.config.lease * LEASES_TO_FORGET);
        if self.link.may_forget() && keeps_until.is_some_and(|until| now < until) {
            return;
        }
        lock.left_at = None;
        if lock.observer.is_some() {
            return;
        }
        self.set_watched(now, name, BTreeSet::new());
        self.locks.remove(name);
        self.timers.clear(&Timer::Lock(name.clone()));
    }
}

/// How a claim ends by this agent's hand; `None` if it does not.
fn ending(
    lock: &Lock,
    me: Option<&SessionName>,
    strips: &BTreeSet<&SessionName>,
    claim: &Claim,
) -> Option<Release> {
    if me != Some(&claim.session) {
        let is_stripped = strips.contains(&claim.session);
        return is_stripped.then_some(Release::Abandoned);
    }
    match lock.requests.get(&claim.ticket).map(|it| it.state) {
        Some(State::Leaving(how)) => Some(how),
        Some(_) => None,
        // Nobody waits for it any more.
        None => Some(Release::Unused),
    }
}
