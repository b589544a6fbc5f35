//! Locks that threads of this process enter by themselves, while the group lends them to this member: by one
//! compare-and-swap and a look at the clock, without the core's mutex, an allocation or a system call.
//!
//! What is granted in that way is valid as any other grant is: until the lease runs out, or a view goes
//! on without this member. Whoever wants more than to enter and to leave has the core know of the
//! entry first ([`LentLock::take_over`]), and then has a [`Grant`] as others do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::protocol::lock::{Left, Loan};
use crate::protocol::{
    Command, EntryOwner, Failure, Fence, Input, LockName, Mode, Previous, Release, SharedLoan,
    Ticket, Time,
};
use crate::runtime::api::caller::Caller;
use crate::runtime::os::clock::{self, Moment};
use crate::runtime::os::sync::Mutex;
use crate::runtime::request::session::{GuardState, OVER};
use crate::runtime::request::{Grant, Granted, Loss, Request};
use crate::runtime::shared::core_guard::{CoreGuard, Phase, Shared};
use crate::runtime::shared::entry::{Entry, Held, Sink};
use crate::runtime::shared::lending::{Borrower, Borrowers, Known, Lending};

/// One lock, for all threads of the process. One of them at most is inside by it.
#[derive(Debug)]
pub struct LentLock {
    shared: Arc<Shared>,
    lock: LockName,
    loan: Arc<Loan>,
    caller: Caller,
    /// The number of its request in the core, if it needs one.
    ticket: AtomicU64,
    /// When whoever is inside entered.
    since: AtomicU64,
    /// Whoever is inside, once the core knows.
    known: Mutex<Option<Known>>,
}

impl Shared {
    /// The lock `name`, for threads that enter by themselves. `None` where they cannot: where no fences
    /// are given, where a store decides, and where a trace or an audit is to have every entry.
    pub(crate) fn lend(self: &Arc<Self>, lock: &LockName) -> Option<Arc<LentLock>> {
        let has_fences = self.identity.settings.failure != Failure::PresumeFailed;
        if !has_fences || self.stamp.is_child() {
            return None;
        }
        let mut core = self.lock_core();
        // A store lends nothing.
        if core.has_every_entry() || core.core.members().is_none() {
            return None;
        }
        let lent = Arc::new(LentLock {
            shared: Arc::clone(self),
            lock: lock.clone(),
            loan: Arc::default(),
            caller: Caller::current(),
            ticket: AtomicU64::new(0),
            since: AtomicU64::new(0),
            known: Mutex::new(None),
        });
        core.lend(&lent);
        core.lend_to_threads(lock);
        core.finish_as_application();
        Some(lent)
    }
}

impl LentLock {
    /// Enters, if the lock is lent, nobody is inside, and the lease runs. Returns the fence of the entry.
    pub fn enter(self: &Arc<Self>) -> Option<Fence> {
        let fence = self.loan.enter(EntryOwner::MEMBER)?;
        if self.confirms(fence) {
            return Some(fence);
        }
        if !self.leave() {
            let _ = self.take_over(fence).release_as(Release::Unused);
        }
        None
    }

    /// Whether the entry with `fence` is valid. The loan is looked at after the lease's end: if that is a
    /// later session's, the loan was recalled before.
    fn confirms(&self, fence: Fence) -> bool {
        let expiry = self.shared.expiry.load(Ordering::Acquire);
        let now = clock::now().as_nanos();
        self.since.store(now, Ordering::Relaxed);
        now < expiry && self.loan.is_lent_to(EntryOwner::MEMBER, fence)
    }

    /// Leaves; `false` if the core must be told, by the end of what [`LentLock::take_over`] returns.
    pub fn leave(&self) -> bool {
        let entered = self.since.load(Ordering::Relaxed);
        self.since.store(0, Ordering::Relaxed);
        let has_left = self.loan.leave(EntryOwner::MEMBER) != Left::Recalled;
        if has_left {
            self.shared.look_after(entered);
        }
        has_left
    }

    /// What the entry with `fence` is worth now, as long as nobody has taken it over.
    pub fn state(&self, fence: Fence) -> GuardState {
        let expiry = self.shared.expiry.load(Ordering::Acquire);
        let is_over = expiry != u64::MAX && expiry <= clock::now().as_nanos();
        if self.loan.is_lent_to(EntryOwner::MEMBER, fence) {
            return match expiry {
                OVER => GuardState::Lost,
                _ if is_over => GuardState::Suspended,
                _ => GuardState::Valid,
            };
        }
        if self.known.lock().is_none() {
            // It was recalled a moment ago. Whoever did has the mutex until it is known.
            drop(self.shared.lock_core());
        }
        match &*self.known.lock() {
            Some(known) if known.request.is_held() => known.granted.session.state(),
            _ => GuardState::Lost,
        }
    }

    /// The grant of whoever is inside with `fence`, and is known to the core from now on.
    ///
    /// # Panics
    /// In a forked child.
    pub fn take_over(self: &Arc<Self>, fence: Fence) -> Grant {
        assert!(
            !self.shared.stamp.is_child(),
            "a child has nothing to take over"
        );
        let mut core = self.shared.lock_core();
        if self.loan.is_lent_to(EntryOwner::MEMBER, fence) {
            core.find(&self.lock);
        }
        let known = self.known.lock().take();
        let known = known.unwrap_or_else(|| core.lost_entry(fence));
        self.loan.end();
        core.lend(self);
        core.finish_as_application();
        let owner = Arc::clone(&self.shared);
        Grant::known(owner, known.ticket, known.request, known.granted)
    }
}

impl Borrower for LentLock {
    fn caller(&self) -> &Caller {
        &self.caller
    }

    fn since(&self) -> Option<Time> {
        let since = self.since.load(Ordering::Relaxed);
        (since > 0).then(|| Time::from_nanos(since))
    }

    fn is_known(&self, known: Known) {
        *self.known.lock() = Some(known);
    }
}

/// No thread has the lock open any more.
impl Drop for LentLock {
    fn drop(&mut self) {
        if self.shared.stamp.is_child() {
            return;
        }
        let mut core = self.shared.lock_core();
        let ticket = Ticket(*self.ticket.get_mut());
        core.core.lendings.remove(&ticket);
        core.step(Input::Command(&Command::Return {
            lock: self.lock.clone(),
            loan: Arc::clone(&self.loan).into(),
        }));
        // Of one that is inside for ever.
        let how = Release::Abandoned;
        core.step(Input::Command(&Command::Release { ticket, how }));
        core.returned_by_threads(&self.lock);
        core.finish_as_application();
    }
}

impl CoreGuard<'_> {
    /// Threads enter by `lent` from now on, whenever the lock is lent to this member.
    fn lend(&mut self, lent: &Arc<LentLock>) {
        if self.core.phase != Phase::Running {
            return;
        }
        let ticket = self.next_ticket();
        lent.ticket.store(ticket.0, Ordering::Relaxed);
        let (lock, loan) = (lent.lock.clone(), SharedLoan::from(Arc::clone(&lent.loan)));
        let borrower: Arc<dyn Borrower> = Arc::<LentLock>::clone(lent);
        let lending = Lending {
            lock: lock.clone(),
            loan: loan.clone(),
            borrowers: Borrowers::Threads(Arc::downgrade(&borrower)),
        };
        self.core.lendings.insert(ticket, lending);
        self.step(Input::Command(&Command::Borrow { ticket, lock, loan }));
    }

    /// Has the core know of whoever is inside by the loan of `lock`.
    pub(crate) fn find(&mut self, lock: &LockName) {
        let lock = lock.clone();
        self.step(Input::Command(&Command::Find { lock }));
    }

    /// Nothing is lent to threads any more, as the session ends in order. Who is inside is known then.
    pub(super) fn end_lending(&mut self) {
        let lendings = self.core.lendings.values();
        let all: Vec<_> = lendings
            .map(|its| (its.lock.clone(), its.loan.clone()))
            .collect();
        for (lock, loan) in all {
            self.step(Input::Command(&Command::Return { lock, loan }));
        }
        self.core.lendings.clear();
    }

    /// The thread or client that is inside by a loan is known from now on.
    pub(super) fn entered(&mut self, ticket: Ticket, fence: Fence) {
        let lending = self.core.lendings.remove(&ticket);
        let Some(Lending {
            lock, borrowers, ..
        }) = lending
        else {
            return;
        };
        let borrower = match borrowers {
            Borrowers::Threads(borrower) => borrower,
            Borrowers::Clients(slot) => return self.client_entered(slot, ticket, fence),
        };
        let Some(borrower) = borrower.upgrade() else {
            // Nobody has the lock open any more: the end of that releases it.
            return;
        };
        let known = self.entry_of(ticket, fence);
        if self.core.phase != Phase::Running {
            // It is about to be taken from the thread, by the process's own wish.
            known.request.loss().fire(Loss::Closed);
        }
        let since = Moment::of(borrower.since().unwrap_or_else(clock::now));
        let fence = known.granted.fence;
        let entry = Entry {
            lock,
            mode: Mode::Exclusive,
            caller: borrower.caller().clone(),
            asked: since,
            held: Some(Held { fence, since }),
            sink: Sink::Thread(Arc::clone(&known.request)),
            goes_by_loan: false,
        };
        self.core.requests.insert(ticket, entry);
        borrower.is_known(known);
    }

    fn entry_of(&self, ticket: Ticket, fence: Fence) -> Known {
        let request = Request::new();
        let granted = Granted {
            fence: Some(fence),
            previous: Previous::Clean,
            session: Arc::clone(&self.core.session),
        };
        request.grant(granted.clone());
        Known {
            ticket,
            request,
            granted,
        }
    }

    /// What is left of an entry that the core does not know, as its session is over.
    fn lost_entry(&self, fence: Fence) -> Known {
        let known = self.entry_of(Ticket(0), fence);
        known.request.lose();
        known.request.loss().fire(Loss::Revoked);
        known
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use crate::protocol::Mode;
    use crate::runtime::api::error::{ReleaseError, SessionEnd};
    use crate::runtime::shared::core_guard::TAKINGS;
    use crate::runtime::shared::hand_off::tests::{alone, options_among};
    use crate::runtime::{Agent, Patience};

    use super::*;

    fn lock() -> LockName {
        LockName::new("x").unwrap()
    }

    /// A lock that has been entered so often that it is lent.
    fn lent(agent: &Agent) -> Arc<LentLock> {
        let lent = agent.lend(&lock()).unwrap();
        lend(agent, &lent);
        lent
    }

    /// What is not used goes back after a moment.
    fn lend(agent: &Agent, lent: &LentLock) {
        while !lent.loan.is_lent() {
            enter_and_leave(agent);
        }
    }

    /// The same, with somebody inside.
    fn entered(agent: &Agent) -> (Arc<LentLock>, Fence) {
        let lent = lent(agent);
        loop {
            if let Some(fence) = lent.enter() {
                return (lent, fence);
            }
            lend(agent, &lent);
        }
    }

    fn enter_and_leave(agent: &Agent) {
        let caller = Caller::default();
        let granted = agent.acquire(&lock(), None, Patience::Forever, caller);
        granted.unwrap().release().unwrap();
    }

    /// Where the silent are presumed gone, grants have no fences, of which a loan gives some.
    #[test]
    fn where_no_fences_are_given_nothing_is_lent() {
        let directory = tempfile::tempdir().unwrap();
        let mut options = options_among(1, 1, directory.path(), None);
        options.settings.failure = Failure::PresumeFailed;
        let agent = Agent::start(options).unwrap();
        assert!(agent.lend(&lock()).is_none());
    }

    #[test]
    fn what_is_lent_is_entered_without_the_core() {
        let directory = tempfile::tempdir().unwrap();
        let agent = alone(directory.path(), None);
        let lent = lent(&agent);
        // Nobody has waited for others lately.
        std::thread::sleep(Duration::from_millis(2));
        lend(&agent, &lent);
        let before = TAKINGS.get();
        let mut last = 0;
        for _ in 0..100 {
            let fence = lent.enter().expect("it is lent");
            assert!(fence.as_u64() > last);
            last = fence.as_u64();
            assert_eq!(lent.state(fence), GuardState::Valid);
            assert!(lent.enter().is_none(), "somebody is inside");
            assert!(lent.leave());
        }
        assert_eq!(TAKINGS.get(), before);
        let grant = agent.acquire(&lock(), None, Patience::Try, Caller::default());
        assert!(grant.unwrap().fence().unwrap().as_u64() > last);
    }

    #[test]
    fn whoever_waits_comes_after_the_one_inside() {
        let directory = tempfile::tempdir().unwrap();
        let agent = alone(directory.path(), None);
        let (lent, fence) = entered(&agent);
        let ask =
            |patience| agent.begin(&lock(), None, Mode::Exclusive, patience, Caller::default());
        assert!(ask(Patience::Try).unwrap().finish().is_err());
        let waiting = ask(Patience::Forever).unwrap();
        assert!(!lent.leave(), "the core knows of it");
        assert_eq!(lent.state(fence), GuardState::Valid);
        let grant = lent.take_over(fence);
        assert!(grant.is_held());
        assert_eq!(grant.fence(), Some(fence));
        assert!(lent.enter().is_none());
        grant.release().unwrap();
        let next = waiting.finish().unwrap();
        assert!(next.fence().unwrap() > fence);
        next.release().unwrap();
        lent.enter().expect("it is lent again");
        assert!(lent.leave());
    }

    #[test]
    fn status_shows_whoever_is_inside() {
        let directory = tempfile::tempdir().unwrap();
        let agent = alone(directory.path(), None);
        let before = SystemTime::now() - Duration::from_millis(2);
        let (lent, fence) = entered(&agent);
        let after = SystemTime::now() + Duration::from_millis(2);
        let holder = || agent.status().unwrap().locks[0].holders[0].clone();
        let shown = holder();
        assert_eq!(shown.pid, std::process::id());
        assert_eq!(shown.fence, Some(fence.as_u64()));
        let since = clock::rfc3339(before)..=clock::rfc3339(after);
        assert!(since.contains(&shown.since), "{} in {since:?}", shown.since);
        let grant = lent.take_over(fence);
        assert!(since.contains(&holder().since));
        grant.release().unwrap();
        assert!(
            agent
                .status()
                .unwrap()
                .locks
                .iter()
                .all(|it| it.holders.is_empty())
        );
    }

    #[test]
    fn the_end_of_the_session_takes_it_from_the_thread() {
        let ends: [fn(&Agent); 2] = [
            |agent| agent.close(),
            |agent| {
                let mut core = agent.shared.lock_core();
                core.end(SessionEnd::Panicked);
                core.finish();
            },
        ];
        for (end, why) in ends.into_iter().zip([Loss::Closed, Loss::Revoked]) {
            let directory = tempfile::tempdir().unwrap();
            let agent = alone(directory.path(), None);
            let (lent, fence) = entered(&agent);
            end(&agent);
            assert_eq!(lent.state(fence), GuardState::Lost);
            let grant = lent.take_over(fence);
            assert!(!grant.is_held());
            assert_eq!(grant.loss().reason(), Some(why));
            assert_eq!(grant.release(), Err(ReleaseError::Lost));
            assert!(lent.enter().is_none());
        }
    }

    #[test]
    fn an_entry_needs_a_lease() {
        let directory = tempfile::tempdir().unwrap();
        let agent = alone(directory.path(), None);
        let (lent, fence) = entered(&agent);
        let soon = clock::now() + Duration::from_millis(2);
        let mut core = agent.shared.lock_core();
        core.renewed(soon);
        core.finish();
        while clock::now() <= soon {
            std::thread::yield_now();
        }
        assert_eq!(lent.state(fence), GuardState::Suspended);
        assert!(lent.leave());
        assert!(lent.enter().is_none());
        agent.shared.lock_core().renewed(Time::MAX);
        assert!(lent.enter().unwrap() > fence);
        assert!(lent.leave());
    }

    /// The lock may be opened anew before the last who had it open is done with that.
    #[test]
    fn an_old_loan_that_ends_leaves_the_new_one() {
        let directory = tempfile::tempdir().unwrap();
        let agent = alone(directory.path(), None);
        let old = lent(&agent);
        let new = lent(&agent);
        drop(old);
        new.enter().expect("it is lent");
        assert!(new.leave());
        drop(new);
        enter_and_leave(&agent);
        assert!(agent.shared.lock_core().core.lendings.is_empty());
    }

    /// A thread that stands still between its entry and its look at the lease may see that of the next
    /// session.
    #[test]
    fn an_entry_of_a_session_that_is_over_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let agent = alone(directory.path(), None);
        let lent = lent(&agent);
        let fence = lent.loan.enter(EntryOwner::MEMBER).unwrap();
        assert!(lent.confirms(fence));
        let mut core = agent.shared.lock_core();
        core.find(&lock());
        core.excluded(crate::protocol::Epoch::ZERO);
        core.renewed(Time::MAX);
        core.finish();
        assert!(!lent.confirms(fence));
        assert_eq!(lent.state(fence), GuardState::Lost);
        assert!(!lent.leave());
        drop(lent.take_over(fence));
    }

    #[test]
    fn a_lock_that_is_closed_with_somebody_inside_is_free() {
        let directory = tempfile::tempdir().unwrap();
        let agent = alone(directory.path(), None);
        let (lent, _) = entered(&agent);
        drop(lent);
        let next = agent.acquire(&lock(), None, Patience::Try, Caller::default());
        assert_eq!(next.unwrap().previous(), Previous::Abandoned);
    }
}
