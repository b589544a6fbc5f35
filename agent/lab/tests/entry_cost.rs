//! What an entry costs the protocol core, in instructions: a group of three in memory, whose manager
//! lends its lock to none.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hint::black_box;
use std::time::Duration;

use distlock_protocol::{
    Algorithm, Boot, Command, ElectionAlgorithm, Event, Failure, Input, LockName, Mode, Node,
    NodeConfig, NodeId, Output, Release, Settings, Ticket, Time, Wait,
};
use instructions::{instructions, is_counted};

#[path = "../../../tests/support/instructions.rs"]
mod instructions;

/// How long a datagram takes.
const DELAY: Duration = Duration::from_micros(20);
/// For this long there is time for all that a member may yet say.
const PAUSE: Duration = Duration::from_millis(7);
const ENTRIES: u64 = 100;

/// Where the manager of the lock is, by the hash of its name; the others enter.
const MANAGER: u16 = 1;
const OTHERS: [u16; 2] = [2, 3];

/// What is counted at most an entry: what it was on 26 November 2026 by rustc 1.95 on x86-64, and a
/// twentieth, or, where the compiler optimizes a little only, a fifth.
const REQUESTER: u64 = if cfg!(debug_assertions) {
    61_300
} else {
    18_200
};
const MANAGER_OF_QUEUE: u64 = if cfg!(debug_assertions) {
    42_500
} else {
    10_700
};

struct Group {
    now: Time,
    nodes: BTreeMap<NodeId, Node>,
    wire: VecDeque<(Time, NodeId, NodeId, Vec<u8>)>,
    granted: BTreeSet<Ticket>,
    views: usize,
    /// From when on steps are counted.
    is_counted: bool,
}

fn id(node: u16) -> NodeId {
    NodeId::new(node).expect("from 1")
}

// Of two functions that do the same the compiler makes one.
#[inline(never)]
fn step_of_the_manager(node: &mut Node, now: Time, input: Input<'_>) -> Vec<Output> {
    black_box(MANAGER);
    step(node, now, input)
}

#[inline(never)]
fn step_of_another(node: &mut Node, now: Time, input: Input<'_>) -> Vec<Output> {
    black_box(OTHERS);
    step(node, now, input)
}

fn step(node: &mut Node, now: Time, input: Input<'_>) -> Vec<Output> {
    node.handle(now, input);
    std::iter::from_fn(|| node.poll_output()).collect()
}

impl Group {
    fn new() -> Self {
        let members: BTreeSet<NodeId> = OTHERS.into_iter().chain([MANAGER]).map(id).collect();
        let mut group = Self {
            now: Time::from_nanos(1),
            nodes: BTreeMap::new(),
            wire: VecDeque::new(),
            granted: BTreeSet::new(),
            views: 0,
            is_counted: false,
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
                    // No log of voters that beats meanwhile.
                    failure: Failure::Unanimity,
                    lock_delay: Duration::ZERO,
                    algorithm: Algorithm::Manager,
                    election: ElectionAlgorithm::default(),
                    locks: BTreeMap::new(),
                },
            };
            let boot = Boot {
                record: None,
                wall: Duration::from_secs(50_000_000),
                seed: u64::from(me.as_u16()),
            };
            let node = Node::new(config, boot, group.now);
            group.nodes.insert(me, node);
            group.input(me, Input::Timeout);
        }
        while group.views < members.len() {
            assert!(group.step_by(Time::MAX));
        }
        group
    }

    fn input(&mut self, me: NodeId, input: Input<'_>) {
        let now = self.now;
        let node = self.nodes.get_mut(&me).expect("a member");
        let outputs = match (self.is_counted, me == id(MANAGER)) {
            (false, _) => step(node, now, input),
            (true, true) => step_of_the_manager(node, now, input),
            (true, false) => step_of_another(node, now, input),
        };
        for output in outputs {
            match output {
                Output::Transmit { to, bytes } => {
                    self.wire.push_back((now + DELAY, me, to, bytes));
                }
                Output::Persist(_) => self.input(me, Input::Persisted),
                Output::Event(Event::Granted { ticket, .. }) => {
                    self.granted.insert(ticket);
                }
                Output::Event(Event::View { members, .. }) => {
                    self.views += usize::from(members.len() == self.nodes.len());
                }
                Output::Event(_) => {}
            }
        }
    }

    /// Lets the next thing happen, if anything does by `end`; then it is `end`.
    fn step_by(&mut self, end: Time) -> bool {
        let timers = self.nodes.iter();
        let timers = timers.filter_map(|(&id, node)| Some((node.poll_timeout()?, Some(id))));
        let arrival = self.wire.front().map(|(at, ..)| (*at, None));
        // Of what is due at one time datagrams come first.
        let next = arrival.into_iter().chain(timers).min();
        let Some((due, timer)) = next.filter(|(due, _)| *due <= end) else {
            self.now = self.now.max(end);
            return false;
        };
        self.now = self.now.max(due);
        match timer {
            Some(id) => self.input(id, Input::Timeout),
            None => {
                let (_, from, to, bytes) = self.wire.pop_front().expect("the first");
                let bytes = &bytes;
                self.input(to, Input::Datagram { from, bytes });
            }
        }
        true
    }

    /// Lets all happen that does in `duration`.
    fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.step_by(end) {}
    }

    fn ask(&mut self, node: u16, number: u64) {
        let ask = Command::Acquire {
            ticket: Ticket(number),
            lock: LockName::new("printer").expect("a good name"),
            spec: None,
            mode: Mode::Exclusive,
            wait: Wait::Cancelled,
        };
        self.input(id(node), Input::Command(&ask));
    }

    fn wait(&mut self, number: u64) {
        while !self.granted.contains(&Ticket(number)) {
            assert!(self.step_by(Time::MAX));
        }
    }

    fn leave(&mut self, node: u16, number: u64) {
        let (ticket, how) = (Ticket(number), Release::Given);
        self.input(id(node), Input::Command(&Command::Release { ticket, how }));
    }

    /// Lets all be said, which is not counted.
    fn pause(&mut self) {
        let was_counted = std::mem::replace(&mut self.is_counted, false);
        self.run(PAUSE);
        self.is_counted = was_counted;
    }
}

/// The others enter in turn, each when the lock is back at its manager.
fn enter_a_free_lock() {
    let mut group = Group::new();
    for number in 0..ENTRIES * 2 {
        group.is_counted = number >= ENTRIES;
        let node = OTHERS[number as usize % OTHERS.len()];
        group.ask(node, number);
        group.wait(number);
        group.leave(node, number);
        group.pause();
    }
}

/// The others enter in turn, each asking while the one before is inside.
fn wait_in_line() {
    let mut group = Group::new();
    let at = |number: u64| OTHERS[number as usize % OTHERS.len()];
    group.ask(at(0), 0);
    for number in 0..ENTRIES * 2 {
        group.wait(number);
        group.is_counted = number >= ENTRIES;
        group.ask(at(number + 1), number + 1);
        // Until the one inside knows.
        group.run(DELAY * 3);
        group.leave(at(number), number);
    }
}

fn at_most(most: u64, test: &str, counted: &str) {
    if let Some(all) = instructions(test, counted) {
        instructions::expect(all / ENTRIES, most);
    }
}

#[test]
fn a_free_lock_costs_whoever_enters_it() {
    if is_counted() {
        return enter_a_free_lock();
    }
    let test = "a_free_lock_costs_whoever_enters_it";
    at_most(REQUESTER, test, "step_of_another");
}

#[test]
fn a_waiter_costs_the_manager() {
    if is_counted() {
        return wait_in_line();
    }
    let test = "a_waiter_costs_the_manager";
    at_most(MANAGER_OF_QUEUE, test, "step_of_the_manager");
}
