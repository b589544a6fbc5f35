//! Passes what the core says happened on to those whom it concerns.

use std::sync::Arc;

use crate::protocol::{Event, Fence, Previous, Refusal, Ticket};
use crate::runtime::api::audit::AuditEvent;
use crate::runtime::api::error::{AcquireError, SessionEnd};
use crate::runtime::api::events::AgentEvent;
use crate::runtime::api::status::QuorumStatus;
use crate::runtime::frames::FromAgent;
use crate::runtime::os::clock::{self, Moment};
use crate::runtime::request::Granted;
use crate::runtime::shared::arbiter::Arbiter;
use crate::runtime::shared::core_guard::{CoreGuard, Phase};
use crate::runtime::shared::entry::{Held, Sink, Task};

impl CoreGuard<'_> {
    pub(crate) fn tell(&mut self, event: Event) {
        match event {
            Event::Granted {
                ticket,
                fence,
                previous,
            } => self.granted(ticket, fence, previous),
            Event::Entered { ticket, fence } => self.entered(ticket, fence),
            Event::Recalled {
                lock,
                entries,
                is_waited,
            } => {
                self.core.measured.of(&lock).was_lent(entries);
                if is_waited {
                    self.recalled(&lock);
                }
            }
            Event::Ended { ticket, refusal } => {
                let entry = self.core.requests.get(&ticket);
                let goes_by_loan = entry.is_some_and(|entry| entry.goes_by_loan);
                let why = match (&self.core.phase, refusal) {
                    (_, Refusal::Cancelled) if goes_by_loan => AcquireError::Lent,
                    // Who leaves cancels on its callers' behalf.
                    (Phase::Draining { .. }, Refusal::Cancelled) => {
                        AcquireError::Closed(SessionEnd::Closed)
                    }
                    (_, refusal) => self.meaning(refusal),
                };
                self.refused(ticket, why);
            }
            Event::Lost { ticket } => self.lost(ticket),
            Event::Lease { until } => self.renewed(until),
            Event::Excluded { epoch } => self.excluded(epoch),
            Event::Members { overrides } => self.read_book(overrides),
            Event::Unlisted { members } => self.note_unlisted(&members),
            Event::Unchangeable => self.refuse_change(),
            Event::VoterBroken { why } => {
                tracing::error!(
                    event = "voter-broken",
                    "voting disabled, inconsistent Raft log: {why}; restart this agent"
                );
            }
            Event::Quorum(overview) => {
                let status = QuorumStatus::of(overview, clock::now());
                self.publish(AgentEvent::Quorum(status));
            }
            Event::Suspect { peer } => self.publish(AgentEvent::Suspect { peer }),
            Event::Alive { peer } => self.publish(AgentEvent::Alive { peer }),
            Event::View { epoch, members } => {
                self.core.reports.note_view(&members);
                self.core.measured.installs(&members);
                self.look_for_unlisted(&members);
                self.audit(|_| AuditEvent::View {
                    epoch: epoch.as_u32(),
                    members: members.iter().map(|id| id.as_u16()).collect(),
                });
                self.publish(AgentEvent::View { epoch, members });
            }
            Event::Disagreement {
                peer,
                key,
                ours,
                theirs,
                refused,
            } => {
                self.core
                    .reports
                    .note_disagreement(peer, &key, &ours, &theirs);
                self.publish(AgentEvent::Disagreement {
                    peer,
                    key,
                    ours,
                    theirs,
                    refused,
                });
            }
            Event::Leader { lock, leader } => {
                let leader = leader.map(|leader| self.as_told(leader));
                let event = AgentEvent::Leader { lock, leader };
                self.shared.hub.publish(&event);
                self.core.tasks.push_back(Task::TellAll(event));
            }
            Event::Superseded { by } => self.end(SessionEnd::Superseded { by }),
            Event::Note { from, bytes } => {
                if let Some(members) = self.core.members_mut() {
                    members.note(from, bytes);
                }
            }
            Event::Left => self.end(SessionEnd::Closed),
        }
    }

    /// What a refusal means to the caller.
    fn meaning(&self, refusal: Refusal) -> AcquireError {
        match &self.core.arbiter {
            Arbiter::Members(members) => {
                AcquireError::from_refusal(refusal, || members.node.quorum(clock::now()))
            }
            #[cfg(feature = "store")]
            Arbiter::Store(store) => store.meaning(refusal),
        }
    }

    fn granted(&mut self, ticket: Ticket, fence: Fence, previous: Previous) {
        let session = Arc::clone(&self.core.session);
        let fence = self.told_fence(fence);
        let core = &mut *self.core;
        let Some(entry) = core.requests.get_mut(&ticket) else {
            debug_assert!(false, "a grant for {ticket:?}, which nobody asked for");
            return;
        };
        let since = Moment::now();
        entry.held = Some(Held { fence, since });
        let waited = since.at.since(entry.asked.at);
        let of_lock = core.measured.of(&entry.lock);
        of_lock.grants(entry.mode, waited, previous == Previous::Abandoned);
        match &entry.sink {
            Sink::Thread(request) => {
                let is_awaited = request.grant(Granted {
                    fence,
                    previous,
                    session,
                });
                if is_awaited {
                    self.notify.push(request.clone());
                }
            }
            &Sink::Client { client, id } => {
                let abandoned = previous == Previous::Abandoned;
                let message = FromAgent::Granted {
                    id,
                    fence: fence.map_or(0, Fence::as_u64),
                    abandoned,
                };
                if entry.caller.has_lifeline {
                    let page = session.page();
                    core.tasks.push_back(Task::Hand { client, id, page });
                }
                core.tasks.push_back(Task::Tell { client, message });
            }
        }
        self.audit_grant(ticket, previous == Previous::Abandoned);
    }

    pub(crate) fn refused(&mut self, ticket: Ticket, why: AcquireError) {
        let entry = self.core.requests.remove(&ticket);
        if let (Some(entry), Some(word)) = (&entry, why.word()) {
            self.core.measured.of(&entry.lock).refuses(word);
            self.audit(|core| AuditEvent::Refused {
                entry: core.audited(entry),
                why: word,
            });
        }
        match entry.map(|entry| entry.sink) {
            Some(Sink::Thread(request)) => {
                request.refuse(why);
                self.notify.push(request);
            }
            Some(Sink::Client { client, id }) => {
                let message = FromAgent::Refused { id, why };
                self.core.tasks.push_back(Task::Tell { client, message });
            }
            None => debug_assert!(false, "an end for {ticket:?}, which nobody asked for"),
        }
    }

    pub(crate) fn lost(&mut self, ticket: Ticket) {
        let entry = self.core.requests.remove(&ticket);
        if let Some(entry) = &entry {
            let is_running = self.core.phase == Phase::Running;
            self.loses(entry, if is_running { "excluded" } else { "closed" });
        }
        match entry.map(|entry| entry.sink) {
            Some(Sink::Thread(request)) => {
                request.lose();
                self.notify.push(request);
            }
            Some(Sink::Client { client, id }) => {
                let limit = self.limit();
                self.core.tasks.push_back(Task::Lost { client, id, limit });
            }
            None => {}
        }
    }

    pub(crate) fn publish(&mut self, event: AgentEvent) {
        self.shared.hub.publish(&event);
        self.core.tasks.push_back(Task::TellAll(event));
    }
}
