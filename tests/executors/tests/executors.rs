//! Many tasks on tokio, of both flavours, and on smol: they exclude each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use distlock::{DistMutex, GuardState, Mutex, TimedLockError};
use distlock_executors::{group, local, way};
use tokio::time::Instant;

const TASKS: usize = 16;
const ENTRIES: u32 = 100;

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
            assert!(
                !self.is_taken.swap(true, Ordering::SeqCst),
                "two are inside"
            );
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

async fn on_tokio() {
    for place in [local(), group()] {
        let inside = Arc::<Inside>::default();
        let tasks: Vec<_> = (0..TASKS)
            .map(|number| {
                let turns =
                    Arc::clone(&inside).take_turns(way(&place, number), tokio::task::yield_now);
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
        assert!(
            tokio::time::timeout(soon, way(&place, 1).lock_async())
                .await
                .is_err()
        );
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
                let turns =
                    Arc::clone(&inside).take_turns(way(&place, number), smol::future::yield_now);
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

/// Prints what an entry takes that asks nobody, by a thread and by a task; best of some rounds.
#[tokio::test(flavor = "current_thread")]
async fn a_task_enters_about_as_fast_as_a_thread() {
    const PAIRS: u32 = 1_000;
    let place = group();
    let lock = way(&place, 0);
    for _ in 0..100 {
        drop(lock.lock().unwrap());
    }
    tokio::time::sleep(Duration::from_millis(5)).await;
    let [mut by_thread, mut by_task] = [Duration::MAX; 2];
    for _ in 0..100 {
        let begun = Instant::now();
        for _ in 0..PAIRS {
            drop(lock.lock().unwrap());
        }
        by_thread = by_thread.min(begun.elapsed());
        let begun = Instant::now();
        for _ in 0..PAIRS {
            drop(lock.lock_async().await.unwrap());
        }
        by_task = by_task.min(begun.elapsed());
    }
    println!(
        "an entry: {:?} by a thread, {:?} by a task",
        by_thread / PAIRS,
        by_task / PAIRS
    );
    assert!(by_task < by_thread * 4, "{by_task:?} and {by_thread:?}");
}
