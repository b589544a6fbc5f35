//! However a holder ends, the next one enters, and learns what it has to.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use distlock::{
    DistMutex as _, GuardState, HandleError, LockError, Loss, PreviousOwner, TryLockError,
    UnlockError,
};

use crate::bench::{Bench, Case, WAIT, await_that, await_waiters, case, holders, is_busy, waiters};
use crate::jobs::spawn;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("an agent that closes gives back what it holds", closes),
        case("an agent that closes wakes who waits", wakes),
        case("a closed agent does nothing", closed),
        case("an agent that closes lets a waiter of another in", hands_on),
        case("a panic abandons the lock", panic),
        case("a reader's panic is told to the next writer", reader_panic),
        case("who says so abandons the lock", abandons),
        case("an orderly end is no loss", no_loss),
        case("an agent that goes gives nothing back twice", twice),
    ]
}

fn closes(bench: &Bench<'_>) {
    let spare = bench.spare();
    let mutex = spare.agent.mutex(bench.name("x")).unwrap();
    let guard = mutex.lock().unwrap();
    let (loss, called) = (guard.loss(), crossbeam_channel::bounded(1));
    guard.on_loss(move |loss| called.0.send(loss).unwrap());
    let [here, _] = bench.both("x");
    assert!(is_busy(here.try_lock()));
    spare.agent.close();
    assert_eq!(loss.recv_timeout(WAIT), Ok(Loss::Closed));
    assert_eq!(called.1.recv_timeout(WAIT), Ok(Loss::Closed));
    assert_eq!((guard.state(), guard.is_held()), (GuardState::Lost, false));
    assert!(matches!(guard.unlock(), Err(UnlockError::Closed)));
    let guard = here.try_lock_for(WAIT).unwrap();
    // Closing is an orderly end.
    assert_eq!(guard.previous_owner(), PreviousOwner::Clean);
}

fn wakes(bench: &Bench<'_>) {
    let spare = bench.spare();
    let [here, _] = bench.both("x");
    let guard = here.lock().unwrap();
    let mutex = spare.agent.mutex(bench.name("x")).unwrap();
    let mut begun = mutex.begin().unwrap();
    let other = mutex.clone();
    let waits = spawn(move || mutex.lock().map(drop));
    let timed = spawn(move || other.try_lock_for(WAIT).map(drop));
    // Of threads that wait behind others of their process not every backend tells.
    await_that("they wait", || waiters(&spare.agent, &bench.name("x")) > 0);
    spare.agent.close();
    assert!(matches!(waits.get(), Err(LockError::Closed)));
    let timed = timed.get().unwrap_err();
    assert!(
        matches!(timed, distlock::TimedLockError::Failed(LockError::Closed)),
        "{timed}"
    );
    assert!(matches!(
        begun.poll(),
        std::task::Poll::Ready(Err(LockError::Closed))
    ));
    guard.unlock().unwrap();
    // Nobody stands in the way that has gone.
    drop(here.try_lock_for(WAIT).unwrap());
}

fn closed(bench: &Bench<'_>) {
    let spare = bench.spare();
    let agent = &spare.agent;
    let mutex = agent.mutex(bench.name("x")).unwrap();
    drop(mutex.lock().unwrap());
    let events = agent.events();
    agent.close();
    assert!(matches!(mutex.lock(), Err(LockError::Closed)));
    assert!(matches!(mutex.begin(), Err(LockError::Closed)));
    assert!(matches!(
        mutex.try_lock(),
        Err(TryLockError::Failed(LockError::Closed))
    ));
    assert!(matches!(
        agent.mutex(bench.name("y")),
        Err(HandleError::Closed)
    ));
    assert!(agent.status().is_err() && agent.metrics().is_err());
    // Whatever was told before, there is an end of it.
    assert!(events.iter().count() < 1000);
    assert!(agent.events().recv().is_err());
    agent.close();
}

fn hands_on(bench: &Bench<'_>) {
    let spare = bench.spare();
    let [_, there] = bench.both("x");
    let guard = spare.agent.mutex(bench.name("x")).unwrap().lock().unwrap();
    let waiter = spawn(move || there.lock().unwrap().unlock());
    await_waiters(bench.one(), &bench.name("x"), 1);
    assert!(waiter.goes_on());
    spare.agent.close();
    waiter.get().unwrap();
    drop(guard);
}

fn panic(bench: &Bench<'_>) {
    let [here, there] = bench.both("x");
    for mutex in [&here, &there] {
        let panics = || {
            let _guard = mutex.lock().unwrap();
            // Without a word, of which there would be one for each backend.
            resume_unwind(Box::new("as this case wants it"));
        };
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        let guard = there.lock().unwrap();
        assert_eq!(guard.previous_owner(), PreviousOwner::Abandoned);
        guard.unlock().unwrap();
        // It has been told, once.
        let guard = here.lock().unwrap();
        assert_eq!(guard.previous_owner(), PreviousOwner::Clean);
    }
}

/// The local group does not tell of a shared holder's death; a panic in this process it does, or does not.
fn reader_panic(bench: &Bench<'_>) {
    let [here, there] = bench.both("x");
    let panics = || {
        let _guard = here.shared().lock().unwrap();
        resume_unwind(Box::new("as this case wants it"));
    };
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    let guard = there.lock().unwrap();
    if bench.one().lease().is_some() {
        assert_eq!(guard.previous_owner(), PreviousOwner::Abandoned);
    }
    guard.unlock().unwrap();
    let guard = here.lock().unwrap();
    assert_eq!(guard.previous_owner(), PreviousOwner::Clean);
}

fn abandons(bench: &Bench<'_>) {
    let [here, there] = bench.both("x");
    here.lock().unwrap().abandon().unwrap();
    let guard = there.lock().unwrap();
    assert_eq!(guard.previous_owner(), PreviousOwner::Abandoned);
    guard.abandon().unwrap();
    // One that never looked is told nothing, and keeps nothing from the next.
    let unseen = here.begin().unwrap();
    await_that("it has the lock", || {
        holders(bench.two(), &bench.name("x")) == 1
    });
    drop(unseen);
    let guard = there.lock().unwrap();
    assert_eq!(guard.previous_owner(), PreviousOwner::Abandoned);
    guard.unlock().unwrap();
    let guard = here.lock().unwrap();
    assert_eq!(guard.previous_owner(), PreviousOwner::Clean);
}

fn no_loss(bench: &Bench<'_>) {
    let was_called = Arc::new(AtomicBool::new(false));
    let both = bench.both("x");
    for mutex in &both {
        let guard = mutex.lock().unwrap();
        let (loss, called) = (guard.loss(), Arc::clone(&was_called));
        guard.on_loss(move |_| called.store(true, Ordering::SeqCst));
        guard.unlock().unwrap();
        // The channel ends, so the callback has gone, too.
        assert!(loss.recv_timeout(WAIT).is_err());
        let guard = mutex.lock().unwrap();
        let loss = guard.loss();
        drop(guard);
        assert!(loss.recv_timeout(WAIT).is_err());
    }
    assert!(!was_called.load(Ordering::SeqCst));
}

/// A guard that outlives its agent: what it held is another's when it is dropped.
fn twice(bench: &Bench<'_>) {
    let spare = bench.spare();
    let [here, there] = bench.both("x");
    let old = spare.agent.mutex(bench.name("x")).unwrap().lock().unwrap();
    spare.agent.close();
    let guard = here.try_lock_for(WAIT).unwrap();
    drop(old);
    drop(spare);
    assert!(guard.is_held() && is_busy(there.try_lock()));
    guard.unlock().unwrap();
}
