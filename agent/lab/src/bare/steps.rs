//! The steps of the engines: what comes to one, and what it gives out.

use core::time::Duration;

use super::{Bare, Letter, Seat, Turn, call};
use crate::checkers::{Violation, violation};
use crate::history::What;
use distlock_protocol::lock::{Block, Effects, Engine, HopTimer, Message};
use distlock_protocol::{Fence, Incarnation, NodeId, Previous, RequestId};

/// Engines are woken when they want to be.
pub(super) const AT_ONCE: (Duration, Duration) = (Duration::ZERO, Duration::ZERO);

impl<A> Bare<A> {
    pub(super) fn step(
        &mut self,
        node: NodeId,
        step: impl FnOnce(&mut dyn Engine<Message>, &mut Effects),
    ) -> Result<(), Violation> {
        let mut out = Effects::default();
        let goes_on = self.goes_on;
        let engine = self.seat(node).engine.as_mut();
        let engine = engine.expect("there is a view");
        step(engine.as_mut(), &mut out);
        if !goes_on {
            engine.rest(&mut out);
        }
        self.carry_out(node, out)?;
        self.nobody_denies()
    }

    /// Nobody can prove that a member is outside that is inside.
    pub(super) fn nobody_denies(&self) -> Result<(), Violation> {
        // With more members this would take most of the time, and show nothing new.
        if self.members.len() > 9 {
            return Ok(());
        }
        let seats = self.hosts.actors();
        for (node, _) in seats.filter(|(_, seat)| !seat.inside.is_empty()) {
            let denies = |seat: &Seat| {
                let engine = seat.engine.as_ref();
                engine.is_some_and(|engine| !engine.may_be_inside(node))
            };
            let mut others = self.hosts.actors().filter(|(me, _)| *me != node);
            if let Some((me, _)) = others.find(|(_, seat)| denies(seat)) {
                return Err(violation!(
                    self.now(),
                    Abandonment,
                    "member {me} vouches that member {node} is outside, but it is inside"
                ));
            }
        }
        Ok(())
    }

    pub(super) fn arrive_in_turn(
        &mut self,
        (from, to): (NodeId, NodeId),
        letter: Letter,
    ) -> Result<(), Violation> {
        if letter.epoch != self.epoch {
            return Ok(());
        }
        let Some(order) = &mut self.order else {
            return self.arrive((from, to), &letter);
        };
        let letters = order.arrives(from, to, letter.number, letter);
        let mut letters = letters.iter();
        letters.try_for_each(|letter| self.arrive((from, to), letter))
    }

    fn arrive(&mut self, (from, to): (NodeId, NodeId), letter: &Letter) -> Result<(), Violation> {
        self.in_flight -= 1;
        let message = &letter.message;
        self.hosts
            .say(format_args!("member {to} gets from {from}: {message:?}"));
        let received = What::Received {
            message: letter.transmission,
        };
        self.hosts.trace.record(self.hosts.now(), to, received);
        let seat = self.seat(to);
        seat.clock = seat.clock.max(letter.clock) + 1;
        seat.history.hear(letter.history);
        seat.heard = letter.history.counter;
        self.step(to, |engine, out| engine.receive(from, message, out))?;
        if let Some((fairness, rounds)) = &mut self.fairness {
            for known in rounds.arrives(letter.transmission) {
                fairness.is_known(known);
            }
        }
        Ok(())
    }

    pub(super) fn carry_out(&mut self, node: NodeId, out: Effects) -> Result<(), Violation> {
        let Effects {
            sends,
            granted,
            busy,
            block,
            hop_timer,
            abandoned,
        } = out;
        // One event, whatever is said and done in it.
        self.seat(node).clock += 1;
        self.seat(node).history.abandoned |= abandoned;
        if let Some(numbers) = block {
            let seat = self.seat(node);
            seat.block = Some(Block::after(seat.heard, numbers));
        }
        // A grant comes before what is said in the same step, so that its counter travels along.
        for (id, booked) in granted {
            self.grant(node, id, booked)?;
        }
        for (to, message) in sends {
            for &to in &*to {
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
            Some(HopTimer::Clear) => self.set_hop(node, None),
            Some(HopTimer::Set(delay)) => self.set_hop(node, Some(delay)),
            Some(HopTimer::Within(longest)) => {
                let delay = self.chance.below(longest);
                self.set_hop(node, Some(delay));
            }
        }
        Ok(())
    }

    fn set_hop(&mut self, node: NodeId, delay: Option<Duration>) {
        let due = delay.map(|delay| self.now() + delay);
        let process = self.process(node);
        // The one that is set already counts no more.
        self.hosts.set_alarm(process, None, AT_ONCE);
        self.hosts.set_alarm(process, due, AT_ONCE);
    }

    fn grant(&mut self, node: NodeId, id: RequestId, booked: Previous) -> Result<(), Violation> {
        let (now, epoch, spec) = (self.now(), self.epoch, self.spec);
        let process = self.process(node);
        let seat = self.seat(node);
        let call = call(process, id);
        if id.node != node || id.incarnation != Incarnation(u64::from(process.incarnation)) {
            return Err(violation!(
                now,
                Requests,
                "the engine of member {node} grants {id:?}"
            ));
        }
        let marked = seat.history.abandoned && !spec.keeps_books();
        let previous = Previous::after(booked.is_abandoned() || marked);
        let mode = seat.waiting.map(|request| request.mode).unwrap_or_default();
        let granted = seat.history.grant(spec, mode, seat.block.as_mut());
        let (counter, history) = granted.expect("runs are short");
        (seat.history, seat.entered) = (history, counter);
        if let Some(request) = seat.waiting.take_if(|request| request.id == id) {
            seat.inside.insert(id, request.mode);
        }
        let fence = Fence::from_parts(epoch, counter).expect("epochs start at 1");
        let (lock, mode) = self.requests.grants(now, call)?;
        if let Some((fairness, rounds)) = &mut self.fairness {
            fairness.grants(now, call)?;
            rounds.ends(call);
        }
        // Of several who are inside together, fences are distinct only by the order of links.
        let is_joint = self.spec.permits.get() > 1 || self.is_shared;
        if self.order.is_some() || !is_joint {
            self.fences.grants(now, call, (&lock, mode), fence, epoch)?;
        }
        self.hosts.say(format_args!(
            "{call} enters with fence {fence} ({previous:?})"
        ));
        let entered = What::Entered {
            request: id.seq,
            fence,
        };
        self.hosts.trace.record(now, node, entered);
        self.exclusion.enters(now, call, &lock, mode)?;
        self.abandonment
            .grants(now, call, (&lock, mode), previous)?;
        self.turns.push_back(Turn::Granted(id));
        Ok(())
    }

    fn post(&mut self, from: NodeId, to: NodeId, message: Message) -> Result<(), Violation> {
        if from == to || !self.hosts.has(to) {
            return Err(violation!(
                self.now(),
                Requests,
                "member {from} sends {message:?} to {to}"
            ));
        }
        *self.counts.entry(message.kind()).or_default() += 1;
        let spec = self.spec;
        let seat = self.seat(from);
        let (clock, history) = (seat.clock, seat.history);
        if let Some((mode, numbers)) = message.confers() {
            seat.history = history.set_aside(spec, mode, numbers);
        }
        self.sent += 1;
        let asked = self.seat(from).waiting;
        let asked = asked.filter(|request| !request.tries && message.kind() == "REQUEST");
        let asked = asked.map(|request| call(self.process(from), request.id));
        let conferred = self.seat(to).waiting;
        let conferred = conferred.filter(|_| message.confers().is_some());
        let conferred = conferred.map(|request| call(self.process(to), request.id));
        if let Some((fairness, rounds)) = &mut self.fairness {
            rounds.sends(self.sent);
            if let Some(asked) = asked {
                fairness.is_unknown(asked);
                rounds.begin(asked);
            }
            // Others are let in while it is on its way.
            if let Some(conferred) = conferred {
                fairness.is_unknown(conferred);
                rounds.ends(conferred);
            }
        }
        let sent = What::Sent {
            message: self.sent,
            to,
            kind: message.kind(),
            again: false,
        };
        self.hosts.trace.record(self.hosts.now(), from, sent);
        let order = self.order.as_mut();
        let letter = Letter {
            epoch: self.epoch,
            number: order.map_or(0, |order| order.number(from, to)),
            clock,
            history,
            message,
            transmission: self.sent,
        };
        self.in_flight += self.hosts.send(from, to, &letter);
        Ok(())
    }
}
