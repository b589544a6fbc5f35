//! What follows inside a node from what its elections want, and from what becomes of those who
//! lead.

use alloc::vec;

use super::Node;
use crate::api::{Event, Refusal, Wait};
use crate::election::{Algorithm, AnswerTimer, ElectionMessage, ElectionOutput, Leader, Order};
use crate::ids::{LockName, NodeId, Ticket};
use crate::lock::{LockOutput, Waiting};
use crate::time::Time;
use crate::timers::Timer;
use crate::wire::Body;

impl Node {
    /// Who leads in the election called `name`, as far as this member knows.
    pub fn leader(&self, name: &LockName) -> Option<Leader> {
        self.elections.leader(name)
    }

    /// This member's callers that want to lead and are not nominated, in order, each with its
    /// election.
    pub fn campaigners(&self) -> impl Iterator<Item = (&LockName, Ticket)> {
        self.elections.waiters()
    }

    /// A local caller wants to lead.
    pub(super) fn campaign(
        &mut self,
        now: Time,
        lock: &LockName,
        caller: Waiting,
        algorithm: Option<Algorithm>,
    ) {
        // The leader is told a fence, as every holder is.
        if let Some(actual) = self.locks.instead_of(lock, caller.wish) {
            let (ticket, refusal) = (caller.ticket, Refusal::WrongSpec { actual });
            let events = vec![Event::Ended { ticket, refusal }];
            let out = ElectionOutput {
                events,
                ..ElectionOutput::default()
            };
            return self.elect(now, out);
        }
        if caller.wait == Wait::Try {
            self.try_later(now, caller.ticket);
        }
        let mut out = ElectionOutput::default();
        self.elections.campaign(lock, caller, algorithm, &mut out);
        self.elect(now, out);
    }

    /// Sends, tells and arms what the elections want, and has their nominees enter.
    pub(super) fn elect(&mut self, now: Time, out: ElectionOutput) {
        let ElectionOutput {
            sends,
            events,
            timers,
            orders,
        } = out;
        let epoch = self.present_epoch();
        for (to, message) in sends {
            let counts = &mut self.peers.counters.election_messages;
            *counts.entry(message.kind()).or_default() += 1;
            self.peers.send(&[to], epoch, &Body::Election(message));
        }
        for event in events {
            if let Event::Ended { ticket, .. } = event {
                self.timers.clear(&Timer::Try(ticket));
            }
            self.tell(event);
        }
        for (name, timer) in timers {
            let at = match timer {
                AnswerTimer::Set(patience) => Some(now + patience),
                AnswerTimer::Clear => None,
            };
            self.timers.set_or_clear(Timer::Election(name), at);
        }
        for order in orders {
            self.obey(now, order);
        }
    }

    fn obey(&mut self, now: Time, order: Order) {
        let mut out = LockOutput::at(now);
        match order {
            Order::Enter(name, caller) => self.locks.acquire(&name, caller, &mut out),
            Order::StandBack(ticket) => {
                self.end_request(ticket, Refusal::Cancelled, &mut out);
                // It goes on waiting, and does not hear of this.
                let is_its = |event: &Event| matches!(event, Event::Ended { ticket: of, .. } if *of == ticket);
                out.events.retain(|event| !is_its(event));
            }
        }
        self.absorb(now, out);
    }

    /// The table of locks has told `event`, which may concern one who wants to lead, or leads.
    pub(super) fn follow(&mut self, now: Time, event: &Event) {
        match *event {
            Event::Granted { ticket, fence, .. } if self.elections.has(ticket) => {
                let mut out = ElectionOutput::default();
                self.elections.entered(ticket, fence, &mut out);
                self.elect(now, out);
            }
            Event::Ended { ticket, .. } | Event::Lost { ticket } => self.resign(now, ticket),
            _ => {}
        }
    }

    /// The caller `ticket` is inside no longer, or does not wait for it any more.
    pub(super) fn resign(&mut self, now: Time, ticket: Ticket) {
        if self.elections.has(ticket) {
            let mut out = ElectionOutput::default();
            self.elections.left(ticket, &mut out);
            self.elect(now, out);
        }
    }

    /// The caller `ticket` waits no longer to be nominated.
    pub(super) fn end_campaign(&mut self, now: Time, ticket: Ticket, refusal: Refusal) {
        if self.elections.has(ticket) {
            let mut out = ElectionOutput::default();
            self.elections.end(ticket, refusal, &mut out);
            self.elect(now, out);
        }
    }

    /// A message of the present epoch; whether it made sense.
    pub(super) fn election_body(
        &mut self,
        now: Time,
        from: NodeId,
        message: &ElectionMessage,
    ) -> bool {
        let mut out = ElectionOutput::default();
        let makes_sense = self.elections.receive(from, message, &mut out);
        self.elect(now, out);
        makes_sense
    }
}
