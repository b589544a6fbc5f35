//! The algorithms' rules and traps, one step at a time. Sections are those of the design's
//! `ALGORITHMS`; the randomised explorer looks for what nobody thought of.

mod again;
mod answers;
mod asked_tokens;
mod bakery;
mod carvalho_roucairol;
mod lamport;
mod maekawa;
mod manager;
mod permits;
mod raymond;
mod ricart_agrawala;
mod semaphore;
mod shares;
mod sharing;
mod singhal;
mod suzuki_kasami;
mod token_ring;
mod token_ring_requests;
mod views;
mod voting;
mod vouching;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use distlock_protocol::lock::{Effects, Engine, HopTimer, Message, Rebuild, Request, Stamp, build};
use distlock_protocol::{
    Algorithm, Incarnation, LockName, LockSpec, Mode, NodeId, Priority, Release, RequestId,
};

/// The engines of one lock, and the messages between them, delivered when the test says so.
struct Bench {
    engines: BTreeMap<u16, Box<dyn Engine<Message>>>,
    wire: Vec<(u16, u16, Message)>,
    granted: Vec<RequestId>,
    busy: Vec<RequestId>,
    timers: BTreeMap<u16, HopTimer>,
    seq: u64,
}

impl Bench {
    fn new(size: u16, spec: LockSpec) -> Self {
        Self::rebuilt(size, spec, &[], &[])
    }

    fn rebuilt(size: u16, spec: LockSpec, holders: &[RequestId], waiters: &[Request]) -> Self {
        Self::rebuilt_in(size, spec, (holders, Mode::Exclusive), waiters)
    }

    fn rebuilt_in(
        size: u16,
        spec: LockSpec,
        (holders, held): (&[RequestId], Mode),
        waiters: &[Request],
    ) -> Self {
        let members: Vec<_> = (1..=size).map(node).collect();
        let lock = LockName::new("printer").unwrap();
        let mut bench = Self {
            engines: BTreeMap::new(),
            wire: Vec::new(),
            granted: Vec::new(),
            busy: Vec::new(),
            timers: BTreeMap::new(),
            seq: 100,
        };
        for me in 1..=size {
            let rebuild = Rebuild {
                me: node(me),
                members: &members,
                lock: &lock,
                holders,
                held,
                waiters,
                abandoned: false,
            };
            let mut effects = Effects::default();
            bench
                .engines
                .insert(me, build(spec, &rebuild, &mut effects));
            bench.carry_out(me, effects);
        }
        bench
    }

    fn step(&mut self, me: u16, step: impl FnOnce(&mut dyn Engine<Message>, &mut Effects)) {
        let mut effects = Effects::default();
        let engine = self.engines.get_mut(&me).unwrap();
        step(&mut **engine, &mut effects);
        engine.rest(&mut effects);
        self.carry_out(me, effects);
    }

    fn carry_out(&mut self, me: u16, effects: Effects) {
        for (to, message) in effects.sends {
            let sends = to.iter().map(|to| (me, to.as_u16(), message.clone()));
            self.wire.extend(sends);
        }
        let granted = effects.granted.into_iter();
        self.granted.extend(granted.map(|(id, _)| id));
        self.busy.extend(effects.busy);
        if let Some(timer) = effects.hop_timer {
            self.timers.insert(me, timer);
        }
    }

    /// A request of `me`, stamped `clock`.
    fn acquire(&mut self, me: u16, clock: u64) -> RequestId {
        self.seq += 1;
        let request = request(me, self.seq, clock);
        self.step(me, |engine, out| engine.acquire(request, out));
        request.id
    }

    /// The same, and what follows from it.
    fn ask(&mut self, me: u16, clock: u64) -> RequestId {
        let id = self.acquire(me, clock);
        self.deliver_all();
        id
    }

    fn release(&mut self, id: RequestId) {
        self.step(id.node.as_u16(), |engine, out| {
            engine.release(id, Release::Given, out);
        });
    }

    /// Releases, and delivers what follows from it. Returns how many messages that were.
    fn leave(&mut self, id: RequestId) -> usize {
        self.release(id);
        self.deliver_all()
    }

    /// Those enter, and nobody else has before them: each when the one before it has left.
    #[track_caller]
    fn serves(&mut self, order: &[RequestId]) {
        self.deliver_all();
        for (before, &id) in order.iter().enumerate() {
            assert_eq!(self.granted, order[..=before]);
            self.leave(id);
        }
    }

    /// The members that entered, in that order.
    fn entered(&self) -> Vec<u16> {
        self.granted.iter().map(|id| id.node.as_u16()).collect()
    }

    fn cancel(&mut self, id: RequestId) {
        self.step(id.node.as_u16(), |engine, out| engine.cancel(id, out));
    }

    /// Delivers the first message on its way from `from` to `to`, and returns it.
    fn deliver(&mut self, from: u16, to: u16) -> Message {
        let place = self
            .wire
            .iter()
            .position(|(f, t, _)| (*f, *t) == (from, to));
        let (_, _, message) = self.wire.remove(place.expect("a message is on its way"));
        self.receive(from, to, &message);
        message
    }

    fn receive(&mut self, from: u16, to: u16, message: &Message) {
        self.step(to, |engine, out| engine.receive(node(from), message, out));
    }

    /// Delivers everything, also what follows from it. Returns how many messages that were.
    fn deliver_all(&mut self) -> usize {
        for count in 0..1000 {
            if self.wire.is_empty() {
                return count;
            }
            let (from, to, message) = self.wire.remove(0);
            self.receive(from, to, &message);
        }
        panic!("it never ends: {:?}", self.wire);
    }

    fn kinds(&self) -> Vec<&'static str> {
        self.wire
            .iter()
            .map(|(_, _, message)| message.kind())
            .collect()
    }
}

fn node(id: u16) -> NodeId {
    NodeId::new(id).unwrap()
}

fn request(me: u16, seq: u64, clock: u64) -> Request {
    let id = RequestId {
        node: node(me),
        incarnation: Incarnation(1),
        seq,
    };
    Request {
        id,
        stamp: Stamp {
            clock,
            node: node(me),
        },
        mode: Mode::Exclusive,
        tries: true,
    }
}

/// A message of that algorithm.
fn message(algorithm: Algorithm, json: &str) -> Message {
    serde_json::from_str(&format!(r#"{{"{algorithm:?}":{json}}}"#)).unwrap()
}

fn exclusive(algorithm: Algorithm) -> LockSpec {
    LockSpec::exclusive(algorithm)
}

#[test]
fn alone_in_the_group_everybody_enters_without_a_word() {
    for algorithm in Algorithm::ALL {
        let mut bench = Bench::new(1, exclusive(algorithm));
        let mut granted = Vec::new();
        for clock in 1..=3 {
            let id = bench.acquire(1, clock);
            granted.push(id);
            assert_eq!(bench.granted, granted, "{algorithm}");
            bench.release(id);
        }
        assert_eq!(bench.wire.len(), 0, "{algorithm}");
    }
}
