//! Whole members over a perfect network, by hand.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use distlock_protocol::{
    Absence, Algorithm, Boot, Change, ClusterId, Command, Event, Failure, Fence, FoundingReport,
    Input, LockName, LockSpec, Missing, Mode, Node, NodeConfig, NodeId, Output, Previous, Record,
    Refusal, Release, Settings, Ticket, Time, Wait,
};

/// How long all must have been up before they found a cluster, with leases of a second.
pub(crate) const FOUNDING: Duration = Duration::from_secs(4);

/// Members that hear each other one millisecond later.
pub(crate) struct Group {
    pub(crate) now: Time,
    members: BTreeSet<NodeId>,
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    pub(crate) records: BTreeMap<NodeId, Record>,
    /// How long a record takes to the disk.
    pub(crate) disk: Duration,
    /// Those that are on their way there.
    writing: BTreeMap<NodeId, (Time, Record)>,
    wire: VecDeque<(Time, NodeId, NodeId, Vec<u8>)>,
    /// All that was ever sent: from whom, to whom, what.
    pub(crate) sent: Vec<(NodeId, NodeId, Vec<u8>)>,
    pub(crate) events: Vec<(NodeId, Event)>,
    /// Between whom, in this direction, everything is lost.
    pub(crate) cut: BTreeSet<(NodeId, NodeId)>,
    /// Between whom, in this direction, everything takes so much longer.
    pub(crate) slow_links: BTreeMap<(NodeId, NodeId), Duration>,
    /// Whose clocks run more slowly than `now`, since when, and by how much.
    slow: BTreeMap<NodeId, (Time, u32)>,
    pub(crate) settings: Settings,
    /// By the files of those who are started.
    pub(crate) voters: BTreeSet<NodeId>,
    /// The cluster that the files of those who are started name.
    pub(crate) cluster: Option<ClusterId>,
    /// Of a hundred datagrams so many get lost, by a chance that is always the same.
    pub(crate) loss: u64,
    chance: u64,
    /// How far the wall clocks of those who start are behind.
    pub(crate) behind: Duration,
}

impl Group {
    pub(crate) fn new(size: u16, algorithm: Algorithm) -> Self {
        Self::with(size, algorithm, Failure::Unanimity)
    }

    pub(crate) fn with(size: u16, algorithm: Algorithm, failure: Failure) -> Self {
        let group = Self::empty(size, algorithm, failure, Duration::from_secs(1));
        group.begun(size)
    }

    /// Of these members, those that vote.
    pub(crate) fn with_voters(size: u16, algorithm: Algorithm, voters: BTreeSet<NodeId>) -> Self {
        let failure = Failure::Quorum;
        let mut group = Self::empty(size, algorithm, failure, Duration::from_secs(1));
        group.voters = voters;
        group.begun(size)
    }

    fn begun(mut self, size: u16) -> Self {
        (1..=size).for_each(|me| self.start(me));
        self.run(Duration::from_secs(1));
        if self.settings.failure == Failure::Quorum {
            self.run(FOUNDING);
        }
        self
    }

    /// Members that are not started yet.
    pub(crate) fn empty(
        size: u16,
        algorithm: Algorithm,
        failure: Failure,
        lease: Duration,
    ) -> Self {
        let settings = Settings {
            lease,
            failure,
            algorithm,
            ..Settings::new("smoke")
        };
        Self {
            now: Time::from_nanos(1),
            members: (1..=size).map(node).collect(),
            voters: (1..=size).map(node).collect(),
            nodes: BTreeMap::new(),
            records: BTreeMap::new(),
            disk: Duration::ZERO,
            writing: BTreeMap::new(),
            wire: VecDeque::new(),
            sent: Vec::new(),
            events: Vec::new(),
            cut: BTreeSet::new(),
            slow_links: BTreeMap::new(),
            slow: BTreeMap::new(),
            settings,
            cluster: None,
            loss: 0,
            chance: 1,
            behind: Duration::ZERO,
        }
    }

    pub(crate) fn start(&mut self, me: u16) {
        self.start_listing(me, self.members.clone());
    }

    /// Starts a member whose file lists `members`.
    pub(crate) fn start_listing(&mut self, me: u16, members: BTreeSet<NodeId>) {
        let me = node(me);
        let config = NodeConfig {
            me,
            voters: self.voters.clone(),
            cluster: self.cluster,
            members,
            settings: self.settings.clone(),
        };
        let boot = Boot {
            record: self.records.get(&me).cloned(),
            wall: self.wall(),
            seed: u64::from(me.as_u16()),
        };
        self.nodes.insert(me, Node::new(config, boot, self.now));
        self.drain(me);
    }

    /// Its process is gone.
    pub(crate) fn stop(&mut self, me: u16) {
        self.nodes.remove(&node(me));
        self.writing.remove(&node(me));
    }

    /// Its process is gone, and its disk.
    pub(crate) fn lose(&mut self, me: u16) {
        self.stop(me);
        self.records.remove(&node(me));
    }

    pub(crate) fn leave(&mut self, me: u16) {
        self.input(node(me), Input::Command(&Command::Leave));
    }

    pub(crate) fn change(&mut self, at: u16, change: Change) {
        self.change_until(at, change, Duration::from_secs(60));
    }

    /// The same; it is given up after so long.
    pub(crate) fn change_until(&mut self, at: u16, change: Change, patience: Duration) {
        let until = self.clock(at) + patience;
        let command = Command::Change { change, until };
        self.input(node(at), Input::Command(&command));
    }

    /// What the wall clocks of those show who start now.
    pub(crate) fn wall(&self) -> Duration {
        Duration::from_secs(50_000_000) + self.now.since(Time::ZERO) - self.behind
    }

    fn drain(&mut self, me: NodeId) {
        while let Some(output) = self.nodes.get_mut(&me).and_then(Node::poll_output) {
            match output {
                Output::Transmit { to, bytes } => {
                    let slower = self.slow_links.get(&(me, to)).copied();
                    let at = self.now + Duration::from_millis(1) + slower.unwrap_or_default();
                    self.sent.push((me, to, bytes.clone()));
                    if self.cut.contains(&(me, to)) || self.is_lost() {
                        continue;
                    }
                    let place = self.wire.partition_point(|(its, ..)| *its <= at);
                    self.wire.insert(place, (at, me, to, bytes));
                }
                Output::Event(event) => self.events.push((me, event)),
                Output::Persist(record) if !self.disk.is_zero() => {
                    self.writing.insert(me, (self.now + self.disk, *record));
                }
                Output::Persist(record) => {
                    self.records.insert(me, *record);
                    self.input(me, Input::Persisted);
                }
            }
        }
    }

    fn is_lost(&mut self) -> bool {
        // Knuth's MMIX generator.
        let next = self.chance.wrapping_mul(6_364_136_223_846_793_005);
        self.chance = next.wrapping_add(1_442_695_040_888_963_407);
        (self.chance >> 33) % 100 < self.loss
    }

    pub(crate) fn input(&mut self, me: NodeId, input: Input<'_>) {
        let now = self.clock(me.as_u16());
        if let Some(node) = self.nodes.get_mut(&me) {
            node.handle(now, input);
            self.drain(me);
        }
    }

    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let timers = self.nodes.iter();
            let timer = timers
                .filter_map(|(&id, node)| Some((self.when(id, node.poll_timeout()?), id)))
                .min();
            let arrival = self.wire.front().map(|(at, ..)| *at);
            let written = self.writing.iter().map(|(&id, (at, _))| (*at, id)).min();
            let next = timer.into_iter().chain(written).map(|(at, _)| at);
            let next = next.chain(arrival).min();
            let Some(at) = next.filter(|&at| at <= end) else {
                break;
            };
            self.now = self.now.max(at);
            if let Some((_, id)) = written.filter(|its| its.0 == at) {
                let (_, record) = self.writing.remove(&id).unwrap();
                self.records.insert(id, record);
                self.input(id, Input::Persisted);
            } else if arrival == Some(at) {
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

    /// Lets time pass until that is so, within `limit`. Returns how long it took.
    #[track_caller]
    pub(crate) fn until(&mut self, limit: Duration, is_so: impl Fn(&Self) -> bool) -> Duration {
        let began = self.now;
        while !is_so(self) {
            let algorithm = self.settings.algorithm;
            assert!(
                self.now.since(began) < limit,
                "{algorithm}: not in {limit:?}"
            );
            self.run(ms(1));
        }
        self.now.since(began)
    }

    #[track_caller]
    pub(crate) fn until_granted(&mut self, ticket: u64, limit: Duration) -> Duration {
        self.until(limit, |group| group.granted(ticket).is_some())
    }

    /// From now on this member's clock takes `factor` times as long as others'.
    pub(crate) fn slow_down(&mut self, me: u16, factor: u32) {
        self.slow.insert(node(me), (self.now, factor));
    }

    /// What a member's clock shows.
    pub(crate) fn clock(&self, me: u16) -> Time {
        match self.slow.get(&node(me)) {
            Some(&(since, factor)) => since + self.now.since(since) / factor,
            None => self.now,
        }
    }

    /// When a member's clock shows `local`.
    fn when(&self, me: NodeId, local: Time) -> Time {
        match self.slow.get(&me) {
            Some(&(since, factor)) => since + local.since(since) * factor,
            None => local,
        }
    }

    /// Between `one` and all others nothing passes any more.
    pub(crate) fn isolate(&mut self, one: u16) {
        let one = node(one);
        for &other in self.members.iter().filter(|other| **other != one) {
            self.cut.extend([(one, other), (other, one)]);
        }
    }

    pub(crate) fn heal(&mut self) {
        self.cut.clear();
    }

    /// The cluster that a member is in.
    pub(crate) fn cluster_of(&self, me: u16) -> Option<ClusterId> {
        self.nodes[&node(me)].quorum(self.now).cluster
    }

    /// What keeps a cluster from being founded, as that member sees it.
    pub(crate) fn founding(&self, me: u16) -> Option<FoundingReport> {
        self.nodes[&node(me)].quorum(self.now).founding
    }

    /// The last view that a member told of.
    pub(crate) fn view(&self, me: u16) -> Option<(u32, Vec<u16>)> {
        self.events
            .iter()
            .rev()
            .find_map(|(whose, event)| match event {
                Event::View { epoch, members } if *whose == node(me) => Some((
                    epoch.as_u32(),
                    members.iter().map(|id| id.as_u16()).collect(),
                )),
                _ => None,
            })
    }

    /// The epoch of that view.
    #[track_caller]
    pub(crate) fn epoch(&self, me: u16) -> u32 {
        self.view(me).expect("a view").0
    }

    /// The members of that view.
    #[track_caller]
    pub(crate) fn members(&self, me: u16) -> Vec<u16> {
        self.view(me).expect("a view").1
    }

    /// These know each other, and nobody else.
    #[track_caller]
    pub(crate) fn are_together(&self, all: &[u16]) {
        for &me in all {
            assert_eq!(self.members(me), all, "{}: {me}", self.settings.algorithm);
        }
    }

    /// Who votes, as that member knows, and whether each does so already.
    pub(crate) fn votes(&self, me: u16) -> BTreeMap<NodeId, bool> {
        self.nodes[&node(me)].voters(self.now)
    }

    pub(crate) fn acquire(&mut self, me: u16, ticket: u64, wait: Wait) {
        self.ask(me, ticket, "printer", None, Mode::Exclusive, wait);
    }

    pub(crate) fn share(&mut self, me: u16, ticket: u64) {
        self.ask(me, ticket, "printer", None, Mode::Shared, Wait::Cancelled);
    }

    /// Asks for a lock that is to be served so.
    pub(crate) fn ask(
        &mut self,
        me: u16,
        ticket: u64,
        lock: &str,
        spec: Option<LockSpec>,
        mode: Mode,
        wait: Wait,
    ) {
        let command = Command::Acquire {
            ticket: Ticket(ticket),
            lock: LockName::new(lock).unwrap(),
            spec,
            mode,
            wait,
        };
        self.input(node(me), Input::Command(&command));
    }

    /// Asks, and is inside after that time.
    #[track_caller]
    pub(crate) fn enter(&mut self, me: u16, ticket: u64, time: Duration) -> Fence {
        self.acquire(me, ticket, Wait::Cancelled);
        self.run(time);
        let (algorithm, ended) = (self.settings.algorithm, self.ended(ticket));
        let granted = self.granted(ticket);
        granted.unwrap_or_else(|| panic!("{algorithm}: {me} is not let in: {ended:?}"))
    }

    pub(crate) fn release(&mut self, me: u16, ticket: u64) {
        self.release_as(me, ticket, Release::Given);
    }

    pub(crate) fn release_as(&mut self, me: u16, ticket: u64, how: Release) {
        let ticket = Ticket(ticket);
        self.input(node(me), Input::Command(&Command::Release { ticket, how }));
    }

    /// What each was told that was let in with that ticket.
    fn grants(&self, ticket: u64) -> impl Iterator<Item = (Fence, Previous)> {
        self.events
            .iter()
            .filter_map(move |(_, event)| match *event {
                Event::Granted {
                    ticket: its,
                    fence,
                    previous,
                    ..
                } if its.0 == ticket => Some((fence, previous)),
                _ => None,
            })
    }

    /// How often a caller was let in.
    pub(crate) fn entries(&self, ticket: u64) -> usize {
        self.grants(ticket).count()
    }

    pub(crate) fn granted(&self, ticket: u64) -> Option<Fence> {
        self.grants(ticket).next().map(|(fence, _)| fence)
    }

    /// What who is inside was told of the holder before.
    pub(crate) fn told(&self, ticket: u64) -> Option<Previous> {
        self.grants(ticket).next().map(|(_, previous)| previous)
    }

    /// Whether a holder was told that its lock is lost.
    pub(crate) fn lost(&self, ticket: u64) -> bool {
        let ticket = Ticket(ticket);
        let mut events = self.events.iter();
        events.any(|(_, event)| *event == Event::Lost { ticket })
    }

    /// When the newest lease ends that a member has had, on its clock.
    pub(crate) fn lease_of(&self, me: u16) -> Time {
        let mut leases = self.events.iter().rev().filter_map(|told| match told {
            (whose, Event::Lease { until }) if *whose == node(me) => Some(*until),
            _ => None,
        });
        leases.next().expect("it has had one")
    }

    pub(crate) fn ended(&self, ticket: u64) -> Option<&Refusal> {
        self.events.iter().find_map(|(_, event)| match event {
            Event::Ended {
                ticket: its,
                refusal,
            } if its.0 == ticket => Some(refusal),
            _ => None,
        })
    }
}

/// Those members, missing for that reason.
pub(crate) fn missing(ids: &[u16], why: Absence) -> Vec<Missing> {
    let missing = |&id: &u16| Missing {
        member: node(id),
        why,
    };
    ids.iter().map(missing).collect()
}

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) fn node(id: u16) -> NodeId {
    NodeId::new(id).unwrap()
}
