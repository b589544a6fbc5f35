//! Locks that the group lends to this process, a member or a client of the host's agent: threads enter them
//! without the agent, and notice nothing.

#[path = "support/allocations.rs"]
mod allocations;
mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use allocations::asked;
use distlock::{
    Agent, Algorithm, DistMutex, Guard, GuardState, LockError, LockOptions, Loss, Mutex,
    PreviousOwner, UnlockError,
};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use support::{Group, is_busy};

/// A group begins to work after some of these.
const LEASE: &str = "lease = \"200ms\"";
const LEASE_TIME: Duration = Duration::from_millis(200);

/// A member of a group of one that serves clients, and one of these: all that an application can be.
fn member_and_client() -> (Group, [Agent; 2]) {
    let group = Group::new(1, LEASE);
    let (member, client) = group.with_client();
    (group, [member, client])
}

/// A lock, and a guard that came by a loan: what is asked for takes memory.
fn lent(agent: &Agent) -> (Mutex, Guard) {
    let lock = agent.mutex("x").unwrap();
    let guard = by_loan(&lock);
    (lock, guard)
}

fn by_loan(lock: &Mutex) -> Guard {
    for _ in 0..1000 {
        let before = asked();
        let guard = lock.lock().unwrap();
        if asked() == before {
            return guard;
        }
    }
    panic!("the lock was never lent");
}

#[test]
fn a_guard_is_as_any_other() {
    let (_group, agents) = member_and_client();
    agents.iter().rev().for_each(a_guard_is_as_any_other_by);
}

fn a_guard_is_as_any_other_by(agent: &Agent) {
    let (lock, guard) = lent(agent);
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
    let (_group, agents) = member_and_client();
    agents
        .iter()
        .rev()
        .for_each(a_child_has_nothing_to_unlock_by);
}

fn a_child_has_nothing_to_unlock_by(agent: &Agent) {
    let (lock, guard) = lent(agent);
    let other = agent.mutex("y").unwrap();
    let inherited = by_loan(&other);
    let third = agent.mutex("z").unwrap();
    let withdrawn = by_loan(&third);
    #[expect(unsafe_code, reason = "fork is what is tested")]
    // SAFETY: the child calls what refuses it, and exits without running destructors.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let is_lost = guard.state() == GuardState::Lost;
            let is_refused = matches!(lock.lock(), Err(LockError::Forked));
            let is_forked = matches!(guard.unlock(), Err(UnlockError::Forked));
            drop((inherited, other));
            withdrawn.withdraw();
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
    assert!(guard.is_held() && inherited.is_held() && withdrawn.is_held());
    withdrawn.withdraw();
    let waits = other.clone();
    assert!(
        thread::spawn(move || is_busy(waits.try_lock()))
            .join()
            .unwrap()
    );
    guard.unlock().unwrap();
    inherited.unlock().unwrap();
}

#[test]
fn a_thread_that_waits_comes_next() {
    let (_group, agents) = member_and_client();
    agents
        .iter()
        .rev()
        .for_each(a_thread_that_waits_comes_next_by);
}

fn a_thread_that_waits_comes_next_by(agent: &Agent) {
    let (lock, guard) = lent(agent);
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
    let (_group, agents) = member_and_client();
    agents
        .iter()
        .rev()
        .for_each(whoever_panics_inside_abandons_the_lock_by);
}

fn whoever_panics_inside_abandons_the_lock_by(agent: &Agent) {
    let (lock, guard) = lent(agent);
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        let _guard = guard;
        panic!("inside");
    }));
    assert!(panicked.is_err());
    let next = lock.lock().unwrap();
    assert_eq!(next.previous_owner(), PreviousOwner::Abandoned);
    next.unlock().unwrap();
    let next = lock.lock().unwrap();
    assert_eq!(next.previous_owner(), PreviousOwner::Clean);
    next.abandon().unwrap();
    let next = lock.lock().unwrap();
    assert_eq!(next.previous_owner(), PreviousOwner::Abandoned);
}

#[test]
fn closing_the_agent_takes_the_lock_from_its_thread() {
    let (_group, agents) = member_and_client();
    agents
        .iter()
        .rev()
        .for_each(closing_the_agent_takes_the_lock_from_its_thread_by);
}

fn closing_the_agent_takes_the_lock_from_its_thread_by(agent: &Agent) {
    let (lock, guard) = lent(agent);
    agent.close();
    assert_eq!(guard.state(), GuardState::Lost);
    assert_eq!(guard.loss().recv(), Ok(Loss::Closed));
    assert!(matches!(guard.unlock(), Err(UnlockError::Closed)));
    assert!(matches!(lock.lock(), Err(LockError::Closed)));
}

/// Everybody at once: two clients of each of two members, and the members' own threads.
#[test]
fn clients_of_two_members_exclude_each_other_and_the_members_threads() {
    const ENTRIES: u64 = 1_000;
    let group = Group::new(2, LEASE);
    let sockets = [1, 2].map(|id| group.path().join(format!("service-{id}")));
    let member = |id: u16, socket| Agent::from_config(group.node(id).with_socket(socket)).unwrap();
    let members = [member(1, &sockets[0]), member(2, &sockets[1])];
    let clients = [0, 1, 0, 1].map(|at: usize| Agent::connect(&sockets[at]).unwrap());
    let all = members.iter().chain(&clients);
    let locks: Vec<_> = all.map(|agent| agent.mutex("x").unwrap()).collect();
    take_turns(&locks, ENTRIES);
    // Then only clients of one host, to whom the lock is lent again and again.
    take_turns(&[&locks[2], &locks[4]], ENTRIES);
}

/// Also while the lock is lent, and could be entered without a word.
#[test]
fn whoever_asks_for_another_algorithm_than_the_locks_is_refused_each_time() {
    let (group, [_member, client]) = member_and_client();
    let neighbour = Agent::connect(group.path().join("service")).unwrap();
    let own = neighbour.mutex("x").unwrap();
    let ring = LockOptions::new().algorithm(Algorithm::TokenRing);
    let other = client.mutex_with("x", &ring).unwrap();
    for _ in 0..20 {
        by_loan(&own).unlock().unwrap();
        let refused = other.lock().unwrap_err();
        let is_told = matches!(refused, LockError::WrongAlgorithm { .. });
        assert!(is_told, "{refused}");
    }
}

#[test]
fn a_member_sees_the_client_inside_and_comes_after_it() {
    let (_group, [member, agent]) = member_and_client();
    let (_, guard) = lent(&agent);
    let fence = guard.fence().unwrap();
    let status = member.status().unwrap();
    let holder = &status.locks[0].holders[0];
    assert_eq!(
        (holder.pid, holder.fence),
        (std::process::id(), Some(fence.as_u64()))
    );
    assert!(is_busy(member.mutex("x").unwrap().try_lock()));
    assert_eq!(guard.state(), GuardState::Valid, "the agent knows of it");
    assert!(guard.grace().is_some(), "there is a lease");
    guard.unlock().unwrap();
    let next = member.mutex("x").unwrap().lock().unwrap();
    assert!(next.fence().unwrap() > fence);
}

#[test]
fn a_client_loses_what_it_entered_when_its_agent_closes_or_leaves_it() {
    for closes in [true, false] {
        let (_group, [member, agent]) = member_and_client();
        let (_, guard) = lent(&agent);
        let (tells, told) = mpsc::channel();
        if !closes {
            // The agent knows of this one.
            guard.on_loss(move |loss| tells.send(loss).unwrap());
        }
        // It waits until its clients have left.
        let ends = thread::spawn(move || member.close());
        let is_lost = || {
            thread::sleep(LEASE_TIME / 100);
            guard.state() == GuardState::Lost
        };
        assert!((0..1_000).any(|_| is_lost()), "it is not lost");
        if !closes {
            assert_eq!(told.recv(), Ok(Loss::Revoked));
        }
        let ended = guard.unlock();
        assert!(matches!(ended, Err(UnlockError::Lost)), "{ended:?}");
        ends.join().unwrap();
    }
}

/// What is said of a closed lock is followed at once by what is said of the same one, opened again.
#[test]
fn a_lock_that_is_opened_again_and_again_stays_one_lock() {
    let (_group, [member, agent]) = member_and_client();
    let mut last = None;
    for name in ["x", "y"].into_iter().cycle().take(200) {
        let lock = agent.mutex(name).unwrap();
        for _ in 0..3 {
            let guard = lock.lock().unwrap();
            let own = member.mutex(name).unwrap();
            if name == "x" {
                assert!(last < guard.fence());
                last = guard.fence();
            }
            assert!(is_busy(own.try_lock()));
            guard.unlock().unwrap();
        }
        drop(by_loan(&lock));
    }
}

/// As many enter in turn as there are locks; each as often.
fn take_turns(locks: &[impl DistMutex], entries: u64) {
    // Who is inside, and the last fence that was.
    let (inside, last) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for (lock, number) in locks.iter().zip(1..) {
            let (inside, last) = (&inside, &last);
            scope.spawn(move || {
                for entry in 0..entries {
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

/// Two members lend the lock to each other, and to two threads each.
#[test]
fn threads_of_two_members_exclude_each_other() {
    // Long enough for a machine that has much else to do: no lock() here may miss a quorum.
    let group = Group::new(2, "lease = \"3s\"");
    let agents = [group.member(1), group.member(2)];
    let locks = agents.each_ref().map(|agent| agent.mutex("x").unwrap());
    let [one, two] = &locks;
    // However long the founding takes.
    drop(one.try_lock_for(Duration::from_secs(60)).unwrap());
    take_turns(&[one, two, one, two], 3_000);
}
