//! The local group within one process: what mutexes, semaphores and guards promise.

mod support;

use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use distlock::{
    Agent, Algorithm, DistMutex, HandleError, LockError, LockOptions, Loss, NameError,
    PreviousOwner, TimedLockError, TryLockError, UnlockError,
};
use support::{files, is_busy, local, two_local};

fn by(algorithm: Algorithm) -> LockOptions {
    LockOptions::new().algorithm(algorithm)
}

#[test]
fn a_second_handle_waits_for_the_first() {
    let (_directory, agent, other) = two_local();
    let (ours, theirs) = (agent.mutex("x").unwrap(), other.mutex("x").unwrap());
    assert_eq!(
        (ours.name().as_bytes(), ours.algorithm()),
        (&b"x"[..], Algorithm::Kernel)
    );
    let guard = ours.lock().unwrap();
    assert!(guard.is_held());
    assert_eq!(guard.remaining(), None);
    assert!(is_busy(theirs.try_lock()));
    let start = SystemTime::now();
    let timeout = Duration::from_millis(50);
    assert!(matches!(
        theirs.try_lock_for(timeout),
        Err(TimedLockError::TimedOut)
    ));
    assert!(start.elapsed().unwrap() >= timeout);
    let first = guard.fence().unwrap();
    guard.unlock().unwrap();
    let guard = theirs.lock().unwrap();
    assert!(guard.fence().unwrap() > first);
    assert_eq!(guard.previous_owner(), PreviousOwner::Clean);
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a caller's deadline is on the caller's clock"
)]
fn a_deadline_ends_the_waiting() {
    let (_directory, agent) = local();
    let mutex = agent.mutex("x").unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let guard = mutex.try_lock_until(deadline).unwrap();
    let other = thread::spawn(move || {
        let soon = Instant::now() + Duration::from_millis(30);
        let past = Instant::now();
        assert!(matches!(
            mutex.try_lock_until(past),
            Err(TimedLockError::TimedOut)
        ));
        assert!(matches!(
            mutex.try_lock_until(soon),
            Err(TimedLockError::TimedOut)
        ));
        assert!(Instant::now() >= soon);
    });
    other.join().unwrap();
    drop(guard);
}

#[test]
fn other_names_are_other_locks() {
    let (_directory, agent) = local();
    let _a = agent.mutex("a").unwrap().lock().unwrap();
    let _b = agent.mutex("b").unwrap().try_lock().unwrap();
    let _c = agent.mutex([b'a', 0xff]).unwrap().try_lock().unwrap();
}

#[test]
fn names_have_1_to_255_bytes_without_nul() {
    let (_directory, agent) = local();
    for name in [
        &[b'x'; 255][..],
        b"\xff\xfe",
        b"../../etc/passwd",
        b" ",
        b"\n",
        b".",
    ] {
        let mutex = agent.mutex(name).unwrap();
        assert_eq!(mutex.name().as_bytes(), name);
        drop(mutex.lock().unwrap());
    }
    let refusal = |name: &[u8]| match agent.mutex(name) {
        Err(HandleError::Name(error)) => error,
        other => panic!("{name:?}: {other:?}"),
    };
    assert_eq!(refusal(b""), NameError::Empty);
    assert_eq!(refusal(&[b'x'; 256]), NameError::TooLong { len: 256 });
    assert_eq!(refusal(b"a\0"), NameError::Nul);
}

#[test]
fn a_thread_that_waits_for_itself_is_told() {
    let (_directory, agent) = local();
    let mutex = agent.mutex("x").unwrap();
    let guard = mutex.lock().unwrap();
    // Another handle of the same agent makes no difference.
    let again = agent.clone().mutex("x").unwrap();
    assert!(matches!(again.lock(), Err(LockError::Deadlock)));
    let timed = again.try_lock_for(Duration::from_secs(60));
    assert!(matches!(
        timed,
        Err(TimedLockError::Failed(LockError::Deadlock))
    ));
    assert!(is_busy(again.try_lock()));
    drop(guard);
    drop(again.lock().unwrap());
}

#[test]
fn a_guard_may_be_dropped_elsewhere() {
    let (_directory, agent) = local();
    let mutex = agent.mutex("x").unwrap();
    let guard = mutex.lock().unwrap();
    drop(agent);
    thread::spawn(move || drop(guard)).join().unwrap();
    drop(mutex.lock().unwrap());
}

#[test]
fn threads_take_turns() {
    let (_directory, agent) = local();
    let mutex = agent.mutex("counter").unwrap();
    let inside = Arc::new(AtomicU32::new(0));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (mutex, inside) = (mutex.clone(), Arc::clone(&inside));
            thread::spawn(move || {
                let mut fences = Vec::new();
                for _ in 0..50 {
                    let guard = mutex.lock().unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    fences.push(guard.fence().unwrap());
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
                assert!(fences.is_sorted());
                fences
            })
        })
        .collect();
    let mut all: Vec<_> = threads
        .into_iter()
        .flat_map(|thread| thread.join().unwrap())
        .collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 8 * 50);
}

#[test]
fn a_semaphore_has_its_permits() {
    let (directory, agent) = local();
    let three = NonZeroU32::new(3);
    let other = Agent::local_in(directory.path()).unwrap();
    let (ours, theirs) = (
        agent.semaphore("s", three).unwrap(),
        other.semaphore("s", three).unwrap(),
    );
    assert_eq!(ours.permits(), three.unwrap());
    let held = [
        ours.acquire().unwrap(),
        theirs.acquire().unwrap(),
        ours.acquire().unwrap(),
    ];
    assert!(is_busy(theirs.try_acquire()));
    assert!(matches!(
        theirs.try_acquire_for(Duration::from_millis(5)),
        Err(TimedLockError::TimedOut)
    ));
    let waiting = thread::spawn(move || theirs.acquire().map(drop));
    let [first, ..] = held;
    drop(first);
    waiting.join().unwrap().unwrap();
}

#[test]
fn a_thread_with_all_permits_would_wait_for_itself() {
    let (_directory, agent) = local();
    let two = agent.semaphore("s", NonZeroU32::new(2)).unwrap();
    let _held = [two.acquire().unwrap(), two.acquire().unwrap()];
    assert!(matches!(two.acquire(), Err(LockError::Deadlock)));
}

#[test]
fn the_number_of_permits_is_the_locks() {
    let (_directory, agent, other) = two_local();
    let [two, three] = [2, 3].map(NonZeroU32::new);
    assert!(matches!(
        agent.semaphore("s", None),
        Err(HandleError::PermitsUnknown)
    ));
    let s = agent.semaphore("s", two).unwrap();
    assert!(matches!(
        agent.mutex("s"),
        Err(HandleError::WrongPermits { .. })
    ));
    let guard = s.acquire().unwrap();
    let wrong = other.semaphore("s", three).unwrap();
    assert!(matches!(
        wrong.try_acquire(),
        Err(TryLockError::Failed(LockError::WrongPermits { asked, actual }))
            if Some(asked) == three && Some(actual) == two
    ));
    // Nobody inside: the number may change.
    drop(guard);
    drop(wrong.try_acquire().unwrap());
    let many = NonZeroU32::new(1_000_000);
    assert!(matches!(
        agent.semaphore("m", many),
        Err(HandleError::TooManyPermits { .. })
    ));
}

#[test]
fn kernel_is_the_only_algorithm() {
    let (_directory, agent) = local();
    assert!(agent.mutex_with("x", &by(Algorithm::Kernel)).is_ok());
    assert!(matches!(
        agent.mutex_with("y", &by(Algorithm::Bakery)),
        Err(HandleError::NotInThisGroup {
            asked: Algorithm::Bakery
        })
    ));
    let _kept = agent.mutex("x").unwrap();
    assert!(agent.mutex_with("x", &by(Algorithm::TokenRing)).is_err());
}

#[test]
fn closing_releases_and_tells() {
    let (_directory, agent, other) = two_local();
    let mutex = agent.mutex("x").unwrap();
    let theirs = other.mutex("y").unwrap();
    let _y = theirs.lock().unwrap();
    let events = agent.events();
    let guard = mutex.lock().unwrap();
    let loss = guard.loss();
    let (sender, called) = crossbeam_channel::bounded(1);
    guard.on_loss(move |loss| sender.send(loss).unwrap());
    // Two that wait, one in front of the kernel and one behind it.
    let waiting = [(); 2].map(|()| {
        let mutex = agent.mutex("y").unwrap();
        thread::spawn(move || mutex.lock().map(drop))
    });
    while agent
        .status()
        .unwrap()
        .locks
        .iter()
        .all(|lock| lock.waiters.is_empty())
    {
        thread::sleep(Duration::from_millis(1));
    }
    agent.close();
    for thread in waiting {
        assert!(matches!(thread.join().unwrap(), Err(LockError::Closed)));
    }
    assert!(!guard.is_held());
    assert_eq!(guard.remaining(), Some(Duration::ZERO));
    assert_eq!(
        (loss.recv(), called.recv()),
        (Ok(Loss::Closed), Ok(Loss::Closed))
    );
    assert!(matches!(guard.unlock(), Err(UnlockError::Closed)));
    drop(other.mutex("x").unwrap().try_lock().unwrap());
    assert!(matches!(mutex.lock(), Err(LockError::Closed)));
    assert!(matches!(agent.mutex("z"), Err(HandleError::Closed)));
    assert!(agent.status().is_err());
    assert!(events.recv().is_err() && agent.events().recv().is_err());
    agent.close();
}

#[test]
fn an_orderly_unlock_is_no_loss() {
    let (_directory, agent) = local();
    let guard = agent.mutex("x").unwrap().lock().unwrap();
    let loss = guard.loss();
    guard.on_loss(|loss| panic!("{loss:?}"));
    guard.unlock().unwrap();
    assert!(loss.recv().is_err());
}

#[test]
fn options_hold_for_their_handle_alone() {
    let (_directory, agent) = local();
    let options = LockOptions::new().command("print it");
    let named = agent.mutex_with("x", &options).unwrap();
    let plain = agent.mutex("x").unwrap();
    let command = |guard: distlock::Guard| {
        let status = agent.status().unwrap();
        guard.unlock().unwrap();
        status.locks[0].holders[0].command.clone()
    };
    assert_eq!(command(named.clone().lock().unwrap()), "print it");
    assert_ne!(command(plain.lock().unwrap()), "print it");
    assert_eq!(command(named.lock().unwrap()), "print it");
}

#[test]
fn status_shows_holders_and_waiters() {
    let (directory, agent, other) = two_local();
    let options = LockOptions::new().command("print it");
    let guard = agent.mutex_with(b"a\xff", &options).unwrap().lock();
    let guard = guard.unwrap();
    let waiting = {
        let mutex = other.mutex(b"a\xff").unwrap();
        thread::spawn(move || mutex.lock().map(drop))
    };
    let lock = loop {
        let status = agent.status().unwrap();
        assert_eq!((status.group.as_str(), status.epoch), ("local", 0));
        assert_eq!(status.locks.len(), 1);
        let lock = status.locks.into_iter().next().unwrap();
        if !lock.waiters.is_empty() {
            break lock;
        }
        thread::sleep(Duration::from_millis(1));
    };
    assert_eq!(
        (lock.name.as_str(), lock.algorithm.as_str()),
        ("a\\xff", "kernel")
    );
    let [holder] = &lock.holders[..] else {
        panic!("{lock:?}")
    };
    assert_eq!((holder.member, holder.pid), (0, std::process::id()));
    assert_eq!(
        (holder.command.as_str(), holder.command_pid),
        ("print it", None)
    );
    assert_eq!(holder.fence, guard.fence().map(|fence| fence.as_u64()));
    assert_eq!(lock.waiters[0].pid, std::process::id());
    guard.set_command_pid(77);
    assert_eq!(
        agent.status().unwrap().locks[0].holders[0].command_pid,
        Some(77)
    );
    drop(guard);
    waiting.join().unwrap().unwrap();
    assert_eq!(agent.status().unwrap().locks, []);
    assert_eq!(files(&directory), [] as [&str; 0]);
}

#[test]
fn without_a_given_command_status_shows_the_program() {
    let (_directory, agent) = local();
    let _guard = agent.mutex("x").unwrap().lock().unwrap();
    let status = agent.status().unwrap();
    let program = std::env::args().next().unwrap();
    let name = std::path::Path::new(&program).file_name().unwrap();
    let command = &status.locks[0].holders[0].command;
    assert_eq!(name.to_str(), Some(command.as_str()), "{status:?}");
}

#[test]
fn nothing_is_left_behind() {
    let (directory, agent) = local();
    let mutex = agent.mutex("x").unwrap();
    drop(mutex.lock().unwrap());
    assert_eq!(files(&directory).len(), 1);
    drop(mutex);
    assert_eq!(files(&directory), [] as [&str; 0]);
    let guard = agent.mutex("x").unwrap().lock().unwrap();
    assert_eq!(files(&directory).len(), 1);
    drop(guard);
    assert_eq!(files(&directory), [] as [&str; 0]);
}

#[test]
fn a_copy_of_the_descriptor_keeps_the_lock() {
    let (_directory, agent) = local();
    let mutex = agent.mutex("x").unwrap();
    let guard = mutex.lock().unwrap();
    let copy = guard
        .inheritable_fd()
        .unwrap()
        .expect("the local group has one");
    guard.unlock().unwrap();
    assert!(is_busy(mutex.try_lock()));
    assert_eq!(agent.status().unwrap().locks[0].holders.len(), 1);
    drop(copy);
    let guard = mutex.try_lock().unwrap();
    assert_eq!(guard.previous_owner(), PreviousOwner::Clean);
}

#[test]
fn a_removed_page_starts_higher() {
    let (directory, agent) = local();
    let mutex = agent.mutex("x").unwrap();
    let first = mutex.lock().unwrap().fence().unwrap();
    // As a cleaner does that thinks it is not in use.
    std::fs::remove_file(directory.path().join("group")).unwrap();
    let other = Agent::local_in(directory.path()).unwrap();
    let second = other.mutex("x").unwrap().lock().unwrap().fence().unwrap();
    let third = mutex.lock().unwrap().fence().unwrap();
    assert!(first < second && second < third, "{first} {second} {third}");
}

#[test]
fn many_handles_come_and_go() {
    let (directory, _agent) = local();
    let inside = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    // Each time the file may be removed, made anew, or just going.
                    let agent = Agent::local_in(directory.path()).unwrap();
                    let _guard = agent.mutex("x").unwrap().lock().unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(files(&directory), [] as [&str; 0]);
}

#[test]
fn readers_share_and_writers_do_not() {
    let (_directory, ours, theirs) = two_local();
    let (ours, theirs) = (ours.mutex("book").unwrap(), theirs.mutex("book").unwrap());
    let first = ours.shared().lock().unwrap();
    let second = theirs.shared().try_lock().unwrap();
    assert_ne!(first.fence(), second.fence());
    assert!(is_busy(theirs.try_lock()));
    // A writer between the two would wait for the first, and the second for the writer.
    assert!(matches!(ours.shared().lock(), Err(LockError::Deadlock)));
    assert!(matches!(ours.lock(), Err(LockError::Deadlock)));
    drop(first);
    assert!(is_busy(ours.try_lock()));
    drop(second);
    let alone = ours.lock().unwrap();
    assert!(is_busy(theirs.shared().try_lock()));
    drop(alone);
    drop(theirs.shared().lock().unwrap());
}

#[test]
fn who_panics_or_says_so_abandons_the_lock() {
    let (_directory, agent) = local();
    let mutex = agent.mutex("x").unwrap();
    let panics = || {
        let _guard = mutex.lock().unwrap();
        panic!("in the middle of something, as this test wants it");
    };
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    let guard = mutex.lock().unwrap();
    assert_eq!(guard.previous_owner(), PreviousOwner::Abandoned);
    guard.abandon().unwrap();
    let guard = mutex.lock().unwrap();
    assert_eq!(guard.previous_owner(), PreviousOwner::Abandoned);
    guard.unlock().unwrap();
    // One that is taken and left while a panic unwinds is not in the middle of anything.
    struct Tidy<'a>(&'a dyn DistMutex);
    impl Drop for Tidy<'_> {
        fn drop(&mut self) {
            let guard = self.0.lock().unwrap();
            assert_eq!(guard.previous_owner(), PreviousOwner::Clean);
        }
    }
    let tidies = || {
        let _tidy = Tidy(&mutex);
        panic!("outside, as this test wants it");
    };
    assert!(catch_unwind(AssertUnwindSafe(tidies)).is_err());
    let guard = mutex.lock().unwrap();
    assert_eq!(guard.previous_owner(), PreviousOwner::Clean);
    // Closing is an orderly end.
    agent.close();
    assert!(!guard.is_held());
}
