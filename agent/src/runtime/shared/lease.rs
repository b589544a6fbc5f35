//! What a stay in the core's mutex does about the lease: it moves the end that everybody looks at.

#[cfg(test)]
mod tests;

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::protocol::{Epoch, Missing, Time};
use crate::runtime::api::audit::AuditEvent;
use crate::runtime::api::events::AgentEvent;
use crate::runtime::os::clock;
use crate::runtime::request::session::{NOT_YET, OVER, Session};
use crate::runtime::shared::core_guard::CoreGuard;
use crate::runtime::shared::entry::{Lease, Task};

impl CoreGuard<'_> {
    /// Until when nobody else is let in where this session is, or was.
    pub(crate) fn limit(&self) -> Time {
        self.core.session.limit()
    }

    /// How much is left of the lease; `None` before the first one, and where no lease bounds what is granted.
    pub(super) fn lease_remaining(&self) -> Option<Duration> {
        let expiry = self.core.session.expiry();
        let has_end = !matches!(expiry, OVER | NOT_YET | u64::MAX);
        has_end.then(|| Time::from_nanos(expiry).since(clock::now()))
    }

    /// Who would have to be there for this member to go on; empty if it can.
    pub(crate) fn missing(&self) -> Vec<Missing> {
        let members = self.core.members();
        members.map_or_else(Vec::new, |members| members.node.lacking(clock::now()))
    }

    pub(crate) fn renewed(&mut self, until: Time) {
        if let Some(margin) = self.lease_remaining() {
            self.core.measured.lease_margin.note(margin);
        }
        self.core.session.note_lapse();
        self.core.session.renew(until);
        self.note_expiry();
        self.ring.push(Arc::clone(&self.core.session));
        self.tell_clients(until);
        self.look_for_nobodys();
    }

    /// What was held in this session is lost by now. What is granted from now on is another's.
    pub(crate) fn excluded(&mut self, epoch: Epoch) {
        let next = Session::new(self.core.session.lease());
        let session = mem::replace(&mut self.core.session, next);
        session.end();
        self.core.session_number += 1;
        self.note_expiry();
        self.ring.push(session);
        self.tell_clients(Time::ZERO);
        self.audit(|_| AuditEvent::Excluded {
            epoch: epoch.as_u32(),
        });
        self.publish(AgentEvent::Excluded { epoch });
    }

    /// The present session is another, or its lease ends at another time or is over.
    pub(super) fn note_expiry(&self) {
        let expiry = self.core.session.expiry();
        self.shared.expiry.store(expiry, Ordering::Release);
        let number = self.core.session_number;
        self.core.client_loans.store(number, expiry);
    }

    /// Of several ends of one lease, the last is all that clients need to hear.
    fn tell_clients(&mut self, until: Time) {
        let core = &mut *self.core;
        let session = core.session_number;
        match core.tasks.back_mut() {
            Some(Task::Lease(lease)) if lease.session == session => lease.until = until,
            _ => core.tasks.push_back(Task::Lease(Lease { session, until })),
        }
    }
}
