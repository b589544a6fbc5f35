//! Whole members over a perfect network, by hand: the first thing to look at when all else fails.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use distlock_agent::protocol::{
    Algorithm, Boot, Command, Event, Fence, Input, LockName, Node, NodeConfig, NodeId, Output,
    Record, Refusal, Settings, Ticket, Time, Wait,
};

/// Members that hear each other one millisecond later.
struct Group {
    now: Time,
    members: BTreeSet<NodeId>,
    nodes: BTreeMap<NodeId, Node>,
    records: BTreeMap<NodeId, Record>,
    wire: VecDeque<(Time, NodeId, NodeId, Vec<u8>)>,
    events: Vec<(NodeId, Event)>,
    settings: Settings,
}

impl Group {
    fn new(size: u16, algorithm: Algorithm) -> Self {
        let settings = Settings {
            group: "smoke".into(),
            lease: Duration::from_secs(1),
            algorithm,
            locks: BTreeMap::new(),
        };
        let mut group = Self {
            now: Time::from_nanos(1),
            members: (1..=size).map(node).collect(),
            nodes: BTreeMap::new(),
            records: BTreeMap::new(),
            wire: VecDeque::new(),
            events: Vec::new(),
            settings,
        };
        for me in 1..=size {
            group.start(me);
        }
        group.run(Duration::from_secs(1));
        group
    }

    fn start(&mut self, me: u16) {
        let (me, members) = (node(me), self.members.clone());
        let config = NodeConfig {
            me,
            members,
            settings: self.settings.clone(),
        };
        let boot = Boot {
            record: self.records.get(&me).copied(),
            wall_secs: 50_000_000,
        };
        self.nodes.insert(me, Node::new(config, boot, self.now));
        self.drain(me);
    }

    fn drain(&mut self, me: NodeId) {
        while let Some(output) = self.nodes.get_mut(&me).and_then(Node::poll_output) {
            match output {
                Output::Transmit { to, bytes } => {
                    let at = self.now + Duration::from_millis(1);
                    self.wire.push_back((at, me, to, bytes));
                }
                Output::Event(event) => self.events.push((me, event)),
                Output::Persist(record) => {
                    self.records.insert(me, record);
                    self.input(me, Input::Persisted);
                }
            }
        }
    }

    fn input(&mut self, me: NodeId, input: Input<'_>) {
        let now = self.now;
        if let Some(node) = self.nodes.get_mut(&me) {
            node.handle(now, input);
            self.drain(me);
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let timers = self.nodes.iter();
            let timer = timers
                .filter_map(|(&id, node)| Some((node.poll_timeout()?, id)))
                .min();
            let arrival = self.wire.front().map(|(at, ..)| *at);
            let next = timer.map(|(at, _)| at).into_iter().chain(arrival).min();
            let Some(at) = next.filter(|&at| at <= end) else {
                break;
            };
            self.now = self.now.max(at);
            if arrival == Some(at) {
                let (_, from, to, bytes) = self.wire.pop_front().unwrap();
                self.input(
                    to,
                    Input::Datagram {
                        from,
                        bytes: &bytes,
                    },
                );
            } else if let Some((_, id)) = timer {
                self.input(id, Input::Timeout);
            }
        }
        self.now = end;
    }

    fn acquire(&mut self, me: u16, ticket: u64, wait: Wait) {
        let lock = LockName::new("printer").unwrap();
        let command = Command::Acquire {
            ticket: Ticket(ticket),
            lock,
            spec: None,
            wait,
        };
        self.input(node(me), Input::Command(&command));
    }

    fn release(&mut self, me: u16, ticket: u64) {
        self.input(
            node(me),
            Input::Command(&Command::Release {
                ticket: Ticket(ticket),
            }),
        );
    }

    fn granted(&self, ticket: u64) -> Option<Fence> {
        self.events.iter().find_map(|(_, event)| match event {
            Event::Granted {
                ticket: its, fence, ..
            } if its.0 == ticket => Some(*fence),
            _ => None,
        })
    }

    fn ended(&self, ticket: u64) -> Option<&Refusal> {
        self.events.iter().find_map(|(_, event)| match event {
            Event::Ended {
                ticket: its,
                refusal,
            } if its.0 == ticket => Some(refusal),
            _ => None,
        })
    }
}

fn node(id: u16) -> NodeId {
    NodeId::new(id).unwrap()
}

#[test]
fn members_take_turns_with_every_algorithm() {
    for algorithm in Algorithm::ALL {
        for size in [1, 2, 3, 5] {
            let mut group = Group::new(size, algorithm);
            for me in 1..=size {
                group.acquire(me, u64::from(me), Wait::Cancelled);
            }
            let mut fences = Vec::new();
            let mut served = BTreeSet::new();
            for _ in 0..size {
                group.run(Duration::from_secs(1));
                let inside: Vec<_> = (1..=u64::from(size))
                    .filter(|ticket| !served.contains(ticket) && group.granted(*ticket).is_some())
                    .collect();
                assert_eq!(inside.len(), 1, "{algorithm}, {size} members");
                fences.push(group.granted(inside[0]).unwrap());
                served.insert(inside[0]);
                group.release(inside[0] as u16, inside[0]);
            }
            assert!(fences.is_sorted_by(|a, b| a < b), "{algorithm}: {fences:?}");
        }
    }
}

#[test]
fn a_try_finds_the_lock_busy_and_then_free() {
    for algorithm in Algorithm::ALL {
        let mut group = Group::new(3, algorithm);
        group.acquire(1, 1, Wait::Cancelled);
        group.run(Duration::from_secs(1));
        assert!(group.granted(1).is_some(), "{algorithm}");
        group.acquire(2, 2, Wait::Try);
        group.run(Duration::from_secs(1));
        assert_eq!(group.ended(2), Some(&Refusal::Busy), "{algorithm}");
        group.release(1, 1);
        group.run(Duration::from_secs(1));
        group.acquire(2, 3, Wait::Try);
        group.run(Duration::from_secs(1));
        assert!(group.granted(3).is_some(), "{algorithm}");
    }
}

#[test]
fn a_member_that_comes_back_is_waited_for_and_holds_nothing() {
    for algorithm in Algorithm::ALL {
        let mut group = Group::new(3, algorithm);
        group.acquire(2, 1, Wait::Cancelled);
        group.run(Duration::from_secs(1));
        let first = group.granted(1).expect("granted");
        // It dies inside, and comes back at once: nobody may enter for lease * 1.1 / 0.9.
        group.start(2);
        group.acquire(3, 2, Wait::Cancelled);
        group.run(Duration::from_millis(1200));
        assert_eq!(group.granted(2), None, "{algorithm}");
        group.run(Duration::from_secs(1));
        let second = group
            .granted(2)
            .unwrap_or_else(|| panic!("{algorithm}: not granted"));
        assert!(second > first);
    }
}

#[test]
fn a_silent_member_is_named_after_one_lease() {
    let mut group = Group::new(3, Algorithm::RicartAgrawala);
    group.nodes.remove(&node(3));
    group.acquire(1, 1, Wait::Lease);
    group.run(Duration::from_secs(3));
    assert_eq!(
        group.ended(1),
        Some(&Refusal::NoQuorum {
            missing: vec![node(3)]
        })
    );
}

#[test]
fn who_leaves_tells_the_others_and_needs_no_quarantine() {
    let mut group = Group::new(2, Algorithm::TokenRingRequests);
    group.acquire(1, 1, Wait::Cancelled);
    group.run(Duration::from_secs(1));
    group.acquire(2, 2, Wait::Cancelled);
    group.input(node(1), Input::Command(&Command::Leave));
    group.run(Duration::from_millis(100));
    assert!(group.granted(2).is_some(), "the token was passed on");
    assert!(group.events.contains(&(node(1), Event::Left)));
    assert!(group.records[&node(1)].clean);
    group.release(2, 2);
    group.start(1);
    group.acquire(1, 3, Wait::Cancelled);
    group.run(Duration::from_millis(200));
    assert!(group.granted(3).is_some());
}
