//! A thread of a client that waits for its turn to enter a lent lock, without a word to the agent.

use std::thread;
use std::time::Duration;

use super::ClientLoan;
use crate::protocol::lock::loan::Refused;
use crate::protocol::lock::seats::Call;
use crate::protocol::{EntryOwner, Fence, Release, Time};
use crate::runtime::os::{clock, futex};
use crate::runtime::request::loan_page::LoanSlot;
use crate::runtime::request::session::OVER;

/// How often a thread that was called and came too late may be overtaken before it takes the next turn, and
/// for how long: those that are inside by turns go on meanwhile, which is why nobody hands the lock over.
const BATCH: u32 = 32;
const BATCH_TIME: Duration = Duration::from_micros(100);
/// A thread that is not called looks so often by itself: whoever should have called it may be stopped, or
/// have written nonsense.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Whoever was called so long ago, and has not come, is stopped, and not only slow to wake.
const STOPPED: Duration = Duration::from_millis(10);

/// What became of one that waited for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It is inside.
    Entered(Fence),
    /// Its time is over, and another is inside.
    TimedOut,
    /// The lock is not lent, or cannot be waited for here: the agent is to be asked.
    Ask,
}

/// A seat that is taken, until this is dropped.
#[derive(Debug)]
struct Seat<'a> {
    slot: &'a LoanSlot,
    owner: EntryOwner,
    index: usize,
    /// Whether nobody else enters before it, by its own word.
    is_next: bool,
    /// Whether it has last slept for so long, and to the end, that whoever was called before it is stopped if
    /// the lock is free now.
    was_forgotten: bool,
    has_entered: bool,
}

impl ClientLoan {
    /// Whether the lock is lent, and another is inside. Not for a forked child.
    pub fn is_inside(&self) -> bool {
        let entry = self.entry.get();
        entry.is_some_and(|(slot, _)| self.is_served(slot) && slot.loan().is_inside())
    }

    /// Waits for its turn to enter as long as the lock is lent, and at most until `until`. Not for a forked
    /// child.
    pub fn wait(&self, until: Option<Time>) -> Turn {
        let Some((slot, owner)) = self.entry.get().filter(|(slot, _)| slot.loan().is_lent()) else {
            return Turn::Ask;
        };
        let Some(mut seat) = Seat::take(slot, *owner) else {
            return Turn::Ask;
        };
        // Another that is next has the lock before this one, which has just come.
        let mut waits_for_another = slot.loan().begin_to_wait();
        loop {
            if !self.is_served(slot) {
                return Turn::Ask;
            }
            match seat.enter(waits_for_another) {
                Ok(fence) => {
                    if seat.was_forgotten {
                        slot.pass_called(seat.index);
                    }
                    return self.enters(seat, fence);
                }
                Err(Refused::NotLent) => return Turn::Ask,
                Err(Refused::Busy) => {}
            }
            let was_called = match slot.seats().call(seat.index, *owner) {
                Call::Leave => return Turn::Ask,
                Call::Enter => true,
                Call::None => {
                    let left = until.map(|until| until.since(clock::now()));
                    if left == Some(Duration::ZERO) {
                        return Turn::TimedOut;
                    }
                    seat.sleep(left)
                }
            };
            if was_called && let Some(fence) = seat.insist() {
                return self.enters(seat, fence);
            }
            waits_for_another = false;
        }
    }

    fn enters(&self, mut seat: Seat<'_>, fence: Fence) -> Turn {
        seat.has_entered = true;
        drop(seat);
        if self.confirms(fence) {
            Turn::Entered(fence)
        } else {
            self.leave_as(fence, Release::Unused);
            Turn::Ask
        }
    }

    /// Whether entries are valid now.
    fn is_served(&self, slot: &LoanSlot) -> bool {
        let (_, expiry) = slot.page().session();
        expiry != OVER && clock::now().as_nanos() < expiry && !self.link.has_ended()
    }

    /// Has the threads of this process that wait for their turn ask the agent.
    pub(in crate::runtime::client) fn send_away(&self) {
        if let Some((slot, owner)) = self.entry.get() {
            slot.send_away(Some(*owner));
        }
    }
}

impl<'a> Seat<'a> {
    fn take(slot: &'a LoanSlot, owner: EntryOwner) -> Option<Self> {
        let index = slot.sit(owner)?;
        Some(Self {
            slot,
            owner,
            index,
            is_next: false,
            was_forgotten: false,
            has_entered: false,
        })
    }

    /// Enters, if nobody is inside; `behind_another`: and if no other is next.
    fn enter(&self, behind_another: bool) -> Result<Fence, Refused> {
        let loan = self.slot.loan();
        if behind_another && loan.is_busy() {
            return Err(Refused::Busy);
        }
        loan.enter_in_turn(self.owner)
    }

    /// Sleeps until it is called, at most for `limit`. Whether it has waited in vain for so long that it takes
    /// itself to be called, before those that were called and have not come.
    fn sleep(&mut self, limit: Option<Duration>) -> bool {
        let (bed, asleep) = self.slot.seats().bed(self.index, self.owner);
        let nap = limit.map_or(LOOK_AGAIN, |limit| limit.min(LOOK_AGAIN));
        let end = clock::now() + nap;
        futex::wait(bed, asleep, nap, futex::EVERYBODY);
        let is_over = clock::now() >= end;
        self.was_forgotten = is_over && nap >= STOPPED;
        let is_due = is_over && nap == LOOK_AGAIN;
        if is_due {
            self.slot.pass_called(self.index);
        }
        is_due
    }

    /// Tries to enter, as one that was called and came too late. If it is overtaken too often, or whoever is
    /// inside stays, it takes the next turn, and is to be called again.
    fn insist(&mut self) -> Option<Fence> {
        let loan = self.slot.loan();
        let (before, end) = (loan.entries(), clock::now() + BATCH_TIME);
        while loan.entries().wrapping_sub(before) < BATCH && clock::now() < end {
            // On a single processor whoever is inside has to run.
            thread::yield_now();
            match loan.enter_in_turn(self.owner) {
                Ok(fence) => return Some(fence),
                Err(Refused::Busy) => {}
                Err(Refused::NotLent) => return None,
            }
        }
        self.is_next = true;
        // In this order: who leaves after the second calls this one.
        self.slot.seats().wait_again(self.index, self.owner);
        loan.take_next_turn();
        None
    }
}

/// Whoever has waited in vain was perhaps called, and others were not.
impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.slot.seats().rise(self.index, self.owner);
        if !self.has_entered {
            if self.is_next {
                self.slot.loan().give_up_turn();
            }
            self.slot.call_next();
        }
    }
}
