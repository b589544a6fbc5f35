//! How a session ends: by leaving the group, or at once.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::protocol::{Command, Input, Release, Ticket};
use crate::runtime::api::error::{AcquireError, SessionEnd};
use crate::runtime::os::clock;
use crate::runtime::shared::core_guard::{CoreGuard, Phase};
use crate::runtime::shared::entry::{Sink, Task};

/// How long a leaving agent waits until the others know.
const LEAVE_TIME: Duration = Duration::from_secs(1);

impl CoreGuard<'_> {
    /// Leaves the group. Guards are void before the first datagram says that their locks are free.
    /// What clients hold stays theirs until they are gone: their commands may be inside, and end
    /// only now that they hear of it. One lease bounds that.
    pub(crate) fn leave(&mut self) {
        if self.core.phase != Phase::Running {
            return;
        }
        self.core.phase = Phase::Draining {
            deadline: clock::now() + self.shared.identity.settings.lease,
        };
        self.end_lending();
        // Those who wait come first, the last of them before the others: what is given back, and
        // whoever gives up, would let in those behind.
        let requests = self.core.requests.iter().rev();
        let mut tickets: Vec<_> = requests
            .map(|(ticket, entry)| (entry.held.is_some(), *ticket))
            .collect();
        tickets.sort_by_key(|(is_held, _)| *is_held);
        for (_, ticket) in tickets {
            self.ask_back(ticket);
        }
        self.leave_if_drained();
    }

    /// Asks back what a client has just been told that it holds, if this agent leaves: it was asked for the
    /// entry by a loan that this was before, which is another number.
    pub(crate) fn ask_back_if_leaving(&mut self, ticket: Ticket) {
        if self.core.phase != Phase::Running {
            self.ask_back(ticket);
        }
    }

    /// Takes back what can be taken back at once, and asks a client for the rest.
    fn ask_back(&mut self, ticket: Ticket) {
        let Some(entry) = self.core.requests.get(&ticket) else {
            return;
        };
        match (&entry.held, &entry.sink) {
            (None, _) => self.cancel(ticket),
            (Some(_), Sink::Thread(_)) => {
                self.lost(ticket);
                // The process closes its agent, which it would not do in the middle of something.
                let how = Release::Given;
                self.step(Input::Command(&Command::Release { ticket, how }));
            }
            (Some(_), &Sink::Client { client, id }) => {
                let limit = self.limit();
                self.core.tasks.push_back(Task::Lost { client, id, limit });
            }
        }
    }

    /// Says goodbye to the group, once nobody of this agent is inside any more.
    pub(crate) fn leave_if_drained(&mut self) {
        if matches!(self.core.phase, Phase::Draining { .. }) && self.core.requests.is_empty() {
            self.core.phase = Phase::Leaving {
                deadline: clock::now() + LEAVE_TIME,
            };
            self.step(Input::Command(&Command::Leave));
        }
    }

    /// Ends the session: nothing more is sent, who waits is refused, who is inside has lost.
    /// The agent thread tells the clients by closing their streams.
    pub(crate) fn end(&mut self, end: SessionEnd) {
        if self.end_of_session().is_some() {
            return;
        }
        self.core.phase = Phase::Over(end.clone());
        // With it, who writes comes to an end.
        if let Some(mut tracer) = self.core.tracer.take() {
            tracer.note_end(&end);
        }
        self.core.held_back = None;
        self.core.reports.end();
        self.end_change(&end);
        self.core.session.end();
        self.note_expiry();
        self.ring.push(Arc::clone(&self.core.session));
        // Without its sockets, nothing that is still in the core can be said any more.
        self.core.arbiter.end(&self.shared.socket_set);
        let word = match &end {
            SessionEnd::Closed => "closed",
            _ => "failed",
        };
        for (_, entry) in mem::take(&mut self.core.requests) {
            self.loses(&entry, word);
            if let Sink::Thread(request) = entry.sink {
                if entry.held.is_some() {
                    request.lose();
                } else {
                    request.refuse(AcquireError::Closed(end.clone()));
                }
                self.notify.push(request);
            }
        }
        self.shared.hub.end(&end);
    }
}
