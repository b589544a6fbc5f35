//! One is inside at a time, and knows it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, yield_now};
use std::time::Duration;

use distlock::{
    DistMutex as _, Guard, GuardState, LockError, Mutex, PreviousOwner, TimedLockError,
};

use crate::bench::{Bench, Case, WAIT, case, is_busy};
use crate::jobs::{Job, block_on, spawn};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("no increment is lost", no_increment_is_lost),
        case("fences rise", fences_rise),
        case(
            "fences rise when nobody has kept the lock",
            fences_rise_anew,
        ),
        case("two agents exclude each other", two_agents),
        case("two threads exclude each other", two_threads),
        // While a member comes or goes the answer may have to wait for the next view.
        case("a free lock is entered at once", free).alone(),
        case("whoever holds finds the lock busy", own),
        case("a thread that waits for itself is told", deadlock),
        case("a guard proves that it holds", proves),
        case("a dropped guard frees", dropped),
        case("a guard may be dropped elsewhere", elsewhere),
        case("an orderly end leaves nothing to tell", clean),
        case("handles of one agent are one lock", handles),
        case("locks do not exclude each other", many),
    ]
}

/// Enters in one of the ways that there are.
fn enter(mutex: &Mutex, way: u32) -> Guard {
    match way % 4 {
        0 => mutex.lock().unwrap(),
        1 => mutex.try_lock_for(WAIT).unwrap(),
        2 => mutex.begin().unwrap().wait().unwrap(),
        _ => block_on(mutex.lock_async()).unwrap(),
    }
}

fn no_increment_is_lost(bench: &Bench<'_>) {
    const THREADS: u32 = 3;
    const ENTRIES: u32 = 16;
    let counter = Arc::new(AtomicU32::new(0));
    let both = bench.both("counter");
    let threads = both.iter().flat_map(|mutex| [mutex; THREADS as usize]);
    let threads: Vec<Job<()>> = threads
        .map(|mutex| {
            let (mutex, counter) = (mutex.clone(), Arc::clone(&counter));
            spawn(move || {
                for way in 0..ENTRIES {
                    let guard = enter(&mutex, way);
                    // Another that is inside would read the same number.
                    let seen = counter.load(Ordering::Relaxed);
                    yield_now();
                    counter.store(seen + 1, Ordering::Relaxed);
                    guard.unlock().unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(Job::get);
    assert_eq!(counter.load(Ordering::Relaxed), 2 * THREADS * ENTRIES);
}

fn fences_rise(bench: &Bench<'_>) {
    let both = bench.both("x");
    let mut last = None;
    for entry in 0..12 {
        // Each enters twice in a row, too.
        let guard = both[entry / 2 % 2].lock().unwrap();
        let fence = guard.fence();
        assert!(fence.is_some() && fence > last, "{fence:?} after {last:?}");
        last = fence;
    }
}

fn fences_rise_anew(bench: &Bench<'_>) {
    let fence = |guard: Guard| guard.fence().unwrap();
    let first = fence(bench.both("x")[0].lock().unwrap());
    let second = fence(bench.both("x")[1].lock().unwrap());
    let third = fence(bench.both("x")[0].lock().unwrap());
    assert!(first < second && second < third, "{first} {second} {third}");
}

fn two_agents(bench: &Bench<'_>) {
    let both = bench.both("x");
    for [here, there] in [[&both[0], &both[1]], [&both[1], &both[0]]] {
        let guard = here.lock().unwrap();
        assert!(is_busy(there.try_lock()));
        guard.unlock().unwrap();
        there.try_lock_for(WAIT).unwrap().unlock().unwrap();
    }
}

fn two_threads(bench: &Bench<'_>) {
    let [mutex, _] = bench.both("x");
    let guard = mutex.lock().unwrap();
    let other = mutex.clone();
    assert!(spawn(move || is_busy(other.try_lock())).get());
    guard.unlock().unwrap();
    spawn(move || mutex.lock().unwrap().unlock()).get().unwrap();
}

fn free(bench: &Bench<'_>) {
    let both = bench.both("x");
    for turn in 0..10 {
        let mutex = &both[turn % 2];
        // A moment ago another had it, which may have gone only now.
        drop(mutex.try_lock_for(WAIT).unwrap());
        // What this one has given back is free to itself.
        let again = mutex.try_lock();
        drop(again.unwrap_or_else(|error| panic!("turn {turn}: {error}")));
    }
    for at in 0..2 {
        // One that nobody has had.
        let mutex = &bench.both(format!("of {at}"))[at];
        let guard = mutex.try_lock().unwrap();
        assert!(guard.is_held());
        guard.unlock().unwrap();
    }
}

fn own(bench: &Bench<'_>) {
    let [mutex, _] = bench.both("x");
    let _guard = mutex.lock().unwrap();
    assert!(is_busy(mutex.try_lock()));
    let late = mutex.try_lock_for(Duration::ZERO);
    assert!(late.is_err());
}

fn deadlock(bench: &Bench<'_>) {
    let [mutex, _] = bench.both("x");
    let guard = mutex.lock().unwrap();
    assert!(matches!(mutex.lock(), Err(LockError::Deadlock)));
    let again = bench.one().mutex(mutex.name().as_bytes()).unwrap();
    assert!(matches!(again.lock(), Err(LockError::Deadlock)));
    assert!(matches!(again.begin(), Err(LockError::Deadlock)));
    let timed = again.try_lock_for(WAIT);
    assert!(matches!(
        timed,
        Err(TimedLockError::Failed(LockError::Deadlock))
    ));
    guard.unlock().unwrap();
    drop(again.lock().unwrap());
}

fn proves(bench: &Bench<'_>) {
    for (mutex, agent) in bench.both("x").iter().zip(bench.agents()) {
        let guard = mutex.lock().unwrap();
        assert_eq!((guard.state(), guard.is_held()), (GuardState::Valid, true));
        assert_eq!(guard.name(), mutex.name());
        assert!(guard.fence().is_some());
        // It is bounded where there is a lease, and nowhere else.
        let bounds = [guard.remaining(), guard.grace()];
        for bound in bounds {
            assert_eq!(bound.is_some(), agent.lease().is_some());
            assert_ne!(bound, Some(Duration::ZERO));
        }
        guard.unlock().unwrap();
    }
}

fn dropped(bench: &Bench<'_>) {
    let [here, there] = bench.both("x");
    drop(here.lock().unwrap());
    drop(there.try_lock_for(WAIT).unwrap());
    drop(here.try_lock_for(WAIT).unwrap());
}

fn elsewhere(bench: &Bench<'_>) {
    let [here, there] = bench.both("x");
    let guard = here.lock().unwrap();
    thread::spawn(move || drop(guard)).join().unwrap();
    drop(there.try_lock_for(WAIT).unwrap());
    drop(here.lock().unwrap());
}

fn clean(bench: &Bench<'_>) {
    let both = bench.both("x");
    for mutex in both.iter().chain(&both) {
        let guard = mutex.lock().unwrap();
        assert_eq!(guard.previous_owner(), PreviousOwner::Clean);
        guard.unlock().unwrap();
    }
}

fn handles(bench: &Bench<'_>) {
    let [first, _] = bench.both("x");
    let [second, _] = bench.both("x");
    let guard = first.clone().lock().unwrap();
    assert!(is_busy(second.try_lock()));
    drop((first, second));
    // The guard outlives its handles.
    let [_, there] = bench.both("x");
    assert!(guard.is_held() && is_busy(there.try_lock()));
    guard.unlock().unwrap();
    drop(there.try_lock_for(WAIT).unwrap());
}

fn many(bench: &Bench<'_>) {
    let both: Vec<_> = (0..20).map(|number| bench.both(number)).collect();
    let mut guards = Vec::new();
    for (number, [here, there]) in both.iter().enumerate() {
        let mine = if number % 4 == 0 { there } else { here };
        guards.push(mine.lock().unwrap());
    }
    for [here, there] in &both {
        assert!(is_busy(here.try_lock()) && is_busy(there.try_lock()));
    }
    assert!(guards.iter().all(Guard::is_held));
    for guard in guards {
        guard.unlock().unwrap();
    }
    for [here, there] in &both {
        drop(here.try_lock_for(WAIT).unwrap());
        drop(there.try_lock_for(WAIT).unwrap());
    }
}
