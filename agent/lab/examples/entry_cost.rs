//! What an entry costs a member in instructions: so many entries in a group of three, in memory.
//!
//! ```text
//! for failure in quorum unanimity; do for entries in 1000 11000; do
//!     valgrind --tool=callgrind --callgrind-out-file=/dev/null \
//!         target/release/examples/entry_cost $failure $entries 2>&1 | grep refs
//! done; done
//! ```
//!
//! The difference between the two numbers of entries is what ten thousand of them take: 53,413
//! instructions an entry under quorum views and 53,287 without them, 0.2 % less.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use distlock_protocol::{
    Algorithm, Boot, Command, ElectionAlgorithm, Event, Failure, Input, LockName, Mode, Node,
    NodeConfig, NodeId, Output, Release, Settings, Ticket, Time, Wait,
};

const MEMBERS: u16 = 3;
/// How long a datagram takes.
const DELAY: Duration = Duration::from_micros(20);

struct Group {
    now: Time,
    nodes: BTreeMap<NodeId, Node>,
    wire: VecDeque<(Time, NodeId, NodeId, Vec<u8>)>,
    granted: bool,
    views: usize,
}

impl Group {
    fn new(failure: Failure) -> Self {
        let members: BTreeSet<NodeId> = (1..=MEMBERS).filter_map(NodeId::new).collect();
        let mut group = Self {
            now: Time::from_nanos(1),
            nodes: BTreeMap::new(),
            wire: VecDeque::new(),
            granted: false,
            views: 0,
        };
        for &me in &members {
            let config = NodeConfig {
                cluster: None,
                me,
                voters: members.clone(),
                members: members.clone(),
                settings: Settings {
                    group: "cost".into(),
                    lease: Duration::from_secs(5),
                    failure,
                    lock_delay: Duration::ZERO,
                    algorithm: Algorithm::RicartAgrawala,
                    election: ElectionAlgorithm::default(),
                    locks: BTreeMap::new(),
                },
            };
            let boot = Boot {
                record: None,
                wall: Duration::from_secs(50_000_000),
                seed: u64::from(me.as_u16()),
            };
            group.nodes.insert(me, Node::new(config, boot, group.now));
            group.drain(me);
        }
        while group.views < usize::from(MEMBERS) {
            group.step();
        }
        group
    }

    fn drain(&mut self, me: NodeId) {
        while let Some(output) = self.nodes.get_mut(&me).and_then(Node::poll_output) {
            match output {
                Output::Transmit { to, bytes } => {
                    self.wire.push_back((self.now + DELAY, me, to, bytes));
                }
                Output::Persist(_) => self.input(me, Input::Persisted),
                Output::Event(Event::Granted { .. }) => self.granted = true,
                Output::Event(Event::View { members, .. }) => {
                    self.views += usize::from(members.len() == usize::from(MEMBERS));
                }
                Output::Event(_) => {}
            }
        }
    }

    fn input(&mut self, me: NodeId, input: Input<'_>) {
        let now = self.now;
        if let Some(node) = self.nodes.get_mut(&me) {
            node.handle(now, input);
        }
        self.drain(me);
    }

    /// Lets the next thing happen.
    fn step(&mut self) {
        let timers = self.nodes.iter();
        let timer = timers.filter_map(|(&id, node)| Some((node.poll_timeout()?, id)));
        let timer = timer.min();
        let arrival = self.wire.front().map(|(at, ..)| *at);
        match (arrival, timer) {
            (Some(at), timer) if timer.is_none_or(|(due, _)| at <= due) => {
                self.now = self.now.max(at);
                if let Some((_, from, to, bytes)) = self.wire.pop_front() {
                    let bytes = &bytes;
                    self.input(to, Input::Datagram { from, bytes });
                }
            }
            (_, Some((due, id))) => {
                self.now = self.now.max(due);
                self.input(id, Input::Timeout);
            }
            _ => unreachable!("a node always has a timer"),
        }
    }

    fn enter(&mut self, number: u64) {
        let me = NodeId::new(u16::try_from(number % u64::from(MEMBERS)).unwrap_or(0) + 1);
        let me = me.expect("from 1");
        let ticket = Ticket(number);
        self.granted = false;
        let ask = Command::Acquire {
            ticket,
            lock: LockName::new("printer").expect("a good name"),
            spec: None,
            mode: Mode::Exclusive,
            wait: Wait::Cancelled,
        };
        self.input(me, Input::Command(&ask));
        while !self.granted {
            self.step();
        }
        let how = Release::Given;
        self.input(me, Input::Command(&Command::Release { ticket, how }));
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let failure = match args.next().as_deref() {
        Some("quorum") => Failure::Quorum,
        Some("unanimity") => Failure::Unanimity,
        _ => panic!("usage: entry_cost quorum|unanimity ENTRIES"),
    };
    let entries: u64 = args
        .next()
        .and_then(|entries| entries.parse().ok())
        .expect("a number of entries");
    let mut group = Group::new(failure);
    for number in 1..=entries {
        group.enter(number);
    }
    println!("{entries} entries in {:?}", group.now.since(Time::ZERO));
}
