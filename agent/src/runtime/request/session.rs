//! Sessions: until when what was granted is valid, looked at without any mutex.
//!
//! A session is one incarnation of a member in its group. What is granted in it is valid as long as
//! the member's lease is; the agent moves the lease's end, and whoever holds or waits compares it
//! with the clock. The end of a session that the group has gone on without is zero for ever, and
//! the next incarnation is another object: a thread that stood still meanwhile still looks at the
//! one of its own grant, and can never take a later lease for its own.
//!
//! | the end of the lease | what was granted is |
//! |-|-|
//! | [`Time::MAX`] | valid, whatever the clock says: nobody is ever removed |
//! | to come | valid |
//! | over | suspended: valid again after a renewal, or void |
//! | zero | void for ever |

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Duration;
use std::{io, mem};

use crate::protocol::Time;
use crate::runtime::os::clock;
use crate::runtime::os::sync::{Condvar, Mutex};
use crate::runtime::request::lease_page::LeasePage;

/// Over for ever.
pub(crate) const OVER: u64 = 0;
/// Not yet renewed for the first time: over, and not for ever.
pub(crate) const NOT_YET: u64 = 1;

/// What a grant is worth at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GuardState {
    /// The lock is held.
    Valid,
    /// The lease has run out, and nobody has said that the group went on without this member. It
    /// becomes valid again if the member is heard in time, else it is lost; nobody knows which
    /// before. What the lock protects must be left alone.
    Suspended,
    /// The lock is lost, or was given back.
    Lost,
}

/// One session.
#[derive(Debug)]
pub(crate) struct Session {
    /// The end of the lease, as in the table above.
    expiry: AtomicU64,
    /// The same, kept when the session ends: nobody else is let in before.
    limit: AtomicU64,
    /// How often it was renewed after its end.
    lapses: AtomicU64,
    /// The same end, for other processes, once one has to see it.
    page: OnceLock<Arc<LeasePage>>,
    /// How long a lease lasts.
    lease: Duration,
    /// What is waited for changes without this mutex, and is looked at under it; so a thread that
    /// changed it takes it before it wakes the waiters. In it are the tasks that wait.
    bell: Mutex<Vec<Waker>>,
    changed: Condvar,
}

impl Session {
    /// A session whose lease, of this length, begins with the first renewal.
    pub(crate) fn new(lease: Duration) -> Arc<Self> {
        Arc::new(Self {
            expiry: AtomicU64::new(NOT_YET),
            limit: AtomicU64::new(NOT_YET),
            lapses: AtomicU64::new(0),
            page: OnceLock::new(),
            lease,
            bell: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// How long a lease lasts.
    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    /// The lease ends at `until`. It says nothing to a session that is over. The caller rings
    /// afterwards, outside its own mutex.
    pub(crate) fn renew(&self, until: Time) {
        let until = until.as_nanos().max(NOT_YET);
        let renewed = self
            .expiry
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |expiry| {
                (expiry != OVER).then_some(until)
            });
        if renewed.is_ok() {
            self.limit.store(until, Ordering::Release);
            // Whoever makes the page just now either sees the new end, or is seen here.
            fence(Ordering::SeqCst);
            if let Some(page) = self.page.get() {
                page.store(Time::from_nanos(until));
            }
        }
    }

    /// Counts a lapse if the lease is over: before a renewal, which hides that. Where the host was
    /// suspended, the agent may renew its lease before another thread has looked at it.
    pub(crate) fn note_lapse(&self) {
        if self.expiry.load(Ordering::Acquire) != NOT_YET && self.state() == GuardState::Suspended {
            self.lapses.fetch_add(1, Ordering::Release);
        }
    }

    /// How often the lease was renewed after its end, by the agent in this process. To be read after
    /// [`Self::limit`]: what has moved that is counted before.
    pub(crate) fn lapses(&self) -> u64 {
        self.lapses.load(Ordering::Acquire)
    }

    /// The page on which other processes see [`Self::limit`].
    ///
    /// # Errors
    /// If there is no memory or no descriptor left.
    pub(crate) fn page(&self) -> io::Result<Arc<LeasePage>> {
        if let Some(page) = self.page.get() {
            return Ok(Arc::clone(page));
        }
        let made = Arc::new(LeasePage::new()?);
        let page = Arc::clone(self.page.get_or_init(|| made));
        // What is renewed meanwhile is not to be overwritten by what was before.
        fence(Ordering::SeqCst);
        loop {
            let limit = self.limit();
            page.store(limit);
            if self.limit() == limit {
                return Ok(page);
            }
        }
    }

    /// The session is over. The caller rings afterwards, outside its own mutex.
    pub(crate) fn end(&self) {
        self.expiry.store(OVER, Ordering::Release);
    }

    /// Wakes those who wait for a change.
    pub(crate) fn ring(&self) {
        let tasks = mem::take(&mut *self.bell.lock());
        self.changed.notify_all();
        tasks.into_iter().for_each(Waker::wake);
    }

    /// The end of the lease, as in the table above.
    pub(crate) fn expiry(&self) -> u64 {
        self.expiry.load(Ordering::Acquire)
    }

    /// What was granted in it is worth so much now.
    pub(crate) fn state(&self) -> GuardState {
        // The clock is read after the word: if this thread stands still in between, that shows.
        match self.expiry.load(Ordering::Acquire) {
            OVER => GuardState::Lost,
            u64::MAX => GuardState::Valid,
            expiry if clock::now() < Time::from_nanos(expiry) => GuardState::Valid,
            _ => GuardState::Suspended,
        }
    }

    /// Until when nobody else is let in, whatever has become of the session; [`Time::MAX`] where
    /// no lease bounds it.
    pub(crate) fn limit(&self) -> Time {
        Time::from_nanos(self.limit.load(Ordering::Acquire))
    }

    /// Has this task woken when what was granted is suspended no longer, as [`Self::wait`] waits for it; what
    /// it is worth now.
    pub(crate) fn wake_by(&self, task: &Waker, is_void: impl Fn() -> bool) -> GuardState {
        let mut tasks = self.bell.lock();
        let state = if is_void() {
            GuardState::Lost
        } else {
            self.state()
        };
        if state == GuardState::Suspended && !tasks.iter().any(|it| it.will_wake(task)) {
            tasks.push(task.clone());
        }
        state
    }

    /// Waits while what was granted is suspended, until `deadline`; what it is worth then. `is_void`
    /// says what else may have made it void, and the one that lets that happen rings.
    pub(crate) fn wait(&self, deadline: Option<Time>, is_void: impl Fn() -> bool) -> GuardState {
        let mut bell = self.bell.lock();
        loop {
            let state = if is_void() {
                GuardState::Lost
            } else {
                self.state()
            };
            if state != GuardState::Suspended {
                return state;
            }
            match deadline.map(|deadline| deadline.since(clock::now())) {
                None => bell = self.changed.wait(bell),
                Some(Duration::ZERO) => return state,
                Some(left) => bell = self.changed.wait_for(bell, left),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const LEASE: Duration = Duration::from_secs(5);

    #[test]
    fn is_what_its_table_says() {
        let session = Session::new(LEASE);
        assert_eq!(session.state(), GuardState::Suspended, "never renewed");
        session.renew(Time::MAX);
        assert_eq!(session.state(), GuardState::Valid);
        session.renew(clock::now() + LEASE);
        assert_eq!(session.state(), GuardState::Valid);
        session.renew(clock::now());
        assert_eq!(session.state(), GuardState::Suspended);
        session.renew(clock::now() + LEASE);
        assert_eq!(session.state(), GuardState::Valid, "again");
        session.end();
        assert_eq!(session.state(), GuardState::Lost);
        session.renew(clock::now() + LEASE);
        assert_eq!(session.state(), GuardState::Lost, "for ever");
    }

    /// Nothing is held before the first renewal, nor after the end of the session.
    #[test]
    fn a_lapse_is_known_after_the_renewal_that_hides_it() {
        let session = Session::new(LEASE);
        let renewed = |until| {
            session.note_lapse();
            session.renew(until);
            session.lapses()
        };
        assert_eq!(renewed(clock::now() + LEASE), 0, "the first");
        assert_eq!(renewed(clock::now()), 0, "in time");
        assert_eq!(renewed(clock::now() + LEASE), 1, "after the end");
        assert_eq!(session.state(), GuardState::Valid);
        assert_eq!(renewed(Time::MAX), 1, "in time");
        assert_eq!(renewed(clock::now()), 1, "there was no lease");
        session.end();
        assert_eq!(renewed(clock::now() + LEASE), 1, "it is over");
    }

    #[test]
    fn keeps_the_end_that_others_wait_for() {
        let session = Session::new(LEASE);
        let until = clock::now() + LEASE;
        session.renew(until);
        session.end();
        session.renew(until + LEASE);
        assert_eq!(session.limit(), until);
    }

    /// Whoever waits hears of a renewal, of the end, and of what else makes its grant void.
    #[test]
    fn wakes_who_waits() {
        type Change = fn(&Session);
        let renew: Change = |session| session.renew(Time::MAX);
        for (change, state) in [(renew, GuardState::Valid), (Session::end, GuardState::Lost)] {
            let session = Session::new(LEASE);
            let waits = Arc::clone(&session);
            let waiter = thread::spawn(move || waits.wait(None, || false));
            change(&session);
            session.ring();
            assert_eq!(waiter.join().unwrap(), state);
        }
        let session = Session::new(LEASE);
        assert_eq!(session.wait(None, || true), GuardState::Lost);
        let soon = clock::now() + Duration::from_millis(1);
        assert_eq!(session.wait(Some(soon), || false), GuardState::Suspended);
        assert!(clock::now() >= soon);
    }
}
