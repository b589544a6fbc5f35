//! Clients that wait for their turn to enter a lent lock, in the memory that they share with this agent
//! ([`Seats`](crate::protocol::lock::seats::Seats)).
//!
//! They wait there while the lock is lent to them, and by requests otherwise. So two things pass between the
//! ways: when a loan ends, those that wait by it ask; and when requests of such clients are all that keeps
//! the lock from being lent, they are told to wait by the loan, which the holder's release then makes.

use crate::protocol::lock::seats::SEATS;
use crate::protocol::{Command, Input, LockName, Ticket};
use crate::runtime::shared::core_guard::CoreGuard;
use crate::runtime::shared::entry::Sink;

/// How many requests at most are told to wait by the loan: if there is no seat for one of them, it asks, and
/// with that ends the loan for all.
const MOST: usize = SEATS / 4 * 3;

impl CoreGuard<'_> {
    /// The loan of `lock` was taken back. If it was not made again, those that wait by it ask.
    pub(in crate::runtime::shared) fn recalled(&mut self, lock: &LockName) {
        let loans = &self.core.client_loans;
        let lent = loans
            .by_lock
            .get(lock)
            .and_then(|index| loans.slots.get(index));
        if let Some(lent) = lent.filter(|lent| !lent.loan.is_lent()) {
            lent.slot.send_away(None);
        }
    }

    /// The holder `ticket` is about to leave. If the lock can be lent then but for clients that wait for it
    /// here and would as soon wait by the loan, they are told to.
    pub(crate) fn let_wait_by_loan(&mut self, ticket: Ticket) {
        let Some(entry) = self.core.requests.get(&ticket) else {
            return;
        };
        let loans = &self.core.client_loans;
        let lent = loans
            .by_lock
            .get(&entry.lock)
            .and_then(|index| loans.slots.get(index));
        let Some(lent) = lent.filter(|lent| lent.ticket.is_some() && entry.held.is_some()) else {
            return;
        };
        let Some(members) = self.core.members() else {
            return;
        };
        let waiting = members.node.in_the_way_of_loan(&entry.lock, MOST);
        let waits_by_loan = |ticket: &Ticket| {
            self.core.requests.get(ticket).is_some_and(|entry| {
                let Sink::Client { client, .. } = &entry.sink else {
                    return false;
                };
                entry.caller.waits_by_loan && lent.clients.contains_key(client)
            })
        };
        if !waiting.iter().all(waits_by_loan) {
            return;
        }
        for ticket in waiting {
            if let Some(entry) = self.core.requests.get_mut(&ticket) {
                entry.goes_by_loan = true;
            }
            self.step(Input::Command(&Command::Cancel { ticket }));
        }
    }
}
