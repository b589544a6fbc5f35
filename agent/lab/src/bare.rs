//! Engines without nodes, links and bytes: messages go from engine to engine, as late, as often
//! and in such an order as the network likes.
//!
//! Links hide nearly all of that from the engines, so that their own guards (G1 to G5) would never
//! be needed in a run of whole nodes. Here they are; and here messages can be counted without
//! anything around them. What a node adds to a message, this adds too: the Lamport clock, the
//! largest counter of fences seen, the epoch. And where an algorithm needs the order of links, it
//! has that here as well.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use super::checkers::{
    Abandonment, Call, Exclusion, Fences, Process, Requests, Terms, Violation, violation,
};
use super::history::{Moment, What};
use super::in_order::InOrder;
use super::network::{Network, NetworkStats};
use super::queue::Queue;
use super::trace::Trace;
use distlock_protocol::chance::Chance;
use distlock_protocol::lock::{
    Effects, Engine, GrantHistory, HopTimer, Last, LockSpec, LockSummary, Message, Rebuild,
    Request, Stamp, Summary, build,
};
use distlock_protocol::{
    Epoch, Fence, Incarnation, LockName, Mode, NodeId, Previous, Refusal, Release, RequestId,
    Ticket, Time, Wait,
};

/// The engines of one lock in all members, and the messages between them. `A` is what the driver
/// plans for itself.
#[derive(Debug)]
pub struct Bare<A> {
    spec: LockSpec,
    lock: LockName,
    members: Vec<NodeId>,
    epoch: Epoch,
    now: Time,
    queue: Queue<Happening<A>>,
    network: Network,
    /// The order of messages, if the algorithm needs it.
    order: Option<InOrder<Letter>>,
    /// The random waits of engines.
    chance: Chance,
    engines: BTreeMap<NodeId, Box<dyn Engine<Message>>>,
    seats: BTreeMap<NodeId, Seat>,
    turns: VecDeque<Turn<A>>,
    exclusion: Exclusion,
    fences: Fences,
    abandonment: Abandonment,
    requests: Requests,
    /// Messages sent, by kind.
    counts: BTreeMap<&'static str, u64>,
    /// Messages sent, of all kinds.
    sent: u64,
    in_flight: usize,
    /// Whether somebody has asked to share the lock.
    is_shared: bool,
    trace: Trace,
}

/// What the driver is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn<A> {
    /// This request is inside.
    Granted(RequestId),
    /// This request, which only tries, cannot be granted now.
    Busy(RequestId),
    /// What the driver planned for this time.
    Act(A),
}

#[derive(Debug)]
enum Happening<A> {
    Arrival(Letter),
    Hop {
        node: NodeId,
        at: Time,
        epoch: Epoch,
    },
    Act(A),
}

#[derive(Clone, Debug)]
struct Letter {
    epoch: Epoch,
    from: NodeId,
    to: NodeId,
    /// Its place in the order of those from one to the other; 0 where that is not kept.
    number: u64,
    clock: u64,
    history: GrantHistory,
    message: Message,
    /// Which transmission of the run it is.
    transmission: u64,
}

/// What stands around the engine of one member.
#[derive(Debug)]
struct Seat {
    process: Process,
    clock: u64,
    history: GrantHistory,
    /// The counter of the last grant that was entered here in this epoch.
    entered: u32,
    /// Whether the next view must be told of a mark that the history does not show.
    owes_mark: bool,
    seq: u64,
    waiting: Option<Request>,
    inside: BTreeMap<RequestId, Mode>,
    hop: Option<Time>,
}

impl<A> Bare<A> {
    /// `size` members (1 to 65535) in their first epoch, nobody inside and nobody waiting.
    ///
    /// # Errors
    /// An engine does what it may not.
    pub fn new(
        spec: LockSpec,
        size: u16,
        network: Network,
        trace: Trace,
    ) -> Result<Self, Violation> {
        let lock = LockName::new("printer").expect("a good name");
        let members: Vec<NodeId> = (1..=size).filter_map(NodeId::new).collect();
        let locks = BTreeMap::from([(lock.clone(), spec.permits)]);
        let mut bare = Self {
            spec,
            lock,
            members,
            epoch: Epoch::ZERO,
            now: Time::ZERO,
            queue: Queue::new(),
            chance: network.chance(),
            network,
            order: None,
            engines: BTreeMap::new(),
            seats: (1..=size)
                .filter_map(NodeId::new)
                .map(|node| (node, Seat::new(node)))
                .collect(),
            turns: VecDeque::new(),
            fences: Fences::new(&locks),
            abandonment: Abandonment::new(&locks),
            exclusion: Exclusion::new(locks),
            requests: Requests::default(),
            counts: BTreeMap::new(),
            sent: 0,
            in_flight: 0,
            is_shared: false,
            trace,
        };
        bare.install(&BTreeSet::new())?;
        Ok(bare)
    }

    /// The members, by id.
    pub fn members(&self) -> &[NodeId] {
        &self.members
    }

    /// The time.
    pub const fn now(&self) -> Time {
        self.now
    }

    /// What the network did.
    pub const fn network_stats(&self) -> NetworkStats {
        self.network.network_stats()
    }

    /// Messages sent, by kind.
    pub const fn counts(&self) -> &BTreeMap<&'static str, u64> {
        &self.counts
    }

    /// What happened so far, if the trace keeps it.
    pub fn history(&self) -> &[Moment] {
        self.trace.history()
    }

    /// Messages of this epoch that are under way.
    pub const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        self.seats
            .values()
            .filter(|seat| seat.waiting.is_some())
            .count()
    }

    /// Whether a request of `node` waits.
    pub fn is_waiting(&self, node: NodeId) -> bool {
        self.seats[&node].waiting.is_some()
    }

    /// How `node` is inside, if it is.
    pub fn inside(&self, node: NodeId) -> Option<Mode> {
        self.seats[&node].inside.values().next().copied()
    }

    /// Plans `act` for `delay` from now.
    pub fn plan(&mut self, delay: Duration, act: A) {
        self.queue.plan(self.now + delay, Happening::Act(act));
    }

    /// Sets a member's Lamport clock, for examples that name their stamps.
    pub fn set_clock(&mut self, node: NodeId, clock: u64) {
        self.seat(node).clock = clock;
    }

    /// `node` asks to enter; it must not be waiting already, and if it is inside, the lock must
    /// have several permits, or be shared.
    ///
    /// # Errors
    /// An engine does what it may not.
    pub fn ask(&mut self, node: NodeId, mode: Mode, tries: bool) -> Result<RequestId, Violation> {
        self.is_shared |= mode == Mode::Shared;
        let seat = self.seat(node);
        assert!(
            seat.waiting.is_none(),
            "one request of a member waits at a time"
        );
        seat.clock += 1;
        seat.seq += 1;
        let incarnation = Incarnation(u64::from(seat.process.life));
        let id = RequestId {
            node,
            incarnation,
            seq: seat.seq,
        };
        let request = Request {
            id,
            stamp: Stamp {
                clock: seat.clock,
                node,
            },
            mode,
            tries,
        };
        seat.waiting = Some(request);
        self.trace
            .say(self.now, format_args!("member {node} asks: {request:?}"));
        let asked = What::Asked {
            request: id.seq,
            stamp: Some(request.stamp.clock),
        };
        self.trace.record(self.now, node, asked);
        let seat = self.seat(node);
        let call = call(seat.process, id);
        let terms = Terms {
            wait: Wait::Cancelled,
            wish: None,
        };
        self.requests
            .asks(self.now, call, self.lock.clone(), mode, terms)?;
        self.step(node, |engine, out| engine.acquire(request, out))?;
        Ok(id)
    }

    /// The request `id` waits no longer. Whether it did wait: else nothing happens.
    ///
    /// # Errors
    /// An engine does what it may not.
    pub fn cancel(&mut self, id: RequestId) -> Result<bool, Violation> {
        let now = self.now;
        let seat = self.seat(id.node);
        if seat.waiting.is_none_or(|request| request.id != id) {
            return Ok(false);
        }
        seat.waiting = None;
        let call = call(seat.process, id);
        self.trace.say(now, format_args!("{call} waits no longer"));
        self.requests.cancels(call);
        self.requests.ends(now, call, &Refusal::Cancelled)?;
        self.step(id.node, |engine, out| engine.cancel(id, out))?;
        Ok(true)
    }

    /// The request `id` leaves, abandoning what it was inside of or giving it back; nothing happens
    /// if it is not inside.
    ///
    /// # Errors
    /// An engine does what it may not.
    pub fn release(&mut self, id: RequestId, how: Release) -> Result<(), Violation> {
        let several = self.spec.permits.get() > 1;
        let seat = self.seat(id.node);
        let Some(mode) = seat.inside.remove(&id) else {
            return Ok(());
        };
        if how == Release::Abandoned {
            seat.history.abandoned = true;
            seat.owes_mark |= several || mode == Mode::Shared;
        }
        let call = call(seat.process, id);
        self.trace
            .say(self.now, format_args!("{call} leaves ({how:?})"));
        let left = What::Left { request: id.seq };
        self.trace.record(self.now, id.node, left);
        self.requests.releases(call);
        self.exclusion.leaves(call);
        self.abandonment.leaves(call, how);
        self.step(id.node, |engine, out| engine.release(id, how, out))
    }

    /// A new view: what is under way is gone, all engines are made anew from who is inside and who
    /// waits. Those of `restarted` come back in a new life; what their former life was granted is
    /// taken to be over, and what it waited for is forgotten.
    ///
    /// # Errors
    /// An engine does what it may not.
    pub fn install(&mut self, restarted: &BTreeSet<NodeId>) -> Result<(), Violation> {
        self.epoch = self
            .epoch
            .next()
            .expect("runs are shorter than 2^31 epochs");
        self.in_flight = 0;
        self.order = self.spec.algorithm.needs_order().then(InOrder::default);
        self.trace.say(
            self.now,
            format_args!("epoch {}, with new lives of {restarted:?}", self.epoch),
        );
        let abandoned = self.is_abandoned(restarted);
        for node in restarted {
            let seat = self.seat(*node);
            let process = seat.process;
            seat.process.life += 1;
            seat.waiting = None;
            seat.inside.clear();
            self.requests.crashes(process);
            self.exclusion.crashes(process);
            self.abandonment.crashes(process);
            self.exclusion.begins(*node, self.now);
        }
        for seat in self.seats.values() {
            self.abandonment.installs(seat.process, self.epoch);
        }
        let seats = self.seats.values();
        let holders: Vec<RequestId> = seats.flat_map(|seat| seat.inside.keys().copied()).collect();
        let seats = self.seats.values();
        let held = seats.flat_map(|seat| seat.inside.values()).next();
        let held = held.copied().unwrap_or_default();
        let mut waiters: Vec<Request> = self
            .seats
            .values()
            .filter_map(|seat| seat.waiting)
            .collect();
        waiters.sort_by_key(|request| request.stamp);
        let clock = self
            .seats
            .values()
            .map(|seat| seat.clock)
            .max()
            .unwrap_or_default()
            + 1;
        let mut said = Vec::new();
        for &me in &self.members {
            let mut out = Effects::default();
            let rebuild = Rebuild {
                me,
                members: &self.members,
                lock: &self.lock,
                holders: &holders,
                held,
                waiters: &waiters,
                abandoned,
            };
            self.engines
                .insert(me, build(self.spec, &rebuild, &mut out));
            said.push((me, out));
        }
        for seat in self.seats.values_mut() {
            // A new epoch outranks every counter of the old one.
            (seat.clock, seat.hop) = (clock, None);
            let counter = u32::from(!holders.is_empty());
            seat.history = GrantHistory {
                counter,
                abandoned: abandoned && holders.is_empty(),
            };
            (seat.entered, seat.owes_mark) = (0, false);
        }
        for (me, out) in said {
            self.carry_out(me, out)?;
        }
        Ok(())
    }

    /// Whether the view that begins has to tell its first entry that a holder before ended inside,
    /// by what the members say that are not `restarted`.
    fn is_abandoned(&mut self, restarted: &BTreeSet<NodeId>) -> bool {
        let mut table = Summary::default();
        for (me, engine) in &self.engines {
            if restarted.contains(me) {
                continue;
            }
            let seat = self.seats.get_mut(me).expect("every member has a seat");
            let (ending, owes) =
                seat.history
                    .end_view(seat.entered, engine.mark(), self.spec.permits);
            let others = restarted.iter().copied();
            let summary = LockSummary {
                spec: self.spec,
                holders: seat.inside.keys().copied().collect(),
                held: seat.inside.values().next().copied().unwrap_or_default(),
                waiters: Vec::new(),
                last: Last {
                    epoch: self.epoch,
                    counter: seat.history.counter,
                    ending,
                },
                abandoned: seat.owes_mark || owes,
                suspects: others.filter(|&node| engine.may_be_inside(node)).collect(),
            };
            table.merge(Summary {
                locks: BTreeMap::from([(self.lock.clone(), summary)]),
                is_complete: true,
                ..Summary::default()
            });
        }
        let restarted: Vec<NodeId> = restarted.iter().copied().collect();
        table.conclude(&restarted);
        let summary = table.locks.get(&self.lock);
        summary.map_or(table.doubt, |summary| summary.abandoned)
    }

    /// Goes on until there is something for the driver, or nothing is left to happen by `end`.
    ///
    /// # Errors
    /// An engine does what it may not.
    pub fn next(&mut self, end: Time) -> Result<Option<Turn<A>>, Violation> {
        loop {
            if let Some(turn) = self.turns.pop_front() {
                return Ok(Some(turn));
            }
            let Some((at, happening)) = self.queue.pop_by(end) else {
                self.now = self.now.max(end);
                return Ok(None);
            };
            self.now = at;
            match happening {
                Happening::Act(act) => return Ok(Some(Turn::Act(act))),
                Happening::Arrival(letter) => self.arrive_in_turn(letter)?,
                Happening::Hop { node, at, epoch } => {
                    let seat = self.seat(node);
                    if seat.hop == Some(at) && epoch == self.epoch {
                        self.seat(node).hop = None;
                        self.step(node, |engine, out| engine.timeout(out))?;
                    }
                }
            }
        }
    }

    fn seat(&mut self, node: NodeId) -> &mut Seat {
        self.seats.get_mut(&node).expect("only members are asked")
    }

    fn step(
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
        self.carry_out(node, out)?;
        self.nobody_denies()
    }

    /// Nobody can prove that a member is outside that is inside.
    fn nobody_denies(&self) -> Result<(), Violation> {
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

    fn arrive_in_turn(&mut self, letter: Letter) -> Result<(), Violation> {
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

    fn carry_out(&mut self, node: NodeId, out: Effects) -> Result<(), Violation> {
        let Effects {
            sends,
            granted,
            busy,
            hop_timer,
        } = out;
        // A grant comes before what is said in the same step, so that its counter travels along.
        for (id, booked) in granted {
            self.grant(node, id, booked)?;
        }
        for (to, message) in sends {
            self.post(node, to, message)?;
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

    fn plan_hop(&mut self, node: NodeId, delay: Duration) {
        let (at, epoch) = (self.now + delay, self.epoch);
        self.seat(node).hop = Some(at);
        self.queue.plan(at, Happening::Hop { node, at, epoch });
    }

    fn grant(&mut self, node: NodeId, id: RequestId, booked: Previous) -> Result<(), Violation> {
        let (now, epoch, keeps_books) = (self.now, self.epoch, self.spec.algorithm.keeps_books());
        let seat = self.seat(node);
        let call = call(seat.process, id);
        if id.node != node || id.incarnation != Incarnation(u64::from(seat.process.life)) {
            return Err(violation!(
                now,
                Requests,
                "the engine of member {node} grants {id:?}"
            ));
        }
        seat.clock += 1;
        let marked = seat.history.abandoned && !keeps_books;
        let previous = Previous::after(booked.is_abandoned() || marked);
        seat.history = seat.history.next().expect("runs are short");
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
        let seat = self.seat(from);
        seat.clock += 1;
        let (clock, history) = (seat.clock, seat.history);
        if message.confers_fence() {
            seat.history = history.next().expect("runs are short");
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

impl Seat {
    const fn new(node: NodeId) -> Self {
        Self {
            process: Process { node, life: 1 },
            clock: 0,
            history: GrantHistory {
                counter: 0,
                abandoned: false,
            },
            entered: 0,
            owes_mark: false,
            seq: 0,
            waiting: None,
            inside: BTreeMap::new(),
            hop: None,
        }
    }
}

const fn call(process: Process, id: RequestId) -> Call {
    Call {
        process,
        ticket: Ticket(id.seq),
    }
}
