//! One lock in one member, and how what its engine wants becomes messages, events and timers.
//!
//! What an engine does in one step is one event of Lamport's (1978), sending included: the clock
//! ticks once for it, and all messages of the step have that one stamp. His rules demand no more:
//! the clock ticks between any two events (IR1), and a receiver's goes on from the higher of the
//! two (IR2), so that each receipt is stamped later than the sending. Nothing orders two messages
//! of one step by their stamps: links keep the order of sending, and algorithms compare the stamps
//! of requests, for each of which the clock ticks on its own.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::queue::LocalQueue;
use super::{
    AbandonedMarks, Block, Effects, Ending, Engine, GrantHistory, HopTimer, LockSpec, LockSummary,
    Message, Mode, Previous, Priority, Receivers, Release,
};
use crate::api::{Event, Refusal, Wait};
use crate::ids::{Fence, LockName, NodeId, RequestId, Ticket};
use crate::membership::View;
use crate::time::Time;

/// For so long callers of one member that wait go before those of others, from when the first of them could
/// enter.
const BATCH_TIME: Duration = Duration::from_micros(100);
/// From this counter on a new view is asked for, so that no fence ever wraps.
pub(super) const COUNTER_RUNS_OUT: u32 = 1 << 31;

/// A message between the members' engines of one lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LockMessage {
    pub(crate) lock: LockName,
    pub(crate) permits: NonZeroU32,
    pub(crate) priority: Priority,
    /// The sender's Lamport clock: the same in all that it says in one step.
    pub(crate) clock: u64,
    /// The last grant of this lock that the sender has seen in this epoch.
    pub(crate) history: GrantHistory,
    pub body: Message,
}

/// What the table wants done.
#[derive(Debug, Default)]
pub struct LockOutput {
    /// When that is.
    pub now: Time,
    /// Each to one member or to several.
    pub sends: Vec<(Receivers, LockMessage)>,
    pub events: Vec<Event>,
    pub hops: Vec<(LockName, HopTimer)>,
    /// Locks whose spec the coordinator must be asked for, and what the caller wishes.
    pub declares: Vec<(LockName, Option<LockSpec>)>,
    /// Something runs out that only a new view gives back.
    pub wants_view: bool,
}

/// One lock in one member.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Lock {
    /// `None` until the coordinator has told it.
    pub(super) spec: Option<LockSpec>,
    /// `None` while no view is in force, the spec is not known, or the lock is in quarantine.
    pub(super) engine: Option<Box<dyn Engine<Message>>>,
    /// In quarantine: what the engine will be built from.
    pub(super) quarantine: Option<Box<LockSummary>>,
    pub(super) queue: LocalQueue,
    /// The engine's [stay](Engine::stay), and since when it lasts.
    pub(super) stay: Option<(u64, Time)>,
    /// The last grant seen in this epoch.
    pub(super) history: GrantHistory,
    /// The counter of the last grant in this epoch that was entered here; 0 if there was none.
    pub(super) entered: u32,
    /// The numbers of grants that another member has set aside for this one.
    pub(super) block: Option<Block>,
    /// Whether the history has shown a mark in this epoch. Then the next view is told what became of
    /// it: others may have seen the mark, and not that somebody was told.
    pub(super) was_marked: bool,
    /// Whether a grant was abandoned here of which no chain of messages tells the next one.
    pub(super) owes_mark: bool,
    /// While frozen: what is known of the last grant.
    pub(super) ending: Ending,
    /// While frozen: who else may have been inside when the view ended.
    pub(super) suspects: BTreeSet<NodeId>,
}

impl LockOutput {
    /// Nothing yet.
    pub(crate) fn at(now: Time) -> Self {
        Self {
            now,
            ..Self::default()
        }
    }
}

impl Lock {
    /// Whether this member's callers have gone before others' for long enough.
    pub(super) fn is_batch_over(&mut self, now: Time) -> bool {
        let stay = self.engine.as_ref().and_then(|engine| engine.stay());
        if stay != self.stay.map(|(stay, _)| stay) {
            self.stay = stay.map(|stay| (stay, now));
        }
        self.stay
            .is_some_and(|(_, since)| now.since(since) >= BATCH_TIME)
    }

    /// The view ends, and the engine with it. A lock in quarantine stays in it until the next view.
    pub(super) fn freeze(&mut self, others: impl Iterator<Item = NodeId>) {
        let engine = self.engine.take();
        if engine.is_none() && self.quarantine.is_none() {
            return;
        }
        let may_be_inside =
            |node: &NodeId| engine.as_ref().is_some_and(|its| its.may_be_inside(*node));
        self.suspects = others.filter(may_be_inside).collect();
        let permits = self.spec.map_or(NonZeroU32::MIN, |spec| spec.permits);
        let mark = engine.as_ref().and_then(|engine| engine.mark());
        let (ending, owes_mark) = self.history.end_view(self.entered, mark, permits);
        self.ending = ending;
        self.owes_mark |= owes_mark;
        self.was_marked |= ending == Ending::Conferred;
    }

    /// In quarantine: takes out the callers that do not wait. One of the lost may hold the lock.
    pub(super) fn refuse_tries(&mut self) -> Vec<Ticket> {
        let tries = self.queue.callers().filter(|its| its.wait == Wait::Try);
        let tries: Vec<_> = tries.map(|caller| caller.ticket).collect();
        for &ticket in &tries {
            self.queue.give_up(ticket);
        }
        tries
    }

    /// What is known here of a grant that was abandoned, and that somebody is to be told of.
    pub(super) fn marks(&self) -> AbandonedMarks {
        let kept = self
            .engine
            .as_ref()
            .is_some_and(|engine| engine.mark().is_some());
        // The books are gone with the view, and with them the grant that had the mark.
        let conferred = self.engine.is_none() && self.ending == Ending::Conferred;
        let is_marked = kept || conferred || self.history.abandoned || self.owes_mark;
        if self.queue.owes_mark() || is_marked && self.history != GrantHistory::doubtful() {
            AbandonedMarks::Own
        } else if is_marked {
            // All have it from the view.
            AbandonedMarks::Shared
        } else {
            AbandonedMarks::None
        }
    }
}

/// What carrying out one lock's effects needs of the table.
pub(super) struct Settling<'a> {
    pub(super) name: &'a LockName,
    pub(super) spec: LockSpec,
    pub(super) view: &'a View,
    pub(super) clock: &'a mut u64,
    pub(super) tickets: &'a mut BTreeMap<Ticket, LockName>,
    pub(super) effects: &'a mut Effects,
    pub(super) out: &'a mut LockOutput,
}

impl Settling<'_> {
    /// Turns what the engine wants into messages, events and timers.
    pub(super) fn carry_out(&mut self, lock: &mut Lock) {
        *self.clock += 1;
        if core::mem::take(&mut self.effects.abandoned) {
            lock.history.abandoned = true;
            lock.was_marked = true;
        }
        for (to, body) in self.effects.sends.drain(..) {
            let conferred = body.confers();
            let message = LockMessage {
                lock: self.name.clone(),
                permits: self.spec.permits,
                priority: self.spec.priority,
                clock: *self.clock,
                history: lock.history,
                body,
            };
            self.out.sends.push((to, message));
            if let Some((mode, numbers)) = conferred {
                lock.history = lock.history.set_aside(self.spec, mode, numbers);
            }
        }
        self.out.wants_view |= lock.history.counter >= COUNTER_RUNS_OUT;
        if let Some(timer) = self.effects.hop_timer.take() {
            self.out.hops.push((self.name.clone(), timer));
        }
        let mut granted = core::mem::take(&mut self.effects.granted);
        for (id, previous) in granted.drain(..) {
            self.grant(lock, id, previous);
        }
        // The same memory for the next step, unless that has something already.
        if self.effects.granted.is_empty() {
            self.effects.granted = granted;
        }
        if let Some(id) = self.effects.busy.take() {
            self.busy(lock, id);
        }
    }

    /// `booked`: how the grant before ended, according to the engine's books.
    fn grant(&mut self, lock: &mut Lock, id: RequestId, booked: Previous) {
        let marked = lock.history.abandoned && !self.spec.keeps_books();
        let previous = Previous::after(booked.is_abandoned() || marked);
        let mode = lock.queue.asking().map(|asking| asking.request.mode);
        let (mode, block) = (mode.unwrap_or_default(), lock.block.as_mut());
        let granted = lock.history.grant(self.spec, mode, block);
        let fence = granted.and_then(|(number, _)| Fence::from_parts(self.view.epoch, number));
        let Some(((number, after), fence)) = granted.zip(fence) else {
            return self.refuse_for_want_of_fences(lock, id);
        };
        (lock.history, lock.entered) = (after, number);
        match lock.queue.grant(id, fence, previous) {
            Some(Some(caller)) => {
                let ticket = caller.ticket;
                self.out.events.push(if caller.is_inside {
                    Event::Entered { ticket, fence }
                } else {
                    Event::Granted {
                        ticket,
                        fence,
                        previous,
                    }
                });
            }
            // Its caller gave it up while the view changed; settling gives it back.
            Some(None) => {}
            None => debug_assert!(false, "an engine grants what was asked"),
        }
    }

    /// All fences of the epoch are used up: nobody enters before the new view, which was asked
    /// for half the numbers ago.
    fn refuse_for_want_of_fences(&mut self, lock: &mut Lock, id: RequestId) {
        self.out.wants_view = true;
        if let Some(caller) = lock.queue.asking().and_then(|asking| asking.caller) {
            self.tickets.remove(&caller.ticket);
            lock.queue.give_up(caller.ticket);
            let refusal = Refusal::Limit;
            self.out.events.push(Event::Ended {
                ticket: caller.ticket,
                refusal,
            });
        }
        lock.queue.withdraw();
        if let Some(engine) = &mut lock.engine {
            engine.release(id, Release::Unused, self.effects);
        }
    }

    /// Gives the engine a grant back whose caller has left; whether there was one.
    pub(super) fn leave(&mut self, lock: &mut Lock) -> bool {
        let Some(engine) = &mut lock.engine else {
            return false;
        };
        let Some((held, how)) = lock.queue.leave() else {
            return false;
        };
        if how == Release::Abandoned {
            lock.history.abandoned = true;
            lock.was_marked = true;
            lock.owes_mark |= self.spec.permits.get() > 1 || held.mode == Mode::Shared;
        }
        engine.release(held.id, how, self.effects);
        true
    }

    fn busy(&mut self, lock: &mut Lock, id: RequestId) {
        let asking = lock.queue.asking().filter(|asking| asking.request.id == id);
        if let Some(caller) = asking.and_then(|asking| asking.caller)
            && caller.wait == Wait::Try
        {
            self.tickets.remove(&caller.ticket);
            lock.queue.give_up(caller.ticket);
            self.out.events.push(Event::Ended {
                ticket: caller.ticket,
                refusal: Refusal::Busy,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Incarnation;
    use crate::lock::algorithms::semaphore;
    use crate::lock::{Algorithm, Rebuild, build};

    /// A server that leaves between two views is alone in knowing of a mark that went out with a
    /// grant: whoever got that may have waited no longer.
    #[test]
    fn a_mark_on_its_way_is_known_while_frozen() {
        let [me, other] = [1, 2].map(|id| NodeId::new(id).expect("not zero"));
        let spec = LockSpec::exclusive(Algorithm::Semaphore);
        let names = (0..).filter_map(|n: u32| LockName::new(alloc::format!("{n}")).ok());
        let mut effects = Effects::default();
        // The first name that is served here.
        let engines = names.map(|name| {
            let rebuild = Rebuild {
                me,
                members: &[me, other],
                lock: &name,
                holders: &[],
                held: Mode::default(),
                waiters: &[],
                abandoned: true,
            };
            build(spec, &rebuild, &mut effects)
        });
        let mut engines = engines.take(100);
        let engine = engines.find(|engine| engine.mark().is_some());
        drop(engines);
        let mut lock = Lock {
            spec: Some(spec),
            engine,
            history: GrantHistory::doubtful(),
            ..Lock::default()
        };
        assert_eq!(lock.marks(), AbandonedMarks::Shared);

        let id = RequestId {
            node: other,
            incarnation: Incarnation(1),
            seq: 1,
        };
        let request = Message::Semaphore(semaphore::Message::Request {
            id,
            mode: Mode::Exclusive,
            tries: false,
        });
        let engine = lock.engine.as_mut().expect("some name is served here");
        engine.receive(other, &request, &mut effects);
        lock.history = lock.history.next().expect("the second");
        assert_eq!(lock.marks(), AbandonedMarks::Own);
        lock.freeze([other].into_iter());
        assert_eq!(lock.marks(), AbandonedMarks::Own);
    }
}
