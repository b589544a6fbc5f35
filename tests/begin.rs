//! `begin` sends its request: whatever stands behind the lock, others wait from then on, though
//! nobody looks at it.

use std::num::NonZeroU32;
use std::path::Path;
use std::task::Poll;
use std::thread;
use std::time::{Duration, SystemTime};

use distlock::{
    Agent, Config, DistMutex, Driven, LockError, Mutex, NodeConfig, PreviousOwner, TryLockError,
};
use tempfile::TempDir;

const TIMEOUT: Duration = Duration::from_secs(30);

fn directory() -> TempDir {
    tempfile::Builder::new().prefix("dl").tempdir().unwrap()
}

/// Member `id` of a group of two over Unix datagrams.
fn node(directory: &Path, id: u16) -> NodeConfig {
    let text = format!(
        "lease = \"20s\"\nalgorithm = \"ricart-agrawala\"\n\
         [group]\nname = \"pair\"\n\
         [[member]]\nid = 1\naddress = \"unix:{path}/1\"\n\
         [[member]]\nid = 2\naddress = \"unix:{path}/2\"\n",
        path = directory.display()
    );
    let state = directory.join(format!("state-{id}"));
    let config = Config::parse(&text).unwrap();
    config.node(id).unwrap().with_state_dir(state)
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
    let directory = directory();
    let agents = [1, 2].map(|id| Agent::from_config(node(directory.path(), id)).unwrap());
    let [here, there] = [&agents[0], &agents[1]].map(|agent| agent.mutex("x").unwrap());
    ask(&here, &there);
}

#[test]
fn of_a_client() {
    let directory = directory();
    let socket = directory.path().join("service");
    let first = Agent::from_config(node(directory.path(), 1).with_socket(&socket)).unwrap();
    let second = Agent::from_config(node(directory.path(), 2)).unwrap();
    let client = Agent::connect(&socket).unwrap();
    let [here, there] = [&client, &second].map(|agent| agent.mutex("x").unwrap());
    ask(&here, &there);
    drop((here, client, first));
}

/// The request is sent, and what comes back is processed when the program does that: one that is
/// looked at for the first time has been granted long ago.
#[test]
fn of_an_agent_that_is_driven() {
    let directory = directory();
    let driven = [1, 2].map(|id| Driven::from_config(node(directory.path(), id)).unwrap());
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
    let directory = tempfile::tempdir().unwrap();
    let agents = [(); 2].map(|()| Agent::local_in(directory.path()).unwrap());
    let [here, there] = [&agents[0], &agents[1]].map(|agent| agent.mutex("x").unwrap());
    ask(&here, &there);

    // One that has to wait is seen to, and stands in front of threads that come later.
    let guard = there.lock().unwrap();
    let mut first = here.begin().unwrap();
    let waiters = agents[1].status().unwrap().locks[0].waiters.len();
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
        assert!(matches!(here.try_lock(), Err(TryLockError::WouldBlock)));
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
    agents[1].close();
    drop(here.try_lock().unwrap());
    assert!(matches!(unseen.poll(), Poll::Ready(Err(LockError::Closed))));
    assert!(matches!(there.begin(), Err(LockError::Closed)));
}

#[test]
fn of_a_semaphore() {
    let directory = tempfile::tempdir().unwrap();
    let agents = [(); 2].map(|()| Agent::local_in(directory.path()).unwrap());
    let two = NonZeroU32::new(2);
    let [here, there] = [&agents[0], &agents[1]].map(|agent| agent.semaphore("s", two).unwrap());
    let asked = [(); 2].map(|()| here.begin().unwrap());
    assert!(matches!(there.try_acquire(), Err(TryLockError::WouldBlock)));
    drop(asked);
    drop(there.try_acquire().unwrap());
}
