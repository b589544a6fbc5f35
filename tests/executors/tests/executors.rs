//! Many tasks on tokio, of both flavours, and on smol: they exclude each other, and whatever is dropped at any poll
//! leaves no lock, no descriptor and no thread behind.
//!
//! `DISTLOCK_DROPS=100000 cargo test --release --manifest-path tests/executors/Cargo.toml` drops that many.

use std::fs;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use distlock::{Agent, Config, DistMutex, GuardState, Mutex, TimedLockError};
use tempfile::TempDir;

const TASKS: usize = 16;
const ENTRIES: u32 = 100;

/// An agent, and what it needs.
struct Place {
    agent: Agent,
    /// Another way to its locks, as if by another process.
    other: Agent,
    _directory: TempDir,
}

fn local() -> Place {
    let directory = tempfile::tempdir().unwrap();
    Place {
        agent: Agent::local_in(directory.path()).unwrap(),
        other: Agent::local_in(directory.path()).unwrap(),
        _directory: directory,
    }
}

/// Two members over Unix datagrams.
fn group() -> Place {
    let directory = tempfile::Builder::new().prefix("dl").tempdir().unwrap();
    let path = directory.path().display();
    let mut text = "[group]\nname = \"shop\"\n".to_owned();
    for id in 1..=2 {
        text += &format!("[[member]]\nid = {id}\naddress = \"unix:{path}/{id}\"\n");
    }
    let config = Config::parse(&text).unwrap();
    let member = |id| {
        let state = directory.path().join(format!("state-{id}"));
        Agent::from_config(config.node(id).unwrap().with_state_dir(state)).unwrap()
    };
    Place {
        agent: member(1),
        other: member(2),
        _directory: directory,
    }
}

/// What tasks do to a lock, and what they must not see.
#[derive(Default)]
struct Inside {
    is_taken: AtomicBool,
    entries: AtomicU32,
}

impl Inside {
    async fn take_turns(self: Arc<Self>, lock: Mutex, pause: impl AsyncFn()) {
        for _ in 0..ENTRIES {
            let guard = lock.lock_async().await.unwrap();
            assert!(!self.is_taken.swap(true, Ordering::SeqCst), "two are inside");
            pause().await;
            assert!(guard.is_held());
            assert!(self.is_taken.swap(false, Ordering::SeqCst));
            self.entries.fetch_add(1, Ordering::SeqCst);
            guard.unlock().unwrap();
        }
    }

    fn assert_all(&self) {
        let entries = self.entries.load(Ordering::SeqCst);
        assert_eq!(entries, u32::try_from(TASKS).unwrap() * ENTRIES);
    }
}

/// One of two ways to the lock `x`.
fn way(place: &Place, number: usize) -> Mutex {
    let agent = [&place.agent, &place.other][number % 2];
    agent.mutex("x").unwrap()
}

async fn on_tokio() {
    for place in [local(), group()] {
        let inside = Arc::<Inside>::default();
        let tasks: Vec<_> = (0..TASKS)
            .map(|number| {
                let turns = Arc::clone(&inside).take_turns(way(&place, number), tokio::task::yield_now);
                tokio::spawn(turns)
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        inside.assert_all();

        // A time limit of the runtime's is as good as one of ours.
        let held = way(&place, 0).lock_async().await.unwrap();
        let soon = Duration::from_millis(20);
        assert!(tokio::time::timeout(soon, way(&place, 1).lock_async()).await.is_err());
        let timed = way(&place, 1).lock_async_for(soon).await;
        assert!(matches!(timed, Err(TimedLockError::TimedOut)));
        // In a loop it keeps its place.
        let mut waits = way(&place, 1).lock_async();
        for _ in 0..3 {
            tokio::select! {
                _ = &mut waits => panic!("the lock is held"),
                () = tokio::time::sleep(soon) => {}
            }
        }
        assert_eq!(held.hold(async { 7 }).await, Ok(7));
        let invalid = tokio::spawn(held.invalid());
        held.unlock().unwrap();
        assert_eq!(invalid.await.unwrap(), GuardState::Lost);
        drop(waits.await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tokio_with_several_threads() {
    on_tokio().await;
}

#[tokio::test(flavor = "current_thread")]
async fn tokio_with_one_thread() {
    on_tokio().await;
}

#[test]
fn smol_with_its_threads() {
    for place in [local(), group()] {
        let inside = Arc::<Inside>::default();
        let tasks: Vec<_> = (0..TASKS)
            .map(|number| {
                let turns = Arc::clone(&inside).take_turns(way(&place, number), smol::future::yield_now);
                smol::spawn(turns)
            })
            .collect();
        smol::block_on(async {
            for task in tasks {
                task.await;
            }
        });
        inside.assert_all();
    }
}

fn count(directory: &str) -> usize {
    fs::read_dir(directory).unwrap().count()
}

/// Polled some times, and dropped; while another has the lock, or has just left it.
#[test]
fn what_is_dropped_at_any_poll_leaves_nothing_behind() {
    let drops = std::env::var("DISTLOCK_DROPS").map_or(5_000, |it| it.parse().unwrap());
    for (name, place) in [("local", local()), ("group", group())] {
        let [here, there] = [way(&place, 0), way(&place, 1)];
        drop(here.lock().unwrap());
        drop(there.lock().unwrap());
        // The thread that wakes tasks is there from the first one on that waits for its time.
        let mut first = here.lock_async_for(Duration::from_secs(1));
        let held = there.lock().unwrap();
        let mut noop = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut first).poll(&mut noop).is_pending());
        drop((first, held));
        let mut rng = fastrand::Rng::with_seed(1);
        let mut entered = 0;
        let mut drop_one = || {
            let mut held = rng.bool().then(|| there.lock().unwrap());
            let mut waits = here.lock_async();
            for _ in 0..rng.u32(0..4) {
                if let Poll::Ready(outcome) = Pin::new(&mut waits).poll(&mut noop) {
                    entered += u32::from(outcome.is_ok());
                    break;
                }
                if rng.bool() {
                    held = None;
                }
            }
            drop((waits, held));
        };
        // A lock of the local group keeps a file open for the next one that wants in.
        (0..100).for_each(|_| drop_one());
        let before = [count("/proc/self/fd"), count("/proc/self/task")];
        (0..drops).for_each(|_| drop_one());
        println!("{name}: {drops} dropped, {entered} had entered");
        assert!(entered > 0);
        // Nothing is held, and nobody waits.
        drop(there.try_lock_for(Duration::from_secs(10)).unwrap());
        drop(here.try_lock_for(Duration::from_secs(10)).unwrap());
        for lock in place.agent.status().unwrap().locks {
            assert!(lock.holders.is_empty() && lock.waiters.is_empty(), "{lock:?}");
        }
        let after = [count("/proc/self/fd"), count("/proc/self/task")];
        assert_eq!(after, before, "{name}: descriptors and threads");
    }
}
