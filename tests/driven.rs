//! Agents without a thread through the public API, and requests that are not waited for.

mod support;

use std::num::NonZeroU32;
use std::os::fd::AsFd;
use std::task::Poll;
use std::time::Duration;

use distlock::{DistMutex, Driven, Guard, LockError, OpenError, ProcessError, Waiting};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use support::{Group, is_busy, two_local};

const TIMEOUT: Duration = Duration::from_secs(60);

fn pair() -> Group {
    Group::new(2, "lock = [{ name = \"licences\", permits = 2 }]")
}

/// Drives both until the request has an outcome.
fn drive(both: [&Driven; 2], mut waiting: Waiting) -> Result<Guard, LockError> {
    let timeout = PollTimeout::try_from(TIMEOUT).unwrap();
    loop {
        if let Poll::Ready(outcome) = waiting.poll() {
            return outcome;
        }
        let mut polled = both.map(|driven| PollFd::new(driven.as_fd(), PollFlags::POLLIN));
        assert!(poll(&mut polled, timeout).unwrap() > 0, "nothing happens");
        for driven in both {
            driven.process().unwrap();
        }
    }
}

#[test]
fn one_thread_drives_two_members() {
    let pair = pair();
    let first = Driven::from_config(pair.node(1)).unwrap();
    let second = Driven::from_config(pair.node(2)).unwrap();
    let both = [&first, &second];
    let [here, there] = both.map(|driven| driven.agent().mutex("x").unwrap());

    let guard = drive(both, here.begin().unwrap()).unwrap();
    assert!(matches!(here.begin(), Err(LockError::Deadlock)));
    let mut waiting = there.begin().unwrap();
    assert!(waiting.poll().is_pending());
    let fence = guard.fence().unwrap();
    guard.unlock().unwrap();
    let guard = drive(both, waiting).unwrap();
    assert!(guard.fence().unwrap() > fence);
    drop(guard);

    // Who drops its request is not waited for.
    drop(here.begin().unwrap());
    drop(drive(both, there.begin().unwrap()).unwrap());

    let [here, there] = both.map(|driven| driven.agent().semaphore("licences", None).unwrap());
    assert_eq!(here.permits(), NonZeroU32::new(2).unwrap());
    let guards = [&here, &there].map(|one| drive(both, one.begin().unwrap()).unwrap());
    let mut waiting = here.begin().unwrap();
    assert!(waiting.poll().is_pending());
    drop(guards);
    drop(drive(both, waiting).unwrap());

    first.agent().close();
    assert!(matches!(first.process(), Err(ProcessError::Closed)));
    assert!(matches!(here.begin(), Err(LockError::Closed)));
}

/// Whoever waits processes, and the other has a thread.
#[test]
fn waiting_needs_no_other_thread() {
    let pair = pair();
    let driven = Driven::from_config(pair.node(1)).unwrap();
    let threaded = pair.member(2);
    let [here, there] = [driven.agent(), &threaded].map(|agent| agent.mutex("x").unwrap());
    let guard = here.lock().unwrap();
    let status = driven.agent().status().unwrap();
    assert_eq!(status.locks[0].holders[0].member, 1);
    guard.unlock().unwrap();

    drop(here.begin().unwrap().wait().unwrap());
    drop(here.try_lock_for(TIMEOUT).unwrap());
    let (held, is_held) = std::sync::mpsc::channel();
    let (release, is_released) = std::sync::mpsc::channel::<()>();
    let holder = std::thread::spawn(move || {
        let guard = there.lock().unwrap();
        held.send(()).unwrap();
        is_released.recv().unwrap_err();
        drop(guard);
    });
    while is_held.try_recv().is_err() {
        driven.process().unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(is_busy(here.try_lock()));
    drop(release);
    drop(here.lock().unwrap());
    holder.join().unwrap();
}

#[test]
fn it_serves_no_other_programs() {
    let pair = pair();
    let socket = pair.path().join("service");
    let refused = Driven::from_config(pair.node(1).with_socket(&socket)).unwrap_err();
    assert!(matches!(refused, OpenError::NoService), "{refused}");
    assert!(refused.to_string().contains("leave its socket out"));
    assert!(!socket.exists());
}

/// The local group has nothing to drive, and requests that are looked at all the same.
#[test]
fn a_request_of_the_local_group_is_looked_at() {
    let (_directory, one, other) = two_local();
    let [here, there] = [&one, &other].map(|agent| agent.mutex("x").unwrap());
    let guard = here.lock().unwrap();
    let mut waiting = there.begin().unwrap();
    assert!(waiting.poll().is_pending());
    guard.unlock().unwrap();
    let guard = loop {
        if let Poll::Ready(outcome) = waiting.poll() {
            break outcome.unwrap();
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    assert!(guard.is_held());
}
