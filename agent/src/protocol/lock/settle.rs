//! One lock in one member, and how what its engine wants becomes messages, events and timers.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::queue::LocalQueue;
use super::{Effects, Engine, HopTimer, LockSpec, Message};
use crate::protocol::face::{Event, Previous, Refusal, Wait};
use crate::protocol::ids::{Fence, LockName, NodeId, RequestId, Ticket};
use crate::protocol::membership::View;

/// From this counter on a new view is asked for, so that no fence ever wraps.
const COUNTER_RUNS_OUT: u32 = 1 << 31;

/// A message between the members' engines of one lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LockMessage {
    pub(crate) lock: LockName,
    pub(crate) permits: NonZeroU32,
    /// The sender's Lamport clock.
    pub(crate) clock: u64,
    /// The highest counter of a fence of this lock that the sender has seen in this epoch.
    pub(crate) counter: u32,
    pub(crate) body: Message,
}

/// What the table wants done.
#[derive(Debug, Default)]
pub(crate) struct LockOutput {
    pub(crate) sends: Vec<(NodeId, LockMessage)>,
    pub(crate) events: Vec<Event>,
    pub(crate) hops: Vec<(LockName, HopTimer)>,
    /// Locks whose spec the coordinator must be asked for, and what the caller wishes.
    pub(crate) declares: Vec<(LockName, Option<LockSpec>)>,
    /// Something runs out that only a new view gives back.
    pub(crate) wants_view: bool,
}

/// One lock in one member.
#[derive(Debug, Default)]
pub(super) struct Lock {
    /// `None` until the coordinator has told it.
    pub(super) spec: Option<LockSpec>,
    /// `None` while no view is in force, or the spec is not known.
    pub(super) engine: Option<Box<dyn Engine>>,
    pub(super) queue: LocalQueue,
    /// The highest counter of a fence seen in this epoch.
    pub(super) counter: u32,
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
        for (to, body) in self.effects.sends.drain(..) {
            *self.clock += 1;
            let confers_fence = body.confers_fence();
            let message = LockMessage {
                lock: self.name.clone(),
                permits: self.spec.permits,
                clock: *self.clock,
                counter: lock.counter,
                body,
            };
            self.out.sends.push((to, message));
            if confers_fence {
                lock.counter = lock.counter.saturating_add(1);
            }
        }
        self.out.wants_view |= lock.counter >= COUNTER_RUNS_OUT;
        if let Some(timer) = self.effects.hop_timer.take() {
            self.out.hops.push((self.name.clone(), timer));
        }
        for id in core::mem::take(&mut self.effects.granted) {
            self.grant(lock, id);
        }
        if let Some(id) = self.effects.busy.take() {
            self.busy(lock, id);
        }
    }

    fn grant(&mut self, lock: &mut Lock, id: RequestId) {
        *self.clock += 1;
        let first = lock.counter == 0;
        let counter = lock.counter.checked_add(1);
        let Some(fence) = counter.and_then(|n| Fence::from_parts(self.view.epoch, n)) else {
            return self.refuse_for_want_of_fences(lock, id);
        };
        lock.counter += 1;
        match lock.queue.grant(id, fence) {
            Some(Some(caller)) => {
                let abandoned = first && self.view.unclean;
                let previous = if abandoned {
                    Previous::Abandoned
                } else {
                    Previous::Clean
                };
                let ticket = caller.ticket;
                self.out.events.push(Event::Granted {
                    ticket,
                    fence,
                    previous,
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
            engine.release(id, self.effects);
        }
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
