//! A request until it is decided, and after: the local semaphore that its thread blocks on.
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

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Waker;
use std::time::Duration;
use std::{fmt, io};

use crate::protocol::{Fence, Missing, Previous, Release, Ticket, Time};
use crate::runtime::api::error::{AcquireError, ReleaseError};
use crate::runtime::os::clock;
use crate::runtime::os::sync::{Condvar, Mutex};
use crate::runtime::request::announcer::Announcer;
use crate::runtime::request::lease_page::LeaseWatch;
use crate::runtime::request::loss::{Loss, LossSignal};
use crate::runtime::request::session::Session;

const WAITING: u8 = 0;
const HELD: u8 = 1;
const REFUSED: u8 = 2;
const LOST: u8 = 3;
const RELEASED: u8 = 4;

/// Nobody waits for the decision at this moment.
const NOBODY: u8 = 0;
/// The thread that asked sleeps on the condition variable.
const SLEEPS: u8 = 1;
/// The thread that asked leads ([`Leader`](crate::runtime::shared::leader::Leader)).
const LEADS: u8 = 2;
/// A task is to be woken: it polls, and no thread waits.
const POLLS: u8 = 3;

/// Shared by the thread that asked and whoever decides.
pub(crate) struct Request {
    state: AtomicU8,
    /// How the thread that asked waits. It changes under `outcome`'s mutex.
    waiter: AtomicU8,
    outcome: Mutex<Outcome>,
    changed: Condvar,
    /// Of its grant.
    pub(super) loss: LossSignal,
}

#[derive(Default)]
struct Outcome {
    /// What became of it, once it is decided.
    decided: Option<Result<Granted, AcquireError>>,
    /// What came with the grant, until its holder takes it.
    handed: Option<Handed>,
    /// The task that polled last, until it is woken.
    task: Option<Waker>,
}

/// What a request was granted.
#[derive(Clone, Debug)]
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

impl Request {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: AtomicU8::new(WAITING),
            waiter: AtomicU8::new(NOBODY),
            outcome: Mutex::new(Outcome::default()),
            changed: Condvar::new(),
            loss: LossSignal::default(),
        })
    }

    /// The request is inside; whether somebody waits for that, whom the caller notifies afterwards,
    /// outside its own mutex.
    pub(crate) fn grant(&self, granted: Granted) -> bool {
        let mut outcome = self.outcome.lock();
        debug_assert_eq!(self.state(), WAITING);
        outcome.decided = Some(Ok(granted));
        self.state.store(HELD, Ordering::Release);
        self.waiter() != NOBODY
    }

    /// Keeps what the agent gives with a grant; the grant itself follows.
    pub(crate) fn hand(&self, handed: Handed) {
        self.outcome.lock().handed = Some(handed);
    }

    /// Whether the agent has given something with the grant that the holder has not taken yet.
    pub(crate) fn is_handed(&self) -> bool {
        self.outcome.lock().handed.is_some()
    }

    pub(super) fn take_handed(&self) -> Option<Handed> {
        self.outcome.lock().handed.take()
    }

    /// The request is over. The caller notifies afterwards, outside its own mutex.
    pub(crate) fn refuse(&self, why: AcquireError) {
        let mut outcome = self.outcome.lock();
        debug_assert_eq!(self.state(), WAITING);
        outcome.decided = Some(Err(why));
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
        let _outcome = self.outcome.lock();
        let held = self.state() == HELD;
        if held {
            self.state.store(RELEASED, Ordering::Release);
        }
        held
    }

    pub(crate) fn is_decided(&self) -> bool {
        self.state() != WAITING
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.state() == LOST
    }

    pub(crate) fn is_held(&self) -> bool {
        self.state() == HELD
    }

    fn state(&self) -> u8 {
        self.state.load(Ordering::Acquire)
    }

    /// Of its grant.
    pub(crate) fn loss(&self) -> &LossSignal {
        &self.loss
    }

    fn waiter(&self) -> u8 {
        self.waiter.load(Ordering::Relaxed)
    }

    /// Wakes the thread that waits, and does what is to be done after a loss; whether that thread leads,
    /// so that the caller must ring for it. The waiter looks at the state under `outcome`'s mutex
    /// before it sleeps or leads, and the state was set under it: no wake-up is lost.
    pub(crate) fn notify(&self) -> bool {
        let waiter = self.waiter();
        if waiter == SLEEPS {
            self.changed.notify_all();
        }
        if waiter == POLLS {
            let task = self.outcome.lock().task.take();
            // Whatever it does, it does without the mutex.
            if let Some(task) = task {
                task.wake();
            }
        }
        if self.state() == LOST {
            // It may have been granted, and waited for its lease.
            if let Ok(granted) = self.outcome() {
                granted.session.ring();
            }
            self.loss.fire(Loss::Revoked);
        }
        waiter == LEADS
    }

    /// The thread that asked leads from now on, unless the request is decided.
    pub(crate) fn begin_to_lead(&self) -> bool {
        let _outcome = self.outcome.lock();
        let begins = !self.is_decided();
        if begins {
            self.waiter.store(LEADS, Ordering::Relaxed);
        }
        begins
    }

    /// The thread that asked does not lead any more.
    pub(crate) fn end_to_lead(&self) {
        let _outcome = self.outcome.lock();
        self.waiter.store(NOBODY, Ordering::Relaxed);
    }

    /// Has this task woken when the request is decided; whether it is already.
    pub(super) fn wake_by(&self, task: &Waker) -> bool {
        let mut outcome = self.outcome.lock();
        if self.is_decided() {
            return true;
        }
        outcome.task = Some(task.clone());
        self.waiter.store(POLLS, Ordering::Relaxed);
        false
    }

    /// Blocks until the request is decided or `deadline` is over; whether it is decided.
    pub(crate) fn wait(&self, deadline: Option<Time>) -> bool {
        let mut outcome = self.outcome.lock();
        self.waiter.store(SLEEPS, Ordering::Relaxed);
        while !self.is_decided() {
            let left = deadline.map(|deadline| deadline.since(clock::now()));
            outcome = match left {
                Some(Duration::ZERO) => break,
                Some(left) => self.changed.wait_for(outcome, left),
                None => self.changed.wait(outcome),
            };
        }
        self.waiter.store(NOBODY, Ordering::Relaxed);
        self.is_decided()
    }

    /// What became of it, once it is decided.
    pub(crate) fn outcome(&self) -> Result<Granted, AcquireError> {
        let decided = self.outcome.lock().decided.clone();
        decided.expect("the outcome of a request that is decided")
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

    /// Has the waiting of `ticket` end soon, without waiting for that: as [`Owner::cancel`] otherwise.
    fn ask_to_cancel(&self, ticket: Ticket, request: &Request);

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

    /// Waits for `request` until `deadline` comes near, where the calling thread can do meanwhile what
    /// brings the decision. Elsewhere it returns at once.
    fn lead(&self, _deadline: Option<Time>, _request: &Request) {}

    /// Has the agent go on until `is_done`, or until `deadline`, where that is the calling thread's
    /// business ([`crate::runtime::agent::driven`]). Elsewhere it returns at once.
    fn drive(&self, _deadline: Option<Time>, _is_done: &dyn Fn() -> bool) {}
}
