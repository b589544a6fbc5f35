//! A request that was made, and how long its caller waits for the outcome.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;
use std::{fmt, thread};

use crate::protocol::{Ticket, Time};
use crate::runtime::api::error::AcquireError;
use crate::runtime::api::patience::{Deadline, Patience};
use crate::runtime::os::clock;
use crate::runtime::request::decision::{Granted, Handed, Owner, Request};
use crate::runtime::request::grant::Grant;
use crate::runtime::request::session::GuardState;

/// A request that was made and not answered yet. Dropping it withdraws it.
#[must_use = "the request is withdrawn when it is dropped"]
pub struct Waiting {
    /// `None` once the outcome has been handed out.
    owner: Option<Arc<dyn Owner>>,
    ticket: Ticket,
    request: Arc<Request>,
    limit: Limit,
    /// Since it was polled when its time was over: until when the answer to its cancellation is waited for.
    cancelled: Option<Time>,
    lifeline: Option<OwnedFd>,
}

/// How long a caller waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// When it gives up by itself.
    deadline: Option<Deadline>,
    /// Whether it gives up when a lease long there was no quorum.
    wants_quorum: bool,
    /// Whether it does not wait for a lock that is not free.
    only_tries: bool,
    /// Since when it has been seen to be granted without a lease.
    suspended: Option<Time>,
}

impl Limit {
    /// From now on.
    pub(crate) fn new(patience: Patience) -> Self {
        Self {
            deadline: patience.deadline(),
            wants_quorum: matches!(patience, Patience::Lease | Patience::Try),
            only_tries: patience == Patience::Try,
            suspended: None,
        }
    }

    /// The same, but if it gives up by itself, then before `end`.
    pub(crate) fn within(self, end: Time) -> Self {
        Self {
            deadline: self.deadline.map(|deadline| deadline.within(end)),
            ..self
        }
    }

    /// Until when whoever decides must have answered, if it gives up by itself.
    pub(crate) fn end(&self) -> Option<Time> {
        self.deadline.map(|deadline| deadline.end)
    }

    fn cancel_at(&self) -> Option<Time> {
        self.deadline.map(|deadline| deadline.cancel)
    }

    /// What a caller is told that was refused for `why`: who does not wait for the lock has waited for
    /// an answer only.
    fn refusal(&self, why: AcquireError) -> AcquireError {
        match why {
            AcquireError::TimedOut if self.only_tries => {
                AcquireError::NoAnswer { silent: Vec::new() }
            }
            why => why,
        }
    }

    /// When it gives up, now that it is granted and its lease is over.
    fn of_suspended(&mut self, lease: Duration) -> Option<Time> {
        let since = *self.suspended.get_or_insert_with(clock::now);
        self.wants_quorum
            .then(|| since + lease)
            .into_iter()
            .chain(self.cancel_at())
            .min()
    }
}

impl Waiting {
    /// `request` was made as `ticket` to `owner`; its caller waits until `limit`.
    pub(crate) fn new(
        owner: Arc<dyn Owner>,
        ticket: Ticket,
        request: Arc<Request>,
        limit: Limit,
        lifeline: Option<OwnedFd>,
    ) -> Self {
        Self {
            owner: Some(owner),
            ticket,
            request,
            limit,
            cancelled: None,
            lifeline,
        }
    }

    /// Waits for the outcome; if `slice` is given, no longer than that for now. The request keeps
    /// its place among all requests from call to call.
    ///
    /// A grant is handed out only while its lease is alive. One whose lease ran out before this
    /// thread saw it waits for the next renewal, as far as the caller's patience goes.
    ///
    /// # Panics
    /// After the outcome has been handed out.
    pub fn wait(&mut self, slice: Option<Duration>) -> Poll<Result<Grant, AcquireError>> {
        let owner = self.owner.as_ref().expect("a request that has no outcome");
        if owner.is_child() {
            return Poll::Ready(Err(AcquireError::Forked));
        }
        let pause = slice.map(|slice| clock::now() + slice);
        let until = [pause, self.limit.cancel_at()].into_iter().flatten().min();
        owner.lead(until, &self.request);
        if !self.request.wait(until) {
            let deadline = self.limit.deadline;
            let Some(deadline) = deadline.filter(|it| it.cancel <= clock::now()) else {
                return Poll::Pending;
            };
            let end = deadline.end.max(Deadline::of_answer());
            if let Err(error) = owner.cancel(self.ticket, &self.request, end) {
                self.owner = None;
                return Poll::Ready(Err(error));
            }
        }
        self.settle(pause)
    }

    /// The outcome, if there is one by now. It waits for nobody: not for the answer either that the request
    /// is cancelled, when the caller's time is over.
    ///
    /// # Panics
    /// After the outcome has been handed out.
    pub fn poll(&mut self) -> Poll<Result<Grant, AcquireError>> {
        let owner = self.owner.as_ref().expect("a request that has no outcome");
        if owner.is_child() {
            return Poll::Ready(Err(AcquireError::Forked));
        }
        let now = clock::now();
        if !self.request.is_decided() {
            match (self.cancelled, self.limit.deadline) {
                (None, Some(deadline)) if deadline.cancel <= now => {
                    self.cancelled = Some(deadline.end.max(Deadline::of_answer()));
                    owner.ask_to_cancel(self.ticket, &self.request);
                }
                (Some(end), _) if end <= now => {
                    self.take_owner().withdraw(self.ticket, &self.request);
                    return Poll::Ready(Err(AcquireError::NoAnswer { silent: Vec::new() }));
                }
                _ => {}
            }
            if !self.request.is_decided() {
                return Poll::Pending;
            }
        }
        self.settle(Some(now))
    }

    /// Has this task woken when the outcome is there; when it has to poll all the same, as nobody tells that
    /// its time is over.
    ///
    /// # Panics
    /// After the outcome has been handed out.
    pub fn wake_by(&mut self, task: &Waker) -> Time {
        if !self.request.wake_by(task) {
            let over = self.cancelled.or(self.limit.cancel_at());
            return over.unwrap_or(Time::MAX);
        }
        let Ok(granted) = self.request.outcome() else {
            return Time::ZERO;
        };
        // It was granted with a lease, which has run out since.
        match granted.session.wake_by(task, || !self.request.is_held()) {
            GuardState::Suspended => {
                let limit = self.limit.of_suspended(granted.session.lease());
                limit.unwrap_or(Time::MAX)
            }
            _ => Time::ZERO,
        }
    }

    /// What its caller gets, now that it is decided; until `pause` it is waited for that a grant has a lease.
    fn settle(&mut self, pause: Option<Time>) -> Poll<Result<Grant, AcquireError>> {
        let granted = match self.request.outcome() {
            Ok(granted) => granted,
            Err(refusal) => {
                self.owner = None;
                return Poll::Ready(Err(self.limit.refusal(refusal)));
            }
        };
        // It was granted with a lease. Since then this thread had to wake up.
        match granted.session.state() {
            GuardState::Valid if self.request.is_held() => Poll::Ready(Ok(self.enter(granted))),
            _ => self.wait_for_lease(granted, pause),
        }
    }

    fn wait_for_lease(
        &mut self,
        granted: Granted,
        pause: Option<Time>,
    ) -> Poll<Result<Grant, AcquireError>> {
        let limit = self.limit.of_suspended(granted.session.lease());
        let until = [pause, limit].into_iter().flatten().min();
        let is_void = || !self.request.is_held();
        let is_decided = || is_void() || granted.session.state() != GuardState::Suspended;
        self.owner().drive(until, &is_decided);
        let why = match granted.session.wait(until, is_void) {
            GuardState::Valid => return Poll::Ready(Ok(self.enter(granted))),
            GuardState::Suspended if self.has_time(limit) => return Poll::Pending,
            GuardState::Suspended => {
                let missing = self.owner().missing();
                AcquireError::NoQuorum { missing }
            }
            GuardState::Lost => AcquireError::Voided,
        };
        self.take_owner().withdraw(self.ticket, &self.request);
        Poll::Ready(Err(why))
    }

    fn has_time(&self, limit: Option<Time>) -> bool {
        limit.is_none_or(|limit| clock::now() < limit)
    }

    fn enter(&mut self, granted: Granted) -> Grant {
        let (theirs, watch) = match self.request.take_handed() {
            Some(Handed { lifeline, watch }) => (Some(lifeline), Some(watch)),
            None => (None, None),
        };
        Grant {
            owner: self.take_owner(),
            ticket: self.ticket,
            request: Arc::clone(&self.request),
            granted,
            lifeline: self.lifeline.take().or(theirs),
            watch,
            in_panic: thread::panicking(),
        }
    }

    fn owner(&self) -> &dyn Owner {
        let owner = self.owner.as_deref();
        owner.expect("it was there a moment ago")
    }

    fn take_owner(&mut self) -> Arc<dyn Owner> {
        let owner = self.owner.take();
        owner.expect("it was there a moment ago")
    }

    /// Waits for the outcome to the end.
    pub(crate) fn finish(mut self) -> Result<Grant, AcquireError> {
        loop {
            if let Poll::Ready(outcome) = self.wait(None) {
                return outcome;
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.take().filter(|owner| !owner.is_child()) {
            owner.withdraw(self.ticket, &self.request);
        }
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting")
            .field("ticket", &self.ticket)
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}
