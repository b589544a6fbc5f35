//! An agent without a thread: the application runs the event loop, round by round.
//!
//! The lecture (Jones) names three ways to have a message handled that comes while the application
//! does something else: the application polls, a signal interrupts it, or an agent of its own
//! waits for it. The third is [`crate::runtime::agent::event_loop`]'s thread. Here are the other
//! two. The loop is the same; whoever calls runs a round of it. One who waits for a lock does so
//! until it has the lock, as nobody else would.
//!
//! One descriptor says when there is something to do: an epoll instance with the member's sockets
//! and a timer, which is always set for the next moment at which the protocol wants to be called.
//!
//! In the lecture the signal's handler itself receives the message and answers it. Here it must
//! not: the core allocates memory and takes mutexes, and a handler that interrupts somebody who
//! does either would wait for itself, or find both half changed (signal-safety(7)). So the signal
//! only interrupts, and the answer is made when the application calls.

use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::protocol::Time;
use crate::runtime::agent::event_loop::EventLoop;
use crate::runtime::api::error::{ProcessError, SignalError};
use crate::runtime::os::queue::{Place, Queue};
use crate::runtime::os::sigio::SignalTimer;
use crate::runtime::os::sync::{Mutex, MutexGuard};
use crate::runtime::os::{clock, sigio};
use crate::runtime::shared::core_guard::{Drive, Shared};
use crate::runtime::shared::wakeup::{CallersAlarm, Wakeup};

/// A thread's turn in the loop.
struct LoopTurn<'a> {
    /// Unlocked before the next is called.
    event_loop: MutexGuard<'a, Option<EventLoop>>,
    _place: Place,
}

/// The event loop, for whoever calls.
#[derive(Debug)]
struct DrivenLoop {
    shared: Arc<Shared>,
    /// Who wants to run the loop stands here: one who is in it again and again does not keep the
    /// others out, who may have been granted their locks meanwhile.
    queue: Arc<Queue>,
    /// `None` once the session is over. Only the thread that has the queue's turn locks it.
    event_loop: Mutex<Option<EventLoop>>,
    /// The thread that is in a round, as [`here`] says it; 0 if none is.
    by: AtomicUsize,
}

impl DrivenLoop {
    /// The calling thread's turn, if it comes until `deadline`.
    fn turn(&self, deadline: Option<Time>) -> Option<LoopTurn<'_>> {
        let mut place = self.queue.join().ok()?;
        let has_come = place.wait(deadline).ok()?;
        has_come.then(|| self.with_turn(place))
    }

    /// The same, if it has come at once.
    fn try_turn(&self) -> Option<LoopTurn<'_>> {
        let place = self.queue.try_join()?;
        Some(self.with_turn(place))
    }

    fn with_turn(&self, place: Place) -> LoopTurn<'_> {
        LoopTurn {
            event_loop: self.event_loop.lock(),
            _place: place,
        }
    }

    /// Goes one round, which waits for at most `timeout`.
    fn round(&self, mut turn: LoopTurn<'_>, timeout: Option<Duration>) {
        let slot = &mut turn.event_loop;
        if let Some(event_loop) = &mut **slot {
            self.by.store(here(), Ordering::Relaxed);
            if !event_loop.round(timeout) {
                **slot = None;
                self.shared.forget_driver();
                // Who waits for the descriptor is to hear of the end.
                self.alarm().set(Some(Time::ZERO));
            }
            self.by.store(0, Ordering::Relaxed);
        }
    }

    fn alarm(&self) -> &CallersAlarm {
        match &self.shared.wakeup {
            Wakeup::Callers(alarm) => alarm,
            Wakeup::Thread(_) => unreachable!("an agent with a thread has no driver"),
        }
    }

    /// Whether the calling thread is in a round: it does then what somebody wants done at a loss.
    fn is_mine(&self) -> bool {
        self.by.load(Ordering::Relaxed) == here()
    }
}

impl Drive for DrivenLoop {
    fn drive(&self, deadline: Option<Time>, is_done: &dyn Fn() -> bool) {
        let left = || deadline.map(|deadline| deadline.since(clock::now()));
        while !self.is_mine() && !is_done() && left() != Some(Duration::ZERO) {
            let Some(turn) = self.turn(deadline) else {
                return;
            };
            if turn.event_loop.is_none() {
                return;
            }
            // Another thread may have brought it while this one waited for its turn.
            let timeout = if is_done() {
                Some(Duration::ZERO)
            } else {
                left()
            };
            self.round(turn, timeout);
        }
    }

    fn drive_to_the_end(&self) {
        while !self.is_mine() {
            let Some(turn) = self.turn(None) else {
                return;
            };
            if turn.event_loop.is_none() {
                return;
            }
            self.round(turn, None);
        }
    }
}

/// What makes an agent without a thread go on
/// ([`Agent::start_driven`](crate::runtime::Agent::start_driven)).
///
/// Its descriptor is readable, for poll(2) and its like, when there is something to process; no
/// other timeout is needed. It may be polled only.
#[derive(Debug)]
pub struct Driver {
    driven: Arc<DrivenLoop>,
}

impl Driver {
    /// Drives `event_loop` from now on.
    pub(crate) fn new(event_loop: EventLoop) -> Self {
        let shared = event_loop.shared();
        let driven = Arc::new(DrivenLoop {
            shared: Arc::clone(&shared),
            queue: Arc::default(),
            event_loop: Mutex::new(Some(event_loop)),
            by: AtomicUsize::new(0),
        });
        shared.set_driver(Arc::<DrivenLoop>::clone(&driven));
        shared.lock_core().plan(Some(Time::ZERO));
        Self { driven }
    }

    /// Does what there is to do: takes what has arrived, a bounded number of datagrams, answers,
    /// looks at the timers, and writes to the disk what has to be there. It waits for nothing but
    /// the disk. If another thread does it at this moment, or waits for a lock and so does it,
    /// there is nothing to do.
    ///
    /// # Errors
    /// If the session is over, or this process was forked from the agent's.
    pub fn process(&self) -> Result<(), ProcessError> {
        if self.driven.shared.stamp.is_child() {
            return Err(ProcessError::Forked);
        }
        if let Some(turn) = self.driven.try_turn() {
            self.driven.round(turn, Some(Duration::ZERO));
        }
        match self.driven.shared.lock_core().end_of_session() {
            Some(end) => Err(ProcessError::Closed(end.clone())),
            None => Ok(()),
        }
    }

    /// How long there is nothing to process if nothing arrives: what the descriptor's timer is set
    /// to. `None` without any limit; in a forked child always.
    pub fn timeout(&self) -> Option<Duration> {
        if self.driven.shared.stamp.is_child() {
            return None;
        }
        let core = self.driven.shared.lock_core();
        if core.end_of_session().is_some() {
            return Some(Duration::ZERO);
        }
        // While another thread is in a round, that one sees to it.
        let until = core.sleeps_until().unwrap_or(Time::MAX);
        (until != Time::MAX).then(|| until.since(clock::now()))
    }

    /// Has the kernel send this process SIGIO, or not any more, whenever there is something to
    /// process: so that a program is interrupted that does not poll. At once, if something is there
    /// already. A signal may also come when there is nothing; of several, one may come.
    ///
    /// The signal's handler must not process: it would interrupt what it needs. It notes that the
    /// signal came, and ends what the application waits for (`EINTR`); then the application calls.
    ///
    /// # Errors
    /// If nothing in this process expects the signal, which would end it; if the session is over,
    /// the system refuses, or this process was forked from the agent's.
    pub fn set_sigio(&self, is_on: bool) -> Result<(), SignalError> {
        if self.driven.shared.stamp.is_child() {
            return Err(SignalError::Forked);
        }
        let system = |source| SignalError::System { source };
        if is_on && !sigio::is_expected().map_err(system)? {
            return Err(SignalError::Unexpected);
        }
        let timer = is_on.then(SignalTimer::new).transpose().map_err(system)?;
        let mut core = self.driven.shared.lock_core();
        if let Some(end) = core.end_of_session() {
            return Err(SignalError::Closed(end.clone()));
        }
        for socket in core.sockets() {
            sigio::announce(socket, is_on).map_err(system)?;
        }
        self.driven.alarm().set_signal(timer);
        core.plan(Some(Time::ZERO));
        Ok(())
    }
}

impl AsFd for Driver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        #[expect(unsafe_code, reason = "mio gives out the descriptor's number only")]
        // SAFETY: it is the poll's, which lives as long as what is borrowed here.
        unsafe {
            BorrowedFd::borrow_raw(self.driven.shared.socket_set.poll().as_raw_fd())
        }
    }
}

/// What tells the calling thread from all others that live. Unlike `std::thread::current` it is
/// there at every time of a C program's thread.
fn here() -> usize {
    thread_local! {
        static HERE: Cell<u8> = const { Cell::new(0) };
    }
    HERE.with(|place| std::ptr::from_ref(place).addr())
}
