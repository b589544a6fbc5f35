//! A lent lock, as threads of a model checker use it: they enter and leave while the table takes the lock back
//! and lends it again, and wait for their turns. `rt` is the checker's threads, memory and mutexes.

use distlock_protocol::Epoch;
use distlock_protocol::lock::loan::{Cell, Loan, Refused};
use distlock_protocol::lock::seats::{Call, Seats};
use distlock_protocol::lock::{EntryOwner, Left};

use crate::rt::{Arc, AtomicU32, Condvar, Mutex, Ordering, UnsafeCell};

pub(crate) struct Word(AtomicU32);

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
pub(crate) struct Core {
    pub(crate) counter: u32,
    pub(crate) has_inside: bool,
    is_lent: bool,
}

pub(crate) struct World {
    pub(crate) loan: Loan<Word>,
    pub(crate) core: Mutex<Core>,
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
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    fn lend(&self, core: &mut Core) {
        if !core.has_inside && !core.is_lent {
            core.is_lent = self.loan.lend(Epoch::new(1).unwrap(), core.counter);
        }
    }

    pub(crate) fn recall(&self, core: &mut Core) {
        if std::mem::take(&mut core.is_lent) {
            let recalled = self.loan.recall();
            core.counter += recalled.entries;
            core.has_inside = recalled.inside.is_some();
        }
    }

    #[expect(unsafe_code, reason = "what a lock protects is not atomic")]
    pub(crate) fn stay(&self, fence: u64) {
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
    pub(crate) fn enter(&self) -> bool {
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
    pub(crate) fn take_back(&self) {
        let mut core = self.core.lock().unwrap();
        self.recall(&mut core);
        if !core.has_inside {
            core.counter += 1;
            self.stay((1 << 32) + u64::from(core.counter));
        }
        self.lend(&mut core);
    }
}

/// Threads that wait for their turns.
#[derive(Default)]
pub(crate) struct Queue<const SEATS: usize> {
    pub(crate) world: World,
    pub(crate) seats: Seats<Word, SEATS>,
    /// What the kernel does for those that sleep on a word.
    kernel: Mutex<()>,
    woken: Condvar,
}

impl<const SEATS: usize> Queue<SEATS> {
    pub(crate) fn leave(&self, owner: EntryOwner) {
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
    pub(crate) fn enter_in_turn(&self, owner: EntryOwner) {
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
