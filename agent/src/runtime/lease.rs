//! What a turn does about the lease: it moves the end that everybody looks at.

#[cfg(test)]
mod tests;

use std::mem;
use std::sync::Arc;

use super::clock;
use super::events::AgentEvent;
use super::session::Session;
use super::turn::{Task, Turn};
use crate::protocol::{Epoch, Missing, Time};

/// A session, and when its lease ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    /// How many sessions of this agent there were before.
    pub(crate) session: u64,
    /// [`Time::ZERO`] before the first renewal.
    pub(crate) until: Time,
}

impl Turn<'_> {
    /// Until when nobody else is let in where this session is, or was.
    pub(super) fn limit(&self) -> Time {
        self.core.session.limit()
    }

    /// Who would have to be there for this member to go on; empty if it can.
    pub(super) fn missing(&self) -> Vec<Missing> {
        self.core.node.lacking(clock::now())
    }

    pub(super) fn renewed(&mut self, until: Time) {
        self.core.session.renew(until);
        self.ring.push(Arc::clone(&self.core.session));
        self.tell_clients(until);
    }

    /// What was held in this session is lost by now. What is granted from now on is another's.
    pub(super) fn excluded(&mut self, epoch: Epoch) {
        let next = Session::new(self.core.session.lease());
        let session = mem::replace(&mut self.core.session, next);
        session.end();
        self.ring.push(session);
        self.core.session_number += 1;
        self.tell_clients(Time::ZERO);
        self.publish(AgentEvent::Excluded { epoch });
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
