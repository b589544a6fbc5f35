//! Lamport's bakery by messages (Lamport 1974, CACM 17(8); Jones's lecture).
//!
//! Take a number larger than everybody's, wait for those who are just taking theirs, then wait for
//! all smaller numbers. Each member writes its own number only, and reads the others' by asking.
//!
//! Messages: `READ(q, what)` and `VALUE(q, ticket)`; `PARKED(q)`, "got it, you have to wait", only
//! for callers that want to know. A read says what it waits for: nothing (the ticket is read to
//! take a larger one), until the reader may be sure that no ticket is being taken, or until the
//! asked member's ticket is not smaller. Where the lecture polls, the read is *parked* at the asked
//! member until it can be answered, as if the poll had come at the lucky instant.
//!
//! Invariant: a holder i with ticket N has seen, of each other member j, that j has no ticket or that
//! (Nj, j) > (N, i); and it stays so, as a member that takes a ticket later reads N first. A tie is
//! broken by the id: the lecture's "my ticket is the minimum" alone lets two in.
//!
//! Cost: 6(N-1) messages, response 6T+E, synchronisation delay T. Tickets grow as long as the
//! bakery never empties, hence 64 bits.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, RequestId};
use crate::lock::engine::{Effects, Engine, Rebuild};
use crate::lock::request::{Release, Request};

/// What the members say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// What is your ticket? Answer when `until` holds. `tries`: tell me if that is not now.
    Read {
        number: u64,
        until: Until,
        tries: bool,
    },
    /// My ticket is this (0: none), and what you asked for holds.
    Value { number: u64, ticket: u64 },
    /// What you asked for does not hold yet.
    Parked { number: u64 },
}

/// When a read is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Until {
    /// At once.
    Now,
    /// When the asked member is not taking a ticket.
    NotChoosing,
    /// When the asked member has no ticket, or one after this ticket of the reader's.
    Behind(u64),
}

impl Message {
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Read { .. } => "READ",
            Self::Value { .. } => "VALUE",
            Self::Parked { .. } => "PARKED",
        }
    }

    pub(crate) const fn is_request(&self) -> bool {
        matches!(self, Self::Read { .. })
    }
}

/// The largest ticket that is believed.
const MAX_TICKET: u64 = u64::MAX >> 1;

#[derive(Clone, Debug, Hash)]
pub(crate) struct Bakery {
    me: NodeId,
    others: Vec<NodeId>,
    /// This member's ticket: N in the paper, 0 for none.
    ticket: u64,
    phase: Phase,
    /// Reads of others that wait for this member: at most one each, the newest.
    parked: BTreeMap<NodeId, Parked>,
    /// The number of this member's last round of reads: three rounds to a request.
    number: u64,
    /// The newest read seen from each member (G1).
    newest: BTreeMap<NodeId, u64>,
    /// Who may be inside: its last read was answered, and it has not been heard outside since.
    admitted: BTreeSet<NodeId>,
}

#[derive(Clone, Debug, Hash)]
enum Phase {
    Idle,
    /// Reading: step 1 takes a ticket, step 2 waits for those who take theirs, step 3 for those
    /// before us.
    Asking {
        request: Request,
        step: Step,
        missing: BTreeSet<NodeId>,
    },
    Held {
        id: RequestId,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// C = 1 in the paper: the hand is up.
    Choosing {
        largest: u64,
    },
    OthersChoosing,
    OthersAhead,
}

#[derive(Clone, Copy, Debug, Hash)]
struct Parked {
    number: u64,
    until: Until,
}

impl Bakery {
    /// The holder has ticket 1, the waiters 2, 3 and so on in their order, and read step 3 anew.
    pub(crate) fn new(from: &Rebuild<'_>, out: &mut Effects<Message>) -> Self {
        let mut engine = Self {
            me: from.me,
            others: from.others().collect(),
            ticket: 0,
            phase: Phase::Idle,
            parked: BTreeMap::new(),
            number: 0,
            newest: BTreeMap::new(),
            admitted: from.holders_elsewhere(),
        };
        if let Some(id) = from.my_holder() {
            engine.ticket = 1;
            engine.phase = Phase::Held { id };
        } else if let Some(request) = from.my_waiter() {
            let place = from
                .waiters
                .iter()
                .position(|waiter| waiter.id == request.id);
            engine.ticket = 2 + place.expect("this member waits") as u64;
            engine.read(request, Step::OthersAhead, out);
        }
        engine
    }

    /// Starts a step: one read to every other member.
    fn read(&mut self, request: Request, step: Step, out: &mut Effects<Message>) {
        let (round, until) = match step {
            Step::Choosing { .. } => (0, Until::Now),
            Step::OthersChoosing => (1, Until::NotChoosing),
            Step::OthersAhead => (2, Until::Behind(self.ticket)),
        };
        self.number = request.id.seq * 3 + round;
        let read = Message::Read {
            number: self.number,
            until,
            tries: request.tries,
        };
        out.send_to_all(&self.others, read);
        self.phase = Phase::Asking {
            request,
            step,
            missing: self.others.iter().copied().collect(),
        };
        self.finish_step(out);
    }

    /// Goes on to the next step when all have answered.
    fn finish_step(&mut self, out: &mut Effects<Message>) {
        let Phase::Asking {
            request,
            step,
            missing,
        } = &self.phase
        else {
            return;
        };
        if !missing.is_empty() {
            return;
        }
        let request = *request;
        match *step {
            Step::Choosing { largest } => {
                let largest = largest.max(self.ticket);
                self.ticket = largest
                    .checked_add(1)
                    .expect("2^64 tickets are never taken");
                self.read(request, Step::OthersChoosing, out);
                self.answer_parked(out);
            }
            Step::OthersChoosing => self.read(request, Step::OthersAhead, out),
            Step::OthersAhead => {
                self.phase = Phase::Held { id: request.id };
                out.grant(request.id);
            }
        }
    }

    fn is_choosing(&self) -> bool {
        matches!(
            self.phase,
            Phase::Asking {
                step: Step::Choosing { .. },
                ..
            }
        )
    }

    /// Whether a read of `reader` can be answered.
    fn holds(&self, reader: NodeId, until: Until) -> bool {
        match until {
            Until::Now => true,
            Until::NotChoosing => !self.is_choosing(),
            Until::Behind(ticket) => self.ticket == 0 || (self.ticket, self.me) > (ticket, reader),
        }
    }

    fn on_read(&mut self, from: NodeId, read: Parked, tries: bool, out: &mut Effects<Message>) {
        let newest = self.newest.entry(from).or_insert(read.number);
        if read.number < *newest {
            return;
        }
        *newest = read.number;
        // A newer read of the same member takes the place of the older one. A member that reads is
        // outside.
        self.parked.remove(&from);
        self.admitted.remove(&from);
        let Parked { number, until } = read;
        if self.holds(from, until) {
            self.answer(from, read, out);
        } else {
            self.parked.insert(from, read);
            // Who takes a ticket will have done so in a moment: only a smaller ticket is "busy".
            if tries && matches!(until, Until::Behind(_)) {
                out.send(from, Message::Parked { number });
            }
        }
    }

    fn answer(&mut self, reader: NodeId, read: Parked, out: &mut Effects<Message>) {
        if matches!(read.until, Until::Behind(_)) {
            self.admitted.insert(reader);
        }
        let value = Message::Value {
            number: read.number,
            ticket: self.ticket,
        };
        out.send(reader, value);
    }

    /// Looks at the parked reads again: this member's state has changed.
    fn answer_parked(&mut self, out: &mut Effects<Message>) {
        let parked = core::mem::take(&mut self.parked);
        for (node, read) in parked {
            if self.holds(node, read.until) {
                self.answer(node, read, out);
            } else {
                self.parked.insert(node, read);
            }
        }
    }

    fn on_value(&mut self, from: NodeId, number: u64, ticket: u64, out: &mut Effects<Message>) {
        let Phase::Asking { step, missing, .. } = &mut self.phase else {
            return;
        };
        // No bakery takes 2^63 tickets: such a value is damage, and must not make ours wrap.
        if number != self.number || ticket > MAX_TICKET {
            return;
        }
        missing.remove(&from);
        if let Step::Choosing { largest } = step {
            *largest = ticket.max(*largest);
        }
        if ticket == 0 || *step == Step::OthersAhead {
            // Without a ticket, or with one behind ours, it is outside.
            self.admitted.remove(&from);
        }
        self.finish_step(out);
    }

    fn become_idle(&mut self, out: &mut Effects<Message>) {
        self.phase = Phase::Idle;
        self.ticket = 0;
        self.answer_parked(out);
    }
}

impl Engine<Message> for Bakery {
    fn acquire(&mut self, request: Request, out: &mut Effects<Message>) {
        debug_assert!(matches!(self.phase, Phase::Idle), "one request at a time");
        self.read(request, Step::Choosing { largest: 0 }, out);
    }

    fn release(&mut self, id: RequestId, _how: Release, out: &mut Effects<Message>) {
        if matches!(self.phase, Phase::Held { id: held } if held == id) {
            self.become_idle(out);
        }
    }

    fn cancel(&mut self, id: RequestId, out: &mut Effects<Message>) {
        if matches!(&self.phase, Phase::Asking { request, .. } if request.id == id) {
            self.become_idle(out);
        }
    }

    fn may_be_inside(&self, node: NodeId) -> bool {
        self.admitted.contains(&node)
    }

    fn asks(&self) -> &[NodeId] {
        &self.others
    }

    fn receive(&mut self, from: NodeId, message: &Message, out: &mut Effects<Message>) {
        match *message {
            Message::Read {
                number,
                until,
                tries,
            } => {
                self.on_read(from, Parked { number, until }, tries, out);
            }
            Message::Value { number, ticket } => self.on_value(from, number, ticket, out),
            Message::Parked { number } => {
                if let Phase::Asking {
                    request, missing, ..
                } = &self.phase
                    && number == self.number
                    && missing.contains(&from)
                {
                    out.busy = Some(request.id);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Incarnation, LockName};
    use crate::lock::{Mode, Stamp};

    /// No number comes after the largest: who claims to have it is not believed, and its true answer
    /// still counts.
    #[test]
    fn a_ticket_that_none_could_follow_is_not_believed() {
        let [me, other] = [1, 2].map(|id| NodeId::new(id).expect("not zero"));
        let lock = LockName::new("x").expect("a good name");
        let rebuild = Rebuild {
            me,
            members: &[me, other],
            lock: &lock,
            holders: &[],
            held: Mode::default(),
            waiters: &[],
            abandoned: false,
        };
        let mut out = Effects::default();
        let mut engine = Bakery::new(&rebuild, &mut out);
        let id = RequestId {
            node: me,
            incarnation: Incarnation(1),
            seq: 1,
        };
        let stamp = Stamp { clock: 1, node: me };
        let request = Request {
            id,
            stamp,
            mode: Mode::Exclusive,
            tries: false,
        };
        engine.acquire(request, &mut out);
        let value = |number, ticket| Message::Value { number, ticket };
        for ticket in [u64::MAX, MAX_TICKET + 1] {
            out = Effects::default();
            engine.receive(other, &value(3, ticket), &mut out);
            assert!(out.is_empty(), "{ticket}");
        }
        // The largest that is believed, and then the answers to the other two reads.
        for (number, ticket) in [(3, MAX_TICKET), (4, 0), (5, 0)] {
            assert!(out.granted.is_empty(), "{number}");
            engine.receive(other, &value(number, ticket), &mut out);
        }
        assert_eq!(out.granted.len(), 1);
    }
}
