//! Who finds the lock busy waits, for as long as it wants to, and in its place.

use std::task::Poll;
use std::time::Duration;

use distlock::{DistMutex as _, LockError, TimedLockError};
use distlock_agent::runtime::clock;

use crate::bench::{
    Bench, Case, Need, SHORT, WAIT, await_that, await_waiters, case, case_of, is_busy,
};
use crate::jobs::spawn;

/// A timeout that runs out on a busy machine is told within so much more.
const LATE: Duration = Duration::from_secs(5);

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("a limited time is waited for, and not much more", times_out),
        // As "a free lock is entered at once".
        case("no time is enough for a free lock", no_time).alone(),
        case("within its time a waiter enters", within_its_time),
        case("a waiter is woken", woken),
        case("threads of one agent are served in order", threads_in_order),
        case_of(
            "agents are served in order",
            &[Need::Order],
            agents_in_order,
        ),
        case("a request is looked at", looked_at),
        case("a request that is dropped is withdrawn", withdrawn),
        case("a grant that nobody has seen is given back", unseen),
        case("a request waits in slices", slices),
        case("a request with a deadline ends by it", begin_for),
        case("who gave up is not waited for", gave_up),
        case("a release is not missed", not_missed),
    ]
}

fn times_out(bench: &Bench<'_>) {
    let [here, there] = bench.both("x");
    let guard = here.lock().unwrap();
    for timeout in [Duration::ZERO, Duration::from_millis(1), SHORT, 4 * SHORT] {
        let begun = clock::now();
        let late = there.try_lock_for(timeout);
        let waited = clock::now().since(begun);
        assert!(matches!(late, Err(TimedLockError::TimedOut)), "{late:?}");
        assert!(
            waited >= timeout && waited < timeout + LATE,
            "{waited:?} for {timeout:?}"
        );
    }
    guard.unlock().unwrap();
}

fn no_time(bench: &Bench<'_>) {
    for mutex in bench.both("x") {
        // Whoever had it before has gone then.
        drop(mutex.try_lock_for(WAIT).unwrap());
        let guard = mutex.try_lock_for(Duration::ZERO).unwrap();
        guard.unlock().unwrap();
    }
}

fn within_its_time(bench: &Bench<'_>) {
    let [here, there] = bench.both("x");
    let guard = here.lock().unwrap();
    let fence = guard.fence();
    let waiter = spawn(move || there.try_lock_for(WAIT).unwrap().fence());
    await_waiters(bench.one(), &bench.name("x"), 1);
    assert!(waiter.goes_on());
    guard.unlock().unwrap();
    assert!(waiter.get() > fence);
}

fn woken(bench: &Bench<'_>) {
    // First one of another agent waits, then one of the same.
    for [here, there] in [[0, 1], [0, 0]] {
        let both = bench.both("x");
        let guard = both[here].lock().unwrap();
        let waits = both[there].clone();
        let waiter = spawn(move || waits.lock().unwrap().unlock());
        await_waiters(bench.two(), &bench.name("x"), 1);
        assert!(waiter.goes_on());
        drop(guard);
        waiter.get().unwrap();
    }
}

fn threads_in_order(bench: &Bench<'_>) {
    let [here, there] = bench.both("x");
    let guard = here.lock().unwrap();
    let waiting = [(); 3].map(|()| there.begin().unwrap());
    guard.unlock().unwrap();
    let mut last = None;
    for waits in waiting {
        let guard = spawn(move || waits.wait().unwrap()).get();
        assert!(guard.fence() > last);
        last = guard.fence();
    }
}

/// One waiter of each, as those of one agent may enter in a row.
fn agents_in_order(bench: &Bench<'_>) {
    let spare = bench.spare();
    let name = bench.name("x");
    let holder = spare.agent.mutex(&name).unwrap();
    let both = bench.both("x");
    for order in [[0, 1], [1, 0]] {
        let guard = holder.lock().unwrap();
        let mut asked = Vec::new();
        for (count, at) in order.into_iter().enumerate() {
            asked.push(both[at].begin().unwrap());
            for agent in bench.agents() {
                await_waiters(agent, &name, count + 1);
            }
        }
        guard.unlock().unwrap();
        let fences = asked.into_iter().map(|waits| {
            let job = spawn(move || waits.wait().unwrap().fence());
            job.get()
        });
        assert!(fences.is_sorted(), "{order:?}");
    }
}

fn looked_at(bench: &Bench<'_>) {
    let [here, there] = bench.both("x");
    let guard = here.lock().unwrap();
    let mut waiting = there.begin().unwrap();
    assert!(waiting.poll().is_pending());
    guard.unlock().unwrap();
    let mut outcome = None;
    await_that("it is granted", || {
        if let Poll::Ready(it) = waiting.poll() {
            outcome = Some(it.unwrap());
        }
        outcome.is_some()
    });
    let guard = outcome.unwrap();
    assert!(guard.is_held() && is_busy(here.try_lock()));
    // It has told its outcome, and tells that.
    let again = waiting.poll();
    assert!(matches!(again, Poll::Ready(Err(LockError::Finished))));
    assert!(matches!(waiting.wait(), Err(LockError::Finished)));
}

fn withdrawn(bench: &Bench<'_>) {
    let [here, there] = bench.both("x");
    let guard = here.lock().unwrap();
    let waiting = there.begin().unwrap();
    await_waiters(bench.one(), &bench.name("x"), 1);
    drop(waiting);
    await_waiters(bench.one(), &bench.name("x"), 0);
    guard.unlock().unwrap();
    drop(here.try_lock_for(WAIT).unwrap());
    drop(there.try_lock_for(WAIT).unwrap());
}

fn unseen(bench: &Bench<'_>) {
    let [here, there] = bench.both("x");
    let waiting = here.begin().unwrap();
    await_that("it has the lock, though nobody looks", || {
        is_busy(there.try_lock())
    });
    drop(waiting);
    drop(there.try_lock_for(WAIT).unwrap());
    drop(here.try_lock_for(WAIT).unwrap());
}

fn slices(bench: &Bench<'_>) {
    let [here, there] = bench.both("x");
    let guard = here.lock().unwrap();
    let mut waiting = there.begin().unwrap();
    let begun = clock::now();
    assert!(waiting.wait_slice(SHORT).is_pending());
    assert!(clock::now().since(begun) >= SHORT);
    guard.unlock().unwrap();
    let Poll::Ready(outcome) = waiting.wait_slice(WAIT) else {
        panic!("it is not granted");
    };
    outcome.unwrap().unlock().unwrap();
}

fn begin_for(bench: &Bench<'_>) {
    let [here, there] = bench.both("x");
    let guard = here.lock().unwrap();
    let begun = clock::now();
    let mut timed = there.begin_for(SHORT).unwrap();
    let Poll::Ready(late) = timed.wait_slice(WAIT) else {
        panic!("it waits for ever");
    };
    assert!(matches!(late, Err(TimedLockError::TimedOut)), "{late:?}");
    assert!(clock::now().since(begun) >= SHORT);
    let mut timed = there.begin_for(WAIT).unwrap();
    assert!(timed.poll().is_pending());
    guard.unlock().unwrap();
    assert!(matches!(timed.wait_slice(WAIT), Poll::Ready(Ok(_))));
}

fn gave_up(bench: &Bench<'_>) {
    let [here, there] = bench.both("x");
    let guard = here.lock().unwrap();
    for _ in 0..3 {
        assert!(there.try_lock_for(SHORT / 10).is_err());
        assert!(is_busy(there.try_lock()));
    }
    await_waiters(bench.one(), &bench.name("x"), 0);
    guard.unlock().unwrap();
    drop(here.try_lock_for(WAIT).unwrap());
    drop(there.try_lock_for(WAIT).unwrap());
}

/// However the two fall together: one asks while the other gives the lock back.
fn not_missed(bench: &Bench<'_>) {
    let [here, there] = bench.both("x");
    for round in 0..10 {
        let guard = here.lock().unwrap();
        let waits = there.clone();
        let waiter = spawn(move || waits.lock().unwrap().unlock());
        clock::sleep(Duration::from_millis(round % 5));
        drop(guard);
        waiter.get().unwrap();
    }
}
