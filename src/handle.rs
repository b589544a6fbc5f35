//! A handle of a lock, and its requests: what [`Mutex`](crate::Mutex),
//! [`Semaphore`](crate::Semaphore), [`Election`](crate::Election) and the C library share.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use distlock_agent::protocol::{LockName, Mode, Time};
use distlock_agent::runtime::{Observed, Turn, clock};

use crate::backend::{self, Hold, Patience, Request, Wish};
use crate::error::{LockError, TimedLockError, TryLockError};
use crate::event::Leader;
use crate::guard::{Guard, GuardShared, Lent, LoanEntry};
use crate::lock::LockShared;
use crate::options::LockOptions;
use crate::session::{Held, Session};
use crate::thread::ThreadId;
use crate::{Algorithm, GuardState};

/// A lock, and how this handle takes it.
#[derive(Clone)]
pub(crate) struct LockHandle {
    lock: Arc<LockShared>,
    options: LockOptions,
}

impl LockHandle {
    pub(crate) fn new(lock: Arc<LockShared>, options: LockOptions) -> Self {
        Self { lock, options }
    }

    pub(crate) fn name(&self) -> &LockName {
        self.lock.name()
    }

    pub(crate) fn algorithm(&self) -> Algorithm {
        self.lock.algorithm()
    }

    pub(crate) fn permits(&self) -> NonZeroU32 {
        self.lock.permits()
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        self.lock.session()
    }

    /// Waits without a time limit.
    pub(crate) fn wait(&self, wish: impl Into<Wish>) -> Result<Guard, LockError> {
        let (wish, thread) = (wish.into(), ThreadId::current());
        loop {
            if let Some(guard) = self.enter_at_once(wish, thread) {
                return Ok(guard);
            }
            if let Some(guard) = self.ask_and_wait(wish, Patience::Lease, thread)? {
                return Ok(guard);
            }
        }
    }

    /// Enters if the lock is free.
    pub(crate) fn attempt(&self, wish: impl Into<Wish>) -> Result<Guard, TryLockError> {
        let (wish, thread) = (wish.into(), ThreadId::current());
        if let Some(guard) = self.enter_at_once(wish, thread) {
            return Ok(guard);
        }
        let granted = self.ask_and_wait(wish, Patience::Try, thread)?;
        granted.ok_or(TryLockError::WouldBlock)
    }

    /// Waits for at most `timeout`.
    pub(crate) fn wait_for(
        &self,
        wish: impl Into<Wish>,
        timeout: Duration,
    ) -> Result<Guard, TimedLockError> {
        let (wish, thread) = (wish.into(), ThreadId::current());
        let (start, mut left) = (clock::now(), timeout);
        loop {
            if let Some(guard) = self.enter_at_once(wish, thread) {
                return Ok(guard);
            }
            if let Some(guard) = self.ask_and_wait(wish, Patience::For(left), thread)? {
                return Ok(guard);
            }
            left = timeout.saturating_sub(clock::now().since(start));
            if left.is_zero() {
                return Err(TimedLockError::TimedOut);
            }
        }
    }

    /// Enters where the agent has to be asked, unless another holds the lock for as long as `patience` goes, or
    /// the caller had better ask again: a caller that has time left does.
    #[inline(never)]
    fn ask_and_wait(
        &self,
        wish: Wish,
        patience: Patience,
        thread: ThreadId,
    ) -> Result<Option<Guard>, LockError> {
        let begun = clock::now();
        let lent = if self.can_borrow(wish) {
            self.lock.lent()
        } else {
            None
        };
        if let Some(lent) = lent
            && let Some(outcome) = self.wait_by_loan(lent, patience)?
        {
            return Ok(outcome);
        }
        let patience = match patience {
            Patience::For(time) => Patience::For(time.saturating_sub(clock::now().since(begun))),
            patience => patience,
        };
        let mut request = self.request(wish, patience, lent.is_some(), thread)?;
        loop {
            if let Poll::Ready(outcome) = request.wait(None) {
                return outcome;
            }
        }
    }

    /// Enters where nobody has to be asked, and nobody has to know more than that this process has the
    /// lock.
    #[inline]
    pub(crate) fn enter_at_once(&self, wish: Wish, thread: ThreadId) -> Option<Guard> {
        if !self.can_borrow(wish) {
            return None;
        }
        LoanEntry::enter(&self.lock, thread).map(Guard::by_loan)
    }

    /// Whether nobody has to know more of the caller than that this process has the lock.
    fn can_borrow(&self, wish: Wish) -> bool {
        if self.lock.is_forked() || self.lock.session().is_closed() {
            return false;
        }
        let LockOptions {
            command,
            is_inheritable,
            aborts_on_loss,
            ..
        } = &self.options;
        let is_plain = command.is_none() && !is_inheritable && !aborts_on_loss;
        is_plain && wish == Wish::from(Mode::Exclusive) && self.lock.is_exclusive()
    }

    /// Waits for its turn where nobody has to be asked. `None` if somebody has to be.
    fn wait_by_loan(
        &self,
        lent: &Lent,
        patience: Patience,
    ) -> Result<Option<Option<Guard>>, LockError> {
        let thread = ThreadId::current();
        let only_tries = matches!(patience, Patience::Try | Patience::For(Duration::ZERO));
        if patience != Patience::Try && self.lock.is_exhausted_by(thread) {
            return Err(LockError::Deadlock);
        }
        if only_tries {
            return Ok(lent.is_inside().then_some(None));
        }
        let until = match patience {
            Patience::For(time) => Some(clock::now() + time),
            _ => None,
        };
        Ok(match lent.wait(until) {
            Turn::Entered(fence) => {
                let entry = LoanEntry::begin(&self.lock, lent, fence, thread);
                entry.map(|entry| Some(Guard::by_loan(entry)))
            }
            Turn::TimedOut => Some(None),
            Turn::Ask => None,
        })
    }

    /// Asks to enter, for this thread, unless it enters at once.
    pub(crate) fn begin(
        &self,
        wish: impl Into<Wish>,
        patience: Patience,
    ) -> Result<LockRequest, LockError> {
        let (wish, thread) = (wish.into(), ThreadId::current());
        match self.enter_at_once(wish, thread) {
            Some(guard) => Ok(LockRequest {
                back: None,
                granted: Some(guard),
                lock: Arc::clone(&self.lock),
                aborts_on_loss: false,
                thread,
            }),
            None => self.request(wish, patience, false, thread),
        }
    }

    /// Asks to enter.
    pub(crate) fn request(
        &self,
        wish: Wish,
        patience: Patience,
        waits_by_loan: bool,
        thread: ThreadId,
    ) -> Result<LockRequest, LockError> {
        if self.lock.is_forked() {
            return Err(LockError::Forked);
        }
        if patience != Patience::Try && self.lock.is_exhausted_by(thread) {
            return Err(LockError::Deadlock);
        }
        if self.lock.session().is_closed() {
            return Err(LockError::Closed);
        }
        let request = Request {
            wish,
            patience,
            command: self.options.command.clone(),
            is_inheritable: self.options.is_inheritable,
            waits_by_loan,
        };
        Ok(LockRequest {
            back: Some(Arc::clone(self.lock.backend()).begin(request)),
            granted: None,
            lock: Arc::clone(&self.lock),
            aborts_on_loss: self.options.aborts_on_loss,
            thread,
        })
    }

    /// Who leads in the election of this name.
    pub(crate) fn observe(&self) -> Observed<Option<Leader>> {
        let session = self.lock.session();
        if session.is_forked() || session.is_closed() {
            return Observed::over();
        }
        session.backend().observe(self.lock.name())
    }
}

/// From now until `deadline`.
#[expect(
    clippy::disallowed_methods,
    reason = "the deadline is on the caller's clock, not on ours"
)]
pub(crate) fn until(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

/// A thread's request that has no outcome yet. Dropping it withdraws it.
pub(crate) struct LockRequest {
    /// `None` once there is an outcome.
    back: Option<Box<dyn backend::Waiting>>,
    /// The outcome, if it was known when it was asked for.
    granted: Option<Guard>,
    lock: Arc<LockShared>,
    aborts_on_loss: bool,
    thread: ThreadId,
}

impl LockRequest {
    /// Makes the request now. Its outcome is told by [`LockRequest::wait`], but for an error that is
    /// known at once.
    pub(crate) fn ask(&mut self) -> Result<(), LockError> {
        if self.granted.is_some() {
            return Ok(());
        }
        let back = self.back.as_mut().expect("a request that has no outcome");
        if let Some(hold) = back.ask()? {
            self.granted = Some(self.enter(hold)?);
        }
        Ok(())
    }

    /// As [`LockRequest::wait`], of one who waits for as long as another holds the lock.
    pub(crate) fn wait_on(&mut self, slice: Option<Duration>) -> Poll<Result<Guard, LockError>> {
        match self.wait(slice) {
            Poll::Ready(outcome) => outcome.transpose().map_or(Poll::Pending, Poll::Ready),
            Poll::Pending => Poll::Pending,
        }
    }

    /// As [`backend::Waiting::wait`].
    pub(crate) fn wait(
        &mut self,
        slice: Option<Duration>,
    ) -> Poll<Result<Option<Guard>, LockError>> {
        self.look(|back| back.wait(slice))
    }

    /// As [`backend::Waiting::poll`].
    pub(crate) fn poll(&mut self) -> Poll<Result<Option<Guard>, LockError>> {
        self.look(|back| back.poll())
    }

    /// As [`backend::Waiting::wake_by`].
    pub(crate) fn wake_by(&mut self, task: &Waker) -> Time {
        let back = self.back.as_mut();
        back.map_or(Time::ZERO, |back| back.wake_by(task))
    }

    fn look(
        &mut self,
        look: impl FnOnce(&mut dyn backend::Waiting) -> Poll<Result<Option<Box<dyn Hold>>, LockError>>,
    ) -> Poll<Result<Option<Guard>, LockError>> {
        if self.lock.is_forked() {
            return Poll::Ready(Err(LockError::Forked));
        }
        if let Some(guard) = self.granted.take() {
            let is_closed = guard.state() == GuardState::Lost;
            return Poll::Ready(if is_closed {
                Err(LockError::Closed)
            } else {
                Ok(Some(guard))
            });
        }
        let back = self.back.as_mut().expect("a request that has no outcome");
        look(&mut **back).map(|outcome| outcome?.map(|hold| self.enter(hold)).transpose())
    }

    /// Makes the guard, unless the agent was closed in the meantime.
    fn enter(&mut self, hold: Box<dyn Hold>) -> Result<Guard, LockError> {
        self.back = None;
        self.lock.set_granted();
        self.lock.add_holder(self.thread);
        let session = self.lock.session();
        let id = session.next_guard();
        let lock = Arc::clone(&self.lock);
        let guard = Arc::new(GuardShared::new(lock, id, hold, self.thread));
        let registered = Arc::downgrade(&guard);
        if !session.register(id, registered) {
            guard.close();
            return Err(LockError::Closed);
        }
        if self.aborts_on_loss {
            session.watch_at(guard.abort_on_loss());
        }
        Ok(Guard::new(guard))
    }
}

impl Drop for LockRequest {
    fn drop(&mut self) {
        if let Some(guard) = self.granted.take() {
            guard.give_back_unused();
        }
        if self.lock.is_forked() {
            // What it would touch is the parent's: leak it.
            std::mem::forget(self.back.take());
        }
    }
}
