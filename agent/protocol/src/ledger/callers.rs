//! The requests of local callers, from their commands to what they are told.

use core::num::NonZeroU32;

use super::lock::{Lock, Request, State};
use super::{Ledger, Stage, StoreRefusal, Timer};
use crate::api::{Event, MAX_TRY_TIME, Refusal, Wait};
use crate::ids::{Fence, LockName, Ticket};
use crate::lock::{Algorithm, LockSpec, Mode, Previous, Release};
use crate::time::Time;

/// How many requests an agent has at most.
const MAX_REQUESTS: usize = 65_536;

impl Ledger {
    pub(super) fn acquire(
        &mut self,
        now: Time,
        ticket: Ticket,
        name: &LockName,
        permits: Option<NonZeroU32>,
        (mode, wait): (Mode, Wait),
    ) {
        let caller = self.callers.remove(&ticket);
        let listed = self.config.permits.get(name).copied();
        let refusal = if self.stage != Stage::Open {
            Some(Refusal::Closed)
        } else if let Some(actual) = listed.filter(|it| permits.is_some_and(|said| said != *it)) {
            let actual = Self::served(actual);
            Some(Refusal::WrongSpec { actual })
        } else if self.tickets.len() >= MAX_REQUESTS || self.tickets.contains_key(&ticket) {
            Some(Refusal::Limit)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            return self.tell(Event::Ended { ticket, refusal });
        }
        let permits = permits.or(listed);
        let key = self.lock_key(name);
        self.last_number += 1;
        let lock = self
            .locks
            .entry(name.clone())
            .or_insert_with(|| Lock::new(key));
        let request = Request {
            ticket,
            mode,
            wait,
            permits,
            since: now,
            after: super::OpId(self.last_op),
            caller,
            state: State::Waiting,
            is_written: false,
            inside_from: super::OpId(0),
        };
        lock.requests.insert(self.last_number, request);
        self.tickets
            .insert(ticket, (name.clone(), self.last_number));
        match wait {
            Wait::Try => self.timers.set(Timer::Request(ticket), now + MAX_TRY_TIME),
            Wait::Lease => {
                let until = now + self.config.lease;
                self.timers.set(Timer::Request(ticket), until);
            }
            Wait::Cancelled => {}
        }
        self.dirty.insert(name.clone());
    }

    pub(super) fn release(&mut self, ticket: Ticket, how: Release) {
        self.leave_if(ticket, how, |state| state == State::Granted);
    }

    pub(super) fn cancel(&mut self, ticket: Ticket) {
        if self.leave_if(ticket, Release::Unused, State::is_undecided) {
            let refusal = Refusal::Cancelled;
            self.tell(Event::Ended { ticket, refusal });
        }
    }

    /// Has a request's claim taken out, if the request is in such a state; whether it was.
    pub(super) fn leave_if(
        &mut self,
        ticket: Ticket,
        how: Release,
        is: impl Fn(State) -> bool,
    ) -> bool {
        let Some((name, number)) = self.tickets.get(&ticket) else {
            return false;
        };
        let lock = self.locks.get_mut(name).expect("a ticket has a lock");
        let request = lock.requests.get_mut(number).expect("and a request");
        if !is(request.state) {
            return false;
        }
        request.state = State::Leaving(how);
        self.dirty.insert(name.clone());
        self.tickets.remove(&ticket);
        self.timers.clear(&Timer::Request(ticket));
        true
    }

    /// Ends a request without a grant, for a reason that nodes have too.
    pub(super) fn end(&mut self, ticket: Ticket, refusal: Refusal) {
        if self.leave_if(ticket, Release::Unused, State::is_undecided) {
            self.tell(Event::Ended { ticket, refusal });
        }
    }

    /// Ends a request without a grant, for a reason that only stores have.
    pub(super) fn refuse(&mut self, ticket: Ticket, why: StoreRefusal) {
        if self.leave_if(ticket, Release::Unused, State::is_undecided) {
            self.outputs
                .push_back(super::LedgerOutput::Refused { ticket, why });
        }
    }

    /// Takes a grant away.
    pub(super) fn lose(&mut self, ticket: Ticket) {
        if self.leave_if(ticket, Release::Abandoned, |state| state == State::Granted) {
            self.tell(Event::Lost { ticket });
        }
    }

    /// Ends all requests for a lock that have no answer yet.
    pub(super) fn refuse_all(&mut self, name: &LockName, why: &StoreRefusal) {
        let Some(lock) = self.locks.get(name) else {
            return;
        };
        let undecided = lock.requests.values().filter(|it| it.state.is_undecided());
        let undecided: alloc::vec::Vec<Ticket> = undecided.map(|it| it.ticket).collect();
        for ticket in undecided {
            self.refuse(ticket, why.clone());
        }
    }

    /// A caller has waited for as long as it does by itself.
    pub(super) fn waited_enough(&mut self, now: Time, ticket: Ticket) {
        let Some((name, number)) = self.tickets.get(&ticket) else {
            return;
        };
        let request = &self.locks[name].requests[number];
        if !request.state.is_undecided() {
            return;
        }
        match request.wait {
            Wait::Try => {
                let silent = alloc::vec::Vec::new();
                self.end(ticket, Refusal::NoAnswer { silent });
            }
            Wait::Lease => {
                let silent_since = self.link.answered.max(request.since);
                let until = silent_since + self.config.lease;
                if now < until {
                    return self.timers.set(Timer::Request(ticket), until);
                }
                let reason = match self.link.reason.as_str() {
                    "" => "it does not answer",
                    reason => reason,
                };
                let reason = reason.into();
                self.refuse(ticket, StoreRefusal::Unreachable { reason });
            }
            Wait::Cancelled => {}
        }
    }

    /// How the lock is served, for a caller that said otherwise.
    pub(super) const fn served(permits: NonZeroU32) -> LockSpec {
        if permits.get() == 1 {
            LockSpec::exclusive(Algorithm::Manager)
        } else {
            LockSpec::counting(permits)
        }
    }

    /// Tells callers whose claims were seen inside, if the lease runs.
    pub(super) fn tell_grants(&mut self, now: Time, name: &LockName) {
        if !self.has_lease(now) {
            return;
        }
        let Some(lock) = self.locks.get_mut(name) else {
            return;
        };
        for request in lock.requests.values_mut() {
            let State::Inside { fence, previous } = request.state else {
                continue;
            };
            request.state = State::Granted;
            let ticket = request.ticket;
            self.timers.clear(&Timer::Request(ticket));
            let granted = granted(ticket, fence, previous);
            self.outputs.push_back(super::LedgerOutput::Event(granted));
        }
    }
}

const fn granted(ticket: Ticket, fence: Fence, previous: Previous) -> Event {
    Event::Granted {
        ticket,
        fence,
        previous,
    }
}
