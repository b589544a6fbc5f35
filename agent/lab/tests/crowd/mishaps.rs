//! Those that want a lent lock, while one of them is killed between any two looks at memory, others give up,
//! and the core takes the lock back and lends it again. Nobody looks again by the clock here, as clients
//! do: whoever sleeps is woken, or the run ends with all asleep.

use std::cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use distlock_protocol::Epoch;
use distlock_protocol::lock::loan::{Cell, Loan, Refused};
use distlock_protocol::lock::seats::{Call, Seats};
use distlock_protocol::lock::{EntryOwner, Left};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::{AtomicU32, Ordering};
use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard};
use shuttle::thread;

shuttle::thread_local! {
    /// After how many steps this thread is killed; zero: it is not.
    static LEFT: cell::Cell<u32> = cell::Cell::new(0);
}

/// What a thread ends with that is killed.
struct Killed;

/// One look at memory, or one call of the kernel.
fn step() {
    LEFT.with(|left| match left.get() {
        0 => {}
        1 => {
            left.set(0);
            resume_unwind(Box::new(Killed));
        }
        many => left.set(many - 1),
    });
}

struct Word(AtomicU32);

impl Cell for Word {
    fn zero() -> Self {
        Self(AtomicU32::new(0))
    }

    fn load(&self, order: Ordering) -> u32 {
        step();
        self.0.load(order)
    }

    fn store(&self, value: u32, order: Ordering) {
        step();
        self.0.store(value, order);
    }

    fn swap_if(&self, is: u32, new: u32, (won, lost): (Ordering, Ordering)) -> Result<u32, u32> {
        step();
        self.0.compare_exchange(is, new, won, lost)
    }

    fn fetch_and(&self, mask: u32, order: Ordering) -> u32 {
        step();
        self.0.fetch_and(mask, order)
    }

    fn fetch_or(&self, mask: u32, order: Ordering) -> u32 {
        step();
        self.0.fetch_or(mask, order)
    }
}

/// What happens in a run.
#[derive(Clone, Copy)]
pub(crate) struct Mishaps {
    pub(crate) threads: u16,
    pub(crate) entries: usize,
    /// How often the core takes the lock back, or somebody asks for it.
    pub(crate) recalls: usize,
    /// Whether one of the threads is killed.
    pub(crate) kills: bool,
    /// Whether those that wait may give up, and come again.
    pub(crate) give_up: bool,
}

/// The agent's side.
#[derive(Default)]
struct Core {
    is_lent: bool,
    counter: u32,
    /// Whose entry became known when the lock was taken back.
    known: Option<EntryOwner>,
    /// The request that has the lock, and those that wait.
    held: Option<u64>,
    queue: VecDeque<u64>,
    last: u64,
}

struct World {
    loan: Loan<Word>,
    seats: Seats<Word, 8>,
    core: Mutex<Core>,
    granted: Condvar,
    kernel: Mutex<()>,
    woken: Condvar,
    is_inside: AtomicBool,
}

/// What became of one that waited.
enum Wait {
    Entered,
    GaveUp,
    Ask,
}

impl World {
    fn new() -> Self {
        let world = Self {
            loan: Loan::default(),
            seats: Seats::default(),
            core: Mutex::default(),
            granted: Condvar::new(),
            kernel: Mutex::default(),
            woken: Condvar::new(),
            is_inside: AtomicBool::new(false),
        };
        world.lend(&mut world.core.lock().unwrap());
        world
    }

    fn wake(&self) {
        step();
        drop(self.kernel.lock().unwrap());
        self.woken.notify_all();
    }

    fn call_next(&self) {
        if self.seats.call_next(&self.loan).is_some() {
            self.wake();
        }
    }

    fn lend(&self, core: &mut Core) {
        let is_free = core.known.is_none() && core.held.is_none() && core.queue.is_empty();
        if is_free && !core.is_lent {
            self.loan.end();
            core.is_lent = self.loan.lend(Epoch::new(1).unwrap(), core.counter);
        }
    }

    /// Takes the lock back, has `act` done, and lends it again if nobody wants it; else those ask that wait
    /// by the loan.
    fn take_back(&self, core: &mut Core, act: impl FnOnce(&mut Core)) {
        let mut is_waited = false;
        if std::mem::take(&mut core.is_lent) {
            let recalled = self.loan.recall();
            core.counter += recalled.entries;
            core.known = recalled.inside;
            is_waited = recalled.is_waited;
        }
        act(core);
        self.settle(core);
        if is_waited && !core.is_lent && self.seats.send_away(None).count() > 0 {
            self.wake();
        }
    }

    fn settle(&self, core: &mut Core) {
        if core.known.is_none() && core.held.is_none() {
            core.held = core.queue.pop_front();
            if core.held.is_some() {
                core.counter += 1;
                self.granted.notify_all();
            }
        }
        self.lend(core);
    }

    /// A stay, in which the thread may be killed.
    fn stay(&self) {
        assert!(!self.is_inside.swap(true, SeqCst), "two are inside");
        thread::yield_now();
        let end = catch_unwind(step);
        self.is_inside.store(false, SeqCst);
        if let Err(killed) = end {
            resume_unwind(killed);
        }
    }

    /// What the agent does for a client, which is not killed meanwhile.
    fn with_core<R>(&self, act: impl FnOnce(&Self, MutexGuard<'_, Core>) -> R) -> R {
        let left = LEFT.with(|left| left.replace(0));
        let done = act(self, self.core.lock().unwrap());
        LEFT.with(|its| its.set(left));
        done
    }

    fn ask(&self) {
        self.with_core(|world, mut core| {
            core.last += 1;
            let ticket = core.last;
            world.take_back(&mut core, |core| core.queue.push_back(ticket));
            while core.held != Some(ticket) {
                core = world.granted.wait(core).unwrap();
            }
            drop(core);
            world.stay();
            let mut core = world.core.lock().unwrap();
            core.held = None;
            world.settle(&mut core);
        });
    }

    fn leave(&self, owner: EntryOwner) {
        match self.loan.leave(owner) {
            Left::Alone => {}
            Left::Waited => self.call_next(),
            Left::Recalled => self.with_core(|world, mut core| {
                assert_eq!(core.known.take(), Some(owner));
                world.loan.end();
                world.settle(&mut core);
            }),
        }
    }

    fn enter(&self, owner: EntryOwner, give_up: bool) {
        loop {
            if self.loan.enter(owner).is_some() {
                break;
            }
            match self.wait(owner, give_up) {
                Wait::Entered => break,
                Wait::GaveUp => thread::yield_now(),
                Wait::Ask => return self.ask(),
            }
        }
        self.stay();
        self.leave(owner);
    }

    /// As a client waits.
    fn wait(&self, owner: EntryOwner, give_up: bool) -> Wait {
        let Some(seat) = self.seats.sit(owner, 0) else {
            return Wait::Ask;
        };
        let mut is_next = false;
        let outcome = self.wait_in(seat, owner, give_up, &mut is_next);
        self.seats.rise(seat, owner);
        if !matches!(outcome, Wait::Entered) {
            if is_next {
                self.loan.give_up_turn();
            }
            self.call_next();
        }
        outcome
    }

    fn wait_in(&self, seat: usize, owner: EntryOwner, give_up: bool, is_next: &mut bool) -> Wait {
        let mut waits_for_another = self.loan.begin_to_wait();
        loop {
            if !waits_for_another || !self.loan.is_busy() {
                match self.loan.enter_in_turn(owner) {
                    Ok(_) => return Wait::Entered,
                    Err(Refused::NotLent) => return Wait::Ask,
                    Err(Refused::Busy) => {}
                }
            }
            waits_for_another = false;
            match self.seats.call(seat, owner) {
                Call::Leave => return Wait::Ask,
                Call::None if give_up && thread_rng().gen_range(0..3) == 0 => return Wait::GaveUp,
                Call::None => {
                    self.sleep(seat, owner);
                    continue;
                }
                Call::Enter => {}
            }
            for _ in 0..thread_rng().gen_range(0..3) {
                match self.loan.enter_in_turn(owner) {
                    Ok(_) => return Wait::Entered,
                    Err(Refused::Busy) => thread::yield_now(),
                    Err(Refused::NotLent) => break,
                }
            }
            *is_next = true;
            self.seats.wait_again(seat, owner);
            self.loan.take_next_turn();
        }
    }

    fn sleep(&self, seat: usize, owner: EntryOwner) {
        let (bed, asleep) = self.seats.bed(seat, owner);
        step();
        let kernel = self.kernel.lock().unwrap();
        if bed.0.load(SeqCst) == asleep {
            drop(self.woken.wait(kernel).unwrap());
        }
    }

    /// The agent sees that `owner` is gone.
    fn end(&self, owner: EntryOwner) {
        let mut core = self.core.lock().unwrap();
        if self.loan.inside() == Some(owner) && core.is_lent {
            self.take_back(&mut core, |_| {});
        }
        if core.known == Some(owner) {
            core.known = None;
            self.loan.end();
            self.settle(&mut core);
        }
        drop(core);
        self.seats.clear(owner);
        self.loan.give_up_turn();
        let _ = self.loan.begin_to_wait();
        self.call_next();
        if self.seats.called().count() > 0 {
            self.wake();
        }
    }
}

impl Mishaps {
    pub(crate) fn play(self) {
        let world = Arc::new(World::new());
        let mut threads = Vec::new();
        for number in 0..self.threads {
            let world = Arc::clone(&world);
            threads.push(thread::spawn(move || self.come(&world, number)));
        }
        threads.push({
            let world = Arc::clone(&world);
            thread::spawn(move || {
                for _ in 0..self.recalls {
                    if thread_rng().gen_range(0..2) == 0 {
                        world.take_back(&mut world.core.lock().unwrap(), |_| {});
                    } else {
                        world.ask();
                    }
                }
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(world.seats.taken().count(), 0, "nobody's seat is taken");
    }

    /// A thread that comes again and again; the first one may be killed.
    fn come(self, world: &World, number: u16) {
        let owner = EntryOwner::new(2 + number).expect("a number");
        if self.kills && number == 0 {
            let after = thread_rng().gen_range(1..60);
            LEFT.with(|left| left.set(after));
        }
        let all = || (0..self.entries).for_each(|_| world.enter(owner, self.give_up));
        let end = catch_unwind(AssertUnwindSafe(all));
        LEFT.with(|left| left.set(0));
        match end {
            Err(killed) if killed.is::<Killed>() => world.end(owner),
            Err(other) => resume_unwind(other),
            Ok(()) => {}
        }
    }
}
