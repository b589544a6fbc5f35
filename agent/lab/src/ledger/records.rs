//! What is written to the records of locks, write by write: the queue is served in order, and nobody takes
//! out another's claim whose session was not declared dead.
//!
//! A claim that waits has its place from the write that put it there. So the order in which claims go in
//! shows in the records, whoever tells its caller first. Neither shared mode nor permits change that: who is
//! behind one that waits goes in with it or after it. One that was withdrawn, or ended, is not there, and
//! one that only tries never is.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::store::Store;
use crate::checkers::{Process, Violation, violation};
use distlock_protocol::ledger::{Claim, LockRecord, SessionName};
use distlock_protocol::{Fence, LockName, Time};

/// The records as they were written last, and who is in them.
#[derive(Debug, Default)]
pub(super) struct Records {
    last: BTreeMap<LockName, LockRecord>,
    /// Whose each session is.
    owners: BTreeMap<SessionName, Process>,
    declared_dead: BTreeSet<SessionName>,
    /// All that were ever inside.
    entered: BTreeSet<(LockName, SessionName, Fence)>,
}

impl Records {
    /// A process has that session.
    pub(super) fn has(&mut self, process: Process, session: &SessionName) {
        if !self.owners.contains_key(session) {
            self.owners.insert(session.clone(), process);
        }
    }

    /// A session was declared dead.
    pub(super) fn dies(&mut self, session: SessionName) {
        self.declared_dead.insert(session);
    }

    /// The store has less than it had.
    pub(super) fn forgets(&mut self, store: &Store) {
        let names: Vec<LockName> = self.last.keys().cloned().collect();
        for name in names {
            match store.record(&name) {
                Some(record) => drop(self.last.insert(name, record)),
                None => drop(self.last.remove(&name)),
            }
        }
    }

    /// Whether that claim was ever inside.
    pub(super) fn was_inside(&self, lock: &LockName, session: &SessionName, fence: Fence) -> bool {
        let it = (lock.clone(), session.clone(), fence);
        self.entered.contains(&it)
    }

    /// A process has written the record of a lock.
    pub(super) fn written(
        &mut self,
        now: Time,
        from: Process,
        lock: &LockName,
        next: LockRecord,
    ) -> Result<(), Violation> {
        for claim in &next.inside {
            let fence = claim.fence.expect("records are checked when they are read");
            let it = (lock.clone(), claim.session.clone(), fence);
            self.entered.insert(it);
        }
        let Some(before) = self.last.insert(lock.clone(), next) else {
            return Ok(());
        };
        let next = &self.last[lock];
        let is_there = |claim: &Claim| next.find(&claim.session, claim.ticket);
        for claim in before.claims().filter(|claim| is_there(claim).is_none()) {
            let is_own = self.owners.get(&claim.session) == Some(&from);
            if !is_own && !self.declared_dead.contains(&claim.session) {
                return Err(violation!(
                    now,
                    Exclusion,
                    "{from} takes out of {lock:?} what is another's, who was not declared dead: {claim:?}"
                ));
            }
        }
        // Who was inside keeps out nobody but who waits; who waits, everybody behind.
        let mut waits: Option<&Claim> = None;
        for claim in &before.queue {
            match is_there(claim) {
                Some((_, true)) => {
                    if let Some(passed) = waits {
                        return Err(passes(now, lock, claim, passed));
                    }
                }
                Some((_, false)) => waits = Some(claim),
                None => {}
            }
        }
        let is_new = |claim: &&Claim| before.find(&claim.session, claim.ticket).is_none();
        if let Some(passed) = waits
            && let Some(claim) = next.inside.iter().find(is_new)
        {
            return Err(passes(now, lock, claim, passed));
        }
        let mut kept = before
            .queue
            .iter()
            .filter(|claim| is_there(claim).is_some_and(|it| !it.1));
        for claim in &next.queue {
            let expected = kept.next();
            if let Some(expected) = expected
                && !claim.is(&expected.session, expected.ticket)
            {
                return Err(passes(now, lock, claim, expected));
            }
        }
        Ok(())
    }
}

fn passes(now: Time, lock: &LockName, claim: &Claim, passed: &Claim) -> Violation {
    violation!(
        now,
        Fairness,
        "in {lock:?} a claim goes before one that was there first: {claim:?} before {passed:?}"
    )
}

#[cfg(test)]
mod tests {
    use alloc::string::String;
    use core::num::NonZeroU32;

    use super::*;
    use distlock_protocol::{Mode, NodeId, Previous};

    fn claim(ticket: u64) -> Claim {
        Claim {
            session: SessionName::new(u128::from(ticket)),
            ticket,
            mode: Mode::Exclusive,
            fence: None,
            previous: Previous::Clean,
            host: String::new(),
            pid: None,
            command: None,
        }
    }

    /// A record with those inside, and those in the queue.
    fn record(inside: &[u64], queue: &[u64]) -> LockRecord {
        let permits = NonZeroU32::new(9).expect("not none");
        let mut record = LockRecord::new(permits);
        record.queue = inside.iter().map(|ticket| claim(*ticket)).collect();
        record.promote(1).expect("there are fences");
        record.queue = queue.iter().map(|ticket| claim(*ticket)).collect();
        record
    }

    /// Whether process 1 may write the second over the first.
    fn may(before: (&[u64], &[u64]), after: (&[u64], &[u64])) -> bool {
        let process = Process {
            node: NodeId::new(1).expect("from 1"),
            incarnation: 1,
        };
        let lock = LockName::new("l").expect("a name");
        let mut records = Records::default();
        records.has(process, &SessionName::new(1));
        records.dies(SessionName::new(2));
        let now = Time::ZERO;
        let first = records.written(now, process, &lock, record(before.0, before.1));
        assert_eq!(first, Ok(()));
        let second = records.written(now, process, &lock, record(after.0, after.1));
        second.is_ok()
    }

    #[test]
    fn who_waits_goes_in_before_who_is_behind() {
        let before: (&[u64], &[u64]) = (&[1], &[3, 4, 5]);
        assert!(may(before, (&[1], &[3, 4, 5, 6])));
        assert!(may(before, (&[3], &[4, 5])));
        assert!(may(before, (&[1, 3, 4, 5, 6], &[])));
        for after in [
            (&[1, 4][..], &[3, 5][..]),
            (&[1, 6], &[3, 4, 5]),
            (&[1], &[4, 3, 5]),
            (&[1], &[6, 3, 4, 5]),
            (&[1, 3, 6], &[4, 5]),
        ] {
            assert!(!may(before, after), "{after:?}");
        }
    }

    #[test]
    fn only_ones_own_and_the_dead_are_taken_out() {
        assert!(may((&[1], &[2, 3]), (&[], &[3])));
        assert!(!may((&[1], &[2, 3]), (&[1], &[2])));
        assert!(!may((&[3], &[]), (&[], &[])));
    }
}
