//! Callers that enter a lock without their node, by a loan: as threads of a program do, which look at their
//! lease themselves.

use super::{Caller, Campaign};
use crate::checkers::{Process, Violation};
use crate::choices::Permille;
use distlock_protocol::lock::{EntryOwner, Left, SharedLoan};
use distlock_protocol::{Command, LockName, Release, Ticket};

/// Before how many of a thousand wishes the node is asked for the callers that are inside.
const FINDS: Permille = 20;
/// How many come when the last handle of the lock has just been closed.
const RETURNS: Permille = 5;

impl Campaign {
    /// Whether `caller` has entered without its node.
    pub(super) fn enter_by_loan(
        &mut self,
        caller: Caller,
        process: Process,
        lock: &LockName,
    ) -> Result<bool, Violation> {
        let key = (process, lock.clone());
        if self.choices.chance(FINDS) {
            let lock = lock.clone();
            self.cluster.command(caller.node, &Command::Find { lock })?;
        }
        if self.choices.chance(RETURNS)
            && let Some((_, loan)) = self.loans.remove(&key)
        {
            let lock = lock.clone();
            self.cluster
                .command(caller.node, &Command::Return { lock, loan })?;
        }
        if !self.loans.contains_key(&key) {
            self.borrow(process, lock, SharedLoan::default())?;
        }
        let Some((ticket, loan)) = self.loans.get(&key).cloned() else {
            return Ok(false);
        };
        let Some(fence) = loan.enter(EntryOwner::MEMBER) else {
            return Ok(false);
        };
        if !self.cluster.has_lease(process) {
            // Nothing happens in a node between two steps of a caller.
            let left = loan.leave(EntryOwner::MEMBER);
            assert_eq!(left, Left::Alone, "it was lent a moment ago");
            return Ok(false);
        }
        self.cluster
            .enters_by_loan(process, (ticket, lock), fence)?;
        self.report.grants += 1;
        self.report.by_loan += 1;
        self.asked.insert((process, ticket), caller);
        self.enter(process, ticket);
        self.strike(process);
        Ok(true)
    }

    /// From now on callers of `process` enter `lock` by `loan`, the next of them under a new name.
    fn borrow(
        &mut self,
        process: Process,
        lock: &LockName,
        loan: SharedLoan,
    ) -> Result<(), Violation> {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let key = (process, lock.clone());
        self.loans.insert(key, (ticket, loan.clone()));
        if self.cluster.process(process.node) == Some(process) {
            let lock = lock.clone();
            let borrow = Command::Borrow { ticket, lock, loan };
            self.cluster.command(process.node, &borrow)?;
        }
        Ok(())
    }

    /// Whether `ticket` entered by a loan, and has left without its node. If the loan was recalled, or
    /// the next is to be told how it ended, the node has to be told.
    pub(super) fn leave_by_loan(
        &mut self,
        process: Process,
        ticket: Ticket,
        how: Release,
    ) -> Result<bool, Violation> {
        let Some((lock, loan)) = self.loan_of(process, ticket) else {
            return Ok(false);
        };
        if how != Release::Given {
            let lock = lock.clone();
            self.cluster
                .command(process.node, &Command::Find { lock })?;
        }
        let has_left = loan.leave(EntryOwner::MEMBER) == Left::Alone;
        if has_left {
            self.cluster.leaves_by_loan(process, ticket)?;
        } else {
            loan.end();
        }
        self.borrow(process, &lock, loan)?;
        Ok(has_left)
    }

    /// What entered by a loan was recalled, and is lost: its caller has left.
    pub(super) fn end_loan(&mut self, process: Process, ticket: Ticket) -> Result<(), Violation> {
        let Some((lock, loan)) = self.loan_of(process, ticket) else {
            return Ok(());
        };
        loan.end();
        self.borrow(process, &lock, loan)
    }

    fn loan_of(&self, process: Process, ticket: Ticket) -> Option<(LockName, SharedLoan)> {
        let mut loans = self.loans.iter();
        let (key, (_, loan)) = loans.find(|(key, (its, _))| key.0 == process && *its == ticket)?;
        Some((key.1.clone(), loan.clone()))
    }
}
