//! What is dropped at any poll leaves no lock, no descriptor, no thread and no memory behind. By itself, as what it
//! counts is the whole process.
//!
//! `DISTLOCK_DROPS=100000 cargo test --release --manifest-path tests/executors/Cargo.toml` drops that many.

use std::fs;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use distlock::DistMutex;
use distlock_executors::{group, local, way};

fn count(directory: &str) -> usize {
    fs::read_dir(directory).unwrap().count()
}

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
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
        let resident = resident_kib();
        (0..drops).for_each(|_| drop_one());
        println!("{name}: {drops} dropped, {entered} had entered");
        assert!(entered > 0);
        // Nothing is held, and nobody waits.
        drop(there.try_lock_for(Duration::from_secs(10)).unwrap());
        drop(here.try_lock_for(Duration::from_secs(10)).unwrap());
        for lock in place.agent.status().unwrap().locks {
            assert!(
                lock.holders.is_empty() && lock.waiters.is_empty(),
                "{lock:?}"
            );
        }
        let after = [count("/proc/self/fd"), count("/proc/self/task")];
        assert_eq!(after, before, "{name}: descriptors and threads");
        let grown = resident_kib().saturating_sub(resident);
        println!("{name}: {grown} KiB more memory");
        // What an allocator and other tests of this process want; a leak of 64 bytes each would be 6 MiB of 100,000.
        assert!(grown < 4096, "{name}: {grown} KiB more memory");
    }
}
