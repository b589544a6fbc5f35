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
//! Threads that wait for their turn say so in the word too ([`Loan::begin_to_wait`]): whoever leaves sees it in the
//! same swap, and wakes one of them. The turn is not handed over with that: whoever comes first enters,
//! until one that was overtaken for long takes the next turn ([`Loan::take_next_turn`]), and then enters
//! by [`Loan::enter_in_turn`]. Where they sleep, and which of them is woken, is their own affair.
//!
//! The base of the fences is written only where nobody can enter, before the word that lets threads
//! enter, and is read by whoever is inside: so that one reads the base of its own loan.
//!
//! The word may lie in memory that several processes share. So it says in the same swap that somebody is
//! inside and by whose entry ([`EntryOwner`]): there is no moment at which a process could be killed and
//! leave a lock of which nobody knows whose it was.
//!
//! Mellor-Crummey and Scott's survey of locks by compare-and-swap (TOCS 9(1), 1991) is where the two swaps
//! come from; that a lock manager lends its word to one side is the *biased locking* of Kawachiya et al.
//! (OOPSLA 2002), here between hosts.

use alloc::sync::Arc;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::num::NonZeroU16;
use core::ops::Deref;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::ids::{Epoch, Fence, Ticket};

/// Threads may enter.
const LENT: u32 = 1 << 31;
/// Somebody waits, and is to be woken by whoever leaves.
const WAITED: u32 = 1 << 30;
/// One of those that wait is next: nobody else enters.
const TURN: u32 = 1 << 29;
/// Where the number of the owner stands who is inside; zero if nobody is.
const OWNER_SHIFT: u32 = 16;
/// Its bits.
const OWNER: u32 = (EntryOwner::MAX.0.get() as u32) << OWNER_SHIFT;
/// Below these: how many have entered since it was lent.
const COUNT: u32 = (1 << OWNER_SHIFT) - 1;

/// By whose entry a thread is inside: of which of the processes that share the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryOwner(NonZeroU16);

impl EntryOwner {
    /// The member itself, where nobody else has the word.
    pub const MEMBER: Self = Self(NonZeroU16::MIN);
    /// The largest number.
    pub const MAX: Self = Self(NonZeroU16::new((1 << 13) - 1).expect("not zero"));

    /// The owner with that number; `None` for zero, and above [`EntryOwner::MAX`].
    pub const fn new(number: u16) -> Option<Self> {
        match NonZeroU16::new(number) {
            Some(number) if number.get() <= Self::MAX.0.get() => Some(Self(number)),
            _ => None,
        }
    }

    /// Its number.
    pub const fn get(self) -> u16 {
        self.0.get()
    }

    fn bits(self) -> u32 {
        u32::from(self.0.get()) << OWNER_SHIFT
    }

    /// The owner that stands in `word`.
    fn of(word: u32) -> Option<Self> {
        Self::new(u16::try_from((word & OWNER) >> OWNER_SHIFT).ok()?)
    }
}

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
    /// [`AtomicU32::fetch_or`].
    fn fetch_or(&self, mask: u32, order: Ordering) -> u32;
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

    #[inline]
    fn fetch_or(&self, mask: u32, order: Ordering) -> u32 {
        self.fetch_or(mask, order)
    }
}

/// The loan of one lock. The member's threads call [`Loan::enter`] and [`Loan::leave`], whoever has the
/// core [`Loan::end`], the table the rest.
///
/// ```
/// use distlock_protocol::Epoch;
/// use distlock_protocol::lock::{EntryOwner, Left, Loan};
///
/// let me = EntryOwner::MEMBER;
/// let loan: Loan = Loan::default();
/// assert!(loan.enter(me).is_none()); // nothing is lent
/// assert!(loan.lend(Epoch::new(3).unwrap(), 4));
/// let fence = loan.enter(me).unwrap();
/// assert_eq!(fence.as_u64(), 3 << 32 | 5);
/// assert!(loan.enter(me).is_none()); // somebody is inside
/// assert_eq!(loan.leave(me), Left::Alone);
/// let recalled = loan.recall();
/// assert_eq!((recalled.entries, recalled.inside), (1, None));
/// ```
#[derive(Debug)]
#[repr(C)]
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
    /// Whose entry has not ended.
    pub inside: Option<EntryOwner>,
    /// Whether somebody waits for its turn there.
    pub is_waited: bool,
}

/// What became of one who wanted to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "somebody may have to be told"]
pub enum Left {
    /// It has left.
    Alone,
    /// It has left, and wakes one of those that wait.
    Waited,
    /// The lock was recalled meanwhile: nothing has happened, and the core must be told.
    Recalled,
}

/// Why one that waits for its turn has not entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Another is inside, or next.
    Busy,
    /// The lock is not lent, or not any further: the core must be asked.
    NotLent,
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
    /// Enters, if the lock is lent, nobody is inside, and nobody else is next: with the fence of this
    /// entry.
    #[inline]
    pub fn enter(&self, owner: EntryOwner) -> Option<Fence> {
        self.swap_in(owner, TURN).ok()
    }

    /// The same, for one that is next, or that others have kept waiting for too long.
    ///
    /// # Errors
    /// Why it cannot enter.
    pub fn enter_in_turn(&self, owner: EntryOwner) -> Result<Fence, Refused> {
        self.swap_in(owner, 0)
    }

    /// Enters unless somebody is inside, or one of `bars` is in the word.
    #[inline]
    fn swap_in(&self, owner: EntryOwner, bars: u32) -> Result<Fence, Refused> {
        let mut word = self.word.load(Ordering::Relaxed);
        let entered = loop {
            if word & LENT == 0 || word & COUNT == COUNT {
                return Err(Refused::NotLent);
            }
            if word & (OWNER | bars) != 0 {
                return Err(Refused::Busy);
            }
            let entered = (word + 1) & !TURN | owner.bits();
            let orders = (Ordering::Acquire, Ordering::Relaxed);
            match self.word.swap_if(word, entered, orders) {
                Ok(_) => break entered,
                Err(other) => word = other,
            }
        };
        self.fence_of(entered).ok_or_else(|| {
            // No table writes such a base. Nobody is inside without a fence.
            let _ = self.leave(owner);
            Refused::NotLent
        })
    }

    /// The fence of the last entry, for whoever is inside: nobody lends the lock anew meanwhile, so that
    /// the base is of this loan.
    fn fence_of(&self, word: u32) -> Option<Fence> {
        let epoch = Epoch::new(self.epoch.load(Ordering::Relaxed)).unwrap_or_default();
        let before = self.counter.load(Ordering::Relaxed);
        Fence::from_parts(epoch, before.wrapping_add(word & COUNT))
    }

    /// Leaves, for the `owner` who entered.
    #[inline]
    pub fn leave(&self, owner: EntryOwner) -> Left {
        self.swap_out(owner, |_| true)
    }

    /// The same, if the entry with `fence` is the last one: for an owner whose number may be another's by
    /// now.
    pub fn leave_entry(&self, owner: EntryOwner, fence: Fence) -> Left {
        self.swap_out(owner, |word| self.fence_of(word) == Some(fence))
    }

    #[inline]
    fn swap_out(&self, owner: EntryOwner, is_its: impl Fn(u32) -> bool) -> Left {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            if word & (LENT | OWNER) != LENT | owner.bits() || !is_its(word) {
                return Left::Recalled;
            }
            // Of one that waits it sees, in this swap, all that the other did before it said so.
            let orders = (Ordering::AcqRel, Ordering::Acquire);
            match self.word.swap_if(word, word & !OWNER, orders) {
                Ok(_) if word & WAITED == 0 => return Left::Alone,
                Ok(_) => return Left::Waited,
                // The lock was recalled, or another thread has begun to wait.
                Err(other) => word = other,
            }
        }
    }

    /// Somebody waits from now on. Whether nobody may enter now but by its turn.
    ///
    /// Whoever waits first makes it known where it sleeps, then calls this, and then tries to enter once
    /// more: who leaves before this call has left the lock free, and who leaves after it wakes somebody.
    pub fn begin_to_wait(&self) -> bool {
        self.word.fetch_or(WAITED, Ordering::AcqRel) & TURN != 0
    }

    /// The same, of one that has waited for so long that it is next: nobody but it enters.
    pub fn take_next_turn(&self) {
        self.word.fetch_or(WAITED | TURN, Ordering::AcqRel);
    }

    /// Whoever was next enters after all others do: it has gone away.
    pub fn give_up_turn(&self) {
        self.word.fetch_and(!TURN, Ordering::AcqRel);
    }

    /// Nobody waits. Who says so looks once more after that whether somebody does.
    pub fn wait_no_more(&self) {
        self.word.fetch_and(!(WAITED | TURN), Ordering::AcqRel);
    }

    /// Whose entry has not ended, whether it was recalled or not.
    pub fn inside(&self) -> Option<EntryOwner> {
        EntryOwner::of(self.word.load(Ordering::Acquire))
    }

    /// Whose entry has not ended while the lock is lent, and its fence.
    pub fn holder(&self) -> Option<(EntryOwner, Fence)> {
        let word = self.word.load(Ordering::Acquire);
        let owner = EntryOwner::of(word).filter(|_| word & LENT != 0)?;
        let fence = self.fence_of(word)?;
        self.is_lent_to(owner, fence).then_some((owner, fence))
    }

    /// Whether threads may enter, or one has.
    pub fn is_lent(&self) -> bool {
        self.word.load(Ordering::Relaxed) & LENT != 0
    }

    /// Whether it is lent, and another would be kept out now.
    pub fn is_busy(&self) -> bool {
        let word = self.word.load(Ordering::Acquire);
        word & LENT != 0 && word & (OWNER | TURN) != 0
    }

    /// How many have entered since it was lent.
    pub fn entries(&self) -> u32 {
        self.word.load(Ordering::Relaxed) & COUNT
    }

    /// Whether it is lent, and somebody is inside.
    pub fn is_inside(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        word & LENT != 0 && word & OWNER != 0
    }

    /// Whether the entry of `owner` with that fence has not been left, and the loan not been recalled.
    #[inline]
    pub fn is_lent_to(&self, owner: EntryOwner, fence: Fence) -> bool {
        let word = self.word.load(Ordering::Acquire);
        word & (LENT | OWNER) == LENT | owner.bits() && self.fence_of(word) == Some(fence)
    }

    /// Lends the lock; `epoch` and `counter` are the fence of its last grant. `false`, and nothing is
    /// lent, while somebody is inside by an earlier loan.
    pub fn lend(&self, epoch: Epoch, counter: u32) -> bool {
        let mut word = self.word.load(Ordering::Acquire);
        if word & OWNER != 0 {
            return false;
        }
        self.epoch.store(epoch.as_u32(), Ordering::Relaxed);
        self.counter.store(counter, Ordering::Relaxed);
        loop {
            let orders = (Ordering::Release, Ordering::Relaxed);
            match self.word.swap_if(word, LENT | word & WAITED, orders) {
                Ok(_) => return true,
                // Nobody enters what is not lent; somebody may begin to wait. A broken process may write
                // anything there.
                Err(other) if other & OWNER != 0 => return false,
                Err(other) => word = other,
            }
        }
    }

    /// Nobody enters any more.
    pub fn recall(&self) -> Recalled {
        let word = self.word.fetch_and(!LENT, Ordering::AcqRel);
        let inside = EntryOwner::of(word);
        Recalled {
            // Whatever a process writes there that shares the word, whoever is inside has entered.
            entries: (word & COUNT).max(u32::from(inside.is_some())),
            inside,
            is_waited: word & WAITED != 0,
        }
    }

    /// Whoever was inside when it was recalled has left, and the core is told.
    pub fn end(&self) {
        self.word.fetch_and(!OWNER, Ordering::Release);
    }
}

/// A loan, and what the table knows of it.
#[derive(Debug)]
pub(super) struct Borrowed {
    pub(super) loan: SharedLoan,
    /// The request that whoever is inside at a recall turns into; `None` once one has.
    pub(super) ticket: Option<Ticket>,
    /// Whether it is lent, as far as the table knows.
    pub(super) is_lent: bool,
    /// How many of its entries the engine knows of.
    pub(super) counted: u32,
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
            loan: Arc::new(loan).into(),
            ..*self
        }
    }
}

impl Hash for Borrowed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.loan.word.load(Ordering::Relaxed).hash(state);
        (self.ticket, self.is_lent, self.counted).hash(state);
    }
}

/// A [`Loan`] as a command carries it, wherever its words are: two are equal if they are the same one.
#[derive(Clone)]
pub struct SharedLoan(Arc<dyn AsRef<Loan> + Send + Sync>);

impl SharedLoan {
    /// A loan in memory that somebody else keeps.
    pub fn new(loan: Arc<impl AsRef<Loan> + Send + Sync + 'static>) -> Self {
        Self(loan)
    }
}

impl AsRef<Self> for Loan {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl From<Arc<Loan>> for SharedLoan {
    fn from(loan: Arc<Loan>) -> Self {
        Self::new(loan)
    }
}

impl Default for SharedLoan {
    fn default() -> Self {
        Arc::<Loan>::default().into()
    }
}

impl Deref for SharedLoan {
    type Target = Loan;

    fn deref(&self) -> &Loan {
        (*self.0).as_ref()
    }
}

impl PartialEq for SharedLoan {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SharedLoan {}

impl fmt::Debug for SharedLoan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
pub(super) mod tests;
