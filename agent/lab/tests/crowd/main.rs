//! Many threads that want one lent lock, in random orders: none is forgotten by those that leave, and none is
//! inside with another.
//!
//! Shuttle plays the orders, by the scheduler of Burckhardt et al. (ASPLOS 2010), which finds what needs few
//! interruptions with a known probability; what the memory of a processor makes of them is for `loan`.

#[path = "../loan/world.rs"]
#[expect(dead_code, reason = "nobody takes the lock back here")]
mod world;

mod mishaps;

use distlock_protocol::lock::EntryOwner;
use shuttle::thread;

use mishaps::Mishaps;
use rt::Arc;
use world::Queue;

mod rt {
    use std::cell;
    use std::sync::atomic::AtomicBool;

    pub(crate) use shuttle::sync::atomic::{AtomicU32, Ordering};
    pub(crate) use shuttle::sync::{Arc, Condvar, Mutex};

    /// What is not atomic, and of one thread at a time.
    pub(crate) struct UnsafeCell<T> {
        value: cell::UnsafeCell<T>,
        is_used: AtomicBool,
    }

    #[expect(
        unsafe_code,
        reason = "the compiler cannot see that one thread at a time uses it"
    )]
    // SAFETY: whoever finds it used panics.
    unsafe impl<T: Send> Sync for UnsafeCell<T> {}

    impl<T> UnsafeCell<T> {
        pub(crate) fn new(value: T) -> Self {
            Self {
                value: cell::UnsafeCell::new(value),
                is_used: AtomicBool::new(false),
            }
        }

        pub(crate) fn with_mut<R>(&self, act: impl FnOnce(*mut T) -> R) -> R {
            assert!(!self.is_used.swap(true, Ordering::SeqCst), "two are inside");
            shuttle::thread::yield_now();
            let done = act(self.value.get());
            self.is_used.store(false, Ordering::SeqCst);
            done
        }
    }
}

const ORDERS: usize = 1_500;

fn crowd(threads: u16, entries: usize) {
    let queue = Arc::new(Queue::<8>::default());
    let threads = (0..threads).map(|number| {
        let queue = Arc::clone(&queue);
        let owner = EntryOwner::new(2 + number).expect("a number");
        thread::spawn(move || {
            for _ in 0..entries {
                match queue.world.loan.enter(owner) {
                    Some(fence) => {
                        queue.world.stay(fence.as_u64());
                        queue.leave(owner);
                    }
                    None => queue.enter_in_turn(owner),
                }
            }
        })
    });
    let threads: Vec<_> = threads.collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert_eq!(queue.seats.taken().count(), 0);
}

#[test]
fn all_of_a_crowd_enter() {
    shuttle::check_pct(|| crowd(6, 3), ORDERS, 3);
}

#[test]
fn few_that_come_again_and_again_enter() {
    shuttle::check_random(|| crowd(3, 8), ORDERS);
}

#[test]
fn whoever_is_killed_anywhere_keeps_nobody_waiting() {
    let mishaps = Mishaps {
        threads: 4,
        entries: 4,
        recalls: 0,
        kills: true,
        give_up: false,
    };
    shuttle::check_random(move || mishaps.play(), ORDERS);
}

#[test]
fn nobody_is_forgotten_whatever_happens() {
    let mishaps = Mishaps {
        threads: 4,
        entries: 3,
        recalls: 3,
        kills: true,
        give_up: true,
    };
    shuttle::check_random(move || mishaps.play(), ORDERS);
    shuttle::check_pct(move || mishaps.play(), ORDERS, 4);
}
