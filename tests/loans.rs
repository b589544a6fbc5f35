//! Locks that the group lends to this process: threads enter them without the agent, and notice nothing.

#[path = "support/allocations.rs"]
mod allocations;
mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use allocations::asked;
use distlock::{
    Agent, DistMutex, Guard, GuardState, LockError, Loss, Mutex, PreviousOwner, UnlockError,
};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use support::{Group, is_busy};

/// A group begins to work after some of these.
const LEASE: &str = "lease = \"200ms\"";

/// A lock, and a guard that came by a loan: what is asked for takes memory.
fn lent(agent: &Agent) -> (Mutex, Guard) {
    let lock = agent.mutex("x").unwrap();
    for _ in 0..1000 {
        let before = asked();
        let guard = lock.lock().unwrap();
        if asked() == before {
            return (lock, guard);
        }
    }
    panic!("the lock was never lent");
}

#[test]
fn a_guard_is_as_any_other() {
    let group = Group::new(1, LEASE);
    let agent = group.member(1);
    let (lock, guard) = lent(&agent);
    let fence = guard.fence().unwrap();
    assert_eq!(guard.name(), lock.name());
    assert_eq!(guard.state(), GuardState::Valid);
    assert_eq!(guard.previous_owner(), PreviousOwner::Clean);
    assert!(matches!(lock.lock(), Err(LockError::Deadlock)));
    assert!(is_busy(lock.try_lock()));
    let other = lock.clone();
    let refused = thread::spawn(move || is_busy(other.try_lock()));
    assert!(refused.join().unwrap());
    assert_eq!(guard.fence(), Some(fence));
    assert!(guard.is_held());
    guard.unlock().unwrap();
    let guard = lock.lock().unwrap();
    assert!(guard.fence().unwrap() > fence);
    let loss = guard.loss();
    thread::spawn(move || drop(guard)).join().unwrap();
    assert!(loss.recv().is_err(), "it was unlocked in order");
    lock.lock().unwrap().unlock().unwrap();
}

#[test]
fn a_child_has_nothing_to_unlock() {
    let group = Group::new(1, LEASE);
    let agent = group.member(1);
    let (lock, guard) = lent(&agent);
    #[expect(unsafe_code, reason = "fork is what is tested")]
    // SAFETY: the child calls what refuses it, and exits without running destructors.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let is_lost = guard.state() == GuardState::Lost;
            let is_refused = matches!(lock.lock(), Err(LockError::Forked));
            let is_forked = matches!(guard.unlock(), Err(UnlockError::Forked));
            let code = i32::from(!(is_lost && is_refused && is_forked));
            #[expect(unsafe_code, reason = "no destructor may run in the child of a test")]
            // SAFETY: it does not return.
            unsafe {
                libc::_exit(code)
            }
        }
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
        }
    }
    assert!(guard.is_held());
    guard.unlock().unwrap();
}

#[test]
fn a_thread_that_waits_comes_next() {
    let group = Group::new(1, LEASE);
    let agent = group.member(1);
    let (lock, guard) = lent(&agent);
    let fence = guard.fence();
    let (asks, asked) = mpsc::channel();
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let waiting = lock.begin().unwrap();
            asks.send(()).unwrap();
            waiting.wait().unwrap()
        });
        asked.recv().unwrap();
        guard.unlock().unwrap();
        assert!(waits.join().unwrap().fence() > fence);
    });
}

#[test]
fn whoever_panics_inside_abandons_the_lock() {
    let group = Group::new(1, LEASE);
    let agent = group.member(1);
    let (lock, guard) = lent(&agent);
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        let _guard = guard;
        panic!("inside");
    }));
    assert!(panicked.is_err());
    let next = lock.lock().unwrap();
    assert_eq!(next.previous_owner(), PreviousOwner::Abandoned);
    drop(next);
    let next = lock.lock().unwrap();
    assert_eq!(next.previous_owner(), PreviousOwner::Clean);
    next.abandon().unwrap();
    let next = lock.lock().unwrap();
    assert_eq!(next.previous_owner(), PreviousOwner::Abandoned);
}

#[test]
fn closing_the_agent_takes_the_lock_from_its_thread() {
    let group = Group::new(1, LEASE);
    let agent = group.member(1);
    let (lock, guard) = lent(&agent);
    agent.close();
    assert_eq!(guard.state(), GuardState::Lost);
    assert_eq!(guard.loss().recv(), Ok(Loss::Closed));
    assert!(matches!(guard.unlock(), Err(UnlockError::Closed)));
    assert!(matches!(lock.lock(), Err(LockError::Closed)));
}

/// Two members lend the lock to each other, and to two threads each.
#[test]
fn threads_of_two_members_exclude_each_other() {
    const ENTRIES: u64 = 3_000;
    let group = Group::new(2, LEASE);
    let agents = [group.member(1), group.member(2)];
    let locks = agents.each_ref().map(|agent| agent.mutex("x").unwrap());
    // Who is inside, and the last fence that was.
    let (inside, last) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for (lock, number) in locks.iter().cycle().take(4).zip(1..) {
            let (inside, last) = (&inside, &last);
            scope.spawn(move || {
                for entry in 0..ENTRIES {
                    let guard = lock.lock().unwrap();
                    assert_eq!(inside.swap(number, Ordering::Relaxed), 0);
                    let fence = guard.fence().unwrap().as_u64();
                    assert!(last.swap(fence, Ordering::Relaxed) < fence);
                    if entry % 64 == 0 {
                        thread::yield_now();
                    }
                    assert_eq!(inside.swap(0, Ordering::Relaxed), number);
                    guard.unlock().unwrap();
                }
            });
        }
    });
}
