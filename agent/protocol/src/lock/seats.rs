//! Where those sleep that wait for their turn to enter a lent lock, and which of them is woken.
//!
//! Each takes a seat, with a stamp, before it says in the word of the [`Loan`] that it waits. Whoever leaves
//! calls the one with the lowest stamp, unless that one is called already and on its way. A call is no
//! hand-over: it says that there is something to try. So whoever is killed, anywhere, has never kept more
//! than its seat and its turn, and another can take both away ([`Seats::clear`]).
//!
//! The words lie in memory that processes share. What a broken one writes there costs others time: they look
//! again now and then, whether they are called or not.
//!
//! | seat | next |
//! |-|-|
//! | free | taken |
//! | taken: its stamp is being written | waits |
//! | waits | called, away, free |
//! | called: it is to try to enter | waits, away, free |
//! | away: it is to ask the core | free |
//!
//! The stamps are the tickets of Lamport's bakery (CACM 17(8), 1974), and that a woken thread competes with
//! those that come, until it has been overtaken for long, is how Linux's mutexes do it.

use core::array;
use core::sync::atomic::{AtomicU32, Ordering};

use super::loan::{Cell, EntryOwner, Loan};

/// How many can wait by one loan; others ask the core.
pub const SEATS: usize = 64;

const FREE: u32 = 0;
/// Where the state stands, above the number of the owner.
const STATE: u32 = 0b11 << STATE_SHIFT;
const STATE_SHIFT: u32 = 13;
const TAKEN: u32 = 0;
const WAITS: u32 = 1 << STATE_SHIFT;
const CALLED: u32 = 2 << STATE_SHIFT;
const AWAY: u32 = 3 << STATE_SHIFT;
const OWNER: u32 = (1 << STATE_SHIFT) - 1;
const _: () = assert!(EntryOwner::MAX.get() as u32 == OWNER);

/// The seats of one lock.
#[derive(Debug)]
#[repr(C)]
pub struct Seats<C = AtomicU32, const N: usize = SEATS> {
    last: C,
    seats: [Seat<C>; N],
}

#[derive(Debug)]
#[repr(C)]
struct Seat<C> {
    word: C,
    stamp: C,
    /// When it was taken, as whoever took it says.
    since: C,
}

/// What one that waits is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// To sleep.
    None,
    /// To try to enter.
    Enter,
    /// To ask the core: the lock is lent no more, or somebody has taken the seat away.
    Leave,
}

impl<C: Cell, const N: usize> Default for Seats<C, N> {
    fn default() -> Self {
        let free = |_| Seat {
            word: C::zero(),
            stamp: C::zero(),
            since: C::zero(),
        };
        Self {
            last: C::zero(),
            seats: array::from_fn(free),
        }
    }
}

impl<C: Cell, const N: usize> Seats<C, N> {
    /// A seat for a thread of `owner`, which says that it came at `since`; `None` if all are taken.
    pub fn sit(&self, owner: EntryOwner, since: u32) -> Option<usize> {
        let owner = u32::from(owner.get());
        let takes = |seat: &Seat<C>| {
            seat.word.load(Ordering::Relaxed) == FREE
                && swaps(&seat.word, FREE, owner | TAKEN, Ordering::Acquire)
        };
        let index = self.seats.iter().position(takes)?;
        let seat = &self.seats[index];
        seat.stamp.store(self.next_stamp(), Ordering::Relaxed);
        seat.since.store(since, Ordering::Relaxed);
        // Of whoever took the seat away meanwhile it hears when it looks.
        swaps(&seat.word, owner | TAKEN, owner | WAITS, Ordering::Release);
        Some(index)
    }

    fn next_stamp(&self) -> u32 {
        let mut last = self.last.load(Ordering::Relaxed);
        loop {
            let orders = (Ordering::Relaxed, Ordering::Relaxed);
            let stamp = last.wrapping_add(1);
            match self.last.swap_if(last, stamp, orders) {
                Ok(_) => return stamp,
                Err(other) => last = other,
            }
        }
    }

    /// What `owner`, in the seat `index`, is to do.
    pub fn call(&self, index: usize, owner: EntryOwner) -> Call {
        let word = self.seats[index].word.load(Ordering::Acquire);
        match word & STATE {
            _ if word & OWNER != u32::from(owner.get()) => Call::Leave,
            WAITS => Call::None,
            CALLED => Call::Enter,
            _ => Call::Leave,
        }
    }

    /// `owner` was called to the lock, and could not enter: it is to be called again.
    pub fn wait_again(&self, index: usize, owner: EntryOwner) {
        let owner = u32::from(owner.get());
        let word = &self.seats[index].word;
        swaps(word, owner | CALLED, owner | WAITS, Ordering::Release);
    }

    /// Those that were called before the seat `index`, and have not come for long, go to the end of the line:
    /// they may be stopped.
    pub fn pass_called(&self, index: usize) {
        let own = self.seats[index].stamp.load(Ordering::Relaxed);
        for seat in &self.seats {
            let is_called = seat.word.load(Ordering::Acquire) & STATE == CALLED;
            if is_called && is_before(seat.stamp.load(Ordering::Relaxed), own) {
                seat.stamp.store(self.next_stamp(), Ordering::Relaxed);
            }
        }
    }

    /// The seat `index` of `owner` is free.
    pub fn rise(&self, index: usize, owner: EntryOwner) {
        let word = &self.seats[index].word;
        if word.load(Ordering::Relaxed) & OWNER == u32::from(owner.get()) {
            // Whoever calls at this moment has called somebody who needs it no more.
            word.fetch_and(FREE, Ordering::Release);
        }
    }

    /// The word that a thread in the seat `index` sleeps on, and what it is while nobody has called.
    pub fn bed(&self, index: usize, owner: EntryOwner) -> (&C, u32) {
        let asleep = u32::from(owner.get()) | WAITS;
        (&self.seats[index].word, asleep)
    }

    /// Calls the one that has waited longest, for whoever has left the lock free; whom to wake.
    pub fn call_next(&self, loan: &Loan<C>) -> Option<&C> {
        // Each time round somebody else has come or gone.
        for _ in 0..2 * N {
            let Some((seat, word)) = self.first() else {
                loan.wait_no_more();
                self.first()?;
                let _ = loan.begin_to_wait();
                continue;
            };
            if word & STATE == CALLED {
                return None;
            }
            if swaps(&seat.word, word, word & OWNER | CALLED, Ordering::AcqRel) {
                return Some(&seat.word);
            }
        }
        None
    }

    fn first(&self) -> Option<(&Seat<C>, u32)> {
        let mut first: Option<(&Seat<C>, u32, u32)> = None;
        for seat in &self.seats {
            let word = seat.word.load(Ordering::Acquire);
            if !matches!(word & STATE, WAITS | CALLED) {
                continue;
            }
            let stamp = seat.stamp.load(Ordering::Relaxed);
            if first.is_none_or(|(_, _, before)| is_before(stamp, before)) {
                first = Some((seat, word, stamp));
            }
        }
        first.map(|(seat, word, _)| (seat, word))
    }

    /// Sends away all that wait; whom to wake.
    pub fn send_away(&self) -> impl Iterator<Item = &C> {
        let seats = self.seats.iter().filter(|seat| {
            let word = seat.word.load(Ordering::Acquire);
            matches!(word & STATE, WAITS | CALLED)
                && swaps(&seat.word, word, word & OWNER | AWAY, Ordering::AcqRel)
        });
        seats.map(|seat| &seat.word)
    }

    /// The same of those of one owner.
    pub fn send_away_of(&self, owner: EntryOwner) -> impl Iterator<Item = &C> {
        let owner = u32::from(owner.get());
        let seats = self.seats.iter().filter(move |seat| {
            let word = seat.word.load(Ordering::Acquire);
            word & OWNER == owner
                && matches!(word & STATE, WAITS | CALLED)
                && swaps(&seat.word, word, owner | AWAY, Ordering::AcqRel)
        });
        seats.map(|seat| &seat.word)
    }

    /// Frees the seats of an owner that is gone; whether it had any.
    pub fn clear(&self, owner: EntryOwner) -> bool {
        let owner = u32::from(owner.get());
        let mut had_any = false;
        for seat in &self.seats {
            let word = seat.word.load(Ordering::Acquire);
            if word & OWNER == owner {
                had_any |= swaps(&seat.word, word, FREE, Ordering::AcqRel);
            }
        }
        had_any
    }

    /// By whom seats are taken, and since when.
    pub fn taken(&self) -> impl Iterator<Item = (EntryOwner, u32)> {
        self.seats.iter().filter_map(|seat| {
            let number = seat.word.load(Ordering::Acquire) & OWNER;
            let owner = EntryOwner::new(number as u16)?;
            Some((owner, seat.since.load(Ordering::Relaxed)))
        })
    }
}

/// Whether the stamp `one` was given before `other`: they come again after 2³² others.
const fn is_before(one: u32, other: u32) -> bool {
    one.wrapping_sub(other) > u32::MAX / 2
}

/// Whether the word was `is`, and has become `new`.
fn swaps<C: Cell>(word: &C, is: u32, new: u32, order: Ordering) -> bool {
    word.swap_if(is, new, (order, Ordering::Relaxed)).is_ok()
}

#[cfg(test)]
mod tests;
