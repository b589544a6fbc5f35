//! `begin` sends its request: whatever stands behind the lock, others wait from then on, though
//! nobody looks at it.

mod support;

use std::num::NonZeroU32;
use std::task::Poll;
use std::thread;
use std::time::{Duration, SystemTime};

use distlock::{DistMutex, Driven, LockError, Mutex, PreviousOwner, TryLockError};
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
