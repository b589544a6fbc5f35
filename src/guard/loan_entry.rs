//! An entry by a loan, of which the agent need not know.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use distlock_agent::protocol::{Fence, Time};
use distlock_agent::runtime::clock;

use crate::GuardState;
use crate::guard::{GuardShared, Lent};
use crate::lock::LockShared;
use crate::session::Held;
use crate::thread::ThreadId;

/// A thread is inside, and has asked nobody.
pub(crate) struct LoanEntry {
    lock: Arc<LockShared>,
    fence: Fence,
    thread: ThreadId,
    /// Whether it entered while it was panicking already.
    in_panic: bool,
    /// Set by whoever has the guard alone.
    has_left: AtomicBool,
}

impl LoanEntry {
    /// Enters, if that is possible without anybody.
    #[inline]
    pub(crate) fn enter(lock: &Arc<LockShared>, thread: ThreadId) -> Option<Self> {
        let lent = lock.lent()?;
        Self::begin(lock, lent, lent.enter()?, thread)
    }

    /// The stay of `thread`, which has entered by `lent`. `None`, and it is over, if the agent is closed.
    #[inline(always)]
    pub(crate) fn begin(
        lock: &Arc<LockShared>,
        lent: &Lent,
        fence: Fence,
        thread: ThreadId,
    ) -> Option<Self> {
        // Looked at after the entry: the agent takes back what it has lent after it was closed.
        if lock.session().is_closed() {
            lent.withdraw(fence);
            return None;
        }
        lock.set_owner(Some(thread));
        Some(Self {
            lock: Arc::clone(lock),
            fence,
            thread,
            in_panic: thread::panicking(),
            has_left: AtomicBool::new(false),
        })
    }

    fn lent(&self) -> &Lent {
        self.lock.lent().expect("it was entered by that")
    }

    pub(crate) fn lock(&self) -> &LockShared {
        &self.lock
    }

    pub(crate) fn fence(&self) -> Fence {
        self.fence
    }

    pub(crate) fn state(&self) -> GuardState {
        self.lent().state(self.fence)
    }

    /// Whether that it is lost is all that the agent could say.
    pub(crate) fn knows_losses(&self) -> bool {
        self.lent().knows_losses()
    }

    /// For how long nobody else is let in, as far as that is known without the agent; `None` within where
    /// no lease bounds it.
    pub(crate) fn grace(&self) -> Option<Option<Duration>> {
        let limit = self.lent().limit()?;
        let left = || limit.since(clock::now());
        Some((limit != Time::MAX).then(left))
    }

    pub(crate) fn is_valid(&self) -> bool {
        !self.lock.is_forked() && self.state() == GuardState::Valid
    }

    /// Whether the next holder is to be told that this one ended inside.
    pub(crate) fn dies(&self) -> bool {
        thread::panicking() && !self.in_panic
    }

    /// Leaves, unless the agent has to know.
    pub(crate) fn leave(&self) -> bool {
        // Before others may enter: one of them is the owner then.
        self.lock.set_owner(None);
        let has_left = self.lent().leave(self.fence);
        self.has_left.store(has_left, Ordering::Relaxed);
        has_left
    }

    pub(crate) fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Relaxed)
    }

    /// Has the agent know of it: from now on it is as if it had been asked for.
    pub(crate) fn take_over(&self) -> Arc<GuardShared> {
        // Before: as soon as it is taken over, another thread may be the owner.
        self.lock.add_holder(self.thread);
        self.lock.set_owner(None);
        let grant = self.lent().take_over(self.fence);
        let session = self.lock.session();
        let id = session.next_guard();
        let known = GuardShared::new(Arc::clone(&self.lock), id, Box::new(grant), self.thread);
        let known = Arc::new(GuardShared {
            in_panic: self.in_panic,
            ..known
        });
        let registered = Arc::downgrade(&known);
        if !session.register(id, registered) {
            known.close();
        }
        known
    }
}
