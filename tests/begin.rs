//! `begin` sends its request: whatever stands behind the lock, others wait from then on, though
//! nobody looks at it.

mod support;

use std::num::NonZeroU32;
use std::task::Poll;
use std::thread;
use std::time::{Duration, SystemTime};

use distlock::{
    Agent, DistMutex, Driven, LockError, Mutex, PreviousOwner, TimedLockError, TryLockError,
};
use support::{Group, is_busy, two_local};

const TIMEOUT: Duration = Duration::from_secs(30);

fn pair() -> Group {
    Group::new(2, "lease = \"20s\"")
}

/// Waits until `other` cannot enter, while `goes_on` does what there is to do.
fn await_taken(other: &Mutex, mut goes_on: impl FnMut()) {
    let started = SystemTime::now();
    loop {
        goes_on();
        match other.try_lock() {
            Err(TryLockError::WouldBlock) => return,
            Err(error) => panic!("{error}"),
            Ok(guard) => drop(guard),
        }
        assert!(started.elapsed().unwrap() < TIMEOUT, "nobody has asked");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Asks by `here`, and looks when `there` has noticed; and again, without looking at all.
fn ask(here: &Mutex, there: &Mutex) {
    drop(there.lock().unwrap());
    let mut waiting = here.begin().unwrap();
    await_taken(there, || ());
    let guard = loop {
        if let Poll::Ready(guard) = waiting.poll() {
            break guard.unwrap();
        }
        thread::sleep(Duration::from_millis(1));
    };
    assert!(guard.is_held());
    // It has told its outcome, and tells that.
    let again = waiting.poll();
    assert!(matches!(again, Poll::Ready(Err(LockError::Finished))));
    assert!(matches!(waiting.wait(), Err(LockError::Finished)));
    drop(guard);
    drop(there.try_lock_for(TIMEOUT).unwrap());

    let waiting = here.begin().unwrap();
    await_taken(there, || ());
    drop(waiting);
    drop(there.try_lock_for(TIMEOUT).unwrap());
}

#[test]
fn of_a_member() {
    let pair = pair();
    let agents = [1, 2].map(|id| pair.member(id));
    let [here, there] = [&agents[0], &agents[1]].map(|agent| agent.mutex("x").unwrap());
    ask(&here, &there);
}

#[test]
fn of_a_client() {
    let pair = pair();
    let (first, client) = pair.with_client();
    let second = pair.member(2);
    let [here, there] = [&client, &second].map(|agent| agent.mutex("x").unwrap());
    ask(&here, &there);
    drop((here, client, first));
}

/// The request is sent, and what comes back is processed when the program does that: one that is
/// looked at for the first time has been granted long ago.
#[test]
fn of_an_agent_that_is_driven() {
    let pair = pair();
    let driven = [1, 2].map(|id| Driven::from_config(pair.node(id)).unwrap());
    let mutex = driven[0].agent().mutex("x").unwrap();
    let process = || {
        for driven in &driven {
            driven.process().unwrap();
        }
        thread::sleep(Duration::from_millis(1));
    };
    let mut first = mutex.begin().unwrap();
    while first.poll().is_pending() {
        process();
    }
    for _ in 0..3 {
        let mut waiting = mutex.begin().unwrap();
        (0..200).for_each(|_| process());
        assert!(matches!(waiting.poll(), Poll::Ready(Ok(_))));
    }
}

#[test]
fn of_the_local_group() {
    let (_directory, one, other) = two_local();
    let [here, there] = [&one, &other].map(|agent| agent.mutex("x").unwrap());
    ask(&here, &there);

    // One that has to wait is seen to, and stands in front of threads that come later.
    let guard = there.lock().unwrap();
    let mut first = here.begin().unwrap();
    let waiters = other.status().unwrap().locks[0].waiters.len();
    assert_eq!(waiters, 1);
    let mut second = here.begin().unwrap();
    drop(guard);
    assert!(second.poll().is_pending());
    let Poll::Ready(guard) = first.poll() else {
        panic!("it was the first");
    };
    drop(guard.unwrap());
    let guard = second.wait().unwrap();

    // What nobody has seen tells the next one nothing new.
    guard.abandon().unwrap();
    // A process that has just unlocked leaves the lock to others for a moment.
    thread::sleep(Duration::from_millis(5));
    for _ in 0..2 {
        let unseen = there.begin().unwrap();
        assert!(is_busy(here.try_lock()));
        drop(unseen);
    }
    let guard = here.lock().unwrap();
    assert_eq!(guard.previous_owner(), PreviousOwner::Abandoned);
    drop(guard);
    drop(there.begin().unwrap());
    let guard = here.lock().unwrap();
    assert_eq!(guard.previous_owner(), PreviousOwner::Clean);
    drop(guard);

    // An agent that closes ends the request, though nobody has looked at it.
    let mut unseen = there.begin().unwrap();
    other.close();
    drop(here.try_lock().unwrap());
    assert!(matches!(unseen.poll(), Poll::Ready(Err(LockError::Closed))));
    assert!(matches!(there.begin(), Err(LockError::Closed)));
}

#[test]
fn of_a_semaphore() {
    let (_directory, one, other) = two_local();
    let two = NonZeroU32::new(2);
    let [here, there] = [&one, &other].map(|agent| agent.semaphore("s", two).unwrap());
    let asked = [(); 2].map(|()| here.begin().unwrap());
    assert!(is_busy(there.try_acquire()));
    drop(asked);
    drop(there.try_acquire().unwrap());
}

/// One that waits in slices has its place from the first one on, and no more time than it said.
fn wait_in_slices(here: &Agent, there: &Agent) {
    const SLICE: Duration = Duration::from_millis(20);
    let [mutex, other] = [here, there].map(|agent| agent.mutex("x").unwrap());
    let held = other.lock().unwrap();
    let mut waiting = mutex.begin().unwrap();
    let started = SystemTime::now();
    assert!(waiting.wait_slice(SLICE).is_pending());
    let waited = started.elapsed().unwrap();
    assert!(waited >= SLICE && waited < TIMEOUT, "{waited:?}");

    // As long as this one is there, the other waits behind it.
    let timeout = 5 * SLICE;
    let mut timed = mutex.begin_for(timeout).unwrap();
    let started = SystemTime::now();
    let late = loop {
        match timed.wait_slice(SLICE) {
            Poll::Ready(late) => break late,
            Poll::Pending => assert!(started.elapsed().unwrap() < TIMEOUT),
        }
    };
    assert!(matches!(late, Err(TimedLockError::TimedOut)), "{late:?}");
    assert!(started.elapsed().unwrap() >= 3 * SLICE);
    let again = timed.poll();
    let is_finished =
        |error: &TimedLockError| matches!(error, TimedLockError::Failed(LockError::Finished));
    assert!(matches!(again, Poll::Ready(Err(error)) if is_finished(&error)));

    drop(held);
    let guard = loop {
        if let Poll::Ready(guard) = waiting.wait_slice(SLICE) {
            break guard.unwrap();
        }
        assert!(started.elapsed().unwrap() < TIMEOUT, "it is not granted");
    };
    // It would wait for itself.
    let deadlock = mutex.begin_for(TIMEOUT).unwrap_err();
    assert!(matches!(deadlock, LockError::Deadlock), "{deadlock}");
    drop(guard);
    let mut timed = mutex.begin_for(TIMEOUT).unwrap();
    assert!(matches!(timed.wait_slice(TIMEOUT), Poll::Ready(Ok(_))));
}

#[test]
fn in_slices() {
    let (_directory, one, other) = two_local();
    wait_in_slices(&one, &other);
    let permits = NonZeroU32::new(2);
    let [here, there] = [&one, &other].map(|agent| agent.semaphore("licences", permits).unwrap());
    let held = [there.acquire().unwrap(), there.acquire().unwrap()];
    let mut timed = here.begin_for(TIMEOUT).unwrap();
    assert!(timed.wait_slice(Duration::from_millis(1)).is_pending());
    drop(held);
    assert!(matches!(timed.wait_slice(TIMEOUT), Poll::Ready(Ok(_))));

    let pair = pair();
    let (first, client) = pair.with_client();
    let second = pair.member(2);
    wait_in_slices(&second, &first);
    wait_in_slices(&client, &second);
}
