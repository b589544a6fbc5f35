//! The steps of the engines: what comes to one, and what it gives out.

use core::time::Duration;

use super::{Bare, Happening, Letter, Turn, call};
use crate::checkers::{Violation, violation};
use crate::history::What;
use distlock_protocol::lock::{Effects, Engine, HopTimer, Message};
use distlock_protocol::{Fence, Incarnation, NodeId, Previous, RequestId};

impl<A> Bare<A> {
    pub(super) fn step(
        &mut self,
        node: NodeId,
        step: impl FnOnce(&mut dyn Engine<Message>, &mut Effects),
    ) -> Result<(), Violation> {
        let mut out = Effects::default();
        let engine = self
            .engines
            .get_mut(&node)
            .expect("every member has an engine");
        step(engine.as_mut(), &mut out);
        engine.rest(&mut out);
        self.carry_out(node, out)?;
        self.nobody_denies()
    }

    /// Nobody can prove that a member is outside that is inside.
    pub(super) fn nobody_denies(&self) -> Result<(), Violation> {
        // With more members this would take most of the time, and show nothing new.
        if self.members.len() > 9 {
            return Ok(());
        }
        let inside = self
            .seats
            .iter()
            .filter(|(_, seat)| !seat.inside.is_empty());
        for (&node, _) in inside {
            let mut others = self.engines.iter().filter(|(me, _)| **me != node);
            if let Some((me, _)) = others.find(|(_, engine)| !engine.may_be_inside(node)) {
                return Err(violation!(
                    self.now,
                    Abandonment,
                    "member {me} vouches that member {node} is outside, but it is inside"
                ));
            }
        }
        Ok(())
    }

    pub(super) fn arrive_in_turn(&mut self, letter: Letter) -> Result<(), Violation> {
        if letter.epoch != self.epoch {
            return Ok(());
        }
        let Some(order) = &mut self.order else {
            return self.arrive(&letter);
        };
        let Letter {
            from, to, number, ..
        } = letter;
        let letters = order.arrives(from, to, number, letter);
        letters.iter().try_for_each(|letter| self.arrive(letter))
    }

    fn arrive(&mut self, letter: &Letter) -> Result<(), Violation> {
        self.in_flight -= 1;
        let Letter {
            from, to, message, ..
        } = letter;
        self.trace.say(
            self.now,
            format_args!("member {to} gets from {from}: {message:?}"),
        );
        let received = What::Received {
            message: letter.transmission,
        };
        self.trace.record(self.now, *to, received);
        let seat = self.seat(letter.to);
        seat.clock = seat.clock.max(letter.clock) + 1;
        seat.history.hear(letter.history);
        self.step(letter.to, |engine, out| {
            engine.receive(letter.from, &letter.message, out)
        })
    }

    pub(super) fn carry_out(&mut self, node: NodeId, out: Effects) -> Result<(), Violation> {
        let Effects {
            sends,
            granted,
            busy,
            hop_timer,
            abandoned,
        } = out;
        // One event, whatever is said and done in it.
        self.seat(node).clock += 1;
        self.seat(node).history.abandoned |= abandoned;
        // A grant comes before what is said in the same step, so that its counter travels along.
        for (id, booked) in granted {
            self.grant(node, id, booked)?;
        }
        for (to, message) in sends {
            for to in to {
                self.post(node, to, message.clone())?;
            }
        }
        // Engines say so also to those who are willing to wait.
        let waiting = self.seat(node).waiting;
        if let Some(id) = busy
            && waiting.is_some_and(|request| request.id == id && request.tries)
        {
            self.turns.push_back(Turn::Busy(id));
        }
        match hop_timer {
            None => {}
            Some(HopTimer::Clear) => self.seat(node).hop = None,
            Some(HopTimer::Set(delay)) => self.plan_hop(node, delay),
            Some(HopTimer::Within(longest)) => {
                let delay = self.chance.below(longest);
                self.plan_hop(node, delay);
            }
        }
        Ok(())
    }

    pub(super) fn plan_hop(&mut self, node: NodeId, delay: Duration) {
        let (at, epoch) = (self.now + delay, self.epoch);
        self.seat(node).hop = Some(at);
        self.queue.plan(at, Happening::Hop { node, at, epoch });
    }

    fn grant(&mut self, node: NodeId, id: RequestId, booked: Previous) -> Result<(), Violation> {
        let (now, epoch, spec) = (self.now, self.epoch, self.spec);
        let seat = self.seat(node);
        let call = call(seat.process, id);
        if id.node != node || id.incarnation != Incarnation(u64::from(seat.process.incarnation)) {
            return Err(violation!(
                now,
                Requests,
                "the engine of member {node} grants {id:?}"
            ));
        }
        let marked = seat.history.abandoned && !spec.keeps_books();
        let previous = Previous::after(booked.is_abandoned() || marked);
        let mode = seat.waiting.map(|request| request.mode).unwrap_or_default();
        seat.history = seat.history.after(spec, mode).expect("runs are short");
        let counter = seat.history.counter;
        seat.entered = counter;
        if let Some(request) = seat.waiting.take_if(|request| request.id == id) {
            seat.inside.insert(id, request.mode);
        }
        let fence = Fence::from_parts(epoch, counter).expect("epochs start at 1");
        let (lock, mode) = self.requests.grants(now, call)?;
        // Of several who are inside together, fences are distinct only by the order of links.
        if self.spec.permits.get() == 1 && !self.is_shared {
            self.fences.grants(now, call, (&lock, mode), fence, epoch)?;
        }
        self.trace.say(
            now,
            format_args!("{call} enters with fence {fence} ({previous:?})"),
        );
        let entered = What::Entered {
            request: id.seq,
            fence,
        };
        self.trace.record(now, node, entered);
        self.exclusion.enters(now, call, &lock, mode)?;
        self.abandonment
            .grants(now, call, (&lock, mode), previous)?;
        self.turns.push_back(Turn::Granted(id));
        Ok(())
    }

    fn post(&mut self, from: NodeId, to: NodeId, message: Message) -> Result<(), Violation> {
        if from == to || !self.seats.contains_key(&to) {
            return Err(violation!(
                self.now,
                Requests,
                "member {from} sends {message:?} to {to}"
            ));
        }
        *self.counts.entry(message.kind()).or_default() += 1;
        let spec = self.spec;
        let seat = self.seat(from);
        let (clock, history) = (seat.clock, seat.history);
        if let Some(mode) = message.confers() {
            seat.history = history.after(spec, mode).expect("runs are short");
        }
        self.sent += 1;
        let sent = What::Sent {
            message: self.sent,
            to,
            kind: message.kind(),
            again: false,
        };
        self.trace.record(self.now, from, sent);
        let order = self.order.as_mut();
        let letter = Letter {
            epoch: self.epoch,
            from,
            to,
            number: order.map_or(0, |order| order.number(from, to)),
            clock,
            history,
            message,
            transmission: self.sent,
        };
        for arrival in self.network.send(self.now, from, to) {
            self.in_flight += 1;
            self.queue
                .plan(arrival.at, Happening::Arrival(letter.clone()));
        }
        Ok(())
    }
}
