//! The loan of a lock to threads, in every order that the memory of a processor can give: threads enter and
//! leave while the table takes the lock back and lends it again, and wait for their turns, so that a
//! wake-up which is lost is one that nobody gives again.
//!
//! Loom (after Norris and Demsky, CDSChecker, OOPSLA 2013) plays the orders.

use std::sync::Arc as StdArc;

use distlock_protocol::Epoch;
use distlock_protocol::lock::loan::{Cell, Loan, Refused};
use distlock_protocol::lock::seats::{Call, Seats};
use distlock_protocol::lock::{EntryOwner, Left};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

struct Word(AtomicU32);

impl Cell for Word {
    fn zero() -> Self {
        Self(AtomicU32::new(0))
    }

    fn load(&self, order: Ordering) -> u32 {
        self.0.load(order)
    }

    fn store(&self, value: u32, order: Ordering) {
        self.0.store(value, order);
    }

    fn swap_if(&self, is: u32, new: u32, (won, lost): (Ordering, Ordering)) -> Result<u32, u32> {
        self.0.compare_exchange(is, new, won, lost)
    }

    fn fetch_and(&self, mask: u32, order: Ordering) -> u32 {
        self.0.fetch_and(mask, order)
    }

    fn fetch_or(&self, mask: u32, order: Ordering) -> u32 {
        self.0.fetch_or(mask, order)
    }
}

/// What the core's mutex guards: how far the grants have come, and whether it knows of one inside.
#[derive(Default)]
struct Core {
    counter: u32,
    has_inside: bool,
    is_lent: bool,
}

struct World {
    loan: Loan<Word>,
    core: Mutex<Core>,
    /// What the lock protects. Loom refuses two threads that write at once, and a thread that writes without
    /// having seen the last write.
    fences: UnsafeCell<Vec<u64>>,
}

impl Default for World {
    fn default() -> Self {
        let world = Self {
            loan: Loan::default(),
            core: Mutex::new(Core::default()),
            fences: UnsafeCell::new(Vec::new()),
        };
        world.lend(&mut world.core.lock().unwrap());
        world
    }
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    fn lend(&self, core: &mut Core) {
        if !core.has_inside && !core.is_lent {
            core.is_lent = self.loan.lend(Epoch::new(1).unwrap(), core.counter);
        }
    }

    fn recall(&self, core: &mut Core) {
        if std::mem::take(&mut core.is_lent) {
            let recalled = self.loan.recall();
            core.counter += recalled.entries;
            core.has_inside = recalled.inside.is_some();
        }
    }

    #[expect(unsafe_code, reason = "what a lock protects is not atomic")]
    fn stay(&self, fence: u64) {
        self.fences.with_mut(|fences| {
            // SAFETY: whoever is inside is alone, which is what is tested.
            let fences = unsafe { &mut *fences };
            assert!(
                fences.last().is_none_or(|last| *last < fence),
                "{fences:?} {fence}"
            );
            fences.push(fence);
        });
    }

    /// A thread: whether it could enter.
    fn enter(&self) -> bool {
        let Some(fence) = self.loan.enter(EntryOwner::MEMBER) else {
            return false;
        };
        self.stay(fence.as_u64());
        if self.loan.leave(EntryOwner::MEMBER) == Left::Recalled {
            let mut core = self.core.lock().unwrap();
            assert!(core.has_inside, "whoever cannot leave is known");
            self.loan.end();
            core.has_inside = false;
            self.lend(&mut core);
        }
        true
    }

    /// The table: takes the lock back, has another member use it if nobody is inside, and lends it again.
    fn take_back(&self) {
        let mut core = self.core.lock().unwrap();
        self.recall(&mut core);
        if !core.has_inside {
            core.counter += 1;
            self.stay((1 << 32) + u64::from(core.counter));
        }
        self.lend(&mut core);
    }
}

fn check(act: impl Fn() + Send + Sync + 'static) {
    let runs = StdArc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = StdArc::clone(&runs);
    let mut orders = loom::model::Builder::new();
    // What goes wrong needs few (Musuvathi and Qadeer, PLDI 2007); without a bound three threads take hours.
    orders.preemption_bound = Some(2);
    orders.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        act();
    });
    println!("{} orders", runs.load(Ordering::Relaxed));
}

#[test]
fn two_threads_and_a_recall() {
    check(|| {
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
    check(|| {
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

/// Threads that wait for their turns.
#[derive(Default)]
struct Queue {
    world: World,
    seats: Seats<Word, 2>,
    /// What the kernel does for those that sleep on a word.
    kernel: Mutex<()>,
    woken: Condvar,
}

impl Queue {
    fn leave(&self, owner: EntryOwner) {
        match self.world.loan.leave(owner) {
            Left::Alone => {}
            Left::Waited => self.call_next(),
            Left::Recalled => panic!("nobody takes it back"),
        }
    }

    fn call_next(&self) {
        if self.seats.call_next(&self.world.loan).is_some() {
            drop(self.kernel.lock().unwrap());
            self.woken.notify_all();
        }
    }

    /// As a client does it, which looks again now and then too.
    fn enter_in_turn(&self, owner: EntryOwner) {
        let loan = &self.world.loan;
        let seat = self.seats.sit(owner, 0).expect("there are enough");
        loan.begin_to_wait();
        let fence = loop {
            match loan.enter_in_turn(owner) {
                Ok(fence) => break fence,
                Err(Refused::NotLent) => panic!("nobody takes it back"),
                Err(Refused::Busy) => {}
            }
            if self.seats.call(seat, owner) == Call::Enter {
                self.seats.wait_again(seat, owner);
                loan.take_next_turn();
                continue;
            }
            let (bed, asleep) = self.seats.bed(seat, owner);
            let kernel = self.kernel.lock().unwrap();
            if bed.load(Ordering::SeqCst) == asleep {
                drop(self.woken.wait(kernel).unwrap());
            }
        };
        self.seats.rise(seat, owner);
        self.world.stay(fence.as_u64());
        self.leave(owner);
    }
}

fn take_turns(waiting: u16) {
    check(move || {
        let queue = Arc::new(Queue::default());
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
