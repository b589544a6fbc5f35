//! The loan of a lock to threads, in every order that the memory of a processor can give: threads enter and
//! leave while the table takes the lock back and lends it again.
//!
//! Loom (after Norris and Demsky, CDSChecker, OOPSLA 2013) plays the orders.

use std::sync::Arc as StdArc;

use distlock_protocol::Epoch;
use distlock_protocol::lock::EntryOwner;
use distlock_protocol::lock::loan::{Cell, Loan};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Mutex};
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

impl World {
    fn new() -> Arc<Self> {
        let world = Self {
            loan: Loan::default(),
            core: Mutex::new(Core::default()),
            fences: UnsafeCell::new(Vec::new()),
        };
        world.lend(&mut world.core.lock().unwrap());
        Arc::new(world)
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
        if !self.loan.leave(EntryOwner::MEMBER) {
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
    loom::model(move || {
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
