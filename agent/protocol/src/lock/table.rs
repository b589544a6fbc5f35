//! The table of a member's locks: what stands between local callers, engines and the network.
//!
//! For each lock it keeps the engine of the present view, the local queue and the counter of the
//! fences, and it keeps the member's Lamport clock. Engines give effects; the table turns them
//! into messages, events and timers ([`LockOutput`]), until nothing is left to do.

mod loans;
mod lock_view;
mod specs;
mod views;
mod witness;

pub use self::lock_view::LockView;
use self::witness::Witness;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::loan::Borrowed;
use super::queue::Waiting;
use super::settle::{Lock, LockMessage, LockOutput, Settling};
use super::{AbandonedMarks, Block, Effects, LockSpec, Release, Request, Stamp};
use crate::api::{Event, Refusal, Wait};
use crate::ids::{Incarnation, LockName, NodeId, RequestId, Ticket};
use crate::membership::{Member, View};
use crate::settings::{Failure, Settings};
use crate::time::Time;

/// How many locks a member keeps at once. Locks nobody uses are forgotten in each new view, and
/// reaching the bound asks for one.
pub(crate) const MAX_LOCKS: usize = 65_536;
/// How many local requests may wait or be inside at once.
pub(crate) const MAX_TICKETS: usize = 65_536;
/// The highest Lamport clock that is believed: no group gets there in a thousand years.
const MAX_CLOCK: u64 = 1 << 62;
/// The table of locks.
#[derive(Clone, Debug, Hash)]
pub struct Locks {
    me: NodeId,
    incarnation: Incarnation,
    failure: Failure,
    default: LockSpec,
    listed: BTreeMap<LockName, LockSpec>,
    /// The view in force; `None` before the first, and while frozen.
    view: Option<Arc<View>>,
    /// The other members of the last view.
    others: Vec<Member>,
    /// What this member can say of those that are not there any more.
    witness: Witness,
    /// Whether locks that this table does not know may have been abandoned.
    doubt: bool,
    /// Whether locks that the view does not know are in quarantine.
    quarantines_rest: bool,
    /// What the incarnation before knew, until a view has been told.
    inherited: AbandonedMarks,
    table: BTreeMap<LockName, Lock>,
    /// Of the locks that threads of this member enter by themselves.
    loans: BTreeMap<LockName, Borrowed>,
    /// The lock of each caller that waits or is inside.
    tickets: BTreeMap<Ticket, LockName>,
    /// The Lamport clock.
    clock: u64,
    /// The number of the last request.
    seq: u64,
    effects: Effects,
    /// Members to whom so much waits to be sent that nothing is added.
    congested: BTreeSet<NodeId>,
    /// Whether a message was dropped in this epoch because there was no room for its lock.
    overflowed: bool,
    /// Whether callers are still served.
    open: bool,
}

impl Locks {
    /// `marks`: what the incarnation before left behind.
    pub fn new(
        me: NodeId,
        incarnation: Incarnation,
        settings: &Settings,
        marks: AbandonedMarks,
    ) -> Self {
        Self {
            me,
            incarnation,
            failure: settings.failure,
            default: LockSpec::exclusive(settings.algorithm),
            listed: settings.locks.clone(),
            view: None,
            others: Vec::new(),
            witness: Witness::default(),
            doubt: false,
            quarantines_rest: false,
            inherited: marks,
            table: BTreeMap::new(),
            loans: BTreeMap::new(),
            tickets: BTreeMap::new(),
            clock: 0,
            seq: 0,
            effects: Effects::default(),
            congested: BTreeSet::new(),
            overflowed: false,
            open: true,
        }
    }

    pub(crate) fn views(&self) -> impl Iterator<Item = LockView<'_>> {
        self.table.iter().map(|(name, lock)| LockView {
            name,
            spec: lock.spec,
            is_quarantined: lock.quarantine.is_some(),
            queue: &lock.queue,
        })
    }

    /// So many grants of a lock have been given in this epoch.
    #[cfg(test)]
    pub(crate) fn count_up(&mut self, name: &LockName, counter: u32) {
        let lock = self.table.get_mut(name).expect("the lock is known");
        lock.history.counter = counter;
    }

    /// A local caller wants in.
    pub fn acquire(&mut self, name: &LockName, caller: Waiting, out: &mut LockOutput) {
        self.recall(name, out);
        match self.admit(name, caller, out) {
            Ok(()) => {
                self.tickets.insert(caller.ticket, name.clone());
                if !self.is_being_asked(name) {
                    self.settle(name, out);
                }
            }
            Err(refusal) => {
                out.events.push(Event::Ended {
                    ticket: caller.ticket,
                    refusal,
                });
                self.forget_if_unused(name);
                self.lend(name);
            }
        }
    }

    /// Whether a caller has come before, and how the lock is served is being asked for that one.
    fn is_being_asked(&self, name: &LockName) -> bool {
        let lock = self.table.get(name);
        lock.is_some_and(|lock| lock.spec.is_none() && lock.queue.callers().nth(1).is_some())
    }

    /// Puts the caller into the lock's local queue, if it may wait at all.
    fn admit(
        &mut self,
        name: &LockName,
        caller: Waiting,
        out: &mut LockOutput,
    ) -> Result<(), Refusal> {
        if !self.open {
            return Err(Refusal::Closed);
        }
        if let Some(wish) = caller.wish
            && !wish.is_valid()
        {
            return Err(Refusal::WrongSpec {
                actual: LockSpec::exclusive(wish.algorithm),
            });
        }
        if let Some(actual) = self.instead_of(name, caller.wish) {
            return Err(Refusal::WrongSpec { actual });
        }
        if self.tickets.len() >= MAX_TICKETS {
            return Err(Refusal::Limit);
        }
        let Some(lock) = self.lock(name) else {
            // The next view forgets the locks that nobody uses.
            out.wants_view = true;
            return Err(Refusal::Limit);
        };
        if let Some((actual, _)) = lock
            .spec
            .zip(caller.wish)
            .filter(|(actual, wish)| actual != wish)
        {
            return Err(Refusal::WrongSpec { actual });
        }
        if let Some(actual) = lock.spec.filter(|spec| !spec.can_serve(caller.mode)) {
            return Err(Refusal::NotShareable { actual });
        }
        let permits = lock.spec.map_or(1, |spec| spec.permits.get());
        let is_free = lock.queue.callers().next().is_none()
            && lock.queue.asking().is_none()
            && lock.queue.has_room(caller.mode, permits);
        if caller.wait == Wait::Try && !is_free {
            return Err(Refusal::Busy);
        }
        lock.queue.push(caller);
        Ok(())
    }

    /// The lock called `name`, made if there is room for it. None is made any more in an epoch in
    /// which a message was dropped: it may have been for that one, whose engine would not know that
    /// it lacks a message, while the others' take it for delivered.
    fn lock(&mut self, name: &LockName) -> Option<&mut Lock> {
        if !self.table.contains_key(name) {
            if self.overflowed || self.table.len() >= MAX_LOCKS + self.listed.len() {
                return None;
            }
            let spec = self.listed.get(name).copied();
            self.table.insert(
                name.clone(),
                Lock {
                    spec,
                    ..Lock::default()
                },
            );
        }
        self.table.get_mut(name)
    }

    /// A refused caller leaves no trace of a lock that nothing else is known of.
    fn forget_if_unused(&mut self, name: &LockName) {
        if self
            .table
            .get(name)
            .is_some_and(|lock| lock.spec.is_none() && lock.queue.is_empty())
        {
            self.table.remove(name);
        }
    }

    /// A local caller leaves.
    pub fn release(&mut self, ticket: Ticket, how: Release, out: &mut LockOutput) {
        let Some(name) = self.tickets.get(&ticket).cloned() else {
            return;
        };
        if self
            .table
            .get_mut(&name)
            .is_some_and(|lock| lock.queue.release(ticket, how))
        {
            self.tickets.remove(&ticket);
            self.settle(&name, out);
        }
    }

    /// A local caller that waits is told `refusal`, and waits no longer.
    pub fn end(&mut self, ticket: Ticket, refusal: Refusal, out: &mut LockOutput) {
        let Some(name) = self.tickets.get(&ticket).cloned() else {
            return;
        };
        if self
            .table
            .get_mut(&name)
            .is_some_and(|lock| lock.queue.give_up(ticket))
        {
            self.tickets.remove(&ticket);
            out.events.push(Event::Ended { ticket, refusal });
            self.settle(&name, out);
            self.forget_if_unused(&name);
        }
    }

    /// The callers whose patience ends after one lease, with the time since when they wait.
    pub(crate) fn impatient(&self) -> Vec<(Ticket, Time)> {
        let callers = self.table.values().flat_map(|lock| lock.queue.callers());
        let impatient = callers.filter(|caller| caller.wait == Wait::Lease);
        impatient
            .map(|caller| (caller.ticket, caller.since))
            .collect()
    }

    /// The same of a caller that was let in and does not know of it.
    pub(crate) fn impatience(&self, ticket: Ticket) -> Option<(Ticket, Time)> {
        let lock = self.table.get(self.tickets.get(&ticket)?)?;
        let caller = lock.queue.asked(ticket)?;
        (caller.wait == Wait::Lease).then_some((ticket, caller.since))
    }

    /// Since when a caller waits, or has waited that was let in and does not know of it.
    pub(crate) fn waiting_since(&self, ticket: Ticket) -> Option<Time> {
        let lock = self.table.get(self.tickets.get(&ticket)?)?;
        let mut callers = lock.queue.callers();
        let waiting = callers.find(|caller| caller.ticket == ticket);
        let since = waiting.map(|caller| caller.since);
        since.or_else(|| Some(lock.queue.asked(ticket)?.since))
    }

    /// A message of this epoch. Returns whether it made sense.
    pub fn receive(&mut self, from: NodeId, message: LockMessage, out: &mut LockOutput) -> bool {
        let LockMessage {
            lock: name,
            permits,
            priority,
            clock,
            history,
            body,
        } = message;
        let spec = LockSpec {
            algorithm: body.algorithm(),
            permits,
            priority,
        };
        if !self.failure.can_serve(spec) || self.view.is_none() || clock > MAX_CLOCK {
            return false;
        }
        self.recall(&name, out);
        self.clock = self.clock.max(clock) + 1;
        let Some(lock) = self.lock(&name) else {
            // The next view forgets what nobody uses, and its engines say everything again.
            out.wants_view = true;
            self.overflowed = true;
            return false;
        };
        let makes_sense = match lock.spec {
            Some(known) => known == spec,
            // The sender has it from the coordinator.
            None => {
                self.learn(&name, spec, out);
                true
            }
        };
        let is_quarantined = |lock: &Lock| lock.quarantine.is_some();
        if makes_sense && self.table.get(&name).is_some_and(is_quarantined) {
            // The sender has an engine: it knows that the quarantine is over, of all locks.
            self.lift(out);
        }
        if makes_sense && let Some(lock) = self.table.get_mut(&name) {
            lock.history.hear(history);
            lock.was_marked |= lock.history.abandoned;
            if let Some(engine) = &mut lock.engine {
                engine.receive(from, &body, &mut self.effects);
            }
            if let Some(numbers) = self.effects.block.take() {
                lock.block = Some(Block::after(history.counter, numbers));
            }
            self.settle(&name, out);
        } else {
            self.lend(&name);
        }
        makes_sense
    }

    pub fn hop_timeout(&mut self, name: &LockName, out: &mut LockOutput) {
        if self.is_loan_used(name, out) {
            return;
        }
        self.recall(name, out);
        if let Some(engine) = self
            .table
            .get_mut(name)
            .and_then(|lock| lock.engine.as_mut())
        {
            engine.timeout(&mut self.effects);
            self.settle(name, out);
        }
    }

    /// Carries out the engine's effects and feeds it what is next, until both have nothing more. Then
    /// this member's threads have the lock, if it is lent.
    fn settle(&mut self, name: &LockName, out: &mut LockOutput) {
        self.step(name, out);
        self.lend(name);
    }

    fn step(&mut self, name: &LockName, out: &mut LockOutput) {
        let Some(lock) = self.table.get_mut(name) else {
            return;
        };
        let Some((view, spec)) = self.view.as_ref().zip(lock.spec) else {
            if self.view.is_some()
                && let Some(first) = lock.queue.callers().next()
            {
                out.declares.push((name.clone(), first.wish));
            }
            return;
        };
        if lock.quarantine.is_some() {
            for ticket in lock.refuse_tries() {
                self.tickets.remove(&ticket);
                let refusal = Refusal::Busy;
                out.events.push(Event::Ended { ticket, refusal });
            }
            return;
        }
        let mut context = Settling {
            name,
            spec,
            view,
            clock: &mut self.clock,
            tickets: &mut self.tickets,
            effects: &mut self.effects,
            out,
        };
        let mut rests = false;
        loop {
            while !context.effects.is_empty() {
                context.carry_out(lock);
            }
            let is_batch_over = lock.is_batch_over(context.out.now);
            if context.leave(lock) {
                rests = false;
                continue;
            }
            let Some(engine) = lock.engine.as_mut() else {
                return;
            };
            // Else the callers wait here, where they cost nobody anything.
            let may_ask = engine
                .asks()
                .iter()
                .all(|node| !self.congested.contains(node));
            if let Some(id) = lock.queue.withdraw() {
                engine.cancel(id, context.effects);
                rests = false;
            } else if may_ask && let Some(caller) = lock.queue.next(spec.permits.get()) {
                self.seq += 1;
                *context.clock += 1;
                let request = Request {
                    id: RequestId {
                        node: self.me,
                        incarnation: self.incarnation,
                        seq: self.seq,
                    },
                    stamp: Stamp {
                        clock: *context.clock,
                        node: self.me,
                    },
                    mode: caller.mode,
                    tries: caller.wait == Wait::Try,
                };
                lock.queue.ask(request, caller);
                if is_batch_over {
                    engine.end_batch();
                }
                engine.acquire(request, context.effects);
                rests = false;
            } else if rests {
                return;
            } else {
                engine.rest(context.effects);
                rests = true;
            }
        }
    }
}
