//! Nodes, the network between them, their disks, and their callers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::ledger::Ledger;
use super::{GROUP, LEASE, Plan, locks};
use distlock_agent::protocol::{
    Boot, Command, ElectionAlgorithm, Input, Node, NodeConfig, NodeId, Output, Record, Release,
    Settings, Ticket, Time, Wait,
};

/// More inputs than nodes can have any reason for, at one time.
const TOO_MANY_AT_ONCE: u32 = 20_000;
/// More than a node can have any reason to say after one input.
const TOO_MANY_OUTPUTS: usize = 20_000;
/// In which time everybody is served once the weather is good.
const LONG_ENOUGH: Duration = Duration::from_secs(60);
/// How much of what was said is kept, to be said again.
const KEPT: usize = 400;

type Datagram = (NodeId, NodeId, Vec<u8>);

pub(super) struct World {
    plan: Plan,
    now: Time,
    nodes: BTreeMap<NodeId, Node>,
    /// On its way.
    wire: VecDeque<Datagram>,
    /// The latest that was said, whether it arrived or not.
    kept: VecDeque<Datagram>,
    /// From whom to whom nothing gets.
    cut: BTreeSet<(NodeId, NodeId)>,
    disks: BTreeMap<NodeId, Record>,
    /// On the way to a disk.
    writing: BTreeMap<NodeId, Record>,
    /// Who leaves, or has left.
    leaving: BTreeSet<NodeId>,
    ledger: Ledger,
    tickets: u64,
    lives: u64,
    inputs: u32,
    /// How many inputs there were since time went on.
    at_once: u32,
}

pub(super) fn id(id: u16) -> NodeId {
    NodeId::new(id).expect("not 0")
}

impl World {
    pub(super) fn new(plan: Plan) -> Self {
        let mut world = Self {
            plan,
            now: Time::from_nanos(1),
            nodes: BTreeMap::new(),
            wire: VecDeque::new(),
            kept: VecDeque::new(),
            cut: BTreeSet::new(),
            disks: BTreeMap::new(),
            writing: BTreeMap::new(),
            leaving: BTreeSet::new(),
            ledger: Ledger::new(plan.judged()),
            tickets: 0,
            lives: 0,
            inputs: 0,
            at_once: 0,
        };
        (1..=plan.members).for_each(|me| world.start(id(me)));
        world
    }

    pub(super) const fn plan(&self) -> Plan {
        self.plan
    }

    pub(super) const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// How many inputs nodes have had.
    pub(super) const fn inputs(&self) -> u32 {
        self.inputs
    }

    pub(super) const fn new_ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    fn start(&mut self, me: NodeId) {
        self.lives += 1;
        let specs = locks().into_iter();
        let config = NodeConfig {
            me,
            members: (1..=self.plan.members).map(id).collect(),
            voters: (1..=self.plan.voters).map(id).collect(),
            cluster: None,
            settings: Settings {
                group: GROUP.into(),
                lease: LEASE,
                failure: self.plan.failure,
                lock_delay: Duration::ZERO,
                election: ElectionAlgorithm::Bully,
                algorithm: self.plan.algorithm,
                locks: specs
                    .filter_map(|(lock, spec)| Some((lock, spec?)))
                    .collect(),
            },
        };
        let boot = Boot {
            record: self.disks.get(&me).cloned(),
            wall: Duration::from_secs(50_000_000) + self.now.since(Time::ZERO),
            seed: self.lives,
        };
        self.nodes.insert(me, Node::new(config, boot, self.now));
        self.drain(me);
    }

    /// `me` ends without a word, and begins a new life with what is on its disk.
    pub(super) fn restart(&mut self, me: NodeId) {
        self.ledger.crashes(me);
        self.writing.remove(&me);
        self.leaving.remove(&me);
        self.start(me);
    }

    pub(super) fn command(&mut self, me: NodeId, command: Command) {
        let permits = match &command {
            Command::Acquire { lock, .. } if lock.as_bytes() == b"pool" => 2,
            _ => 1,
        };
        self.ledger.commands(me, permits, &command);
        self.input(me, Input::Command(&command));
        match command {
            Command::Cancel { ticket } => {
                assert!(!self.ledger.is_waiting(ticket), "it is cancelled and waits");
            }
            Command::Leave => drop(self.leaving.insert(me)),
            _ => {}
        }
    }

    pub(super) fn input(&mut self, me: NodeId, input: Input<'_>) {
        self.inputs += 1;
        self.at_once += 1;
        assert!(self.at_once < TOO_MANY_AT_ONCE, "it goes round in circles");
        let now = self.now;
        if let Some(node) = self.nodes.get_mut(&me) {
            node.handle(now, input);
        }
        self.drain(me);
    }

    fn drain(&mut self, me: NodeId) {
        let mut count = 0;
        while let Some(output) = self.nodes.get_mut(&me).and_then(Node::poll_output) {
            count += 1;
            assert!(count < TOO_MANY_OUTPUTS, "it does not come to an end");
            match output {
                Output::Transmit { to, bytes } => {
                    if self.kept.len() == KEPT {
                        self.kept.pop_front();
                    }
                    self.kept.push_back((me, to, bytes.clone()));
                    if !self.cut.contains(&(me, to)) {
                        self.wire.push_back((me, to, bytes));
                    }
                }
                Output::Persist(record) => {
                    let before = self.writing.insert(me, *record);
                    assert!(before.is_none(), "one record at a time");
                    if !self.plan.slow_disk {
                        self.write(me);
                    }
                }
                Output::Event(event) => {
                    self.ledger.hears(self.now, me, &event);
                }
            }
        }
    }

    /// What is on the way to the disk of `me` is there.
    pub(super) fn write(&mut self, me: NodeId) {
        if let Some(record) = self.writing.remove(&me) {
            self.disks.insert(me, record);
            self.input(me, Input::Persisted);
        }
    }

    /// One of those on their way arrives.
    pub(super) fn deliver(&mut self, which: u8) {
        let which = usize::from(which) % self.wire.len().max(1);
        if let Some((from, to, bytes)) = self.wire.remove(which) {
            let bytes = &bytes;
            self.input(to, Input::Datagram { from, bytes });
        }
    }

    pub(super) fn lose(&mut self, which: u8) {
        let which = usize::from(which) % self.wire.len().max(1);
        self.wire.remove(which);
    }

    pub(super) fn lose_all(&mut self) {
        self.wire.clear();
    }

    /// Something that was said, the latest first.
    pub(super) fn said(&self, which: usize) -> Option<Datagram> {
        let which = which % self.kept.len().max(1);
        self.kept.iter().rev().nth(which).cloned()
    }

    /// Something that was said is on its way again.
    pub(super) fn double(&mut self, which: u16) {
        self.wire.extend(self.said(usize::from(which)));
    }

    /// From now on nothing, or something again, gets from one to the other.
    pub(super) fn cut(&mut self, from: NodeId, to: NodeId, is_cut: bool) {
        if is_cut {
            self.cut.insert((from, to));
        } else {
            self.cut.remove(&(from, to));
        }
    }

    /// Time passes, and nothing arrives or is written.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.time_out(end) {}
        self.go_on(end);
    }

    /// All that is on its way arrives, what is written is on disk, and time passes.
    pub(super) fn run(&mut self, time: Duration) {
        self.run_until(time, |_| false);
    }

    /// The same, until it is enough.
    fn run_until(&mut self, time: Duration, is_enough: impl Fn(&Self) -> bool) -> bool {
        let end = self.now + time;
        loop {
            if is_enough(self) {
                return true;
            }
            if let Some((&me, _)) = self.writing.first_key_value() {
                self.write(me);
            } else if !self.wire.is_empty() {
                self.deliver(0);
            } else if !self.time_out(end) {
                break;
            }
        }
        self.go_on(end);
        false
    }

    /// The next timer that is due before `end`, if there is one.
    fn time_out(&mut self, end: Time) -> bool {
        let due = self.nodes.iter();
        let due = due.filter_map(|(&id, node)| Some((node.poll_timeout()?, id)));
        match due.min() {
            Some((due, me)) if due <= end => {
                self.go_on(due);
                self.input(me, Input::Timeout);
                true
            }
            _ => false,
        }
    }

    fn go_on(&mut self, to: Time) {
        if self.now < to {
            self.now = to;
            self.at_once = 0;
        }
    }

    /// All are in one view.
    pub(super) fn form(&mut self) {
        let members = usize::from(self.plan.members);
        let is_whole = |node: &Node| node.view().is_some_and(|it| it.members.len() == members);
        let formed = self.run_until(LONG_ENOUGH, |it| it.nodes.values().all(is_whole));
        assert!(formed, "they do not form a group");
        self.inputs = 0;
    }

    /// The weather becomes good, everybody runs, and wants to enter once more. Whoever is let in
    /// leaves at once. So all who wait are served.
    pub(super) fn serve_all(&mut self) {
        self.cut.clear();
        for me in (1..=self.plan.members).map(id) {
            if self.leaving.contains(&me) {
                self.restart(me);
            }
            for (lock, _) in locks() {
                let ticket = self.new_ticket();
                let ask = Command::Acquire {
                    ticket,
                    lock,
                    spec: None,
                    mode: distlock_agent::protocol::Mode::Exclusive,
                    wait: Wait::Cancelled,
                };
                self.command(me, ask);
            }
        }
        let end = self.now + LONG_ENOUGH;
        while !self.ledger.waiting().is_empty() {
            let is_let_in = |it: &Self| it.ledger.inside().is_some();
            let is_done = |it: &Self| is_let_in(it) || it.ledger.waiting().is_empty();
            let waits = !self.run_until(end.since(self.now), is_done);
            assert!(!waits, "nobody lets in {:?}", self.ledger.waiting());
            while let Some((me, ticket)) = self.ledger.inside() {
                let how = Release::Given;
                self.command(me, Command::Release { ticket, how });
            }
        }
    }
}
