//! Many threads of one agent, and agents of one process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use distlock_agent::protocol::Mode;
use distlock_agent::runtime::{AcquireError, Caller, Client, Patience, ReleaseError};

use crate::support::{Group, Kind, count, enter, eventually, lock};

/// Enters and leaves `rounds` times from each of `threads` threads of each agent; returns nothing,
/// but fails if two were ever inside or a fence did not rise.
fn contend(group: &Group, threads: usize, rounds: usize) {
    let agents = group.start_all();
    let name = lock("printer");
    let inside = AtomicU64::new(0);
    let last_fence = AtomicU64::new(0);
    thread::scope(|scope| {
        for agent in &agents {
            for _ in 0..threads {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let grant = enter(agent, &name);
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                        let fence = grant.fence().expect("the group gives fences").as_u64();
                        assert!(last_fence.swap(fence, Ordering::SeqCst) < fence);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        grant.release().unwrap();
                    }
                });
            }
        }
    });
}

#[test]
fn thousands_of_entries_from_threads_of_one_agent() {
    let rounds = count("DISTLOCK_TEST_ROUNDS", 1_000);
    contend(&Group::new(Kind::Udp, 1), 4, rounds);
}

#[test]
fn threads_of_three_agents_over_udp() {
    contend(&Group::new(Kind::Udp, 3), 3, 100);
}

#[test]
fn threads_of_three_agents_over_unix_datagrams() {
    contend(&Group::new(Kind::Unix, 3), 3, 100);
}

#[test]
fn try_and_timed_waits_end_as_they_should() {
    let group = Group::new(Kind::Udp, 2);
    let agents = group.start_all();
    let name = lock("printer");
    let held = enter(&agents[0], &name);
    let ask = |patience| agents[1].acquire(&name, None, patience, Caller::current());
    assert_eq!(ask(Patience::Try).unwrap_err(), AcquireError::Busy);
    let soon = Patience::For(Duration::from_millis(30));
    assert_eq!(ask(soon).unwrap_err(), AcquireError::TimedOut);
    held.release().unwrap();
    ask(Patience::For(Duration::from_secs(30)))
        .unwrap()
        .release()
        .unwrap();
}

/// Deadlines that fall around the moment of the grant: every request ends in one of the two, and
/// none is leaked (the last entry would wait for ever).
#[test]
fn a_timeout_that_meets_its_grant_leaks_nothing() {
    let group = Group::new(Kind::Unix, 2);
    let agents = group.start_all();
    let name = lock("printer");
    drop(enter(&agents[0], &name));
    thread::scope(|scope| {
        for (agent, step) in agents.iter().zip([7u64, 11]) {
            let name = &name;
            scope.spawn(move || {
                for round in 0..500u64 {
                    let patience = Patience::For(Duration::from_micros(round * step % 1_000));
                    match agent.acquire(name, None, patience, Caller::current()) {
                        Ok(grant) => assert!(grant.is_held()),
                        Err(error) => {
                            assert!(matches!(error, AcquireError::TimedOut), "{error}")
                        }
                    }
                }
            });
        }
    });
    for agent in &agents {
        drop(enter(agent, &name));
    }
}

#[test]
fn closing_tells_those_inside_and_those_who_wait() {
    let group = Group::new(Kind::Unix, 2);
    let mut agents = group.start_all();
    let other = agents.pop().unwrap();
    let agent = agents.pop().unwrap();
    let (mine, theirs) = (lock("mine"), lock("theirs"));
    let grant = enter(&agent, &mine);
    let (sender, losses) = crossbeam_channel::bounded(1);
    grant
        .loss()
        .on_loss(Box::new(move |_| sender.send(()).unwrap()));
    let _held = enter(&other, &theirs);
    thread::scope(|scope| {
        let waiter =
            scope.spawn(|| agent.acquire(&theirs, None, Patience::Forever, Caller::current()));
        eventually("the waiter waits", || {
            agent
                .status()
                .unwrap()
                .locks
                .iter()
                .any(|lock| !lock.waiters.is_empty())
        });
        agent.close();
        assert!(matches!(
            waiter.join().unwrap(),
            Err(AcquireError::Closed(_))
        ));
    });
    assert!(!grant.is_held());
    assert_eq!(losses.try_recv(), Ok(()));
    assert_eq!(grant.release(), Err(ReleaseError::Lost));
    let again = agent.acquire(&mine, None, Patience::Try, Caller::current());
    assert!(matches!(again, Err(AcquireError::Closed(_))));
    // What the closed agent held is free, once it is back: nobody is ever removed here.
    drop(agent);
    let agent = group.start(1).unwrap();
    drop(enter(&other, &mine));
    drop(enter(&agent, &mine));
}

/// What the closed agent's own thread gave back went to the next of its callers, and was lost at once: a
/// client's command might have started for that.
#[test]
fn closing_lets_in_nobody_who_waits() {
    let group = Group::new(Kind::Unix, 1);
    let agent = group.serve(1);
    let grant = enter(&agent, &lock("x"));
    let client = Client::connect(&group.socket(1)).unwrap();
    let ask = || client.acquire(&lock("x"), None, Patience::Forever, Caller::current());
    thread::scope(|scope| {
        let waiters = [scope.spawn(ask), scope.spawn(ask)];
        eventually("they wait", || {
            let locks = agent.status().unwrap().locks;
            locks.iter().any(|lock| lock.waiters.len() == waiters.len())
        });
        let mode = Mode::Exclusive;
        let mut own = agent
            .begin(&lock("x"), None, mode, Patience::Forever, Caller::current())
            .unwrap();
        agent.close();
        let refused = |why| matches!(why, Err(AcquireError::Closed(_)));
        for waiter in waiters {
            assert!(refused(waiter.join().unwrap().map(drop)));
        }
        let Poll::Ready(outcome) = own.wait(None) else {
            panic!("it still waits");
        };
        assert!(refused(outcome.map(drop)));
    });
    assert!(!grant.is_held());
}
