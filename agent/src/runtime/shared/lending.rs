//! A lock that is lent to threads of this process, or to clients of this agent, as the core has it.

use std::fmt;
use std::sync::{Arc, Weak};

use crate::protocol::{LockName, SharedLoan, Ticket, Time};
use crate::runtime::api::caller::Caller;
use crate::runtime::os::clock::Moment;
use crate::runtime::request::{Granted, Request};
use crate::runtime::shared::core_guard::CoreGuard;
use crate::runtime::shared::entry::{Held, Listed};

/// A lock that is lent, as the core's mutex guards it.
#[derive(Debug)]
pub(crate) struct Lending {
    pub(super) lock: LockName,
    pub(super) loan: SharedLoan,
    pub(super) borrowers: Borrowers,
}

/// Whose entries there are by one loan.
#[derive(Debug)]
pub(super) enum Borrowers {
    /// Of threads of this process.
    Threads(Weak<dyn Borrower>),
    /// Of clients, by that slot of the memory that they share.
    Clients(u16),
}

/// The threads that enter by one loan; one of them at most is inside.
pub(crate) trait Borrower: fmt::Debug + Send + Sync {
    /// Under which name they are inside.
    fn caller(&self) -> &Caller;

    /// When the thread that is inside entered; `None` of one that is about to note it.
    fn since(&self) -> Option<Time>;

    /// The core knows of the thread that is inside from now on.
    fn is_known(&self, known: Known);
}

/// A thread that is inside by a loan, once the core knows.
#[derive(Debug)]
pub(crate) struct Known {
    pub(super) ticket: Ticket,
    pub(super) request: Arc<Request>,
    pub(super) granted: Granted,
}

impl CoreGuard<'_> {
    /// The callers that are inside by loans, and those that wait for their turn there, as they were a moment
    /// ago: nobody is disturbed.
    pub(super) fn listed_by_loan(&self) -> impl Iterator<Item = Listed<'_>> {
        self.core.lendings.values().flat_map(|lending| {
            let holder = lending.loan.holder().and_then(|(owner, fence)| {
                let (caller, entered) = match &lending.borrowers {
                    Borrowers::Threads(threads) => {
                        let threads = threads.upgrade()?;
                        (threads.caller().clone(), threads.since()?)
                    }
                    Borrowers::Clients(slot) => self.core.client_loans.holder(*slot, owner)?,
                };
                let (fence, since) = (self.told_fence(fence), Moment::of(entered));
                Some(Listed {
                    lock: &lending.lock,
                    caller,
                    asked: since,
                    held: Some(Held { fence, since }),
                })
            });
            let waiting = match lending.borrowers {
                Borrowers::Threads(_) => Vec::new(),
                Borrowers::Clients(slot) => self.core.client_loans.waiting(slot),
            };
            let waiting = waiting.into_iter().map(|(caller, came)| Listed {
                lock: &lending.lock,
                caller,
                asked: Moment::of(came),
                held: None,
            });
            holder.into_iter().chain(waiting)
        })
    }
}
