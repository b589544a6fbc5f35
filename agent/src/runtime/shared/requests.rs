//! Callers' requests: made, cancelled, released.

use crate::protocol::{
    Command, Event, Failure, Fence, Input, LockName, LockSpec, Mode, Refusal, Release, Ticket,
    Wait, election,
};
use crate::runtime::api::caller::{Caller, Purpose};
use crate::runtime::api::description::Description;
use crate::runtime::api::error::{AcquireError, SessionEnd};
use crate::runtime::api::events::{Leader, Observed, observe};
use crate::runtime::os::clock::Moment;
use crate::runtime::request::session::GuardState;
use crate::runtime::shared::arbiter::Arbiter;
use crate::runtime::shared::core_guard::{CoreGuard, Phase};
use crate::runtime::shared::entry::{Entry, Sink};

/// How many requests an agent has at most, waiting and granted, of threads and clients: sixteen
/// clients' fill (`clients::connection`), and with command lines of 1 KiB less than 100 MB.
const MAX_REQUESTS: usize = 1 << 16;

impl CoreGuard<'_> {
    /// Makes a request. Its outcome comes to `sink`, perhaps at once.
    pub(crate) fn ask(
        &mut self,
        lock: LockName,
        spec: Option<LockSpec>,
        mode: Mode,
        wait: Wait,
        caller: Caller,
        sink: Sink,
    ) -> Result<Ticket, AcquireError> {
        match &self.core.phase {
            Phase::Running => {}
            Phase::Draining { .. } | Phase::Leaving { .. } => {
                return Err(AcquireError::Closed(SessionEnd::Closed));
            }
            Phase::Over(end) => return Err(AcquireError::Closed(end.clone())),
        }
        if self.core.requests.len() >= MAX_REQUESTS {
            return Err(AcquireError::Limit);
        }
        let ticket = self.next_ticket();
        let purpose = caller.purpose;
        let entry = Entry {
            lock: lock.clone(),
            mode,
            caller,
            asked: Moment::now(),
            held: None,
            sink,
            goes_by_loan: false,
        };
        #[cfg(feature = "store")]
        self.introduce(ticket, &entry.caller);
        self.core.requests.insert(ticket, entry);
        let command = match purpose {
            Purpose::Enter => Command::Acquire {
                ticket,
                lock,
                spec,
                mode,
                wait,
            },
            Purpose::Lead { algorithm } => Command::Campaign {
                ticket,
                spec: spec.unwrap_or_else(|| Description::of(&lock, &self.shared.identity).spec),
                lock,
                algorithm,
                wait,
            },
        };
        match &mut self.core.held_back {
            Some(_) if wait == Wait::Try => self.refused(ticket, AcquireError::Busy),
            Some(held_back) => held_back.push_back((ticket, command)),
            None => self.step(Input::Command(&command)),
        }
        Ok(ticket)
    }

    pub(super) fn next_ticket(&mut self) -> Ticket {
        let ticket = Ticket(self.core.next_ticket);
        self.core.next_ticket += 1;
        ticket
    }

    /// From now on callers wait before they ask, since commands of this agent's last incarnation run.
    pub(crate) fn hold_back(&mut self) {
        self.core.held_back.get_or_insert_default();
    }

    /// Those commands have ended.
    pub(crate) fn let_in(&mut self) {
        for (_, command) in self.core.held_back.take().into_iter().flatten() {
            self.step(Input::Command(&command));
        }
    }

    /// Ends a request that waits; one that was granted stays.
    pub(crate) fn cancel(&mut self, ticket: Ticket) {
        if let Some(held_back) = &mut self.core.held_back {
            let before = held_back.len();
            held_back.retain(|(held_back, _)| *held_back != ticket);
            if held_back.len() < before {
                let refusal = Refusal::Cancelled;
                return self.tell(Event::Ended { ticket, refusal });
            }
        }
        self.step(Input::Command(&Command::Cancel { ticket }));
    }

    /// Ends a request, whatever it has come to, of one whom the outcome does not interest. `how`: if
    /// it was granted.
    pub(crate) fn withdraw(&mut self, ticket: Ticket, how: Release) {
        self.cancel(ticket);
        self.release(ticket, how);
    }

    /// Frees what `ticket` was granted.
    pub(crate) fn release(&mut self, ticket: Ticket, how: Release) {
        if let Some(entry) = self.core.requests.remove(&ticket) {
            let has_seen_it = how != Release::Unused;
            if has_seen_it && self.core.session.state() == GuardState::Suspended {
                // A caller that looks at its lease may leave before this agent, which stood still, hears
                // that the group has gone on.
                self.loses(&entry, "expired");
                if let Some(tracer) = &mut self.core.tracer {
                    tracer.note_lost(ticket);
                }
            } else {
                self.was_held(&entry);
                self.audit_release(&entry, how);
            }
            self.step(Input::Command(&Command::Release { ticket, how }));
            self.leave_if_drained();
        }
    }

    /// Whether the request is inside.
    pub(crate) fn is_held(&self, ticket: Ticket) -> bool {
        let entry = self.core.requests.get(&ticket);
        entry.is_some_and(|entry| entry.held.is_some())
    }

    /// The lock that is asked for or held by this ticket, if it was not lost.
    pub(crate) fn lock_of(&self, ticket: Ticket) -> Option<LockName> {
        let entry = self.core.requests.get(&ticket);
        entry.map(|entry| entry.lock.clone())
    }

    /// Who leads, as far as is known here.
    pub(crate) fn leader(&self, lock: &LockName) -> Option<Leader> {
        match &self.core.arbiter {
            Arbiter::Members(members) => {
                members.node.leader(lock).map(|leader| self.as_told(leader))
            }
            #[cfg(feature = "store")]
            Arbiter::Store(store) => store.leader(lock).flatten(),
        }
    }

    pub(super) fn as_told(&self, leader: election::Leader) -> Leader {
        Leader::of_member(leader.node, self.told_fence(leader.fence))
    }

    /// A fence as callers are told it. Where the silent are presumed gone, two sides that go on
    /// without each other can both give the same number.
    pub(super) fn told_fence(&self, fence: Fence) -> Option<Fence> {
        let is_alone = self.shared.identity.settings.failure != Failure::PresumeFailed;
        is_alone.then_some(fence)
    }

    /// Who leads, now and from now on.
    pub(crate) fn observe<T: Send + 'static>(
        &self,
        lock: &LockName,
        map: fn(Leader) -> T,
    ) -> Observed<Option<T>> {
        // Under the mutex, so that nothing comes in between.
        observe(&self.shared.hub, lock, self.known_leader(lock), map)
    }

    /// Who leads, if that is known: who leads by a store's records has to be asked for first.
    pub(crate) fn known_leader(&self, lock: &LockName) -> Option<Option<Leader>> {
        match &self.core.arbiter {
            Arbiter::Members(_) => Some(self.leader(lock)),
            #[cfg(feature = "store")]
            Arbiter::Store(store) => store.leader(lock),
        }
    }

    /// From now on it is found out who leads, where that is not known anyway.
    pub(crate) fn begin_to_observe(&mut self, lock: &LockName) {
        #[cfg(feature = "store")]
        self.observe_in_store(lock);
        #[cfg(not(feature = "store"))]
        let _ = lock;
    }

    pub(crate) fn set_command_pid(&mut self, ticket: Ticket, pid: u32) {
        if let Some(entry) = self.core.requests.get_mut(&ticket) {
            entry.caller.command_pid = Some(pid);
        }
    }
}
