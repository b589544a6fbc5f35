//! Other processes: a forked child, whose share is a dead copy, and one that is killed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;

use distlock::{DistMutex as _, Guard, LockError, Mutex, PreviousOwner, TryLockError, UnlockError};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

use crate::bench::{Bench, Case, WAIT, await_that, await_waiters, case, is_busy};
use crate::jobs::spawn;
use crate::killed::Holder;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("a forked child holds nothing and gives nothing back", child),
        case("a forked child withdraws nothing", child_of_waiter),
        // Of locks that a member has never told of nobody knows then whether it held them.
        case("a holder that is killed is followed by another", killed).alone(),
    ]
}

/// Forks; the child ends with what `body` returns. How it ended.
fn in_child(body: impl FnOnce() -> i32) -> WaitStatus {
    #[expect(unsafe_code, reason = "fork is what is tested")]
    // SAFETY: what the child does is what the library promises to work there.
    let child = match unsafe { fork() }.unwrap() {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let code = catch_unwind(AssertUnwindSafe(body)).unwrap_or(-1);
            #[expect(
                unsafe_code,
                reason = "nothing of the test runner may run in the child"
            )]
            // SAFETY: `_exit` takes no locks and does not return.
            unsafe {
                libc::_exit(code)
            }
        }
    };
    ended(child)
}

/// Waits for its end, and kills it if there is none.
fn ended(child: Pid) -> WaitStatus {
    let mut end = WaitStatus::StillAlive;
    let waited = catch_unwind(AssertUnwindSafe(|| {
        await_that("the child ends", || {
            end = waitpid(child, Some(WaitPidFlag::WNOHANG)).unwrap();
            end != WaitStatus::StillAlive
        });
    }));
    if waited.is_err() {
        kill(child, Signal::SIGKILL).unwrap();
        end = waitpid(child, None).unwrap();
    }
    end
}

/// What the child finds wrong, as a sum: it does not panic, for which it would need what other threads
/// have locked.
fn look(guard: Guard, mutex: &Mutex) -> i32 {
    let mut wrong = 0;
    wrong += i32::from(guard.is_held());
    wrong += 2 * i32::from(!matches!(mutex.lock(), Err(LockError::Forked)));
    let tried = mutex.try_lock();
    let is_told = matches!(tried, Err(TryLockError::Failed(LockError::Forked)));
    wrong += 4 * i32::from(!is_told);
    wrong += 8 * i32::from(!matches!(guard.unlock(), Err(UnlockError::Forked)));
    wrong
}

fn child(bench: &Bench<'_>) {
    let [here, there] = bench.both("x");
    // Each process has its own; what the child takes out is there yet in the parent.
    let mut guard = Some(here.lock().unwrap());
    let mut second = Some(bench.both("y")[0].lock().unwrap());
    let agent = bench.one();
    let end = in_child(|| {
        let mut wrong = guard.take().map_or(-1, |guard| look(guard, &here));
        drop(second.take());
        wrong += 16 * i32::from(!agent.is_forked());
        wrong += 32 * i32::from(agent.mutex("z").is_ok() || agent.status().is_ok());
        // It does nothing.
        agent.close();
        wrong
    });
    assert!(matches!(end, WaitStatus::Exited(_, 0)), "{end:?}");
    let (guard, second) = (guard.unwrap(), second.unwrap());
    assert!(guard.is_held() && second.is_held());
    assert!(is_busy(there.try_lock()));
    guard.unlock().unwrap();
    second.unlock().unwrap();
    drop(there.try_lock_for(WAIT).unwrap());
}

fn child_of_waiter(bench: &Bench<'_>) {
    let [here, there] = bench.both("x");
    let guard = here.lock().unwrap();
    let mut waiting = Some(there.begin().unwrap());
    let end = in_child(|| {
        let Some(mut waiting) = waiting.take() else {
            return -1;
        };
        let is_told = matches!(waiting.poll(), Poll::Ready(Err(LockError::Forked)));
        drop(waiting);
        i32::from(!is_told)
    });
    assert!(matches!(end, WaitStatus::Exited(_, 0)), "{end:?}");
    guard.unlock().unwrap();
    let Poll::Ready(outcome) = waiting.unwrap().wait_slice(WAIT) else {
        panic!("the child has withdrawn it");
    };
    outcome.unwrap().unlock().unwrap();
}

fn killed(bench: &Bench<'_>) {
    let [here, there] = bench.both("x");
    let holder = Holder::start(bench.place(), &bench.name("x"));
    assert!(is_busy(here.try_lock()));
    let waiter = spawn(move || {
        let guard = here.try_lock_for(WAIT).unwrap();
        (guard.fence(), guard.previous_owner())
    });
    await_waiters(bench.two(), &bench.name("x"), 1);
    assert!(waiter.goes_on());
    holder.kill();
    let (fence, previous) = waiter.get();
    assert_eq!(previous, PreviousOwner::Abandoned);
    let guard = there.try_lock_for(WAIT).unwrap();
    assert_eq!(guard.previous_owner(), PreviousOwner::Clean);
    assert!(guard.fence() > fence);
}
