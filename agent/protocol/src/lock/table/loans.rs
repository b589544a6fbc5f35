//! The loans of this member's locks to its threads.

use alloc::vec::Vec;

use super::Locks;
use crate::api::{Event, Wait};
use crate::ids::{LockName, Ticket};
use crate::lock::loan::{Borrowed, SharedLoan};
use crate::lock::queue::Waiting;
use crate::lock::settle::{COUNTER_RUNS_OUT, Lock, LockOutput};
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
                    counted: 0,
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

    /// Whoever entered by the loan of `name` and is inside becomes a caller that is known here.
    pub fn know_inside(&mut self, name: &LockName, out: &mut LockOutput) {
        let is_inside = |its: &Borrowed| its.loan.is_inside();
        if self.loans.get(name).is_some_and(is_inside) {
            self.recall(name, out);
            self.settle(name, out);
        }
    }

    /// The callers that wait for `name`, if the lock could be lent once they stepped aside and its
    /// holder left. Empty if they are more than `most`, or if one of them only tries or shares the lock: for
    /// those a loan is no substitute.
    pub fn in_the_way_of_loan(&self, name: &LockName, most: usize) -> Vec<Ticket> {
        let lock = self.table.get(name);
        let lends = |lock: &&Lock| {
            let engine = lock.engine.as_ref();
            self.has_loan_for(lock)
                && engine.is_some_and(|engine| engine.will_lend())
                && lock.queue.asking().is_none()
        };
        let waits = |its: &Waiting| its.wait != Wait::Try && its.mode == Mode::Exclusive;
        let borrowed = self.loans.get(name);
        let can_borrow = borrowed.is_some_and(|its| !its.is_lent && its.ticket.is_some());
        let Some(lock) = lock.filter(|_| can_borrow).filter(lends) else {
            return Vec::new();
        };
        let callers = lock.queue.callers();
        if callers.clone().nth(most).is_some() || !callers.clone().all(waits) {
            return Vec::new();
        }
        callers.map(|caller| caller.ticket).collect()
    }

    /// Whether the grants of this lock can be a loan's: the next holder need not be told of a mark, and there
    /// are numbers left.
    fn has_loan_for(&self, lock: &Lock) -> bool {
        self.open && !lock.history.abandoned && lock.history.counter < COUNTER_RUNS_OUT
    }

    /// The engine's timer ran out: it looks whether what it lends is used. Whether threads of this member
    /// have entered since the last time, or are inside: then the loan goes on, and the engine is told.
    pub(super) fn is_loan_used(&mut self, name: &LockName, out: &mut LockOutput) -> bool {
        let Some(borrowed) = self.loans.get_mut(name).filter(|its| its.is_lent) else {
            return false;
        };
        let entries = borrowed.loan.entries().saturating_sub(borrowed.counted);
        let is_used = entries > 0 || borrowed.loan.is_inside();
        let engine = self.table.get_mut(name).and_then(|it| it.engine.as_mut());
        let Some(engine) = engine.filter(|_| is_used) else {
            return false;
        };
        borrowed.counted += entries;
        engine.entered(entries);
        engine.timeout(&mut self.effects);
        debug_assert!(self.effects.sends.is_empty(), "what is lent stays");
        if let Some(timer) = self.effects.hop_timer.take() {
            out.hops.push((name.clone(), timer));
        }
        true
    }

    /// Puts the lock at the disposal of this member's threads, if its engine lends it and nobody uses it.
    pub(super) fn lend(&mut self, name: &LockName) {
        let (Some(lock), Some(view)) = (self.table.get(name), &self.view) else {
            return;
        };
        let lends = lock.engine.as_ref().is_some_and(|engine| engine.lends());
        let (counter, epoch) = (lock.history.counter, view.epoch);
        if lends
            && lock.queue.is_empty()
            && self.has_loan_for(lock)
            && let Some(borrowed) = self.loans.get_mut(name)
            && !borrowed.is_lent
            && borrowed.ticket.is_some()
        {
            borrowed.is_lent = borrowed.loan.lend(epoch, counter);
            borrowed.counted = 0;
        }
    }

    /// Takes the lock back from this member's threads: before anything else happens to it.
    pub(super) fn recall(&mut self, name: &LockName, out: &mut LockOutput) {
        let Some(borrowed) = self.loans.get_mut(name).filter(|its| its.is_lent) else {
            return;
        };
        borrowed.is_lent = false;
        let recalled = borrowed.loan.recall();
        if recalled.is_waited || recalled.entries > 0 {
            out.events.push(Event::Recalled {
                lock: name.clone(),
                entries: recalled.entries,
                is_waited: recalled.is_waited,
            });
        }
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
                engine.entered(over.saturating_sub(borrowed.counted));
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
