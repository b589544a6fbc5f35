//! The loans of this member's locks to its threads.

use alloc::vec::Vec;

use super::Locks;
use crate::api::Wait;
use crate::ids::{LockName, Ticket};
use crate::lock::loan::{Borrowed, SharedLoan};
use crate::lock::queue::Waiting;
use crate::lock::settle::{COUNTER_RUNS_OUT, LockOutput};
use crate::lock::{GrantHistory, Mode};
use crate::time::Time;

impl Locks {
    /// Threads of this member enter by `loan` whenever the lock `name` is lent. Whoever is inside when it
    /// is wanted back has the request `ticket` from then on, and no further loan is made before there is
    /// another ticket.
    pub fn borrow(
        &mut self,
        name: &LockName,
        ticket: Ticket,
        loan: &SharedLoan,
        out: &mut LockOutput,
    ) {
        match self.loans.get_mut(name) {
            Some(borrowed) if borrowed.loan == *loan => borrowed.ticket = Some(ticket),
            _ => {
                self.forget_loan(name, out);
                let borrowed = Borrowed {
                    loan: loan.clone(),
                    ticket: Some(ticket),
                    is_lent: false,
                };
                self.loans.insert(name.clone(), borrowed);
            }
        }
        self.lend(name);
    }

    /// `loan` is that of `name` no more.
    pub fn return_loan(&mut self, name: &LockName, loan: &SharedLoan, out: &mut LockOutput) {
        let is_it = |its: &Borrowed| its.loan == *loan;
        if self.loans.get(name).is_some_and(is_it) {
            self.forget_loan(name, out);
        }
    }

    fn forget_loan(&mut self, name: &LockName, out: &mut LockOutput) {
        self.recall(name, out);
        self.loans.remove(name);
        self.settle(name, out);
    }

    /// Whoever entered by a loan and is inside becomes a caller that is known here.
    pub fn know_all_inside(&mut self, out: &mut LockOutput) {
        let inside = self.loans.iter().filter(|(_, its)| its.loan.is_inside());
        let names: Vec<_> = inside.map(|(name, _)| name.clone()).collect();
        for name in names {
            self.recall(&name, out);
            self.settle(&name, out);
        }
    }

    /// Puts the lock at the disposal of this member's threads, if its engine lends it and nobody uses it.
    pub(super) fn lend(&mut self, name: &LockName) {
        let Some(borrowed) = self.loans.get_mut(name) else {
            return;
        };
        let (Some(lock), Some(view)) = (self.table.get(name), &self.view) else {
            return;
        };
        let lends = lock.engine.as_ref().is_some_and(|engine| engine.lends());
        // The next to enter is to be told of a mark.
        let is_free = lock.queue.is_empty() && !lock.history.abandoned;
        let has_numbers = lock.history.counter < COUNTER_RUNS_OUT;
        if !borrowed.is_lent
            && borrowed.ticket.is_some()
            && self.open
            && lends
            && is_free
            && has_numbers
        {
            borrowed.is_lent = borrowed.loan.lend(view.epoch, lock.history.counter);
        }
    }

    /// Takes the lock back from this member's threads: before anything else happens to it.
    pub(super) fn recall(&mut self, name: &LockName, out: &mut LockOutput) {
        let Some(borrowed) = self.loans.get_mut(name).filter(|its| its.is_lent) else {
            return;
        };
        borrowed.is_lent = false;
        let recalled = borrowed.loan.recall();
        let Some(lock) = self.table.get_mut(name) else {
            debug_assert!(false, "what is lent is known");
            return;
        };
        let over = recalled.entries - u32::from(recalled.inside.is_some());
        if over > 0 {
            let counter = lock.history.counter + over;
            lock.history = GrantHistory {
                counter,
                ..lock.history
            };
            lock.entered = counter;
            if let Some(engine) = &mut lock.engine {
                engine.entered(over);
            }
        }
        if recalled.inside.is_some()
            && let Some(ticket) = borrowed.ticket.take()
        {
            let caller = Waiting {
                ticket,
                wish: None,
                mode: Mode::Exclusive,
                wait: Wait::Cancelled,
                since: Time::ZERO,
                is_inside: true,
            };
            lock.queue.push(caller);
            self.tickets.insert(ticket, name.clone());
            self.settle(name, out);
        }
    }

    pub(super) fn recall_all(&mut self, out: &mut LockOutput) {
        let lent = self.loans.iter().filter(|(_, its)| its.is_lent);
        let names: Vec<_> = lent.map(|(name, _)| name.clone()).collect();
        for name in names {
            self.recall(&name, out);
        }
    }
}
