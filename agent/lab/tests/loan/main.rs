//! The loan of a lock to threads, in every order that the memory of a processor can give: threads enter and
//! leave while the table takes the lock back and lends it again, and wait for their turns, so that a
//! wake-up which is lost is one that nobody gives again.
//!
//! Loom (after Norris and Demsky, CDSChecker, OOPSLA 2013) plays the orders.

mod world;

use std::sync::Arc as StdArc;

use distlock_protocol::lock::EntryOwner;
use loom::thread;

use rt::{Arc, Ordering};
use world::{Queue, World};

mod rt {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::atomic::{AtomicU32, Ordering};
    pub(crate) use loom::sync::{Arc, Condvar, Mutex};
}

/// Plays all orders; if `preemptions` is given, those in which threads are interrupted so often at most.
fn check(preemptions: Option<usize>, act: impl Fn() + Send + Sync + 'static) {
    let runs = StdArc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = StdArc::clone(&runs);
    let mut orders = loom::model::Builder::new();
    orders.preemption_bound = preemptions;
    orders.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        act();
    });
    println!("{} orders", runs.load(Ordering::Relaxed));
}

#[test]
fn two_threads_and_a_recall() {
    check(None, || {
        let world = World::new();
        let threads = [(); 2].map(|()| {
            let world = Arc::clone(&world);
            thread::spawn(move || world.enter())
        });
        world.take_back();
        let entered = threads.map(|thread| thread.join().unwrap());
        let mut core = world.core.lock().unwrap();
        world.recall(&mut core);
        assert!(!core.has_inside);
        let all = entered.iter().filter(|entered| **entered).count() as u32;
        // The other member entered unless somebody was inside.
        assert!(
            core.counter == all || core.counter == all + 1,
            "{} {all}",
            core.counter
        );
    });
}

#[test]
fn a_thread_and_two_recalls() {
    check(None, || {
        let world = World::new();
        let thread = {
            let world = Arc::clone(&world);
            thread::spawn(move || [world.enter(), world.enter()])
        };
        world.take_back();
        world.take_back();
        thread.join().unwrap();
    });
}

fn take_turns(waiting: u16) {
    // What goes wrong needs few (Musuvathi and Qadeer, PLDI 2007); without a bound three threads take hours.
    check(Some(2), move || {
        let queue = Arc::new(Queue::<2>::default());
        let first = EntryOwner::MEMBER;
        let fence = queue.world.loan.enter(first).expect("it is lent");
        let threads = (0..waiting).map(|number| {
            let queue = Arc::clone(&queue);
            let owner = EntryOwner::new(2 + number).expect("a number");
            thread::spawn(move || queue.enter_in_turn(owner))
        });
        let threads: Vec<_> = threads.collect();
        queue.world.stay(fence.as_u64());
        queue.leave(first);
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!(queue.seats.taken().count(), 0);
    });
}

#[test]
fn one_that_waits_is_woken() {
    take_turns(1);
}

#[test]
fn two_that_wait_are_woken() {
    take_turns(2);
}
