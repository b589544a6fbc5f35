//! A grant: the right to be inside.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;
use std::{fmt, io, thread};

use crate::protocol::{Fence, Previous, Release, Ticket, Time};
use crate::runtime::api::error::ReleaseError;
use crate::runtime::os::clock;
use crate::runtime::os::clock::Shift;
use crate::runtime::request::announcer::Announcer;
use crate::runtime::request::decision::{Granted, Owner, Request};
use crate::runtime::request::lease_page::LeaseWatch;
use crate::runtime::request::loss::LossSignal;
use crate::runtime::request::session::{GuardState, Session};

/// The right to be inside, until it is dropped, released or lost.
#[must_use = "the lock is released when the grant is dropped"]
pub struct Grant {
    pub(super) owner: Arc<dyn Owner>,
    pub(super) ticket: Ticket,
    pub(super) request: Arc<Request>,
    pub(super) granted: Granted,
    pub(super) lifeline: Option<OwnedFd>,
    pub(super) watch: Option<LeaseWatch>,
    /// Whether it was granted to a thread that was panicking already.
    pub(super) in_panic: bool,
}

impl Grant {
    /// Of a request that was granted otherwise than by waiting for it.
    pub(crate) fn known(
        owner: Arc<dyn Owner>,
        ticket: Ticket,
        request: Arc<Request>,
        granted: Granted,
    ) -> Self {
        Self {
            owner,
            ticket,
            request,
            granted,
            lifeline: None,
            watch: None,
            in_panic: false,
        }
    }

    /// Its fencing token: of a holder that is alone inside, larger than those of all who were alone
    /// inside before it. `None` where the silent are presumed gone, since then two can be inside.
    pub fn fence(&self) -> Option<Fence> {
        self.granted.fence
    }

    /// How the grant before it ended.
    pub fn previous(&self) -> Previous {
        self.granted.previous
    }

    /// What it is worth now. A few loads, and where there is a lease a look at the clock; in a
    /// forked child always lost.
    pub fn state(&self) -> GuardState {
        if self.owner.is_child() || !self.request.is_held() {
            return GuardState::Lost;
        }
        self.granted.session.state()
    }

    /// Whether it is valid now.
    pub fn is_held(&self) -> bool {
        self.state() == GuardState::Valid
    }

    /// For how long nobody else is let in, also when it is suspended or lost: by then its holder
    /// must have stopped. `None` where no lease bounds it. It is never told too long.
    pub fn grace(&self) -> Option<Duration> {
        match self.granted.session.limit() {
            Time::MAX => None,
            limit => Some(limit.since(clock::now())),
        }
    }

    /// How often the lease has run out and was renewed after that, as far as the member in this very
    /// process knows. To be read after [`Grant::grace`].
    pub fn lapses(&self) -> u64 {
        self.granted.session.lapses()
    }

    /// By what it is learnt that the lock is lost. What is to be done then runs on a thread of the
    /// agent, or on the one that closes the agent, and should be quick; never after a release. Not
    /// for a forked child.
    pub fn loss(&self) -> LossSignal {
        self.request.loss.clone()
    }

    /// Tells which process works under the lock, for `status`.
    pub fn set_command_pid(&self, pid: u32) {
        if !self.owner.is_child() {
            self.owner.set_command_pid(self.ticket, pid);
        }
    }

    /// By what that process can tell the agent itself; `None` where the agent is in this process.
    ///
    /// # Errors
    /// If no descriptor is left.
    pub fn announcer(&self) -> io::Result<Option<Announcer>> {
        if self.owner.is_child() {
            return Ok(None);
        }
        self.owner.announcer(self.ticket)
    }

    /// A descriptor that keeps the lock, close-on-exec, if the caller wanted one
    /// ([`Caller::has_lifeline`](crate::runtime::Caller::has_lifeline)): the lock is free when this
    /// grant has ended and all copies of the descriptor are closed, in whatever process. Of an
    /// agent in this very process the copies keep its member's place instead: if it dies, no other
    /// can start under its id before they are closed.
    pub fn lifeline(&self) -> Option<BorrowedFd<'_>> {
        self.lifeline.as_ref().map(AsFd::as_fd)
    }

    /// Closes this grant's own copy of it.
    pub fn close_lifeline(&mut self) {
        self.lifeline = None;
    }

    /// What another process can see the end of the lease by, and of the command, once: for a caller
    /// that wanted a [lifeline](Self::lifeline).
    ///
    /// # Errors
    /// If there is no memory or no descriptor left.
    pub fn take_watch(&mut self) -> io::Result<Option<LeaseWatch>> {
        if self.owner.is_child() {
            return Ok(None);
        }
        match (self.watch.take(), &self.lifeline) {
            // The agent is in this process.
            (None, Some(_)) => {
                let page = self.granted.session.page()?;
                LeaseWatch::new(&*page, Shift::NONE, None).map(Some)
            }
            (watch, _) => Ok(watch),
        }
    }

    /// Frees the lock.
    ///
    /// # Errors
    /// If it had been lost before, or this process was forked from the one that holds it.
    pub fn release(self) -> Result<(), ReleaseError> {
        self.release_as(Release::Given)
    }

    /// Frees the lock, and tells how its holder left it.
    ///
    /// # Errors
    /// As for [`Grant::release`].
    pub fn release_as(mut self, how: Release) -> Result<(), ReleaseError> {
        // Before the agent is told, so that it finds no copy of ours.
        self.lifeline = None;
        self.give_back(how)
    }

    /// Frees the lock as [`Grant::release_as`] does, and if its lease is over waits until it is
    /// known whether another was let in before: at most a lease.
    ///
    /// # Errors
    /// As for [`Grant::release`]; and if it is not known in that time.
    pub fn settle_as(mut self, how: Release) -> Result<(), ReleaseError> {
        let owner = Arc::clone(&self.owner);
        let Some(settling) = self.begin_to_settle(how)? else {
            return Ok(());
        };
        let (session, deadline) = (&settling.session, Some(settling.deadline));
        owner.drive(deadline, &|| session.state() != GuardState::Suspended);
        match session.wait(deadline, || false) {
            GuardState::Valid => Ok(()),
            _ => Err(ReleaseError::Lost),
        }
    }

    /// The same without waiting: what is to be waited for, if it is not known yet.
    ///
    /// # Errors
    /// As for [`Grant::release`].
    pub fn settle_later(mut self, how: Release) -> Result<Option<Settling>, ReleaseError> {
        self.begin_to_settle(how)
    }

    fn begin_to_settle(&mut self, how: Release) -> Result<Option<Settling>, ReleaseError> {
        // Before it is given back: what its holder did was done by now.
        let was_valid = self.state() == GuardState::Valid;
        self.lifeline = None;
        self.give_back(how)?;
        let session = &self.granted.session;
        Ok((!was_valid).then(|| Settling {
            session: Arc::clone(session),
            deadline: clock::now() + session.lease(),
        }))
    }

    fn give_back(&self, how: Release) -> Result<(), ReleaseError> {
        if self.owner.is_child() {
            return Err(ReleaseError::Forked);
        }
        self.owner.release(self.ticket, &self.request, how)?;
        self.request.loss.settle();
        Ok(())
    }
}

/// What was given back when its lease was over, and whether another was let in before is not known.
#[derive(Debug)]
pub struct Settling {
    session: Arc<Session>,
    /// It is waited for no longer than that.
    deadline: Time,
}

impl Settling {
    /// Whether it was valid to the end, once that is known, or the time is over. Until then this task is woken,
    /// or has to poll again at [`Settling::deadline`].
    ///
    /// # Errors
    /// If it was lost, or its time is over.
    pub fn poll(&self, task: &Waker) -> Poll<Result<(), ReleaseError>> {
        match self.session.wake_by(task, || false) {
            GuardState::Valid => Poll::Ready(Ok(())),
            GuardState::Suspended if clock::now() < self.deadline => Poll::Pending,
            _ => Poll::Ready(Err(ReleaseError::Lost)),
        }
    }

    /// Until when it can become known.
    pub fn deadline(&self) -> Time {
        self.deadline
    }
}

/// Frees the lock, unless it was released or lost before. A panic that unwinds through it abandons
/// it, as a panic that ends the process would.
impl Drop for Grant {
    fn drop(&mut self) {
        // A child must not even look at the request's mutex; what is left to say after a loss
        // was said by the loss.
        if !self.owner.is_child() && self.request.is_held() {
            self.lifeline = None;
            let died = thread::panicking() && !self.in_panic;
            let _ = self.give_back(if died {
                Release::Abandoned
            } else {
                Release::Given
            });
        }
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("ticket", &self.ticket)
            .field("fence", &self.granted.fence)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
