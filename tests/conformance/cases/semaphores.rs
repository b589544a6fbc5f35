//! As many are inside as there are permits.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;

use distlock::{DistMutex as _, HandleError, LockError, TryLockError};

use crate::bench::{Bench, Case, SHORT, WAIT, await_waiters, case, is_busy, times_out};
use crate::jobs::{Job, spawn};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("never are more inside than permits", never_more),
        case("as many enter as there are permits", as_many),
        case("who finds no permit waits for one", waits),
        case("a permit comes back by a drop", comes_back),
        case("a semaphore has one number of permits", one_number),
        case("a semaphore without a number is refused", no_number),
        case("a thread with all permits is told", deadlock),
        case("one permit is a mutex", is_mutex),
        case("a wish for a permit is withdrawn", withdrawn),
    ]
}

fn never_more(bench: &Bench<'_>) {
    const PERMITS: u32 = 3;
    let inside = Arc::new(AtomicU32::new(0));
    let both = bench.semaphores("x", PERMITS);
    let jobs: Vec<Job<()>> = (0..6)
        .map(|number| {
            let (semaphore, inside) = (both[number % 2].clone(), Arc::clone(&inside));
            spawn(move || {
                for _ in 0..8 {
                    let guard = semaphore.acquire().unwrap();
                    assert!(inside.fetch_add(1, Ordering::SeqCst) < PERMITS);
                    std::thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.unlock().unwrap();
                }
            })
        })
        .collect();
    jobs.into_iter().for_each(Job::get);
}

fn as_many(bench: &Bench<'_>) {
    let both = bench.semaphores("x", 3);
    let [here, there] = &both;
    assert_eq!(here.permits(), NonZeroU32::new(3).unwrap());
    let guards = [here, there, here].map(|it| it.acquire().unwrap());
    assert!(guards.iter().all(distlock::Guard::is_held));
    for semaphore in &both {
        assert!(is_busy(semaphore.try_acquire()));
        times_out(|| semaphore.try_acquire_for(SHORT / 10).map(drop));
    }
    let mut fences = guards.map(|guard| guard.fence().unwrap());
    fences.sort_unstable();
    assert!(fences[0] < fences[1] && fences[1] < fences[2]);
}

fn waits(bench: &Bench<'_>) {
    let [here, there] = bench.semaphores("x", 2);
    let [first, second] = [&here, &there].map(|it| it.acquire().unwrap());
    let waits = there.clone();
    let waiter = spawn(move || waits.acquire().unwrap());
    await_waiters(bench.one(), &bench.name("x"), 1);
    assert!(waiter.goes_on());
    first.unlock().unwrap();
    let third = waiter.get();
    assert!(second.is_held() && third.is_held());
    assert!(is_busy(here.try_acquire()));
}

fn comes_back(bench: &Bench<'_>) {
    let both = bench.semaphores("x", 2);
    for _ in 0..3 {
        let guards = [&both[0], &both[1]].map(|it| it.try_acquire_for(WAIT).unwrap());
        assert!(is_busy(both[0].try_acquire()));
        drop(guards);
    }
}

fn one_number(bench: &Bench<'_>) {
    let [two, three] = [2, 3].map(NonZeroU32::new);
    let name = bench.name("x");
    let here = bench.one().semaphore(&name, two).unwrap();
    let refused = bench.one().mutex(&name).unwrap_err();
    assert!(
        matches!(refused, HandleError::WrongPermits { .. }),
        "{refused}"
    );
    let refused = bench.one().semaphore(&name, three).unwrap_err();
    assert!(
        matches!(refused, HandleError::WrongPermits { .. }),
        "{refused}"
    );
    let guard = here.acquire().unwrap();
    // The other agent may know it, or finds out when it asks.
    let refused = match bench.two().semaphore(&name, three) {
        Ok(wrong) => wrong.try_acquire().map(drop),
        Err(HandleError::WrongPermits { asked, actual }) => {
            Err(LockError::WrongPermits { asked, actual }.into())
        }
        Err(error) => panic!("{error}"),
    };
    assert!(
        matches!(
            refused,
            Err(TryLockError::Failed(LockError::WrongPermits { asked, actual }))
                if Some(asked) == three && Some(actual) == two
        ),
        "{refused:?}"
    );
    guard.unlock().unwrap();
}

fn no_number(bench: &Bench<'_>) {
    for agent in bench.agents() {
        let refused = agent.semaphore(bench.name("x"), None);
        assert!(matches!(refused, Err(HandleError::PermitsUnknown)));
    }
}

fn deadlock(bench: &Bench<'_>) {
    let [here, there] = bench.semaphores("x", 2);
    let guards = [here.acquire().unwrap(), here.acquire().unwrap()];
    assert!(matches!(here.acquire(), Err(LockError::Deadlock)));
    drop(guards);
    // One of another: it would come back.
    let _guards = [here.acquire().unwrap(), there.acquire().unwrap()];
    times_out(|| here.try_acquire_for(SHORT / 10).map(drop));
}

fn is_mutex(bench: &Bench<'_>) {
    let [here, there] = bench.semaphores("x", 1);
    let [mutex, _] = bench.both("x");
    let guard = there.acquire().unwrap();
    assert!(is_busy(mutex.try_lock()));
    guard.unlock().unwrap();
    let guard = mutex.try_lock_for(WAIT).unwrap();
    assert!(is_busy(there.try_acquire()) && is_busy(here.try_acquire()));
    drop(guard);
}

fn withdrawn(bench: &Bench<'_>) {
    let [here, there] = bench.semaphores("x", 2);
    let guards = [&here, &there].map(|it| it.acquire().unwrap());
    let mut waiting = there.begin().unwrap();
    assert!(waiting.poll().is_pending());
    await_waiters(bench.one(), &bench.name("x"), 1);
    drop(waiting);
    await_waiters(bench.one(), &bench.name("x"), 0);
    let mut timed = there.begin_for(WAIT).unwrap();
    drop(guards);
    assert!(matches!(timed.wait_slice(WAIT), Poll::Ready(Ok(_))));
}
