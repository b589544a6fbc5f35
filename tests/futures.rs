//! Futures, on an executor of a few lines: whatever stands behind the lock, a task is woken when its turn has come,
//! and one that is dropped leaves nothing behind.

mod support;

use std::future::{Future, pending, ready};
use std::num::NonZeroU32;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, SystemTime};

use distlock::{
    Agent, Campaigning, DistMutex, Driven, GuardState, Invalid, LockError, Locking, Loss, Lost,
    Mutex, NotHeld, TimedCampaigning, TimedLockError, TimedLocking, UnlockError,
};
use support::{Group, two_local};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Wakes the thread that runs the task, and counts.
struct Task {
    thread: Thread,
    woken: AtomicUsize,
}

impl Task {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            thread: thread::current(),
            woken: AtomicUsize::new(0),
        })
    }

    fn woken(&self) -> usize {
        self.woken.load(Ordering::SeqCst)
    }

    /// Sleeps until it has been woken more often than that.
    fn await_more(&self, than: usize) {
        let started = SystemTime::now();
        while self.woken() == than {
            let waited = started.elapsed().unwrap();
            assert!(waited < TIMEOUT, "nobody wakes it");
            thread::park_timeout(TIMEOUT - waited);
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Ordering::SeqCst);
        self.thread.unpark();
    }
}

/// Runs `future` to its end; polls it when it has been woken, and never else. How often that was.
fn run<F: Future>(future: F) -> (F::Output, usize) {
    let task = Task::new();
    let waker = Waker::from(Arc::clone(&task));
    let mut future = pin!(future);
    for polls in 1.. {
        let woken = task.woken();
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return (output, polls);
        }
        task.await_more(woken);
    }
    unreachable!("it is polled for ever")
}

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Two ways to the same lock, of two processes as it were, and what has to live as long.
struct Ways {
    here: Mutex,
    there: Mutex,
    agents: Vec<Agent>,
    _directory: Box<dyn std::any::Any>,
}

fn all_ways() -> Vec<(&'static str, Ways)> {
    let x = |agent: &Agent| agent.mutex("x").unwrap();
    let (directory, one, other) = two_local();
    let local = Ways {
        here: x(&one),
        there: x(&other),
        agents: vec![one, other],
        _directory: Box::new(directory),
    };
    let group = Arc::new(Group::new(2, "lease = \"2s\""));
    let (first, client) = group.with_client();
    let second = group.member(2);
    let member = Ways {
        here: x(&second),
        there: x(&first),
        agents: vec![second.clone(), first.clone()],
        _directory: Box::new(Arc::clone(&group)),
    };
    let client = Ways {
        here: x(&client),
        there: x(&second),
        agents: vec![client, second, first],
        _directory: Box::new(group),
    };
    vec![("local", local), ("client", client), ("member", member)]
}

#[test]
fn a_task_is_woken_when_its_turn_has_come() {
    for (way, ways) in all_ways() {
        let (outcome, _) = run(ways.here.lock_async());
        drop(outcome.unwrap());
        for _ in 0..3 {
            let held = ways.there.lock().unwrap();
            let mut waits = ways.here.lock_async();
            assert!(poll_once(Pin::new(&mut waits)).is_pending(), "{way}");
            let waiter = thread::spawn(move || run(waits));
            thread::sleep(Duration::from_millis(100));
            assert!(!waiter.is_finished(), "{way}");
            drop(held);
            let (guard, polls) = waiter.join().unwrap();
            let guard = guard.unwrap();
            assert!(guard.is_held(), "{way}");
            // Nobody wakes it in vain; in the local group it looks now and then.
            assert!(
                polls <= if way == "local" { 50 } else { 3 },
                "{way}: {polls}"
            );
            guard.unlock().unwrap();
        }
    }
}

#[test]
fn a_task_waits_no_longer_than_it_wants_to() {
    for (way, ways) in all_ways() {
        let held = ways.there.lock().unwrap();
        for millis in [0, 1, 100] {
            let timeout = Duration::from_millis(millis);
            let started = SystemTime::now();
            let (outcome, _) = run(ways.here.lock_async_for(timeout));
            let waited = started.elapsed().unwrap();
            assert!(matches!(outcome, Err(TimedLockError::TimedOut)), "{way}");
            assert!(
                waited >= timeout && waited < timeout + TIMEOUT,
                "{way}: {waited:?}"
            );
        }
        drop(held);
        let (outcome, _) = run(ways.here.lock_async_for(TIMEOUT));
        drop(outcome.unwrap());
    }
}

/// Dropped before it asks, while it waits, and when it was granted without its knowing.
#[test]
fn what_is_dropped_holds_nothing() {
    for (way, ways) in all_ways() {
        drop(ways.here.lock_async());
        for turn in 0..20 {
            let held = (turn % 2 == 0).then(|| ways.there.lock().unwrap());
            let mut waits = ways.here.lock_async();
            let first = poll_once(Pin::new(&mut waits));
            assert!(held.is_none() || first.is_pending(), "{way}");
            drop(first);
            if turn % 4 == 0 {
                drop(held);
                thread::sleep(Duration::from_millis(turn));
            }
            drop(waits);
            let next = ways.there.try_lock_for(TIMEOUT);
            assert!(next.is_ok() || turn % 4 == 2, "{way}: {next:?}");
        }
        let guard = ways.there.try_lock_for(TIMEOUT).unwrap();
        assert!(guard.is_held(), "{way}");
    }
}

#[test]
fn a_task_hears_that_its_agent_is_closed() {
    for (way, ways) in all_ways() {
        let held = ways.there.lock().unwrap();
        let waits = ways.here.lock_async();
        let closes = ways.agents[0].clone();
        let waiter = thread::spawn(move || run(waits));
        thread::sleep(Duration::from_millis(50));
        closes.close();
        let (outcome, _) = waiter.join().unwrap();
        assert!(
            matches!(outcome, Err(LockError::Closed)),
            "{way}: {outcome:?}"
        );
        let (again, _) = run(ways.here.lock_async());
        assert!(matches!(again, Err(LockError::Closed)), "{way}: {again:?}");
        drop(held);
    }
}

/// A thread that waits and a task that waits do not hinder each other, and no task is taken for a thread that waits
/// for itself.
#[test]
fn tasks_and_threads_take_turns() {
    for (way, ways) in all_ways() {
        let (guard, _) = run(ways.here.lock_async());
        let guard = guard.unwrap();
        let (timed, _) = run(ways.here.lock_async_for(Duration::from_millis(10)));
        assert!(matches!(timed, Err(TimedLockError::TimedOut)), "{way}");
        let timed = ways.here.try_lock_for(Duration::from_millis(10));
        assert!(matches!(timed, Err(TimedLockError::TimedOut)), "{way}");
        let thread = {
            let here = ways.here.clone();
            thread::spawn(move || here.lock().map(drop))
        };
        run(guard.unlock_async()).0.unwrap();
        thread.join().unwrap().unwrap();
        let held = ways.here.lock().unwrap();
        let mut waits = ways.here.lock_async();
        assert!(poll_once(Pin::new(&mut waits)).is_pending(), "{way}");
        held.unlock().unwrap();
        drop(run(waits).0.unwrap());
    }
}

/// By looking alone it would take some 20 ms.
#[test]
fn tasks_of_the_local_group_are_woken_by_the_bell() {
    let (_directory, one, other) = two_local();
    let [here, there] = [one, other].map(|agent| agent.mutex("x").unwrap());
    let mut took: Vec<_> = (0..30)
        .map(|_| {
            let held = there.lock().unwrap();
            let waits = here.lock_async();
            let entering = thread::spawn(move || {
                let (guard, polls) = run(waits);
                drop(guard.unwrap());
                (SystemTime::now(), polls)
            });
            thread::sleep(Duration::from_millis(5));
            let left = SystemTime::now();
            drop(held);
            let (entered, polls) = entering.join().unwrap();
            assert!(polls < 20, "{polls}");
            entered.duration_since(left).unwrap()
        })
        .collect();
    took.sort_unstable();
    assert!(took[15] < Duration::from_millis(8), "{took:?}");
}

#[test]
fn tasks_of_one_process_are_called_one_after_the_other() {
    let (_directory, one, other) = two_local();
    let held = other.mutex("x").unwrap().lock().unwrap();
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let waits = one.mutex("x").unwrap().lock_async();
            thread::spawn(move || {
                let (guard, polls) = run(waits);
                drop(guard.unwrap());
                polls
            })
        })
        .collect();
    thread::sleep(Duration::from_millis(200));
    let begun = SystemTime::now();
    drop(held);
    let polls: usize = tasks.into_iter().map(|task| task.join().unwrap()).sum();
    assert!(begun.elapsed().unwrap() < Duration::from_secs(2));
    // One of them looks now and then while the lock is held; the others sleep.
    assert!(polls < 100, "{polls}");
}

#[test]
fn permits_are_waited_for_too() {
    let (_directory, one, other) = two_local();
    let two = NonZeroU32::new(2);
    let [here, there] = [&one, &other].map(|agent| agent.semaphore("licences", two).unwrap());
    let first = run(here.acquire_async()).0.unwrap();
    let second = there.acquire().unwrap();
    let timeout = Duration::from_millis(20);
    let third = run(here.acquire_async_for(timeout)).0;
    assert!(matches!(third, Err(TimedLockError::TimedOut)));
    drop(second);
    drop(run(there.acquire_async()).0.unwrap());
    drop(first);
}

/// Whatever processes the agent wakes the task.
#[test]
fn a_driven_agent_wakes_tasks_as_it_processes() {
    let group = Group::new(1, "");
    let driven = Driven::from_config(group.node(1)).unwrap();
    let mutex = driven.agent().mutex("x").unwrap();
    let task = Task::new();
    let waker = Waker::from(Arc::clone(&task));
    let mut waits = pin!(mutex.lock_async());
    let started = SystemTime::now();
    let guard = loop {
        if let Poll::Ready(outcome) = waits.as_mut().poll(&mut Context::from_waker(&waker)) {
            break outcome.unwrap();
        }
        let woken = task.woken();
        while task.woken() == woken {
            assert!(started.elapsed().unwrap() < TIMEOUT, "nobody wakes it");
            driven.process().unwrap();
            thread::sleep(Duration::from_millis(1));
        }
    };
    assert!(guard.is_held());
}

#[test]
fn they_can_be_sent_to_any_executor() {
    fn on_any_executor<F: Future + Send + Unpin + 'static>() {}
    on_any_executor::<Campaigning>();
    on_any_executor::<TimedCampaigning>();
    on_any_executor::<Locking>();
    on_any_executor::<TimedLocking>();
    on_any_executor::<Lost>();
    on_any_executor::<Invalid>();
}

#[test]
fn a_task_hears_that_its_lock_is_lost_or_unlocked() {
    for (way, ways) in all_ways() {
        let guard = ways.here.lock().unwrap();
        let (mut lost, mut invalid) = (guard.lost(), guard.invalid());
        assert!(poll_once(Pin::new(&mut lost)).is_pending(), "{way}");
        assert!(poll_once(Pin::new(&mut invalid)).is_pending(), "{way}");
        let tasks = thread::spawn(move || (run(lost).0, run(invalid).0));
        thread::sleep(Duration::from_millis(20));
        guard.unlock().unwrap();
        assert_eq!(tasks.join().unwrap(), (None, GuardState::Lost), "{way}");

        let guard = ways.here.lock().unwrap();
        let (lost, invalid) = (guard.lost(), guard.invalid());
        let tasks = thread::spawn(move || (run(lost).0, run(invalid).0));
        thread::sleep(Duration::from_millis(20));
        ways.agents[0].close();
        let told = (Some(Loss::Closed), GuardState::Lost);
        assert_eq!(tasks.join().unwrap(), told, "{way}");
        assert_eq!(run(guard.lost()).0, Some(Loss::Closed), "{way}");
        assert_eq!(run(guard.invalid()).0, GuardState::Lost, "{way}");
    }
}

#[test]
fn who_stops_waiting_for_the_end_of_a_guard_leaves_nothing_with_it() {
    for (way, ways) in all_ways() {
        let guard = ways.here.lock().unwrap();
        let tasks: Vec<_> = (0..100).map(|_| Task::new()).collect();
        for task in &tasks {
            let waker = Waker::from(Arc::clone(task));
            let mut context = Context::from_waker(&waker);
            let (mut lost, mut invalid) = (guard.lost(), guard.invalid());
            for _ in 0..2 {
                assert!(Pin::new(&mut lost).poll(&mut context).is_pending());
                assert!(Pin::new(&mut invalid).poll(&mut context).is_pending());
            }
        }
        assert!(
            tasks.iter().all(|task| Arc::strong_count(task) == 1),
            "{way}"
        );
    }
}

/// The other member stands still: no event tells that the lease is over.
#[test]
fn work_is_dropped_when_the_lease_is_over() {
    struct Work(Arc<AtomicBool>);
    impl Drop for Work {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let group = Group::new(2, "lease = \"1s\"");
    let stands_still = Arc::new(AtomicBool::new(false));
    let other = thread::spawn({
        let (node, stands_still) = (group.node(2), Arc::clone(&stands_still));
        move || {
            let driven = Driven::from_config(node).unwrap();
            while !stands_still.load(Ordering::SeqCst) {
                driven.process().unwrap();
                thread::sleep(Duration::from_millis(1));
            }
            driven
        }
    });
    let agent = group.member(1);
    let guard = agent.mutex("x").unwrap().lock().unwrap();
    assert_eq!(run(guard.hold(ready(7))).0, Ok(7));

    let dropped = Arc::new(AtomicBool::new(false));
    let work = Work(Arc::clone(&dropped));
    stands_still.store(true, Ordering::SeqCst);
    let started = SystemTime::now();
    let never = async move {
        let _work = work;
        pending::<()>().await;
    };
    let (held, polls) = run(guard.hold(never));
    let NotHeld { state, .. } = held.unwrap_err();
    assert_eq!(state, GuardState::Suspended);
    assert!(dropped.load(Ordering::SeqCst));
    let waited = started.elapsed().unwrap();
    assert!(waited < Duration::from_secs(10), "{waited:?}");
    assert!(polls < 50, "{polls}");
    assert!(!guard.is_held());
    // That nobody else was let in nobody tells, for as long as a lease.
    let started = SystemTime::now();
    assert!(matches!(
        run(guard.unlock_async()).0,
        Err(UnlockError::Lost)
    ));
    let waited = started.elapsed().unwrap();
    assert!(waited >= Duration::from_millis(900), "{waited:?}");
    drop(other.join().unwrap());
}

#[test]
fn a_task_leads_when_it_is_elected() {
    let group = Group::new(2, "lease = \"2s\"");
    let agents = [group.member(1), group.member(2)];
    let [here, there] = agents
        .each_ref()
        .map(|agent| agent.election("nightly").unwrap());
    let mut observes = there.observe_async();
    let leads = run(here.campaign_async()).0.unwrap();
    assert!(leads.is_held());
    let observer = thread::spawn(move || {
        let leader = loop {
            let (told, _) = run(observes.next());
            if let Some(leader) = told.expect("the agent is open") {
                break leader;
            }
        };
        (leader, observes)
    });
    let (leader, mut observes) = observer.join().unwrap();
    assert_eq!(
        (leader.member.map(u16::from), leader.fence),
        (Some(1), leads.fence())
    );
    let waiter = thread::spawn(move || run(there.campaign_async()).0);
    thread::sleep(Duration::from_millis(100));
    assert!(!waiter.is_finished());
    leads.resign().unwrap();
    assert!(waiter.join().unwrap().unwrap().is_held());
    // To the end: it is woken by that, too.
    let observer = thread::spawn(move || while run(observes.next()).0.is_some() {});
    thread::sleep(Duration::from_millis(50));
    agents[1].close();
    observer.join().unwrap();
}
