//! The loan of a lock, as the threads of its member see it: one word, by which they enter and leave without
//! the core.
//!
//! While an engine lends the lock to its member ([`Engine::lends`](super::Engine::lends)) and nobody of
//! that member uses it, the table puts the lock at the disposal of the member's threads. One of them
//! enters by a compare-and-swap, and leaves by another. Each entry counts as a grant: it has the next
//! fence. Before the table does anything else about the lock it recalls the loan, and learns how many
//! entered and whether one is inside, which from then on is a caller like any other
//! ([`Event::Entered`](crate::Event::Entered)).
//!
//! | state | enter | leave | recall | lend |
//! |-|-|-|-|-|
//! | recalled | no | | nothing | → lent |
//! | lent | → inside | | → recalled | |
//! | inside | no | → lent | → recalled inside | |
//! | recalled inside | no | no: the core is to be told | | no |
//!
//! The base of the fences is written only where nobody can enter, before the word that lets threads
//! enter, and is read by whoever is inside: so that one reads the base of its own loan.
//!
//! Mellor-Crummey and Scott's survey of locks by compare-and-swap (TOCS 9(1), 1991) is where the two swaps
//! come from; that a lock manager lends its word to one side is the *biased locking* of Kawachiya et al.
//! (OOPSLA 2002), here between hosts.

use alloc::sync::Arc;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::sync::atomic::{AtomicU32, Ordering};

use crate::ids::{Epoch, Fence, Ticket};

/// Threads may enter.
const LENT: u32 = 1 << 31;
/// A thread is inside.
const INSIDE: u32 = 1 << 30;
/// Below these two: how many have entered since it was lent.
const COUNT: u32 = INSIDE - 1;

/// A word of 32 bits that several threads use: [`AtomicU32`], or what a model checker has in its place.
pub trait Cell {
    /// A word that is zero.
    fn zero() -> Self;
    /// [`AtomicU32::load`].
    fn load(&self, order: Ordering) -> u32;
    /// [`AtomicU32::store`].
    fn store(&self, value: u32, order: Ordering);
    /// [`AtomicU32::compare_exchange`].
    ///
    /// # Errors
    /// The word was another, which it returns.
    fn swap_if(&self, is: u32, new: u32, orders: (Ordering, Ordering)) -> Result<u32, u32>;
    /// [`AtomicU32::fetch_and`].
    fn fetch_and(&self, mask: u32, order: Ordering) -> u32;
}

impl Cell for AtomicU32 {
    #[inline]
    fn zero() -> Self {
        Self::new(0)
    }

    #[inline]
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }

    #[inline]
    fn store(&self, value: u32, order: Ordering) {
        self.store(value, order);
    }

    #[inline]
    fn swap_if(&self, is: u32, new: u32, (won, lost): (Ordering, Ordering)) -> Result<u32, u32> {
        self.compare_exchange(is, new, won, lost)
    }

    #[inline]
    fn fetch_and(&self, mask: u32, order: Ordering) -> u32 {
        self.fetch_and(mask, order)
    }
}

/// The loan of one lock. The member's threads call [`Loan::enter`] and [`Loan::leave`], whoever has the
/// core [`Loan::end`], the table the rest.
///
/// ```
/// use distlock_protocol::Epoch;
/// use distlock_protocol::lock::Loan;
///
/// let loan: Loan = Loan::default();
/// assert!(loan.enter().is_none()); // nothing is lent
/// assert!(loan.lend(Epoch::new(3).unwrap(), 4));
/// let fence = loan.enter().unwrap();
/// assert_eq!(fence.as_u64(), 3 << 32 | 5);
/// assert!(loan.enter().is_none()); // somebody is inside
/// assert!(loan.leave());
/// let recalled = loan.recall();
/// assert_eq!((recalled.entries, recalled.is_inside), (1, false));
/// ```
#[derive(Debug)]
pub struct Loan<C = AtomicU32> {
    word: C,
    /// The fence of the grant before the loan.
    epoch: C,
    counter: C,
}

/// What the table learns when it recalls a loan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recalled {
    /// How many have entered.
    pub entries: u32,
    /// Whether the last of them has not left.
    pub is_inside: bool,
}

impl<C: Cell> Default for Loan<C> {
    fn default() -> Self {
        Self {
            word: C::zero(),
            epoch: C::zero(),
            counter: C::zero(),
        }
    }
}

impl<C: Cell> Loan<C> {
    /// Enters, if the lock is lent and nobody is inside: with the fence of this entry.
    pub fn enter(&self) -> Option<Fence> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & (LENT | INSIDE) != LENT || word & COUNT == COUNT {
                return None;
            }
            let orders = (Ordering::Acquire, Ordering::Relaxed);
            match self.word.swap_if(word, (word + 1) | INSIDE, orders) {
                Ok(_) => break,
                Err(other) => word = other,
            }
        }
        self.fence_of(word + 1)
    }

    /// The fence of the last entry, for whoever is inside: nobody lends the lock anew meanwhile, so that
    /// the base is of this loan.
    fn fence_of(&self, word: u32) -> Option<Fence> {
        let epoch = Epoch::new(self.epoch.load(Ordering::Relaxed)).unwrap_or_default();
        let before = self.counter.load(Ordering::Relaxed);
        Fence::from_parts(epoch, before.wrapping_add(word & COUNT))
    }

    /// Leaves, for whoever entered; `false` if it was recalled meanwhile: then the core must be told, and
    /// nothing has happened.
    pub fn leave(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        let orders = (Ordering::Release, Ordering::Relaxed);
        // Only a recall changes the word of one who is inside.
        word & LENT != 0 && self.word.swap_if(word, word & !INSIDE, orders).is_ok()
    }

    /// Whether it is lent, and somebody is inside.
    pub fn is_inside(&self) -> bool {
        self.word.load(Ordering::Relaxed) & (LENT | INSIDE) == LENT | INSIDE
    }

    /// Whether the entry with that fence has not been left, and the loan not been recalled.
    pub fn is_lent_to(&self, fence: Fence) -> bool {
        let word = self.word.load(Ordering::Acquire);
        word & (LENT | INSIDE) == LENT | INSIDE && self.fence_of(word) == Some(fence)
    }

    /// Lends the lock; `epoch` and `counter` are the fence of its last grant. `false`, and nothing is
    /// lent, while somebody is inside by an earlier loan.
    pub fn lend(&self, epoch: Epoch, counter: u32) -> bool {
        if self.word.load(Ordering::Acquire) & INSIDE != 0 {
            return false;
        }
        self.epoch.store(epoch.as_u32(), Ordering::Relaxed);
        self.counter.store(counter, Ordering::Relaxed);
        self.word.store(LENT, Ordering::Release);
        true
    }

    /// Nobody enters any more.
    pub fn recall(&self) -> Recalled {
        let word = self.word.fetch_and(!LENT, Ordering::AcqRel);
        Recalled {
            entries: word & COUNT,
            is_inside: word & INSIDE != 0,
        }
    }

    /// Whoever was inside when it was recalled has left, and the core is told.
    pub fn end(&self) {
        self.word.fetch_and(!INSIDE, Ordering::Release);
    }
}

/// A loan, and what the table knows of it.
#[derive(Debug)]
pub(super) struct Borrowed {
    pub(super) loan: Arc<Loan>,
    /// The request that whoever is inside at a recall turns into; `None` once one has.
    pub(super) ticket: Option<Ticket>,
    /// Whether it is lent, as far as the table knows.
    pub(super) is_lent: bool,
}

/// What goes on from here by itself has a loan of its own, which no thread knows.
impl Clone for Borrowed {
    fn clone(&self) -> Self {
        let Loan {
            word,
            epoch,
            counter,
        } = &*self.loan;
        let copy = |cell: &AtomicU32| AtomicU32::new(cell.load(Ordering::Relaxed));
        let loan = Loan {
            word: copy(word),
            epoch: copy(epoch),
            counter: copy(counter),
        };
        Self {
            loan: Arc::new(loan),
            ..*self
        }
    }
}

impl Hash for Borrowed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.loan.word.load(Ordering::Relaxed).hash(state);
        (self.ticket, self.is_lent).hash(state);
    }
}

/// A [`Loan`] as a command carries it: two are equal if they are the same one.
#[derive(Clone, Default)]
pub struct SharedLoan(pub Arc<Loan>);

impl PartialEq for SharedLoan {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SharedLoan {}

impl fmt::Debug for SharedLoan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lent() -> Loan {
        let loan = Loan::default();
        assert!(loan.lend(Epoch::new(1).unwrap(), 7));
        loan
    }

    #[test]
    fn fences_rise_from_loan_to_loan() {
        let loan = lent();
        let mut last = 0;
        for counter in [7, 9, 40] {
            assert!(loan.lend(Epoch::new(1).unwrap(), counter));
            for _ in 0..2 {
                let fence = loan.enter().unwrap().as_u64();
                assert!(fence > last);
                last = fence;
                assert!(loan.leave());
            }
            assert_eq!(loan.recall().entries, 2);
        }
    }

    #[test]
    fn who_is_inside_at_a_recall_leaves_by_the_core() {
        let loan = lent();
        let fence = loan.enter().unwrap();
        assert!(loan.is_lent_to(fence));
        let told = Recalled {
            entries: 1,
            is_inside: true,
        };
        assert_eq!(loan.recall(), told);
        assert!(!loan.leave());
        assert!(!loan.is_inside() && !loan.is_lent_to(fence));
        assert!(!loan.lend(Epoch::new(1).unwrap(), 8), "one is inside");
        loan.end();
        assert!(loan.enter().is_none());
        assert!(loan.lend(Epoch::new(1).unwrap(), 8));
        assert!(loan.enter().unwrap() > fence);
        assert!(!loan.is_lent_to(fence), "that entry is over");
    }

    /// Numbers that are used up are the core's to renew.
    #[test]
    fn no_entry_is_without_a_number() {
        let loan = lent();
        loan.word.store(LENT | (COUNT - 1), Ordering::Relaxed);
        assert!(loan.enter().is_some() && loan.leave());
        assert!(loan.enter().is_none());
        assert_eq!(loan.recall().entries, COUNT);
    }
}
