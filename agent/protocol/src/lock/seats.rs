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

/// How often others may change the word of a seat whose owner is gone.
const CHANGES: usize = 8;

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

    /// Those that were called before the seat `index`, and have not come for long, are waited for no more:
    /// they may be stopped, and ask the core when they go on. Whom to wake, should their callers have died
    /// before they did.
    pub fn pass_called(&self, index: usize) -> impl Iterator<Item = &C> {
        let own = self.seats[index].stamp.load(Ordering::Relaxed);
        let seats = self.seats.iter().filter(move |seat| {
            let word = seat.word.load(Ordering::Acquire);
            word & STATE == CALLED
                && is_before(seat.stamp.load(Ordering::Relaxed), own)
                && swaps(&seat.word, word, word & OWNER | AWAY, Ordering::AcqRel)
        });
        seats.map(|seat| &seat.word)
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
            let Some((seat, word)) = self.first(|_| true) else {
                loan.wait_no_more();
                self.first(|_| true)?;
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

    /// Of those that wait, or are called, and of whose words `counts` is true, the one that has waited longest,
    /// and its word.
    fn first(&self, counts: impl Fn(u32) -> bool) -> Option<(&Seat<C>, u32)> {
        let mut first: Option<(&Seat<C>, u32, u32)> = None;
        for seat in &self.seats {
            let word = seat.word.load(Ordering::Acquire);
            if !matches!(word & STATE, WAITS | CALLED) || !counts(word) {
                continue;
            }
            let stamp = seat.stamp.load(Ordering::Relaxed);
            if first.is_none_or(|(_, _, before)| is_before(stamp, before)) {
                first = Some((seat, word, stamp));
            }
        }
        first.map(|(seat, word, _)| (seat, word))
    }

    /// Sends away those that wait, of one owner or all, in the order in which they came; whom to wake.
    pub fn send_away(&self, of: Option<EntryOwner>) -> impl Iterator<Item = &C> {
        let counts = move |word| of.is_none_or(|of| word & OWNER == u32::from(of.get()));
        let firsts = (0..2 * N).map_while(move |_| self.first(counts));
        let sent = firsts
            .filter(|(seat, word)| swaps(&seat.word, *word, word & OWNER | AWAY, Ordering::AcqRel));
        sent.map(|(seat, _)| &seat.word)
    }

    /// Frees the seats of an owner that is gone. Others may call those in them meanwhile, or send them
    /// away; more often than that a word changes only if a broken process writes there.
    pub fn clear(&self, owner: EntryOwner) {
        let owner = u32::from(owner.get());
        for seat in &self.seats {
            let mut word = seat.word.load(Ordering::Acquire);
            for _ in 0..CHANGES {
                if word & OWNER != owner {
                    break;
                }
                let orders = (Ordering::AcqRel, Ordering::Acquire);
                match seat.word.swap_if(word, FREE, orders) {
                    Ok(_) => break,
                    Err(other) => word = other,
                }
            }
        }
    }

    /// Those that are called, and may not have been woken.
    pub fn called(&self) -> impl Iterator<Item = &C> {
        let words = self.seats.iter().map(|seat| &seat.word);
        words.filter(|word| word.load(Ordering::Acquire) & STATE == CALLED)
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
