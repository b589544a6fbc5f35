//! A lock that this process enters by itself while the agent lends it: by one compare-and-swap in memory
//! that it shares with the agent and its other clients.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{mem, thread};

use super::link::Link;
use crate::protocol::{EntryOwner, Fence, LockName, Release, Time};
use crate::runtime::frames::ToAgent;
use crate::runtime::os::clock;
use crate::runtime::request::Grant;
use crate::runtime::request::loan_page::LoanSlot;
use crate::runtime::request::session::{GuardState, OVER};

/// One lock, for all threads of the process. One of them at most is inside by it.
///
/// What is entered in this way is valid as any other grant of the agent's is: until the agent's lease runs
/// out, or a view goes on without its member, both of which stand in memory; or until the stream to the
/// agent ends.
#[derive(Debug)]
pub struct ClientLoan {
    link: Arc<Link>,
    lock: LockName,
    /// Where it enters, once the agent has answered.
    entry: OnceLock<(LoanSlot, EntryOwner)>,
    /// The agent's session in which whoever is inside entered.
    session: AtomicU64,
    /// The fence of the last entry of which the agent has said that it is lost.
    lost: AtomicU64,
    /// When this process last gave back the lock after it had asked the agent for it; zero once a thread
    /// has waited to be lent it after that.
    released: AtomicU64,
    /// How often in a row that was in vain.
    in_vain: AtomicU32,
}

/// How long a thread that comes back waits until the agent has taken note of the release and has lent the
/// lock: it takes the agent's wake-up, half as long as to ask it and to be answered.
const UNTIL_LENT: Duration = Duration::from_micros(50);
/// How often it waits in vain, one time after another, before it does so only now and then: others want the
/// lock.
const TRIES: u32 = 3;
const NOW_AND_THEN: u32 = 64;

impl ClientLoan {
    pub(super) fn new(link: Arc<Link>, lock: LockName) -> Arc<Self> {
        Arc::new(Self {
            link,
            lock,
            entry: OnceLock::new(),
            session: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            released: AtomicU64::new(0),
            in_vain: AtomicU32::new(0),
        })
    }

    /// The agent has answered; whether it was asked by this.
    pub(super) fn set_entry(&self, slot: LoanSlot, owner: EntryOwner) -> bool {
        self.entry.set((slot, owner)).is_ok()
    }

    /// Whether that is its slot.
    pub(super) fn is_at(&self, index: u16) -> bool {
        let entry = self.entry.get();
        entry.is_some_and(|(slot, _)| slot.index() == index)
    }

    /// The agent has said that the entry with a fence of this counter is lost.
    pub(super) fn lose(&self, counter: u32) {
        self.lost.store(u64::from(counter), Ordering::Release);
    }

    /// Enters, if the lock is lent, nobody is inside, and the agent's lease runs. Returns the fence of the
    /// entry. Not for a forked child.
    pub fn enter(&self) -> Option<Fence> {
        let (slot, owner) = self.entry.get()?;
        if !slot.loan().is_lent() {
            self.wait_until_lent(slot)?;
        }
        let fence = slot.loan().enter(*owner)?;
        // The loan is looked at after the session: if that is a later one, the loan was recalled before.
        let (session, expiry) = slot.page().session();
        let now = clock::now();
        slot.set_since(now);
        self.session.store(session, Ordering::Relaxed);
        let is_valid = now.as_nanos() < expiry && slot.loan().is_lent_to(*owner, fence);
        if is_valid && !self.link.has_ended() {
            return Some(fence);
        }
        self.leave_as(Release::Unused);
        None
    }

    /// The lock was given back that this process had asked the agent for: the agent may lend it next.
    pub fn was_released(&self) {
        self.released
            .store(clock::now().as_nanos(), Ordering::Relaxed);
    }

    /// Waits until the lock is lent, if it was given back a moment ago: whoever comes back at once would
    /// have it taken back from all clients by asking for it, again and again. `None` if it is not.
    fn wait_until_lent(&self, slot: &LoanSlot) -> Option<()> {
        let released = self.released.swap(0, Ordering::Relaxed);
        let in_vain = self.in_vain.load(Ordering::Relaxed);
        if released == 0 {
            return None;
        }
        let is_hopeless = in_vain > TRIES && !in_vain.is_multiple_of(NOW_AND_THEN);
        let end = Time::from_nanos(released) + UNTIL_LENT;
        while !slot.loan().is_lent() {
            if is_hopeless || clock::now() >= end {
                let again = in_vain.wrapping_add(1);
                self.in_vain.store(again, Ordering::Relaxed);
                return None;
            }
            // On a single processor it is the agent that has to run.
            thread::yield_now();
        }
        self.in_vain.store(0, Ordering::Relaxed);
        Some(())
    }

    /// Leaves. Not for a forked child.
    pub fn leave(&self) {
        self.leave_as(Release::Given);
    }

    fn leave_as(&self, how: Release) {
        let Some((slot, owner)) = self.entry.get() else {
            return;
        };
        if !slot.loan().leave(*owner) && !self.link.has_ended() {
            let slot = slot.index();
            self.link.say_or_end(&ToAgent::Leave { slot, how });
        }
    }

    /// Gives back what a thread is inside of, as the connection ends: its guard is lost by then.
    pub(super) fn give_back(&self) {
        if let Some((slot, owner)) = self.entry.get()
            && slot.loan().inside() == Some(*owner)
            && !slot.loan().leave(*owner)
        {
            let (slot, how) = (slot.index(), Release::Given);
            self.link.say_or_end(&ToAgent::Leave { slot, how });
        }
    }

    /// What the entry with `fence` is worth now, as long as nobody has taken it over. Not for a forked
    /// child.
    pub fn state(&self, fence: Fence) -> GuardState {
        let Some((slot, owner)) = self.entry.get() else {
            return GuardState::Lost;
        };
        let (session, expiry) = slot.page().session();
        let is_over = expiry == OVER || session != self.session.load(Ordering::Relaxed);
        // Of what was recalled the agent knows, and says when it is lost.
        let is_lost = || {
            let lost = self.lost.load(Ordering::Acquire);
            !slot.loan().is_lent_to(*owner, fence) && lost == u64::from(counter(fence))
        };
        if is_over || self.link.has_ended() || is_lost() {
            GuardState::Lost
        } else if clock::now().as_nanos() < expiry {
            GuardState::Valid
        } else {
            GuardState::Suspended
        }
    }

    /// The grant of whoever is inside with `fence`, and is known to the agent from now on. It waits for the
    /// agent's answer, and is lost if none comes, or the entry was lost.
    ///
    /// # Panics
    /// In a forked child.
    pub fn take_over(&self, fence: Fence) -> Grant {
        let entry = self.entry.get().expect("it was entered by that");
        self.link.know_entry(entry.0.index(), fence)
    }
}

/// The counter of a fence, which tells apart the entries of one slot.
fn counter(fence: Fence) -> u32 {
    (fence.as_u64() & u64::from(u32::MAX)) as u32
}

/// No thread has the lock open any more.
impl Drop for ClientLoan {
    fn drop(&mut self) {
        if self.link.is_child() {
            // In a child the memory is not there, and must not be unmapped.
            mem::forget(self.entry.take());
            return;
        }
        self.link.forget_loan(&self.lock, self);
        if let Some((slot, _)) = self.entry.get() {
            let slot = slot.index();
            self.link.say_or_end(&ToAgent::Return { slot });
        }
    }
}
