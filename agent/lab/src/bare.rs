//! Engines on simulated hosts, without nodes, links and bytes: messages go from engine to
//! engine, as late, as often and in such an order as the network likes.
//!
//! Links hide nearly all of that from the engines, so that their own guards (G1 to G5) would never
//! be needed in a run of whole nodes. Here they are; and here messages can be counted without
//! anything around them. What a node adds to a message, this adds too: the Lamport clock, the
//! largest counter of fences seen, the epoch. And where an algorithm needs the order of links, it
//! has that here as well.

mod install;
mod rounds;
mod steps;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use self::rounds::Rounds;
use super::checkers::{
    Abandonment, Call, Exclusion, Fairness, Fences, Process, Requests, Terms, Violation,
};
use super::choices::Choices;
use super::clock::Clock;
use super::history::{Moment, What};
use super::hosts::{Actor, Happened, Hosts};
use super::in_order::InOrder;
use super::network::{Network, NetworkStats};
use super::trace::Trace;
use distlock_protocol::chance::Chance;
use distlock_protocol::lock::{Block, Engine, GrantHistory, LockSpec, Message, Request, Stamp};
use distlock_protocol::{
    Algorithm, Epoch, Incarnation, LockName, Mode, NodeId, Refusal, Release, RequestId, Ticket,
    Time, Wait,
};

/// The engines of one lock in all members, and the messages between them. `A` is what the driver
/// plans for itself.
#[derive(Debug)]
pub struct Bare<A> {
    spec: LockSpec,
    lock: LockName,
    members: Vec<NodeId>,
    epoch: Epoch,
    hosts: Hosts<Seat, A>,
    /// The order of messages, if the algorithm needs it.
    order: Option<InOrder<Letter>>,
    /// The random waits of engines.
    chance: Chance,
    turns: VecDeque<Turn<A>>,
    exclusion: Exclusion,
    fences: Fences,
    abandonment: Abandonment,
    requests: Requests,
    /// How often requests are overtaken by later ones, if they are served in order.
    fairness: Option<(Fairness, Rounds)>,
    /// Messages sent, by kind.
    counts: BTreeMap<&'static str, u64>,
    /// Messages sent, of all kinds.
    sent: u64,
    in_flight: usize,
    /// Whether somebody has asked to share the lock.
    is_shared: bool,
    /// Whether the present step of an engine goes on with the next thing that it is told.
    goes_on: bool,
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

#[derive(Clone, Debug)]
struct Letter {
    epoch: Epoch,
    /// Its place in the order of those from one to the other; 0 where that is not kept.
    number: u64,
    clock: u64,
    history: GrantHistory,
    message: Message,
    /// Which transmission of the run it is.
    transmission: u64,
}

/// The engine of one member, and what stands around it.
#[derive(Debug, Default)]
struct Seat {
    /// `None` before the first view.
    engine: Option<Box<dyn Engine<Message>>>,
    clock: u64,
    history: GrantHistory,
    /// The counter of the last grant that was entered here in this epoch.
    entered: u32,
    /// The counter that came with the last message.
    heard: u32,
    /// The numbers of grants that another member has set aside for this one.
    block: Option<Block>,
    /// Whether the next view must be told of a mark that the history does not show.
    owes_mark: bool,
    seq: u64,
    waiting: Option<Request>,
    inside: BTreeMap<RequestId, Mode>,
}

impl Actor for Seat {
    type Message = Letter;
    type Record = ();
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
        let chance = network.chance();
        let mut hosts = Hosts::new(network, Choices::new(0), trace);
        for &node in &members {
            hosts.add(node, Clock::default());
            hosts.start(node, Seat::default());
        }
        let mut bare = Self {
            spec,
            lock,
            members,
            epoch: Epoch::ZERO,
            hosts,
            chance,
            order: None,
            turns: VecDeque::new(),
            fences: Fences::new(&locks),
            abandonment: Abandonment::new(&locks),
            exclusion: Exclusion::new(locks),
            requests: Requests::default(),
            fairness: (spec.algorithm == Algorithm::Manager).then(Default::default),
            counts: BTreeMap::new(),
            sent: 0,
            in_flight: 0,
            is_shared: false,
            goes_on: false,
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
        self.hosts.now()
    }

    /// What the network did.
    pub const fn network_stats(&self) -> NetworkStats {
        self.hosts.network.network_stats()
    }

    /// Messages sent, by kind.
    pub const fn counts(&self) -> &BTreeMap<&'static str, u64> {
        &self.counts
    }

    /// What happened so far, if the trace keeps it.
    pub fn history(&self) -> &[Moment] {
        self.hosts.trace.history()
    }

    /// Messages of this epoch that are under way.
    pub const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// How many requests wait.
    pub fn waiting(&self) -> usize {
        let seats = self.hosts.actors();
        seats.filter(|(_, seat)| seat.waiting.is_some()).count()
    }

    /// Whether a request of `node` waits.
    pub fn is_waiting(&self, node: NodeId) -> bool {
        self.seat_of(node).waiting.is_some()
    }

    /// How `node` is inside, if it is.
    pub fn inside(&self, node: NodeId) -> Option<Mode> {
        self.seat_of(node).inside.values().next().copied()
    }

    /// Plans `act` for `delay` from now.
    pub fn plan(&mut self, delay: Duration, act: A) {
        self.hosts.plan(delay, act);
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
        let process = self.process(node);
        let seat = self.seat(node);
        assert!(
            seat.waiting.is_none(),
            "one request of a member waits at a time"
        );
        seat.clock += 1;
        seat.seq += 1;
        let incarnation = Incarnation(u64::from(process.incarnation));
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
        self.hosts
            .say(format_args!("member {node} asks: {request:?}"));
        let asked = What::Asked {
            request: id.seq,
            stamp: Some(request.stamp.clock),
        };
        self.hosts.trace.record(self.hosts.now(), node, asked);
        let call = call(process, id);
        let terms = Terms {
            wait: Wait::Cancelled,
            wish: None,
        };
        self.requests
            .asks(self.hosts.now(), call, self.lock.clone(), mode, terms)?;
        if let Some((fairness, _)) = &mut self.fairness {
            fairness.asks(call, mode);
        }
        self.step(node, |engine, out| engine.acquire(request, out))?;
        Ok(id)
    }

    /// The request `id` waits no longer. Whether it did wait: else nothing happens.
    ///
    /// # Errors
    /// An engine does what it may not.
    pub fn cancel(&mut self, id: RequestId) -> Result<bool, Violation> {
        let now = self.now();
        let call = call(self.process(id.node), id);
        let seat = self.seat(id.node);
        if seat.waiting.is_none_or(|request| request.id != id) {
            return Ok(false);
        }
        seat.waiting = None;
        self.hosts.say(format_args!("{call} waits no longer"));
        self.requests.cancels(call);
        if let Some((fairness, rounds)) = &mut self.fairness {
            fairness.ends(call);
            rounds.ends(call);
        }
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
        let call = call(self.process(id.node), id);
        self.hosts.say(format_args!("{call} leaves ({how:?})"));
        let left = What::Left { request: id.seq };
        self.hosts.trace.record(self.hosts.now(), id.node, left);
        self.requests.releases(call);
        self.exclusion.leaves(call);
        self.abandonment.leaves(call, how);
        self.step(id.node, |engine, out| engine.release(id, how, out))
    }

    /// The request `id` leaves, and the member's next caller asks in the same step, by [`Bare::ask`]. `batch`:
    /// how many callers of one member may enter in a row.
    ///
    /// # Errors
    /// An engine does what it may not.
    pub fn release_to_next(&mut self, id: RequestId, batch: u32) -> Result<(), Violation> {
        if let Some((fairness, _)) = &mut self.fairness {
            fairness.allow_batches(batch);
        }
        self.goes_on = true;
        let released = self.release(id, Release::Given);
        self.goes_on = false;
        released
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
            let Some(happened) = self.hosts.next(end) else {
                return Ok(None);
            };
            match happened {
                Happened::Act(act) => return Ok(Some(Turn::Act(act))),
                Happened::Arrival {
                    process: Process { node: to, .. },
                    from,
                    message,
                } => self.arrive_in_turn((from, to), message)?,
                Happened::Alarm(Process { node, .. }) => {
                    self.step(node, |engine, out| engine.timeout(out))?;
                }
                Happened::Written(_) => {}
            }
        }
    }

    fn seat(&mut self, node: NodeId) -> &mut Seat {
        self.hosts.actor_mut(node).expect(MEMBER)
    }

    fn seat_of(&self, node: NodeId) -> &Seat {
        self.hosts.actor(node).expect(MEMBER)
    }

    fn seats(&self) -> impl Iterator<Item = &Seat> {
        self.hosts.actors().map(|(_, seat)| seat)
    }

    fn process(&self, node: NodeId) -> Process {
        self.hosts.process(node).expect(MEMBER)
    }
}

/// Every member has a process at any time.
const MEMBER: &str = "only members are asked";

const fn call(process: Process, id: RequestId) -> Call {
    Call {
        process,
        ticket: Ticket(id.seq),
    }
}
