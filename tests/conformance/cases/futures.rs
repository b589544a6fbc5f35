//! The same by tasks.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::{DistMutex as _, LockError, TimedLockError};
use distlock_agent::runtime::clock;

use crate::bench::{Bench, Case, SHORT, WAIT, await_waiters, case, is_busy, times_out};
use crate::jobs::{Job, block_on, poll_once, spawn};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("a task enters a free lock", free),
        case("a task is woken", woken),
        case("a task that is dropped withdraws", dropped),
        case("a task waits for a limited time", limited),
        case(
            "a task gives up in time whatever others ask",
            limited_beside_others,
        ),
        case("a task that finds its agent closed is told", closed),
        case("a task's work is done under the lock", under_the_lock),
        case("tasks have permits and lead", permits_and_leads),
    ]
}

fn free(bench: &Bench<'_>) {
    let [here, there] = bench.both("x");
    let guard = block_on(here.lock_async()).unwrap();
    assert!(guard.is_held() && is_busy(there.try_lock()));
    block_on(guard.unlock_async()).unwrap();
    let guard = block_on(there.lock_async_for(WAIT)).unwrap();
    guard.unlock().unwrap();
}

fn woken(bench: &Bench<'_>) {
    let [here, there] = bench.both("x");
    for _ in 0..3 {
        let guard = here.lock().unwrap();
        let mut waits = there.lock_async();
        assert!(poll_once(&mut waits).is_pending());
        let waiter = spawn(move || block_on(waits).unwrap().unlock());
        await_waiters(bench.one(), &bench.name("x"), 1);
        assert!(waiter.goes_on());
        guard.unlock().unwrap();
        waiter.get().unwrap();
    }
}

fn dropped(bench: &Bench<'_>) {
    let [here, there] = bench.both("x");
    drop(there.lock_async());
    let guard = here.lock().unwrap();
    let mut waits = there.lock_async();
    assert!(poll_once(&mut waits).is_pending());
    await_waiters(bench.one(), &bench.name("x"), 1);
    drop(waits);
    await_waiters(bench.one(), &bench.name("x"), 0);
    guard.unlock().unwrap();
    drop(here.try_lock_for(WAIT).unwrap());
    // One that had entered when it was dropped gives the lock back.
    let mut enters = there.lock_async();
    let first = poll_once(&mut enters);
    drop((first, enters));
    drop(here.try_lock_for(WAIT).unwrap());
}

fn limited(bench: &Bench<'_>) {
    let [here, there] = bench.both("x");
    let guard = here.lock().unwrap();
    for timeout in [Duration::ZERO, SHORT] {
        let begun = clock::now();
        let late = block_on(there.lock_async_for(timeout));
        assert!(matches!(late, Err(TimedLockError::TimedOut)), "{late:?}");
        assert!(clock::now().since(begun) >= timeout);
    }
    let mut waits = there.lock_async_for(WAIT);
    assert!(poll_once(&mut waits).is_pending());
    guard.unlock().unwrap();
    drop(block_on(waits).unwrap());
}

/// Threads that ask the same agent for other things are not in the way of the word that it is over.
fn limited_beside_others(bench: &Bench<'_>) {
    let [here, there] = bench.both("x");
    let _guard = here.lock().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let askers = [(); 3].map(|()| {
        let (there, is_over) = (there.clone(), Arc::clone(&is_over));
        spawn(move || {
            while !is_over.load(Ordering::SeqCst) {
                drop(there.begin());
            }
        })
    });
    let is_told = || {
        let late = block_on(there.lock_async_for(Duration::from_millis(1)));
        matches!(late, Err(TimedLockError::TimedOut))
    };
    // An agent that a busy host has kept waiting for 0.2 s has not answered in time: not three times over.
    let are_told = (0..3).any(|_| (0..40).filter(|_| is_told()).count() == 40);
    is_over.store(true, Ordering::SeqCst);
    askers.into_iter().for_each(Job::get);
    assert!(are_told, "some were told that the agent had not answered");
}

fn closed(bench: &Bench<'_>) {
    let spare = bench.spare();
    let [here, _] = bench.both("x");
    let _guard = here.lock().unwrap();
    let mut waits = spare.agent.mutex(bench.name("x")).unwrap().lock_async();
    assert!(poll_once(&mut waits).is_pending());
    let waiter = spawn(move || block_on(waits).map(drop));
    await_waiters(bench.one(), &bench.name("x"), 1);
    spare.agent.close();
    assert!(matches!(waiter.get(), Err(LockError::Closed)));
    await_waiters(bench.one(), &bench.name("x"), 0);
}

fn under_the_lock(bench: &Bench<'_>) {
    for mutex in bench.both("x") {
        let guard = block_on(mutex.lock_async()).unwrap();
        assert_eq!(block_on(guard.hold(ready(7))), Ok(7));
        let lost = guard.lost();
        guard.unlock().unwrap();
        assert_eq!(block_on(lost), None);
    }
}

fn permits_and_leads(bench: &Bench<'_>) {
    let [here, there] = bench.semaphores("permits", 2);
    let guards = [&here, &there].map(|it| block_on(it.acquire_async()).unwrap());
    times_out(|| block_on(here.acquire_async_for(SHORT / 10)).map(drop));
    let mut waits = there.acquire_async();
    assert!(poll_once(&mut waits).is_pending());
    drop(guards);
    drop(block_on(waits).unwrap());

    let name = bench.name("leader");
    let [here, there] = bench.agents().map(|it| it.election(&name).unwrap());
    let leads = block_on(here.campaign_async()).unwrap();
    times_out(|| block_on(there.campaign_async_for(SHORT / 10)).map(drop));
    let mut waits = there.campaign_async();
    assert!(poll_once(&mut waits).is_pending());
    leads.resign().unwrap();
    block_on(waits).unwrap().resign().unwrap();
}
