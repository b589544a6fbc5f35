//! Locks that clients of this agent enter by themselves, in memory that they share with it
//! ([`loan_page`](crate::runtime::request::loan_page)).
//!
//! To the core such a lock is lent as one that threads of this process enter
//! ([`loans`](crate::runtime::shared::loans)). A client tells when it opens and when it closes a lock. If
//! the core takes the lock back while a client is inside, that entry becomes a request of the client's, and
//! the client, which finds the word changed when it leaves, says so by its stream. The entry of a client
//! that is gone ends as abandoned; so does one whose number is nobody's, which a client leaves that is
//! killed just after it has closed its stream.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::protocol::{
    Command, EntryOwner, Failure, Fence, Input, LockName, Mode, Release, SharedLoan, Ticket, Time,
};
use crate::runtime::api::caller::Caller;
use crate::runtime::os::clock::{self, Moment};
use crate::runtime::request::loan_page::{LoanSlot, OwnLoanPage, SLOTS, request_of};
use crate::runtime::shared::core_guard::{CoreGuard, Phase};
use crate::runtime::shared::entry::{ClientId, Entry, Held, Sink, Task};
use crate::runtime::shared::lending::{Borrowers, Lending};

/// What is lent to clients, and to whom.
#[derive(Debug, Default)]
pub(crate) struct ClientLoans {
    /// Made when the first client asks.
    page: Option<Arc<OwnLoanPage>>,
    /// Whether it could not be made: then nobody gets it, so that it is not tried for each.
    has_failed: bool,
    slots: BTreeMap<u16, Lent>,
    by_lock: BTreeMap<LockName, u16>,
    owners: BTreeMap<EntryOwner, ClientId>,
    /// The number of each client, and what it said of itself when it got that.
    clients: BTreeMap<ClientId, (EntryOwner, Caller)>,
    last_owner: u16,
    /// The locks that threads of this process enter by themselves, and how many have each open.
    threads: BTreeMap<LockName, usize>,
}

/// One lock that clients have open.
#[derive(Debug)]
struct Lent {
    lock: LockName,
    slot: LoanSlot,
    loan: SharedLoan,
    /// Who has it open, and how often: of a lock that is closed and opened again, both words can be under
    /// way at once.
    clients: BTreeMap<ClientId, usize>,
    /// What the core is to know the next entry as, while it may lend the lock by this slot.
    ticket: Option<Ticket>,
    /// The entry of which the core knows.
    inside: Option<Inside>,
}

#[derive(Clone, Copy, Debug)]
struct Inside {
    /// `None`: nobody's.
    client: Option<ClientId>,
    ticket: Ticket,
    fence: Fence,
}

impl ClientLoans {
    /// The session is that one, until `expiry`.
    pub(super) fn store(&self, number: u64, expiry: u64) {
        if let Some(page) = &self.page {
            page.store(number, expiry);
        }
    }

    fn owner(&self, client: ClientId) -> Option<EntryOwner> {
        self.clients.get(&client).map(|(owner, _)| *owner)
    }

    /// The client that has the number `owner`, and since when it is inside by the slot `index`.
    pub(super) fn holder(&self, index: u16, owner: EntryOwner) -> Option<(Caller, Time)> {
        let since = self.slots.get(&index)?.slot.since(clock::now());
        Some((self.caller(owner)?.clone(), since))
    }

    /// The clients that wait for their turns by the slot `index`, and since when.
    pub(super) fn waiting(&self, index: u16) -> Vec<(Caller, Time)> {
        let slot = self.slots.get(&index).map(|lent| &lent.slot);
        let seats = slot.into_iter().flat_map(|slot| slot.waiting(clock::now()));
        let known = seats.filter_map(|(owner, since)| Some((self.caller(owner)?.clone(), since)));
        known.collect()
    }

    fn caller(&self, owner: EntryOwner) -> Option<&Caller> {
        let client = self.owners.get(&owner)?;
        self.clients.get(client).map(|(_, caller)| caller)
    }

    /// Whether whoever is inside by that loan, without a word to the core, is no client.
    fn is_nobodys(&self, lent: &Lent) -> bool {
        let is_client = |owner: EntryOwner| self.owners.contains_key(&owner);
        lent.loan.is_inside() && !lent.loan.inside().is_some_and(is_client)
    }

    /// The locks that `owner` is inside of.
    fn locks_of(&self, owner: EntryOwner) -> Vec<LockName> {
        let slots = self.slots.values();
        let its = slots.filter(|lent| lent.loan.inside() == Some(owner));
        its.map(|lent| lent.lock.clone()).collect()
    }

    fn free_slot(&self) -> Option<u16> {
        (0..SLOTS as u16).find(|index| !self.slots.contains_key(index))
    }

    /// The next number that no client has: one that was a client's comes again only after all others.
    fn next_owner(&mut self) -> Option<EntryOwner> {
        for _ in 0..EntryOwner::MAX.get() {
            self.last_owner = self.last_owner % EntryOwner::MAX.get() + 1;
            let owner = EntryOwner::new(self.last_owner)?;
            if !self.owners.contains_key(&owner) {
                return Some(owner);
            }
        }
        None
    }
}

impl CoreGuard<'_> {
    /// The page that clients map, and the slot and number by which `client` enters `lock` from now on,
    /// whenever the lock is lent to this member. `None` where that cannot be.
    pub(crate) fn lend_to_client(
        &mut self,
        client: ClientId,
        lock: &LockName,
        caller: Caller,
    ) -> Option<(Arc<OwnLoanPage>, u16, EntryOwner)> {
        let has_fences = self.shared.identity.settings.failure != Failure::PresumeFailed;
        let is_running = self.core.phase == Phase::Running;
        let is_member = self.core.members().is_some();
        if !has_fences || !is_running || !is_member || self.has_every_entry() {
            return None;
        }
        let page = self.loan_page()?;
        let known = self.core.client_loans.by_lock.get(lock).copied();
        let index = known.or_else(|| self.core.client_loans.free_slot())?;
        let owner = self.owner_of(client, caller)?;
        let loans = &mut self.core.client_loans;
        if known.is_none() {
            let slot = page.slot(index).unwrap_or_else(|error| {
                tracing::warn!(
                    event = "loan-memory",
                    "no memory to lend the lock {lock} to clients in: {error}"
                );
                None
            })?;
            let lent = Lent {
                lock: lock.clone(),
                loan: SharedLoan::new(Arc::new(slot.clone())),
                slot,
                clients: BTreeMap::new(),
                ticket: None,
                inside: None,
            };
            loans.slots.insert(index, lent);
            loans.by_lock.insert(lock.clone(), index);
        }
        let lent = loans.slots.get_mut(&index)?;
        *lent.clients.entry(client).or_default() += 1;
        if known.is_none() {
            self.lend_slot(index);
        }
        Some((page, index, owner))
    }

    fn loan_page(&mut self) -> Option<Arc<OwnLoanPage>> {
        let (number, expiry) = (self.core.session_number, self.core.session.expiry());
        let loans = &mut self.core.client_loans;
        if loans.page.is_none() && !loans.has_failed {
            match OwnLoanPage::new() {
                Ok(page) => {
                    page.store(number, expiry);
                    loans.page = Some(Arc::new(page));
                }
                Err(error) => {
                    loans.has_failed = true;
                    tracing::warn!(
                        event = "loan-memory",
                        "no memory to lend locks to clients in, who ask instead: {error}"
                    );
                }
            }
        }
        loans.page.clone()
    }

    /// The number of `client` in the words of loans.
    fn owner_of(&mut self, client: ClientId, caller: Caller) -> Option<EntryOwner> {
        if let Some(owner) = self.core.client_loans.owner(client) {
            return Some(owner);
        }
        let owner = self.core.client_loans.next_owner()?;
        // Left by the client that had this number before: found as nobody's.
        self.find_entries_of(owner);
        let loans = &mut self.core.client_loans;
        loans.owners.insert(owner, client);
        loans.clients.insert(client, (owner, caller));
        Some(owner)
    }

    /// Has the core know of all that `owner` is inside of.
    fn find_entries_of(&mut self, owner: EntryOwner) {
        for lock in self.core.client_loans.locks_of(owner) {
            self.find(&lock);
        }
    }

    /// Threads of this process enter `lock` by themselves from now on, and clients do not.
    pub(super) fn lend_to_threads(&mut self, lock: &LockName) {
        let loans = &mut self.core.client_loans;
        *loans.threads.entry(lock.clone()).or_default() += 1;
        if let Some(&index) = loans.by_lock.get(lock) {
            self.forget_lending(index);
        }
    }

    /// Threads of this process enter `lock` by themselves no more: clients may again, if they have it open.
    pub(super) fn returned_by_threads(&mut self, lock: &LockName) {
        let loans = &mut self.core.client_loans;
        if let Some(times) = loans.threads.get_mut(lock) {
            *times -= 1;
            if *times == 0 {
                loans.threads.remove(lock);
            }
        }
        if let Some(&index) = loans.by_lock.get(lock) {
            self.lend_slot(index);
        }
    }

    /// The core may lend the lock of that slot, unless it may already, or knows of somebody inside.
    fn lend_slot(&mut self, index: u16) {
        let loans = &self.core.client_loans;
        let Some(lent) = loans.slots.get(&index) else {
            return;
        };
        if lent.ticket.is_some() || lent.inside.is_some() {
            return;
        }
        if lent.clients.is_empty() {
            return self.free_slot(index);
        }
        if self.core.phase != Phase::Running || loans.threads.contains_key(&lent.lock) {
            return;
        }
        // It is not lent, so whatever number stands there is of no entry.
        lent.loan.end();
        let (lock, loan) = (lent.lock.clone(), lent.loan.clone());
        let lending = Lending {
            lock: lock.clone(),
            loan: loan.clone(),
            borrowers: Borrowers::Clients(index),
        };
        let ticket = self.next_ticket();
        self.core.lendings.insert(ticket, lending);
        if let Some(lent) = self.core.client_loans.slots.get_mut(&index) {
            lent.ticket = Some(ticket);
        }
        self.step(Input::Command(&Command::Borrow { ticket, lock, loan }));
    }

    /// Nobody has the lock of that slot open any more, and nobody is inside by it.
    fn free_slot(&mut self, index: u16) {
        let Some(lent) = self.core.client_loans.slots.get(&index) else {
            return;
        };
        let (lock, loan) = (lent.lock.clone(), lent.loan.clone());
        self.step(Input::Command(&Command::Return { lock, loan }));
        let loans = &mut self.core.client_loans;
        let has_inside = |lent: &Lent| lent.inside.is_some();
        if loans.slots.get(&index).is_some_and(has_inside) {
            // Somebody's late entry has just become known, and is ended next.
            return;
        }
        self.forget_lending(index);
        let loans = &mut self.core.client_loans;
        if let Some(lent) = loans.slots.remove(&index) {
            loans.by_lock.remove(&lent.lock);
        }
    }

    /// Forgets what the core was to know an entry in the slot `index` as: it is not lent.
    fn forget_lending(&mut self, index: u16) {
        let lent = self.core.client_loans.slots.get_mut(&index);
        if let Some(ticket) = lent.and_then(|lent| lent.ticket.take()) {
            self.core.lendings.remove(&ticket);
        }
    }

    /// Whoever is inside by the slot `index` is known from now on, as `ticket`.
    pub(super) fn client_entered(&mut self, index: u16, ticket: Ticket, fence: Fence) {
        let told = self.told_fence(fence);
        let core = &mut *self.core;
        let loans = &mut core.client_loans;
        let inside = loans.slots.get(&index).and_then(|lent| lent.loan.inside());
        let caller = inside.and_then(|owner| loans.caller(owner)).cloned();
        let Some(lent) = loans.slots.get_mut(&index) else {
            return;
        };
        let client = inside.and_then(|owner| loans.owners.get(&owner)).copied();
        let since = Moment::of(lent.slot.since(clock::now()));
        lent.ticket = None;
        lent.inside = Some(Inside {
            client,
            ticket,
            fence,
        });
        let entry = Entry {
            lock: lent.lock.clone(),
            mode: Mode::Exclusive,
            caller: caller.unwrap_or_default(),
            asked: since,
            held: Some(Held { fence: told, since }),
            sink: Sink::Client {
                // Of nobody: no client has that number.
                client: client.unwrap_or(ClientId(0)),
                id: request_of(index, fence),
            },
            goes_by_loan: false,
        };
        core.requests.insert(ticket, entry);
        if client.is_none() {
            core.tasks.push_back(Task::EndNobodys { slot: index });
        }
    }

    /// Ends the entry in the slot `index` if it is nobody's.
    pub(crate) fn end_nobodys(&mut self, index: u16) {
        let loans = &self.core.client_loans;
        let lent = loans.slots.get(&index);
        if let Some(lent) = lent.filter(|lent| loans.is_nobodys(lent)) {
            let lock = lent.lock.clone();
            self.find(&lock);
        }
        self.end_entry(index, None, Release::Abandoned);
    }

    /// Has what is nobody's end: entries, and seats of those that wait. Nobody asks for what is lent as long
    /// as all that want it wait in memory. To be called again and again.
    pub(super) fn look_for_nobodys(&mut self) {
        let core = &mut *self.core;
        let loans = &core.client_loans;
        for (&slot, lent) in &loans.slots {
            if loans.is_nobodys(lent) {
                core.tasks.push_back(Task::EndNobodys { slot });
            }
            for (owner, _) in lent.slot.seats().taken() {
                if !loans.owners.contains_key(&owner) {
                    lent.slot.clear_seats(owner);
                }
            }
        }
    }

    /// `client` has left, which had to tell, since the core knew of it.
    pub(crate) fn leave_loan(&mut self, client: ClientId, index: u16, how: Release) {
        self.end_entry(index, Some(client), how);
    }

    /// Ends the entry in the slot `index` if it is `client`'s. If it was lost, only the slot is free again.
    fn end_entry(&mut self, index: u16, client: Option<ClientId>, how: Release) {
        if let Some(ticket) = self.take_inside(index, client) {
            self.release(ticket, how);
            self.lend_slot(index);
        }
    }

    /// The ticket of the entry in the slot `index`, which is the slot's no more, if it is `client`'s.
    fn take_inside(&mut self, index: u16, client: Option<ClientId>) -> Option<Ticket> {
        let lent = self.core.client_loans.slots.get_mut(&index)?;
        let inside = lent.inside.take_if(|inside| inside.client == client)?;
        Some(inside.ticket)
    }

    /// Turns the entry of `client` in the slot `index` into the request `id` of that client, if the entry is
    /// not lost.
    pub(crate) fn know_entry(
        &mut self,
        client: ClientId,
        index: u16,
        id: u64,
    ) -> Option<(Ticket, Fence)> {
        let lent = self.core.client_loans.slots.get(&index)?;
        if lent.loan.is_inside() {
            let lock = lent.lock.clone();
            self.find(&lock);
        }
        let lent = self.core.client_loans.slots.get(&index)?;
        let fence = lent.inside?.fence;
        let ticket = self.take_inside(index, Some(client))?;
        let entry = self.core.requests.get_mut(&ticket);
        let known = entry.map(|entry| entry.sink = Sink::Client { client, id });
        self.lend_slot(index);
        known.map(|()| (ticket, fence))
    }

    /// `client` has the lock of the slot `index` open once less.
    pub(crate) fn return_slot(&mut self, client: ClientId, index: u16) {
        let slots = &mut self.core.client_loans.slots;
        let lent = slots.get_mut(&index);
        let times = lent.and_then(|lent| lent.clients.get_mut(&client));
        let Some(times) = times else {
            return;
        };
        *times -= 1;
        if *times == 0 {
            self.close_slot(client, index);
        }
    }

    /// `client` has the lock of the slot `index` open no more.
    fn close_slot(&mut self, client: ClientId, index: u16) {
        let Some(lent) = self.core.client_loans.slots.get_mut(&index) else {
            return;
        };
        lent.clients.remove(&client);
        if lent.clients.is_empty() && lent.inside.is_none() {
            self.free_slot(index);
        }
    }

    /// Whether `client` may enter locks by itself.
    pub(crate) fn has_loans(&self, client: ClientId) -> bool {
        self.core.client_loans.owner(client).is_some()
    }

    /// `client` is gone: what it is inside of by itself is abandoned.
    pub(crate) fn end_client_loans(&mut self, client: ClientId) {
        let Some(owner) = self.core.client_loans.owner(client) else {
            return;
        };
        self.find_entries_of(owner);
        let slots = self.core.client_loans.slots.iter();
        let has = |lent: &Lent| {
            let inside = lent.inside.and_then(|inside| inside.client);
            lent.clients.contains_key(&client) || inside == Some(client)
        };
        let its = slots.filter(|(_, lent)| has(lent));
        for index in its.map(|(&index, _)| index).collect::<Vec<_>>() {
            self.end_entry(index, Some(client), Release::Abandoned);
            if let Some(lent) = self.core.client_loans.slots.get(&index) {
                lent.slot.clear_seats(owner);
            }
            self.close_slot(client, index);
        }
        let loans = &mut self.core.client_loans;
        loans.owners.remove(&owner);
        loans.clients.remove(&client);
    }
}

mod turns;

#[cfg(test)]
mod tests;
