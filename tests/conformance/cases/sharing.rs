//! Readers are inside together, and never with a writer.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use distlock::{DistMutex as _, LockError};

use crate::bench::{
    Bench, Case, Need, SHORT, WAIT, await_that, await_waiters, case, case_of, is_busy,
};
use crate::jobs::{Job, spawn};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("readers and writers never meet", never_meet),
        case("readers are inside together", together),
        case("readers keep a writer out", keep_out),
        case("a writer keeps readers out", kept_out),
        case("the last reader lets the writer in", last_reader),
        case_of(
            "a reader does not overtake a writer",
            &[Need::NoOvertaking],
            no_overtaking,
        ),
        case("who shares a lock and waits for it is told", deadlock),
        case(
            "readers that were behind a writer enter together",
            after_writer,
        ),
    ]
}

/// Readers add one while they are inside, and a writer takes much away.
fn never_meet(bench: &Bench<'_>) {
    const MANY: i32 = 1000;
    let inside = Arc::new(AtomicI32::new(0));
    let both = bench.both("x");
    let jobs: Vec<Job<()>> = (0..4)
        .map(|number: usize| {
            let (mutex, inside) = (both[number % 2].clone(), Arc::clone(&inside));
            spawn(move || {
                let is_writer = number >= 2;
                for _ in 0..8 {
                    let _guard = match is_writer {
                        true => mutex.lock().unwrap(),
                        false => mutex.shared().lock().unwrap(),
                    };
                    let step = if is_writer { -MANY } else { 1 };
                    let others = inside.fetch_add(step, Ordering::SeqCst);
                    if is_writer {
                        assert_eq!(others, 0);
                    } else {
                        assert!(others >= 0);
                    }
                    std::thread::yield_now();
                    inside.fetch_sub(step, Ordering::SeqCst);
                }
            })
        })
        .collect();
    jobs.into_iter().for_each(Job::get);
}

fn together(bench: &Bench<'_>) {
    let [here, there] = bench.both("x").map(|mutex| mutex.shared());
    let first = here.lock().unwrap();
    let second = there.lock().unwrap();
    let mine = here.clone();
    let third = spawn(move || mine.try_lock_for(WAIT).unwrap()).get();
    assert!(
        [&first, &second, &third]
            .iter()
            .all(|guard| guard.is_held())
    );
    let mut fences = [&first, &second, &third].map(|guard| guard.fence().unwrap());
    fences.sort_unstable();
    assert!(fences[0] < fences[1] && fences[1] < fences[2]);
    for guard in [first, second, third] {
        guard.unlock().unwrap();
    }
}

fn keep_out(bench: &Bench<'_>) {
    let [here, there] = bench.both("x");
    let reader = here.shared().lock().unwrap();
    let another = there.shared().lock().unwrap();
    let other = there.clone();
    assert!(spawn(move || is_busy(other.try_lock())).get());
    reader.unlock().unwrap();
    // One is left.
    assert!(is_busy(here.try_lock()));
    assert!(here.try_lock_for(SHORT / 10).is_err());
    another.unlock().unwrap();
    drop(here.try_lock_for(WAIT).unwrap());
}

fn kept_out(bench: &Bench<'_>) {
    let [here, there] = bench.both("x");
    let writer = here.lock().unwrap();
    assert!(is_busy(there.shared().try_lock()));
    assert!(there.shared().try_lock_for(SHORT / 10).is_err());
    writer.unlock().unwrap();
    drop(there.shared().try_lock_for(WAIT).unwrap());
}

fn last_reader(bench: &Bench<'_>) {
    let [here, there] = bench.both("x");
    let readers = [
        here.shared().lock().unwrap(),
        there.shared().lock().unwrap(),
    ];
    let writes = there.clone();
    let writer = spawn(move || writes.lock().unwrap().unlock());
    await_waiters(bench.one(), &bench.name("x"), 1);
    for reader in readers {
        assert!(writer.goes_on());
        reader.unlock().unwrap();
    }
    writer.get().unwrap();
}

fn no_overtaking(bench: &Bench<'_>) {
    let [here, there] = bench.both("x");
    let first = here.shared().lock().unwrap();
    let writes = there.clone();
    let writer = spawn(move || writes.lock().unwrap());
    await_waiters(bench.one(), &bench.name("x"), 1);
    for mutex in [&here, &there] {
        let reads = mutex.shared();
        // Where a member has lent the lock to its readers, it hears of the writer a moment later.
        let is_kept_out = move || {
            await_that("no reader enters", || is_busy(reads.try_lock()));
        };
        spawn(is_kept_out).get();
    }
    let reads = there.shared();
    let second = spawn(move || reads.lock().unwrap().fence());
    await_waiters(bench.one(), &bench.name("x"), 2);
    assert!(second.goes_on());
    first.unlock().unwrap();
    let alone = writer.get();
    let fence = alone.fence();
    assert!(second.goes_on());
    alone.unlock().unwrap();
    assert!(second.get() > fence);
}

fn deadlock(bench: &Bench<'_>) {
    let [mutex, _] = bench.both("x");
    let guard = mutex.shared().lock().unwrap();
    assert!(matches!(mutex.lock(), Err(LockError::Deadlock)));
    assert!(matches!(mutex.shared().lock(), Err(LockError::Deadlock)));
    guard.unlock().unwrap();
    let guard = mutex.lock().unwrap();
    assert!(matches!(mutex.shared().lock(), Err(LockError::Deadlock)));
    guard.unlock().unwrap();
    drop(mutex.shared().lock().unwrap());
}

fn after_writer(bench: &Bench<'_>) {
    let [here, there] = bench.both("x");
    let writer = here.lock().unwrap();
    let readers = [&here, &there].map(|mutex| {
        let reads = mutex.shared();
        spawn(move || reads.lock().unwrap())
    });
    await_waiters(bench.one(), &bench.name("x"), 2);
    writer.unlock().unwrap();
    // Neither gives the lock back before both have it.
    let inside = readers.map(Job::get);
    assert!(inside.iter().all(distlock::Guard::is_held));
}
