//! A lock that this process enters by itself while the agent lends it: by one compare-and-swap in memory
//! that it shares with the agent and its other clients.

mod turn;

pub use self::turn::Turn;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{mem, thread};

use super::link::Link;
use crate::protocol::lock::Left;
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
        let (slot, owner) = self.entry.get().filter(|_| !self.link.has_ended())?;
        if !slot.loan().is_lent() {
            self.wait_until_lent(slot)?;
        }
        let fence = slot.loan().enter(*owner)?;
        if self.confirms(fence) {
            return Some(fence);
        }
        self.leave_as(fence, Release::Unused);
        None
    }

    /// Whether the entry with `fence` is valid. The loan is looked at after the session: if that is a later
    /// one, the loan was recalled before.
    fn confirms(&self, fence: Fence) -> bool {
        let Some((slot, owner)) = self.entry.get() else {
            return false;
        };
        let (session, expiry) = slot.page().session();
        let now = clock::now();
        slot.set_since(now);
        self.session.store(session, Ordering::Relaxed);
        self.lost.store(0, Ordering::Relaxed);
        let is_valid = now.as_nanos() < expiry && slot.loan().is_lent_to(*owner, fence);
        // Looked at last: what is entered after that has nobody to give it back.
        is_valid && !self.link.has_ended()
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

    /// Leaves, for whoever entered with `fence`. Not for a forked child.
    pub fn leave(&self, fence: Fence) {
        self.leave_as(fence, Release::Given);
    }

    fn leave_as(&self, fence: Fence, how: Release) {
        let Some((slot, owner)) = self.entry.get() else {
            return;
        };
        slot.set_since(Time::ZERO);
        let left = slot.loan().leave_entry(*owner, fence);
        if left != Left::Recalled || !self.link.has_ended() {
            self.tell_of_leaving(slot, left, how);
        }
    }

    /// Gives back what a thread is inside of, as the connection ends: its guard is lost by then.
    pub(super) fn give_back(&self) {
        let entry = self.entry.get();
        let inside = entry.filter(|(slot, owner)| slot.loan().inside() == Some(*owner));
        if let Some((slot, owner)) = inside {
            let left = slot.loan().leave(*owner);
            self.tell_of_leaving(slot, left, Release::Given);
        }
    }

    /// Whoever waits for a thread to leave is told that it has.
    fn tell_of_leaving(&self, slot: &LoanSlot, left: Left, how: Release) {
        match left {
            Left::Alone => {}
            Left::Waited => slot.call_next(),
            Left::Recalled => {
                let slot = slot.index();
                self.link.say_or_end(&ToAgent::Leave { slot, how });
            }
        }
    }

    /// Whether the agent has said that the entry with `fence` is lost, which is inside.
    fn was_told_lost(&self, fence: Fence) -> bool {
        self.lost.load(Ordering::Acquire) == u64::from(counter(fence))
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
        let is_lost = || !slot.loan().is_lent_to(*owner, fence) && self.was_told_lost(fence);
        if is_over || self.link.has_ended() || is_lost() {
            GuardState::Lost
        } else if clock::now().as_nanos() < expiry {
            GuardState::Valid
        } else {
            GuardState::Suspended
        }
    }

    /// Until when nobody else is let in, if the agent's session is the one in which whoever is inside
    /// entered, as far as that is known without the agent.
    pub fn limit(&self) -> Option<Time> {
        let (slot, _) = self.entry.get().filter(|_| !self.link.has_ended())?;
        let (session, expiry) = slot.page().session();
        let is_same = expiry != OVER && session == self.session.load(Ordering::Relaxed);
        is_same.then(|| Time::from_nanos(expiry))
    }

    /// The grant of whoever is inside with `fence`, and is known to the agent from now on. It waits for the
    /// agent's answer, and is lost if none comes, or the entry was lost; also on the thread that would read
    /// the answer, which tells of losses and must not wait.
    ///
    /// # Panics
    /// In a forked child.
    pub fn take_over(&self, fence: Fence) -> Grant {
        let entry = self.entry.get().expect("it was entered by that");
        self.link
            .know_entry(entry.0.index(), fence, || self.was_told_lost(fence))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Epoch, Event};
    use crate::runtime::clients::raw_client::{Served, x};
    use crate::runtime::{Caller, Client, Loss, Patience, ReleaseError};

    /// A client to which "x" is lent.
    fn lent(served: &Served) -> (Client, Arc<ClientLoan>) {
        let client = Client::connect(&served.socket()).unwrap();
        let loan = client.lend(&x()).unwrap();
        let is_lent = || {
            let entry = loan.entry.get();
            entry.is_some_and(|(slot, _)| slot.loan().is_lent())
        };
        for _ in 0..1_000 {
            if is_lent() {
                return (client, loan);
            }
            drop(served.attempt());
            thread::sleep(Duration::from_millis(1));
        }
        panic!("the lock was never lent");
    }

    /// Has the agent know of the entry that there is.
    fn have_known(served: &Served) {
        let mut core = served.agent.shared.lock_core();
        core.find(&x());
        core.finish_as_application();
    }

    fn exclude(served: &Served) {
        let mut core = served.agent.shared.lock_core();
        core.find(&x());
        let held: Vec<_> = core.core.requests.keys().copied().collect();
        for ticket in held {
            core.pretend(Event::Lost { ticket });
        }
        core.excluded(Epoch::ZERO);
        core.renewed(Time::MAX);
        core.finish_as_application();
    }

    #[test]
    fn an_entry_is_valid_as_long_as_its_session() {
        let served = Served::new();
        let (client, loan) = lent(&served);
        let fence = loan.enter().unwrap();
        assert_eq!(loan.state(fence), GuardState::Valid);
        assert_eq!(loan.limit(), Some(Time::MAX));
        exclude(&served);
        assert_eq!(
            loan.state(fence),
            GuardState::Lost,
            "whatever lease there is now"
        );
        assert_eq!(loan.limit(), None);
        let grant = loan.take_over(fence);
        assert_eq!(grant.state(), GuardState::Lost);
        assert_eq!(grant.loss().reason(), Some(Loss::Revoked));
        drop((grant, client));
    }

    /// A thread that stands still between its entry and its look at the session sees that of the next.
    #[test]
    fn an_entry_of_a_session_that_is_over_is_none() {
        let served = Served::new();
        let (_client, loan) = lent(&served);
        let (slot, owner) = loan.entry.get().unwrap();
        let fence = slot.loan().enter(*owner).unwrap();
        assert!(loan.confirms(fence));
        exclude(&served);
        assert!(!loan.confirms(fence));
    }

    /// An agent that leaves asks for what clients are inside of, and knows it as theirs until they give it
    /// back.
    #[test]
    fn what_was_lost_is_lost_also_once_the_agent_knows_of_it() {
        let served = Served::new();
        let (_client, loan) = lent(&served);
        let fence = loan.enter().unwrap();
        have_known(&served);
        loan.lose(counter(fence));
        assert_eq!(loan.state(fence), GuardState::Lost);
        let grant = loan.take_over(fence);
        assert_eq!(grant.state(), GuardState::Lost);
        assert_eq!(grant.loss().reason(), Some(Loss::Revoked));
        assert_eq!(grant.release(), Err(ReleaseError::Lost));
    }

    #[test]
    fn an_entry_needs_a_lease_and_a_connection() {
        let served = Served::new();
        let (client, loan) = lent(&served);
        let fence = loan.enter().unwrap();
        let renew = |until| {
            let mut core = served.agent.shared.lock_core();
            core.renewed(until);
            core.finish_as_application();
        };
        renew(clock::now());
        assert_eq!(loan.state(fence), GuardState::Suspended);
        loan.leave(fence);
        assert!(loan.enter().is_none());
        renew(Time::MAX);
        let (client_again, again) = lent(&served);
        let fence = again.enter().unwrap();
        client_again.close();
        assert_eq!(again.state(fence), GuardState::Lost);
        assert!(again.enter().is_none());
        // It was given back: another client enters.
        let caller = Caller::default();
        let granted = client.acquire(&x(), None, Patience::Forever, caller);
        assert_eq!(
            granted.unwrap().previous(),
            crate::protocol::Previous::Clean
        );
    }

    /// Of what the core knows the agent says that it is lost, without a new session.
    #[test]
    fn what_the_agent_says_is_lost_is_lost() {
        let served = Served::new();
        let (_client, loan) = lent(&served);
        let fence = loan.enter().unwrap();
        have_known(&served);
        assert_eq!(
            loan.state(fence),
            GuardState::Valid,
            "the agent knows of it"
        );
        served.agent.shared.leave();
        for _ in 0..1_000 {
            if loan.state(fence) == GuardState::Lost {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(loan.state(fence), GuardState::Lost);
        loan.leave(fence);
        served.agent.close();
    }
}
