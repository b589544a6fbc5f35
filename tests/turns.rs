//! Clients of a host's agent that wait for their turn to enter a lock that is lent to them, without a word to
//! the agent.

#[path = "support/allocations.rs"]
mod allocations;
mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use allocations::asked;
use distlock::{Agent, DistMutex, Guard, LockError, Mutex, PreviousOwner, TimedLockError};
use support::{Group, is_busy};

/// A loan is used again within so long, or goes back.
const SOON: Duration = Duration::from_millis(2);
/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(30);

/// A member that serves clients.
struct Host {
    group: Group,
    member: Agent,
}

impl Host {
    fn new() -> Self {
        let group = Group::new(1, "lease = \"2s\"");
        let socket = group.path().join("service");
        let member = Agent::from_config(group.node(1).with_socket(socket)).unwrap();
        Self { group, member }
    }

    fn client(&self) -> Agent {
        Agent::connect(self.group.path().join("service")).unwrap()
    }

    /// How many wait for the lock, as everybody is told.
    fn waiters(&self) -> usize {
        let status = self.member.status().unwrap();
        status.locks.iter().map(|lock| lock.waiters.len()).sum()
    }

    /// Returns once so many wait.
    fn wait_for_waiters(&self, count: usize) {
        let start = now();
        while self.waiters() != count {
            assert!(start.elapsed() < LONG, "{} of {count} wait", self.waiters());
            thread::sleep(SOON);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a test may measure")]
fn now() -> Instant {
    Instant::now()
}

/// A guard that came without a word to the agent.
fn by_loan(lock: &Mutex) -> Guard {
    for _ in 0..1_000 {
        let before = asked();
        let guard = lock.lock().unwrap();
        if asked() == before {
            return guard;
        }
    }
    panic!("the lock was never lent");
}

/// The lock of several clients, of which the first is inside by a loan.
fn inside<const N: usize>(host: &Host) -> ([Mutex; N], Guard) {
    let locks = [(); N].map(|()| host.client().mutex("x").unwrap());
    // Nothing is lent to one that has not asked for it.
    locks.iter().for_each(|lock| drop(by_loan(lock)));
    let guard = by_loan(&locks[0]);
    (locks, guard)
}

#[test]
fn who_waits_enters_when_it_is_its_turn() {
    let host = Host::new();
    let ([_, second, third], guard) = inside::<3>(&host);
    let order = AtomicU64::new(0);
    let waits = |lock: &Mutex, place: u64| {
        let before = asked();
        let guard = lock.lock().unwrap();
        assert_eq!(asked(), before, "it had to ask");
        assert_eq!(order.fetch_add(1, Ordering::Relaxed), place);
        assert_eq!(guard.previous_owner(), PreviousOwner::Clean);
        guard.fence().unwrap()
    };
    thread::scope(|scope| {
        let first = scope.spawn(|| waits(&second, 0));
        host.wait_for_waiters(1);
        let then = scope.spawn(|| waits(&third, 1));
        host.wait_for_waiters(2);
        let mut last = guard.fence().unwrap();
        assert!(
            is_busy(second.try_lock()) && is_busy(third.try_lock_for(Duration::ZERO).map_err(busy))
        );
        guard.unlock().unwrap();
        for entered in [first, then] {
            let fence = entered.join().unwrap();
            assert!(last < fence);
            last = fence;
        }
    });
    assert_eq!(host.waiters(), 0);
}

fn busy(error: TimedLockError) -> distlock::TryLockError {
    match error {
        TimedLockError::TimedOut => distlock::TryLockError::WouldBlock,
        other => panic!("{other}"),
    }
}

#[test]
fn who_waits_gives_up_in_time_and_others_go_on() {
    let host = Host::new();
    let ([first, second, third], guard) = inside::<3>(&host);
    thread::scope(|scope| {
        let start = now();
        let in_vain = scope.spawn(|| second.try_lock_for(Duration::from_millis(50)));
        host.wait_for_waiters(1);
        let waits = scope.spawn(|| third.lock().unwrap().fence());
        let given_up = in_vain.join().unwrap();
        assert!(matches!(given_up, Err(TimedLockError::TimedOut)));
        assert!(start.elapsed() >= Duration::from_millis(50));
        host.wait_for_waiters(1);
        assert!(matches!(first.lock(), Err(LockError::Deadlock)));
        guard.unlock().unwrap();
        waits.join().unwrap();
    });
    first.lock().unwrap().unlock().unwrap();
}

/// The member's own thread wants the lock: those that wait by the loan ask, and nobody is forgotten.
#[test]
fn who_waits_asks_when_the_loan_ends() {
    let host = Host::new();
    let ([_, second, third], guard) = inside::<3>(&host);
    let own = host.member.mutex("x").unwrap();
    let wait = |lock: &Mutex| lock.lock().unwrap().fence().unwrap();
    thread::scope(|scope| {
        let [second, third] = [&second, &third].map(|lock| scope.spawn(move || wait(lock)));
        host.wait_for_waiters(2);
        let own = scope.spawn(|| wait(&own));
        host.wait_for_waiters(3);
        let fence = guard.fence().unwrap();
        guard.unlock().unwrap();
        let fences = [second, third, own].map(|waits| waits.join().unwrap());
        assert!(fences.iter().all(|its| *its > fence), "{fences:?}");
    });
}

#[test]
fn who_abandons_the_lock_is_told_of_to_one_who_waited_by_the_loan() {
    let host = Host::new();
    let ([_, second], guard) = inside::<2>(&host);
    thread::scope(|scope| {
        let waits = scope.spawn(|| second.lock().unwrap().previous_owner());
        host.wait_for_waiters(1);
        guard.abandon().unwrap();
        assert_eq!(waits.join().unwrap(), PreviousOwner::Abandoned);
    });
}

#[test]
fn closing_the_client_ends_the_waiting_of_its_threads_alone() {
    let host = Host::new();
    let ([_, second], guard) = inside::<2>(&host);
    let client = host.client();
    let lock = client.mutex("x").unwrap();
    drop(lock.try_lock());
    thread::scope(|scope| {
        let ends = scope.spawn(|| lock.lock());
        let waits = scope.spawn(|| second.lock().unwrap().fence());
        host.wait_for_waiters(2);
        client.close();
        assert!(matches!(ends.join().unwrap(), Err(LockError::Closed)));
        host.wait_for_waiters(1);
        guard.unlock().unwrap();
        waits.join().unwrap();
    });
}

/// More than there are seats: the others ask.
#[test]
fn as_many_wait_as_want_to() {
    const THREADS: u64 = 90;
    const ENTRIES: u64 = 20;
    let host = Host::new();
    let ([first, second], guard) = inside::<2>(&host);
    let (inside, entries) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for number in 0..THREADS {
            let lock = if number % 2 == 0 { &first } else { &second };
            let (inside, entries) = (&inside, &entries);
            scope.spawn(move || {
                for _ in 0..ENTRIES {
                    let guard = lock.lock().unwrap();
                    assert!(!inside.swap(true, Ordering::Relaxed));
                    entries.fetch_add(1, Ordering::Relaxed);
                    assert!(inside.swap(false, Ordering::Relaxed));
                    guard.unlock().unwrap();
                }
            });
        }
        thread::sleep(SOON);
        guard.unlock().unwrap();
    });
    assert_eq!(entries.into_inner(), THREADS * ENTRIES);
}

/// Requests of clients that would as soon wait by a loan do not keep it from being made.
#[test]
fn a_lock_that_clients_wait_for_is_lent_to_them() {
    let host = Host::new();
    let locks = [(); 4].map(|()| host.client().mutex("x").unwrap());
    let by_loan = AtomicU64::new(0);
    thread::scope(|scope| {
        for lock in &locks {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    let before = asked();
                    drop(lock.lock().unwrap());
                    by_loan.fetch_add(u64::from(asked() == before), Ordering::Relaxed);
                }
            });
        }
    });
    let by_loan = by_loan.into_inner();
    assert!(by_loan > 6_000, "{by_loan} of 8,000");
}

/// However fast one comes back, another that waits has its turn.
#[test]
fn nobody_waits_for_ever() {
    let host = Host::new();
    let ([greedy, modest], guard) = inside::<2>(&host);
    guard.unlock().unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                drop(greedy.lock().unwrap());
            }
        });
        let start = now();
        for _ in 0..200 {
            drop(modest.try_lock_for(LONG).unwrap());
        }
        let took = start.elapsed();
        is_over.store(true, Ordering::Relaxed);
        assert!(took < LONG, "{took:?}");
    });
}
