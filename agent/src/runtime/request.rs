//! One caller's request, from the wish to the release: the semaphore its thread blocks on, and the
//! grant it gets.
//!
//! | state | meaning | next |
//! |-|-|-|
//! | waiting | asked, undecided | held, refused |
//! | held | inside, as long as the lease of its [`Session`] is alive | lost, released |
//! | refused | over, without a grant | |
//! | lost | no longer inside, and not by its own doing | |
//! | released | over | |
//!
//! The state changes only under the mutex of the owner (the agent's core, the client's table), so
//! exactly one outcome wins; readers look at it without any mutex.

pub(crate) mod announcer;
pub(crate) mod lease_page;
pub(crate) mod session;

use std::fmt;
use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use crate::protocol::{Fence, Missing, Previous, Release, Ticket, Time};
use crate::runtime::api::error::{AcquireError, ReleaseError};
use crate::runtime::api::patience::{Deadline, Patience};
use crate::runtime::os::clock::{self, Shift};
use crate::runtime::os::sync::{Condvar, Mutex};
use crate::runtime::request::announcer::Announcer;
use crate::runtime::request::lease_page::LeaseWatch;
use crate::runtime::request::session::{GuardState, Session};

const WAITING: u8 = 0;
const HELD: u8 = 1;
const REFUSED: u8 = 2;
const LOST: u8 = 3;
const RELEASED: u8 = 4;

/// Shared by the thread that asked and whoever decides.
pub(crate) struct Request {
    state: AtomicU8,
    outcome: Mutex<Outcome>,
    changed: Condvar,
}

#[derive(Default)]
struct Outcome {
    grant: Option<Granted>,
    refusal: Option<AcquireError>,
    /// What came with the grant, until its holder takes it.
    handed: Option<Handed>,
    /// Called once if the grant is lost.
    on_loss: Vec<OnLoss>,
}

/// What a request was granted.
#[derive(Clone)]
pub(crate) struct Granted {
    /// `None` where the group gives none.
    pub(crate) fence: Option<Fence>,
    pub(crate) previous: Previous,
    /// The session that it was granted in, and dies with.
    pub(crate) session: Arc<Session>,
}

/// What the agent of another process gives to one that works under a lock by other processes.
pub(crate) struct Handed {
    /// What keeps the lock as long as anybody has it open.
    pub(crate) lifeline: OwnedFd,
    pub(crate) watch: LeaseWatch,
}

/// What is to be done when a grant is lost.
pub type OnLoss = Box<dyn FnOnce() + Send>;

impl Request {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: AtomicU8::new(WAITING),
            outcome: Mutex::new(Outcome::default()),
            changed: Condvar::new(),
        })
    }

    /// The request is inside. The caller notifies afterwards, outside its own mutex.
    pub(crate) fn grant(&self, granted: Granted) {
        let mut outcome = self.outcome.lock();
        debug_assert_eq!(self.state(), WAITING);
        outcome.grant = Some(granted);
        self.state.store(HELD, Ordering::Release);
    }

    /// Keeps what the agent gives with a grant; the grant itself follows.
    pub(crate) fn hand(&self, handed: Handed) {
        self.outcome.lock().handed = Some(handed);
    }

    /// Whether the agent has given something with the grant that the holder has not taken yet.
    pub(crate) fn is_handed(&self) -> bool {
        self.outcome.lock().handed.is_some()
    }

    fn take_handed(&self) -> Option<Handed> {
        self.outcome.lock().handed.take()
    }

    /// The request is over. The caller notifies afterwards, outside its own mutex.
    pub(crate) fn refuse(&self, why: AcquireError) {
        let mut outcome = self.outcome.lock();
        debug_assert_eq!(self.state(), WAITING);
        outcome.refusal = Some(why);
        self.state.store(REFUSED, Ordering::Release);
    }

    /// The grant is void. The caller notifies afterwards, outside its own mutex.
    pub(crate) fn lose(&self) {
        let _outcome = self.outcome.lock();
        if self.state() == HELD {
            self.state.store(LOST, Ordering::Release);
        }
    }

    /// The grant is given back; whether it was still held.
    pub(crate) fn release(&self) -> bool {
        let mut outcome = self.outcome.lock();
        let held = self.state() == HELD;
        let mut unheard = Vec::new();
        if held {
            self.state.store(RELEASED, Ordering::Release);
            unheard = mem::take(&mut outcome.on_loss);
        }
        drop(outcome);
        drop(unheard);
        held
    }

    pub(crate) fn is_decided(&self) -> bool {
        self.state() != WAITING
    }

    pub(crate) fn is_held(&self) -> bool {
        self.state() == HELD
    }

    fn state(&self) -> u8 {
        self.state.load(Ordering::Acquire)
    }

    /// Wakes the thread that waits, or does what is to be done after a loss. The waiter looks at
    /// the state under `outcome`'s mutex before it sleeps, and the state was set under it: no
    /// wake-up is lost.
    pub(crate) fn notify(&self) {
        self.changed.notify_all();
        if self.state() == LOST {
            let mut outcome = self.outcome.lock();
            let on_loss = mem::take(&mut outcome.on_loss);
            let session = outcome.grant.as_ref().map(|it| Arc::clone(&it.session));
            drop(outcome);
            // It may have been granted, and waited for its lease.
            session.iter().for_each(|session| session.ring());
            for act in on_loss {
                // What it does is not ours: its panic must not end the agent thread.
                let _ = catch_unwind(AssertUnwindSafe(act));
            }
        }
    }

    /// Blocks until the request is decided or `deadline` is over; whether it is decided.
    pub(crate) fn wait(&self, deadline: Option<Time>) -> bool {
        let mut outcome = self.outcome.lock();
        while !self.is_decided() {
            if let Some(deadline) = deadline {
                let left = deadline.since(clock::now());
                if left.is_zero() {
                    return false;
                }
                outcome = self.changed.wait_for(outcome, left);
            } else {
                outcome = self.changed.wait(outcome);
            }
        }
        true
    }

    /// What became of it, once it is decided.
    pub(crate) fn outcome(&self) -> Result<Granted, AcquireError> {
        let outcome = self.outcome.lock();
        match (&outcome.refusal, &outcome.grant) {
            (Some(refusal), _) => Err(refusal.clone()),
            (None, Some(granted)) => Ok(granted.clone()),
            (None, None) => unreachable!("the outcome of a request that still waits"),
        }
    }

    /// Has `act` done when the grant is lost; now, if it was.
    fn on_loss(&self, act: OnLoss) {
        let mut outcome = self.outcome.lock();
        match self.state() {
            HELD => outcome.on_loss.push(act),
            LOST => {
                drop(outcome);
                act();
            }
            _ => {}
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// Who a grant is given back to: an agent, or the connection to one.
pub(crate) trait Owner: Send + Sync + fmt::Debug {
    /// Frees what `ticket` was granted.
    fn release(&self, ticket: Ticket, request: &Request, how: Release) -> Result<(), ReleaseError>;

    /// Ends the waiting of `ticket`. Then its request is decided: refused, or granted at this very
    /// moment. It takes until `end` at most: then the error says that it is over undecided.
    fn cancel(&self, ticket: Ticket, request: &Request, end: Time) -> Result<(), AcquireError>;

    /// Ends `ticket`, whatever it has come to, without waiting for anybody. If it was granted, its
    /// caller never knew.
    fn withdraw(&self, ticket: Ticket, request: &Request);

    /// Tells which process works under the lock, for the status.
    fn set_command_pid(&self, ticket: Ticket, pid: u32);

    /// By what that process can tell it itself, where it is another process's agent that has to
    /// know.
    fn announcer(&self, ticket: Ticket) -> io::Result<Option<Announcer>>;

    /// The members that are missing, as far as is known: perhaps why there is no lease.
    fn missing(&self) -> Vec<Missing>;

    /// Whether this process was forked from the owner's.
    fn is_child(&self) -> bool;

    /// Has the agent go on until `is_done`, or until `deadline`, where that is the calling thread's
    /// business ([`crate::runtime::agent::driven`]). Elsewhere it returns at once.
    fn drive(&self, _deadline: Option<Time>, _is_done: &dyn Fn() -> bool) {}
}

/// A request that was made and not answered yet. Dropping it withdraws it.
#[must_use = "the request is withdrawn when it is dropped"]
pub struct Waiting {
    /// `None` once the outcome has been handed out.
    owner: Option<Arc<dyn Owner>>,
    ticket: Ticket,
    request: Arc<Request>,
    limit: Limit,
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
        owner.drive(until, &|| self.request.is_decided());
        if !self.request.wait(until) {
            let deadline = self.limit.deadline;
            let Some(deadline) = deadline.filter(|it| it.cancel <= clock::now()) else {
                return Poll::Pending;
            };
            if let Err(error) = owner.cancel(self.ticket, &self.request, deadline.end) {
                self.owner = None;
                return Poll::Ready(Err(error));
            }
        }
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

/// The right to be inside, until it is dropped, released or lost.
#[must_use = "the lock is released when the grant is dropped"]
pub struct Grant {
    owner: Arc<dyn Owner>,
    ticket: Ticket,
    request: Arc<Request>,
    granted: Granted,
    lifeline: Option<OwnedFd>,
    watch: Option<LeaseWatch>,
    /// Whether it was granted to a thread that was panicking already.
    in_panic: bool,
}

impl Grant {
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

    /// Has `act` done when the lock is lost; at once, if it was. It runs on a thread of the agent,
    /// or on the one that closes the agent, and should be quick. Never after a release, nor in a
    /// forked child.
    pub fn on_loss(&self, act: OnLoss) {
        if !self.owner.is_child() {
            self.request.on_loss(act);
        }
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
    /// ([`Caller::has_lifeline`](crate::runtime::Caller::has_lifeline)): the lock is free when this grant
    /// has ended and all copies of the descriptor are closed, in whatever process. Of an agent in
    /// this very process the copies keep its member's place instead: if it dies, no other can
    /// start under its id before they are closed.
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
        // Before it is given back: what its holder did was done by now.
        let was_valid = self.state() == GuardState::Valid;
        self.lifeline = None;
        self.give_back(how)?;
        let session = &self.granted.session;
        let deadline = clock::now() + session.lease();
        let is_decided = || was_valid || session.state() != GuardState::Suspended;
        self.owner.drive(Some(deadline), &is_decided);
        if was_valid || session.wait(Some(deadline), || false) == GuardState::Valid {
            Ok(())
        } else {
            Err(ReleaseError::Lost)
        }
    }

    fn give_back(&self, how: Release) -> Result<(), ReleaseError> {
        if self.owner.is_child() {
            return Err(ReleaseError::Forked);
        }
        self.owner.release(self.ticket, &self.request, how)
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
