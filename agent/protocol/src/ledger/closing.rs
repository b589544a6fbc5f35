//! How an agent closes: it gives back its claims, and removes its session.

use alloc::vec::Vec;
use core::time::Duration;

use super::lock::State;
use super::{Ledger, Stage, Timer};
use crate::api::{Event, Refusal};
use crate::ids::Ticket;
use crate::lock::Release;
use crate::time::Time;

/// How long it tries to; a lease if that is less. What is left then is free when the lease is over.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

impl Ledger {
    pub(super) fn close(&mut self, now: Time) {
        if self.stage != Stage::Open {
            return;
        }
        let until = now + self.config.lease.min(CLOSE_PATIENCE);
        self.stage = Stage::Closing(until);
        self.timers.set(Timer::Close, until);
        self.timers.clear(&Timer::Collect);
        self.callers.clear();
        let tickets: Vec<Ticket> = self.tickets.keys().copied().collect();
        for ticket in tickets {
            self.end(ticket, Refusal::Closed);
            if self.leave_if(ticket, Release::Given, |state| state == State::Granted) {
                self.tell(Event::Lost { ticket });
            }
        }
        self.dirty.extend(self.locks.keys().cloned());
    }

    pub(super) fn finish_closing(&mut self) {
        let is_done = self.census.unsettled.is_empty();
        if matches!(self.stage, Stage::Closing(_)) && self.session.is_none() && is_done {
            self.closed();
        }
    }

    pub(super) fn closed(&mut self) {
        self.stage = Stage::Closed;
        self.timers = super::Timers::default();
        self.locks.clear();
        self.census = super::Census::default();
        self.watches.clear();
        self.ops.clear();
        self.dirty.clear();
        self.session = None;
        self.tell(Event::Left);
    }
}
