//! The border between C and Rust: no panic passes it, cancellation stays outside, and a wait is
//! cut into slices between which the thread may be cancelled.

use std::cell::Cell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::task::Poll;
use std::thread::{self, Thread};
use std::time::Duration;

use distlock_agent::protocol::Fence;
use nix::errno::Errno;
use nix::unistd::{getpid, gettid};

use super::cancel::{self, Parked};
use super::code;
use crate::Guard;
use crate::backend::Patience;
use crate::handle::LockRequest;

/// How late a waiting thread learns that it was cancelled, or its handle closed.
const SLICE: Duration = Duration::from_millis(50);

/// What each thread waits for.
static PARKED: Parked<Wait> = Parked::new();

/// What can be waited for.
pub(super) trait Entrance: Send + Sync {
    /// Asks to enter.
    fn begin(&self, patience: Patience) -> Result<LockRequest, Errno>;

    /// Whether the handle was closed.
    fn is_closed(&self) -> bool;

    /// Keeps what was granted; its fence. `ECANCELED` if the handle was closed meanwhile: then the
    /// grant goes back.
    fn enter(&self, guard: Guard) -> Result<Option<Fence>, Errno>;
}

/// What came of a call: 0, a positive number, or an error to be made negative.
pub(super) type Outcome = Result<c_int, Errno>;

/// Runs a function of the interface that does not wait.
pub(super) fn call<F: FnOnce() -> Outcome>(body: F) -> c_int {
    const { assert!(!std::mem::needs_drop::<F>()) };
    let before = cancel::disable();
    let code = guard(body, |outcome| outcome.unwrap_or_else(negative));
    cancel::restore(before);
    code
}

/// As [`call`], where nothing is returned.
pub(super) fn call_void<F: FnOnce()>(body: F) {
    call(|| {
        body();
        Ok(0)
    });
}

/// Runs a function of the interface that waits to enter what `entrance` finds, and then gives the
/// fence to `told`. The thread may be cancelled while it waits: no frame from here up to the
/// caller's has anything to drop.
pub(super) fn wait<F, T>(entrance: F, patience: Patience, told: T) -> c_int
where
    F: FnOnce() -> Result<Arc<dyn Entrance>, Errno>,
    T: FnOnce(Option<Fence>) + Copy,
{
    const { assert!(!std::mem::needs_drop::<F>() && !std::mem::needs_drop::<T>()) };
    let before = cancel::disable();
    let mut code = begin(entrance, patience, told);
    while code == UNDECIDED {
        // Who only tries is not held up by others: a round through the group is no wait.
        if patience != Patience::Try {
            cancel::point(before);
        }
        code = go_on(patience, told);
    }
    cancel::restore(before);
    code
}

/// What no function of the interface returns.
const UNDECIDED: c_int = c_int::MAX;

/// The first slice of a wait. The request is parked if that does not decide it.
#[inline(never)]
fn begin<F, T>(entrance: F, patience: Patience, told: T) -> c_int
where
    F: FnOnce() -> Result<Arc<dyn Entrance>, Errno>,
    T: FnOnce(Option<Fence>),
{
    guard(
        || {
            let entrance = entrance()?;
            let waiting = entrance.begin(patience)?;
            Wait { entrance, waiting }.go_on(patience, told)
        },
        decided,
    )
}

/// Another slice of the wait that is parked.
#[inline(never)]
fn go_on<T: FnOnce(Option<Fence>)>(patience: Patience, told: T) -> c_int {
    guard(
        || PARKED.take().ok_or(code::PANIC)?.go_on(patience, told),
        decided,
    )
}

fn decided(outcome: Result<Poll<()>, Errno>) -> c_int {
    match outcome {
        Ok(Poll::Ready(())) => 0,
        Ok(Poll::Pending) => UNDECIDED,
        Err(errno) => negative(errno),
    }
}

fn negative(errno: Errno) -> c_int {
    -(errno as c_int)
}

/// Keeps what std knows of the main thread where a leak checker finds it. Std makes an object for
/// each thread that blocks in a channel, and drops it when that ends, which the main thread of a C
/// program does not.
fn keep_main_thread() {
    static MAIN: AtomicPtr<Thread> = AtomicPtr::new(ptr::null_mut());
    thread_local! {
        static IS_KNOWN: Cell<bool> = const { Cell::new(false) };
    }
    if !IS_KNOWN.replace(true) && gettid() == getpid() {
        let main = Box::into_raw(Box::new(thread::current()));
        let old = MAIN.swap(main, Ordering::AcqRel);
        if !old.is_null() {
            // SAFETY: it was made here, in the parent of this process, and is in no place any more.
            drop(unsafe { Box::from_raw(old) });
        }
    }
}

/// Runs `body`; a panic is [`code::PANIC`]. What it was about is on standard error by then.
fn guard<R>(body: impl FnOnce() -> Result<R, Errno>, code: fn(Result<R, Errno>) -> c_int) -> c_int {
    let body = || {
        keep_main_thread();
        body()
    };
    code(catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(code::PANIC)))
}

/// A thread's request. Dropping it withdraws it.
struct Wait {
    entrance: Arc<dyn Entrance>,
    waiting: LockRequest,
}

impl Wait {
    /// Waits for a slice. Parks the request if that does not decide it.
    fn go_on(
        mut self,
        patience: Patience,
        told: impl FnOnce(Option<Fence>),
    ) -> Result<Poll<()>, Errno> {
        if self.entrance.is_closed() {
            return Err(Errno::ECANCELED);
        }
        let Poll::Ready(outcome) = self.waiting.wait(Some(SLICE)) else {
            PARKED.put(self)?;
            return Ok(Poll::Pending);
        };
        let granted = outcome.map_err(|error| code::lock(&error))?;
        let guard = granted.ok_or_else(|| code::not_free(patience))?;
        let previous = guard.previous_owner();
        told(self.entrance.enter(guard)?);
        code::entered(previous).map(Poll::Ready)
    }
}
