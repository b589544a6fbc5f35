//! The locks that a client enters by itself, as its connection keeps them: asked for, answered, told as lost.

use std::sync::{Arc, Weak};
use std::{io, thread};

use super::link::{Link, PATIENCE};
use super::loan::ClientLoan;
use super::reader::Reader;
use crate::protocol::{EntryOwner, Fence, LockName, Previous, Ticket};
use crate::runtime::api::caller::Caller;
use crate::runtime::api::error::SessionEnd;
use crate::runtime::frames::{self, LOAN_PAGE_FDS, LentEntry, ToAgent};
use crate::runtime::os::clock;
use crate::runtime::request::loan_page::{LoanPage, LoanSlot};
use crate::runtime::request::session::Session;
use crate::runtime::request::{Grant, Granted, Loss, Request};

impl Link {
    /// The lock `lock`, to be entered without the agent whenever that lends it; `None` where it never does.
    pub(super) fn lend(self: &Arc<Self>, lock: &LockName) -> Option<Arc<ClientLoan>> {
        if self.stamp.is_child() || !self.can_borrow || self.has_ended() {
            return None;
        }
        let loan = ClientLoan::new(Arc::clone(self), lock.clone());
        let mut table = self.table.lock();
        table.loans.insert(lock.clone(), Arc::downgrade(&loan));
        drop(table);
        let command = Caller::current().command;
        self.say_or_end(&ToAgent::Borrow {
            lock: lock.clone(),
            command: frames::cut_command(&command).to_owned(),
        });
        Some(loan)
    }

    /// `loan` is what `lock` is entered by no more, unless another is by now.
    pub(super) fn forget_loan(&self, lock: &LockName, loan: &ClientLoan) {
        let mut table = self.table.lock();
        let its = table.loans.get(lock);
        if its.is_some_and(|its| std::ptr::eq(its.as_ptr(), loan)) {
            table.loans.remove(lock);
        }
    }

    /// Takes the memory in which locks are entered. Without it the agent is asked for all.
    pub(super) fn take_loan_page(&self, reader: &mut Reader) -> io::Result<()> {
        let came = reader.fds.pop_front().unwrap_or_default();
        let [slots, session] = <[_; LOAN_PAGE_FDS]>::try_from(came)
            .map_err(|_| io::Error::other("no descriptor is left for it: ulimit -n"))?;
        let page = LoanPage::of(slots, session)?;
        // It comes once.
        let _ = self.loan_page.set(page);
        Ok(())
    }

    /// The agent has answered where `lock` is entered.
    pub(super) fn take_lent(&self, lock: &LockName, entry: LentEntry) {
        let loan = self.table.lock().loans.get(lock).and_then(Weak::upgrade);
        let page = self.loan_page.get();
        let slot = page.and_then(|page| LoanSlot::new(page, entry.slot));
        let is_taken = match (loan, slot, EntryOwner::new(entry.owner)) {
            (Some(loan), Some(slot), Some(owner)) => loan.set_entry(slot, owner),
            _ => false,
        };
        if !is_taken {
            // Of a lock that was closed meanwhile, and opened anew, there are two answers.
            let slot = entry.slot;
            self.say_or_end(&ToAgent::Return { slot });
        }
    }

    /// Has the agent know of the entry with `fence` in the slot `index`: from now on it is as if it had been
    /// asked for. If it was lost, so is the grant, whatever the agent answers: `was_told_lost`, which is asked
    /// after that, says whether a thread may have seen the loss.
    pub(super) fn know_entry(
        self: &Arc<Self>,
        index: u16,
        fence: Fence,
        was_told_lost: impl FnOnce() -> bool,
    ) -> Grant {
        assert!(!self.stamp.is_child(), "a child has nothing to take over");
        let request = Request::new();
        let mut table = self.table.lock();
        let id = table.next_id();
        let is_open = table.ended.is_none();
        if is_open {
            table.requests.insert(id, Arc::clone(&request));
        }
        drop(table);
        if is_open {
            self.say_or_end(&ToAgent::KnowEntry { id, slot: index });
            // Whoever would read the answer is not to wait for it.
            if self.reader.get() != Some(&thread::current().id()) {
                request.wait(Some(clock::now() + PATIENCE));
            }
        }
        let mut table = self.table.lock();
        let outcome = request.is_decided().then(|| request.outcome());
        let granted = match outcome {
            Some(Ok(granted)) => {
                if was_told_lost() {
                    request.lose();
                    request.loss().fire(Loss::Revoked);
                }
                granted
            }
            // An agent that does not answer is told by its release, should it answer after all.
            _ => {
                table.requests.remove(&id);
                request.loss().fire(match table.ended {
                    Some(SessionEnd::Closed) => Loss::Closed,
                    _ => Loss::Revoked,
                });
                let session = Session::new(self.lease);
                session.end();
                Granted {
                    fence: Some(fence),
                    previous: Previous::Clean,
                    session,
                }
            }
        };
        drop(table);
        Grant::known(Arc::clone(self) as _, Ticket(id), request, granted)
    }
}
