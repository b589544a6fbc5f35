//! A node, and whatever can come to it in any order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::protocol::wire::{self, GroupId};
use crate::protocol::{
    Algorithm, Boot, Command, ElectionAlgorithm, Failure, Input, LockName, Mode, Node, NodeConfig,
    NodeId, Output, Release, Settings, Ticket, Time, Wait,
};

const MEMBERS: u16 = 3;
const GROUP: &str = "fuzz";

fn id(id: u16) -> NodeId {
    NodeId::new(id).expect("not 0")
}

fn settings(algorithm: Algorithm) -> Settings {
    Settings {
        group: GROUP.into(),
        lease: Duration::from_secs(1),
        failure: Failure::Quorum,
        lock_delay: Duration::ZERO,
        election: ElectionAlgorithm::Bully,
        algorithm,
        locks: BTreeMap::new(),
    }
}

/// Nodes, what they say, and what they are told to forget.
struct World {
    now: Time,
    nodes: BTreeMap<NodeId, Node>,
    wire: VecDeque<(NodeId, NodeId, Vec<u8>)>,
    /// What they have said, to be changed and sent again.
    kept: Vec<(NodeId, NodeId, Vec<u8>)>,
    tickets: u64,
}

impl World {
    fn new(algorithm: Algorithm) -> Self {
        let members: BTreeSet<_> = (1..=MEMBERS).map(id).collect();
        let now = Time::from_nanos(1);
        let node = |&me: &NodeId| {
            let config = NodeConfig {
                me,
                members: members.clone(),
                voters: members.clone(),
                settings: settings(algorithm),
            };
            let boot = Boot {
                record: None,
                wall: Duration::from_secs(50_000_000),
                seed: u64::from(me.as_u16()),
            };
            (me, Node::new(config, boot, now))
        };
        let mut world = Self {
            now,
            nodes: members.iter().map(node).collect(),
            wire: VecDeque::new(),
            kept: Vec::new(),
            tickets: 0,
        };
        for me in members {
            world.drain(me);
        }
        world
    }

    fn drain(&mut self, me: NodeId) {
        while let Some(output) = self.nodes.get_mut(&me).and_then(Node::poll_output) {
            match output {
                Output::Transmit { to, bytes } => {
                    if self.kept.len() < 500 {
                        self.kept.push((me, to, bytes.clone()));
                    }
                    self.wire.push_back((me, to, bytes));
                }
                Output::Persist(_) => self.input(me, Input::Persisted),
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

    /// All that is on its way arrives, and timers run out, for so long.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..2_000 {
            if let Some((from, to, bytes)) = self.wire.pop_front() {
                let bytes = &bytes;
                self.input(to, Input::Datagram { from, bytes });
                continue;
            }
            let due = self.nodes.iter();
            let due = due.filter_map(|(&id, node)| Some((node.poll_timeout()?, id)));
            match due.min() {
                Some((due, me)) if due <= end => {
                    self.now = self.now.max(due);
                    self.input(me, Input::Timeout);
                }
                _ => break,
            }
        }
        self.now = self.now.max(end);
    }
}

/// Three nodes that run, and datagrams of theirs, changed and with right checksums, among those that
/// they send. Nothing panics, nothing loops, and what waits stays within bounds.
pub fn core(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else {
        return;
    };
    let algorithms = Algorithm::ALL.map(|it| it);
    let quorate = algorithms.iter().filter(|it| !it.is_probabilistic());
    let quorate: Vec<_> = quorate.collect();
    let mut world = World::new(*quorate[usize::from(first) % quorate.len()]);
    world.run(Duration::from_millis(500));
    let lock = LockName::new("printer").expect("a name");
    for step in rest.chunks_exact(6).take(200) {
        let [what, a, b, c, d, e] = [step[0], step[1], step[2], step[3], step[4], step[5]];
        let me = id(u16::from(a) % MEMBERS + 1);
        match what % 8 {
            0 => {
                world.tickets += 1;
                let command = Command::Acquire {
                    ticket: Ticket(world.tickets),
                    lock: lock.clone(),
                    spec: None,
                    mode: Mode::Exclusive,
                    wait: if b % 4 == 0 {
                        Wait::Try
                    } else {
                        Wait::Cancelled
                    },
                };
                world.input(me, Input::Command(&command));
            }
            1 => {
                let ticket = Ticket(u64::from(b) % (world.tickets + 1));
                let how = if c % 2 == 0 {
                    Release::Given
                } else {
                    Release::Abandoned
                };
                world.input(me, Input::Command(&Command::Release { ticket, how }));
            }
            2 => {
                let ticket = Ticket(u64::from(b) % (world.tickets + 1));
                world.input(me, Input::Command(&Command::Cancel { ticket }));
            }
            3 => world.run(Duration::from_millis(u64::from(b) * 10)),
            _ if !world.kept.is_empty() => {
                let which = usize::from(u16::from_be_bytes([b, c])) % world.kept.len();
                let (from, to, mut bytes) = world.kept[which].clone();
                let at = usize::from(u16::from_be_bytes([d, what])) % bytes.len();
                bytes[at] = e;
                if what % 8 == 7 {
                    bytes.truncate(at);
                }
                wire::correct(GroupId::of(GROUP), &mut bytes);
                world.input(
                    to,
                    Input::Datagram {
                        from,
                        bytes: &bytes,
                    },
                );
            }
            _ => {}
        }
    }
    world.run(Duration::from_secs(2));
}
