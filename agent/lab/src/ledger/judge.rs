//! The rules, by the simulator's checkers.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::time::Duration;

use super::store::Store;
use crate::checkers::{Call, Exclusion, Fences, Process, Requests, Terms, Violation, violation};
use distlock_protocol::ledger::SessionName;
use distlock_protocol::{Epoch, Fence, LockName, LockSpec, Mode, Previous, Release, Time, Wait};

/// A lock is closed to callers of that mode, as somebody crashed inside.
#[derive(Debug)]
struct Closed {
    lock: LockName,
    mode: Mode,
    until: Time,
    /// Whose claim says so in the lock's record.
    session: SessionName,
}

/// All rules together.
#[derive(Debug)]
pub(super) struct Judge {
    exclusion: Exclusion,
    fences: Fences,
    /// What `fences` was each time when the store forgot, by the number of the store's start after that.
    forgotten: BTreeMap<u64, Fences>,
    pub(super) requests: Requests,
    permits: BTreeMap<LockName, NonZeroU32>,
    lock_delay: Duration,
    /// When each process's lease ends, in true time.
    until: BTreeMap<Process, Time>,
    /// Who is inside of what.
    inside: BTreeMap<Call, (LockName, Mode)>,
    /// Who may not be let in after somebody crashed inside.
    closed: Vec<Closed>,
    /// Who must be told that a holder before ended inside. Those that share a lock go on beside one that
    /// shared it too.
    must_tell: BTreeSet<(LockName, Mode)>,
    /// Whether anybody can have ended inside.
    may_tell: bool,
    /// Whether the store has forgotten something.
    has_forgotten: bool,
    /// Until when two may be valid for what it has forgotten.
    suspended: Option<Time>,
}

impl Judge {
    pub(super) fn new(permits: BTreeMap<LockName, NonZeroU32>, lock_delay: Duration) -> Self {
        Self {
            exclusion: Exclusion::new(permits.clone()),
            fences: Fences::new(&permits),
            forgotten: BTreeMap::new(),
            requests: Requests::default(),
            permits,
            lock_delay,
            until: BTreeMap::new(),
            inside: BTreeMap::new(),
            closed: Vec::new(),
            must_tell: BTreeSet::new(),
            may_tell: false,
            has_forgotten: false,
            suspended: None,
        }
    }

    /// How many permits a lock has.
    pub(super) fn permits(&self, lock: &LockName) -> NonZeroU32 {
        self.permits[lock]
    }

    pub(super) fn asks(
        &mut self,
        now: Time,
        call: Call,
        lock: &LockName,
        mode: Mode,
        wait: Wait,
        wish: Option<LockSpec>,
    ) -> Result<(), Violation> {
        let terms = Terms { wait, wish };
        self.requests.asks(now, call, lock.clone(), mode, terms)
    }

    /// Whether what a process was granted is valid.
    fn has_lease(&self, now: Time, process: Process) -> bool {
        self.until.get(&process).is_some_and(|until| now < *until)
    }

    /// Whether two may be valid, as the store came back too soon with less than it had.
    fn is_suspended(&self, now: Time) -> bool {
        self.suspended.is_some_and(|until| now <= until)
    }

    /// `call` is granted what it asked for, by the store's start `boot`.
    ///
    /// An agent that stood still may read now what an earlier start has said, which has been forgotten since:
    /// its fence rises over those of that time. A resource that has seen a higher one since takes the caller
    /// for the old holder that it is.
    pub(super) fn granted(
        &mut self,
        now: Time,
        call: Call,
        fence: Fence,
        previous: Previous,
        boot: u64,
    ) -> Result<(), Violation> {
        let (name, mode) = self.requests.grants(now, call)?;
        if !self.has_lease(now, call.process) {
            return Err(violation!(
                now,
                Leases,
                "{call} is granted {name} while the lease of its agent is over"
            ));
        }
        let entered = self.exclusion.enters(now, call, &name, mode);
        if !self.is_suspended(now) {
            entered?;
        }
        let epoch = Epoch::new((fence.as_u64() >> 32) as u32).unwrap_or_default();
        let mut is_late = false;
        let later = self.forgotten.range_mut(boot + 1..).map(|(_, then)| then);
        for fences in later.chain([&mut self.fences]) {
            if is_late {
                fences.grants_late(now, call, (&name, mode), fence)?;
            } else {
                fences.grants(now, call, (&name, mode), fence, epoch)?;
            }
            is_late = true;
        }
        self.inside.insert(call, (name.clone(), mode));
        let is_closed = |it: &Closed| it.lock == name && it.mode == mode && now < it.until;
        if self.closed.iter().any(is_closed) && !self.is_suspended(now) {
            return Err(violation!(
                now,
                Exclusion,
                "{call} is granted {name} before the lock delay is over after a holder ended inside"
            ));
        }
        self.is_told(now, call, &name, mode, previous)
    }

    fn is_told(
        &mut self,
        now: Time,
        call: Call,
        name: &LockName,
        mode: Mode,
        previous: Previous,
    ) -> Result<(), Violation> {
        let must = self.must_tell.contains(&(name.clone(), mode)) && self.permits[name].get() == 1;
        if must && !previous.is_abandoned() && !self.has_forgotten {
            return Err(violation!(
                now,
                Abandonment,
                "{call} is not told that a holder of {name} before ended inside"
            ));
        }
        if previous.is_abandoned() && !self.may_tell {
            return Err(violation!(
                now,
                Abandonment,
                "{call} is told that a holder of {name} before ended inside, and none did"
            ));
        }
        if mode == Mode::Exclusive {
            self.must_tell.retain(|(other, _)| other != name);
        }
        Ok(())
    }

    pub(super) fn leaves(&mut self, now: Time, call: Call, name: &LockName, how: Release) {
        if !self.requests.releases(call) {
            return;
        }
        self.exclusion.leaves(call);
        let mode = self.inside.remove(&call).map(|(_, mode)| mode);
        if how == Release::Abandoned {
            self.may_tell = true;
            // Who was not valid any more may have been told of before.
            if self.has_lease(now, call.process) {
                self.must_tell.extend(kept_out(name, mode));
            }
        }
    }

    pub(super) fn lost(&mut self, now: Time, call: Call) -> Result<(), Violation> {
        self.may_tell = true;
        self.exclusion.leaves(call);
        self.inside.remove(&call);
        self.requests.yields(now, call)
    }

    /// A lease runs until then; whether it was over, and is not any more.
    pub(super) fn extends(
        &mut self,
        now: Time,
        process: Process,
        end: Time,
    ) -> Result<bool, Violation> {
        let extended = self.exclusion.extends(now, process, end);
        if !self.is_suspended(now) {
            extended?;
        }
        if self.suspended.is_some_and(|until| now > until) {
            self.suspended = None;
            self.exclusion.holds(now)?;
        }
        let before = self.until.insert(process, end);
        let mut inside = self.inside.keys();
        let is_inside = inside.any(|call| call.process == process);
        Ok(is_inside && before.is_some_and(|before| before <= now))
    }

    /// A session has ended: its claims are taken out as of one that ended inside.
    pub(super) fn loses_session(&mut self) {
        self.may_tell = true;
    }

    pub(super) fn closes(&mut self, process: Process) {
        for call in self.requests.closes(process) {
            self.exclusion.leaves(call);
            self.inside.remove(&call);
        }
    }

    /// A process with that session ends without a word, while the store has what it has.
    pub(super) fn crashes(
        &mut self,
        now: Time,
        process: Process,
        session: Option<&SessionName>,
        store: &Store,
    ) {
        self.may_tell = true;
        let end = self.until.get(&process).copied().unwrap_or(now);
        let calls: Vec<Call> = self.inside.keys().copied().collect();
        for call in calls.into_iter().filter(|call| call.process == process) {
            let name = self.inside.remove(&call);
            // Who is not valid any more may be out of the record already.
            let Some((name, mode)) = name.filter(|_| now < end) else {
                continue;
            };
            let until = end + self.lock_delay * 10 / 11;
            // A lock with permits left is not closed for one that ended inside.
            let is_closed = self.permits[&name].get() == 1;
            for (lock, mode) in kept_out(&name, Some(mode)) {
                self.must_tell.insert((lock.clone(), mode));
                if let Some(session) = session.filter(|_| is_closed) {
                    let session = session.clone();
                    self.closed.push(Closed {
                        lock,
                        mode,
                        until,
                        session,
                    });
                }
            }
        }
        self.exclusion.crashes(process);
        self.requests.crashes(process);
        if self.has_forgotten {
            self.open_forgotten(store);
        }
    }

    /// The store, whose start is `boot`, has lost what it had acknowledged, and has this; two may be valid
    /// until then.
    pub(super) fn forgets(&mut self, suspended: Option<Time>, store: &Store, boot: u64) {
        self.forgotten.insert(boot, self.fences.clone());
        self.has_forgotten = true;
        self.may_tell = true;
        self.suspended = suspended.max(self.suspended);
        self.open_forgotten(store);
    }

    /// Opens what nothing in the store closes any more: the claim of who crashed inside was forgotten.
    ///
    /// This is no breach of a ledger. Its agent is gone, so that nobody is left who knows of the claim, or
    /// of the delay. A store that was away for longer than all leases lets no two be valid all the same,
    /// as a holder that was forgotten has no lease any more; and the lock delay begins only then. To keep
    /// it without the claim, every agent would have to stand back for so long whenever it connects, at each
    /// start. So a lock delay holds as long as the store remembers for what
    /// (`LedgerConfig::lock_delay`); a claim that the store still has is held against it.
    fn open_forgotten(&mut self, store: &Store) {
        self.closed
            .retain(|it| store.is_inside(&it.lock, &it.session));
    }
}

/// Whom one inside in that mode keeps out.
fn kept_out(name: &LockName, mode: Option<Mode>) -> impl Iterator<Item = (LockName, Mode)> {
    let shared = (mode == Some(Mode::Exclusive)).then(|| (name.clone(), Mode::Shared));
    [(name.clone(), Mode::Exclusive)].into_iter().chain(shared)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::Rule;
    use crate::choices::Choices;
    use crate::ledger::callers::served;
    use crate::ledger::store::GROUP;
    use distlock_protocol::ledger::{LockRecord, Op, keys};
    use distlock_protocol::{NodeId, Ticket};

    fn at(secs: u64) -> Time {
        Time::ZERO + Duration::from_secs(secs)
    }

    /// A store in which a lock's record has a claim of that session inside.
    fn store(lock: &LockName, session: &SessionName) -> Store {
        let text = alloc::format!(
            r#"{{"distlock":1,"permits":1,"fence":"9","left":"clean","queue":[],"inside":[{{
                "session":"{session}","ticket":1,"mode":"x","fence":"9"}}]}}"#
        );
        assert!(LockRecord::parse(text.as_bytes()).is_ok());
        let mut store = Store::new(false, true, 0);
        let op = Op::Write {
            key: keys::lock_key(GROUP, lock),
            value: text.into_bytes(),
            expect: None,
        };
        store.apply(Time::ZERO, &op, &mut Choices::new(1));
        store
    }

    /// One crashes inside whose lease ends at 5 s, with a lock delay of 10 s; another is let in at 6 s,
    /// after the store has forgotten so many writes, if it has at all.
    fn lets_in(forgets: Option<usize>) -> Result<(), Violation> {
        let lock = LockName::new("l").expect("a name");
        let session = SessionName::new(1);
        let mut store = store(&lock, &session);
        let permits = [(lock.clone(), NonZeroU32::MIN)].into();
        let mut judge = Judge::new(permits, Duration::from_secs(10));
        let enter = |judge: &mut Judge, number: u16, now: Time, until: Time| {
            let process = Process {
                node: NodeId::new(number).expect("from 1"),
                incarnation: 1,
            };
            let ticket = Ticket(1);
            let call = Call { process, ticket };
            let wish = Some(served(NonZeroU32::MIN));
            let (mode, wait) = (Mode::Exclusive, Wait::Cancelled);
            judge.asks(now, call, &lock, mode, wait, wish)?;
            judge.extends(now, process, until)?;
            let fence = Fence::new(u64::from(number) << 32).expect("in range");
            judge.granted(now, call, fence, Previous::after(number > 1), 0)?;
            Ok(process)
        };
        let first = enter(&mut judge, 1, at(0), at(5))?;
        judge.crashes(at(1), first, Some(&session), &store);
        if let Some(writes) = forgets {
            store.forget(at(6), writes);
            judge.forgets(None, &store, 1);
        }
        enter(&mut judge, 2, at(6), at(11)).map(|_| ())
    }

    /// One after the other is granted the lock, with that fence by that start of the store, which forgets after
    /// the first.
    fn grants(grants: &[(u64, u64)]) -> Result<(), Violation> {
        let lock = LockName::new("l").expect("a name");
        let store = store(&lock, &SessionName::new(1));
        let permits = [(lock.clone(), NonZeroU32::MIN)].into();
        let mut judge = Judge::new(permits, Duration::ZERO);
        for (number, &(fence, boot)) in (1..).zip(grants) {
            let node = NodeId::new(number).expect("from 1");
            let process = Process {
                node,
                incarnation: 1,
            };
            let ticket = Ticket(1);
            let call = Call { process, ticket };
            let wish = Some(served(NonZeroU32::MIN));
            let (mode, wait) = (Mode::Exclusive, Wait::Cancelled);
            judge.asks(at(1), call, &lock, mode, wait, wish)?;
            judge.extends(at(1), process, at(9))?;
            let fence = Fence::new(fence << 32).expect("in range");
            judge.granted(at(1), call, fence, Previous::Clean, boot)?;
            if number == 1 {
                judge.forgets(Some(at(9)), &store, 1);
            }
        }
        Ok(())
    }

    #[test]
    fn what_a_store_said_before_it_forgot_has_a_fence_of_that_time() {
        let broken = |last: &[_]| {
            let all = [&[(8, 0)], last].concat();
            grants(&all).map_err(|it| it.rule).err()
        };
        assert_eq!(broken(&[(10, 1), (11, 1)]), None);
        assert_eq!(broken(&[(10, 1), (9, 0), (11, 1)]), None);
        for wrong in [
            &[(10, 1), (7, 0)][..],
            &[(10, 1), (9, 1)],
            // Nobody has the fence of another, and those after it rise over it.
            &[(10, 1), (10, 0)],
            &[(9, 0), (9, 1)],
            &[(12, 0), (11, 1)],
        ] {
            assert_eq!(broken(wrong), Some(Rule::Fences), "{wrong:?}");
        }
    }

    #[test]
    fn a_lock_delay_is_kept_as_long_as_the_store_knows_for_what() {
        for forgets in [None, Some(0)] {
            let words = lets_in(forgets).map_err(|violation| violation.detail);
            assert!(words.is_err_and(|it| it.contains("lock delay")));
        }
        assert_eq!(lets_in(Some(1)), Ok(()));
    }
}
