//! The locks that an agent lends to its clients, in memory that all of them share: a client enters and
//! leaves by a compare-and-swap, as the agent's own threads do ([`Loan`]), without a word to the agent.
//!
//! A lock has a slot: the words of its loan, since when somebody is inside, and the [`Seats`] of those that
//! wait for their turn. The word of the loan says whose entry it is, so the agent finds out at the death of
//! a client which locks that client had; a seat says the same of those that wait. Beside the slots, in memory that clients can only read, stand the number of the agent's session and the end
//! of its lease.
//!
//! Only programs of the agent's own user get the memory. One that writes nonsense there can break the
//! exclusion of the locks that are in it, as a debugger of that user's could; nothing that it writes harms
//! the agent, lowers a fence that the agent gives, or reaches locks that no client has open.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::protocol::lock::Loan;
use crate::protocol::lock::seats::Seats;
use crate::protocol::{EntryOwner, Fence, Time};
use crate::runtime::os::shared_memory::{self, SharedMemory, Words, Writers};
use crate::runtime::os::{clock, futex};

/// How many locks can be lent to clients at once; the others they ask for by their streams.
pub(crate) const SLOTS: usize = 1_024;

/// What stands in the number of a request that was an entry by a loan; no client chooses such a number.
pub(crate) const OF_LOAN: u64 = 1 << 63;

/// The number of the request that the entry with `fence` becomes, in the slot `index`.
pub(crate) fn request_of(index: u16, fence: Fence) -> u64 {
    OF_LOAN | u64::from(index) << 32 | (fence.as_u64() & u64::from(u32::MAX))
}

/// One lock's words, which no other lock's share a line of a processor's cache with.
#[derive(Debug)]
#[repr(C, align(64))]
struct Slot {
    loan: Loan,
    /// When whoever is inside entered, in nanoseconds of the boot-time clock; zero before that is noted, and
    /// after the end.
    since: AtomicU64,
    seats: Seats,
}

/// All slots.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Slots([Slot; SLOTS]);

#[expect(unsafe_code, reason = "it promises that it is atomic words")]
// SAFETY: a loan is three of them, the seats are such words, and the rest of a slot is one and padding that
// nobody reads.
unsafe impl Words for Slots {}

/// What clients read of the agent's session.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct SessionWords {
    number: AtomicU64,
    expiry: AtomicU64,
}

#[expect(unsafe_code, reason = "it promises that it is atomic words")]
// SAFETY: it is two of them.
unsafe impl Words for SessionWords {}

/// The memory as a client has it.
#[derive(Debug)]
pub(crate) struct LoanPage {
    slots: SharedMemory<Slots>,
    session: SharedMemory<SessionWords>,
}

/// The memory as the agent has it.
#[derive(Debug)]
pub(crate) struct OwnLoanPage {
    page: Arc<LoanPage>,
    files: [OwnedFd; 2],
}

impl OwnLoanPage {
    /// # Errors
    /// If there is no memory or no descriptor left.
    pub(crate) fn new() -> io::Result<Self> {
        let (slots, slots_file) = SharedMemory::make(c"distlock-loans", Writers::All)?;
        let (session, session_file) = SharedMemory::make(c"distlock-session", Writers::Maker)?;
        shared_memory::reserve(&session_file, 0..size_of::<SessionWords>())?;
        Ok(Self {
            page: Arc::new(LoanPage { slots, session }),
            files: [slots_file, session_file],
        })
    }

    /// The slot `index`, once its memory is reserved; `None` if the page has no such slot.
    ///
    /// # Errors
    /// If there is no memory left.
    pub(crate) fn slot(&self, index: u16) -> io::Result<Option<LoanSlot>> {
        let slot = LoanSlot::new(&self.page, index);
        if slot.is_some() {
            let start = usize::from(index) * size_of::<Slot>();
            let [slots, _] = &self.files;
            shared_memory::reserve(slots, start..start + size_of::<Slot>())?;
        }
        Ok(slot)
    }

    /// What a client maps it by.
    pub(crate) fn files(&self) -> [BorrowedFd<'_>; 2] {
        self.files.each_ref().map(AsFd::as_fd)
    }

    /// From now on the session is that one, and its lease ends at `expiry`, as
    /// [`Session::expiry`](super::session::Session::expiry) has it.
    pub(crate) fn store(&self, number: u64, expiry: u64) {
        let words = &self.page.session;
        // Whoever sees the new end sees the new number too.
        words.number.store(number, Ordering::Release);
        words.expiry.store(expiry, Ordering::Release);
    }
}

impl LoanPage {
    /// # Errors
    /// If these files are not the agent's, or there is no memory left.
    pub(crate) fn of(slots: impl AsFd, session: impl AsFd) -> io::Result<Arc<Self>> {
        let page = Self {
            slots: SharedMemory::of(slots, Writers::All)?,
            session: SharedMemory::of(session, Writers::Maker)?,
        };
        // A child that touched a word would touch its parent's entry.
        page.slots.keep_from_children()?;
        Ok(Arc::new(page))
    }

    /// The number of the agent's session, and the end of its lease, which is that session's or an
    /// earlier one's.
    pub(crate) fn session(&self) -> (u64, u64) {
        let expiry = self.session.expiry.load(Ordering::Acquire);
        (self.session.number.load(Ordering::Acquire), expiry)
    }
}

/// One slot of the memory.
#[derive(Clone, Debug)]
pub(crate) struct LoanSlot {
    page: Arc<LoanPage>,
    index: u16,
}

impl LoanSlot {
    /// The slot `index`; `None` if there is none.
    pub(crate) fn new(page: &Arc<LoanPage>, index: u16) -> Option<Self> {
        (usize::from(index) < SLOTS).then(|| Self {
            page: Arc::clone(page),
            index,
        })
    }

    fn slot(&self) -> &Slot {
        &self.page.slots.0[usize::from(self.index)]
    }

    pub(crate) fn index(&self) -> u16 {
        self.index
    }

    pub(crate) fn page(&self) -> &LoanPage {
        &self.page
    }

    /// The words of its loan.
    #[inline]
    pub(crate) fn loan(&self) -> &Loan {
        &self.slot().loan
    }

    /// Where those sleep that wait for their turn.
    pub(crate) fn seats(&self) -> &Seats {
        &self.slot().seats
    }

    /// Wakes the one that has waited longest, after the lock was left.
    pub(crate) fn call_next(&self) {
        if let Some(seat) = self.seats().call_next(self.loan()) {
            futex::wake_one(seat, futex::EVERYBODY);
        }
    }

    /// Has those that wait for their turn ask the agent: the threads of one client, or all.
    pub(crate) fn send_away(&self, of: Option<EntryOwner>) {
        let away = self.seats().send_away(of);
        away.for_each(|seat| futex::wake_one(seat, futex::EVERYBODY));
    }

    /// Has those ask the agent that were called before the seat `index`, and have not come for long.
    pub(crate) fn pass_called(&self, index: usize) {
        let passed = self.seats().pass_called(index);
        passed.for_each(|seat| futex::wake_one(seat, futex::EVERYBODY));
    }

    /// Frees the seats of a client that is gone. If it had been called, or was next, another is; and what it
    /// was about to do for others is done: to say that they wait, and to wake whom it had called.
    pub(crate) fn clear_seats(&self, owner: EntryOwner) {
        self.seats().clear(owner);
        self.loan().give_up_turn();
        let _ = self.loan().begin_to_wait();
        self.call_next();
        let called = self.seats().called();
        called.for_each(|seat| futex::wake_one(seat, futex::EVERYBODY));
    }

    /// A seat for a thread that comes now.
    pub(crate) fn sit(&self, owner: EntryOwner) -> Option<usize> {
        self.seats().sit(owner, millis(clock::now()))
    }

    /// Who waits for its turn, and since when.
    pub(crate) fn waiting(&self, now: Time) -> impl Iterator<Item = (EntryOwner, Time)> {
        self.seats().taken().map(move |(owner, since)| {
            let waits = millis(now).wrapping_sub(since);
            // Nobody came in the future.
            let waits = Some(waits).filter(|waits| *waits < u32::MAX / 2);
            let waits = u64::from(waits.unwrap_or_default());
            let since = now.as_nanos().saturating_sub(waits * NANOS_A_MILLI);
            (owner, Time::from_nanos(since))
        })
    }

    /// Notes when whoever is inside entered.
    pub(crate) fn set_since(&self, since: Time) {
        self.slot().since.store(since.as_nanos(), Ordering::Relaxed);
    }

    /// When whoever is inside entered; `now` if that is not noted, or cannot be.
    pub(crate) fn since(&self, now: Time) -> Time {
        match self.slot().since.load(Ordering::Relaxed) {
            0 => now,
            since => Time::from_nanos(since).min(now),
        }
    }
}

const NANOS_A_MILLI: u64 = 1_000_000;

/// A time in milliseconds, which begin anew after seven weeks.
fn millis(time: Time) -> u32 {
    (time.as_nanos() / NANOS_A_MILLI) as u32
}

impl AsRef<Loan> for LoanSlot {
    fn as_ref(&self) -> &Loan {
        self.loan()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Epoch;

    #[test]
    fn a_client_enters_what_the_agent_lends() {
        let own = OwnLoanPage::new().unwrap();
        let [slots, session] = own.files();
        let theirs = LoanPage::of(slots, session).unwrap();
        assert!(LoanSlot::new(&theirs, SLOTS as u16).is_none());
        assert!(own.slot(SLOTS as u16).unwrap().is_none());
        let ours = own.slot(7).unwrap().unwrap();
        let theirs = LoanSlot::new(&theirs, 7).unwrap();
        let client = EntryOwner::new(300).unwrap();
        assert!(theirs.loan().enter(client).is_none());
        assert!(ours.loan().lend(Epoch::new(1).unwrap(), 8));
        let fence = theirs.loan().enter(client).unwrap();
        assert!(ours.loan().is_lent_to(client, fence));
        let now = Time::from_nanos(100);
        assert_eq!(ours.since(now), now, "not noted");
        theirs.set_since(Time::from_nanos(40));
        assert_eq!(ours.since(now), Time::from_nanos(40));
        theirs.set_since(Time::MAX);
        assert_eq!(ours.since(now), now, "nobody enters in the future");
        own.store(3, 500);
        assert_eq!(theirs.page().session(), (3, 500));
    }

    /// Clients get it in this order.
    #[test]
    fn clients_cannot_change_the_session() {
        let own = OwnLoanPage::new().unwrap();
        let [slots, session] = own.files();
        assert!(SharedMemory::<SessionWords>::of(session, Writers::All).is_err());
        assert!(LoanPage::of(session, slots).is_err());
    }
}
