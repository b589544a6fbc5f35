//! Whole nodes on simulated hosts: a process is a production [`Node`], and what its host's
//! disk holds is the member's record. Clocks start anywhere and run at their own rates; a node is
//! told the time of its own clock and nothing more.
//!
//! Every input and output goes by the [`Checkers`] and into the [`Trace`].

mod forgery;
mod incarnations;
mod lies;
mod loans;
mod record;
mod steps;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::ops::Range;
use core::time::Duration;

pub use self::forgery::Forgery;
use self::forgery::Overheard;
pub(crate) use self::lies::Lies;
use self::record::Transmissions;
use super::checkers::{Checkers, Leases, Process, Violation};
use super::choices::{Choices, Permille};
use super::clock::Clock;
use super::history::Moment;
use super::hosts::{Actor, Happened, Hosts};
use super::network::{Conditions, Network, NetworkStats};
use super::trace::Trace;
use distlock_protocol::wire::GroupId;
use distlock_protocol::{
    Change, ClusterId, Command, Epoch, Event, Failure, Input, LockName, Node, NodeId,
    QuorumOverview, Record, Settings, Time,
};

/// What surrounds the nodes.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The network.
    pub conditions: Conditions,
    /// Each member's clock; members that are not named have an exact one.
    pub clocks: BTreeMap<NodeId, Clock>,
    /// The longest that a record takes to reach the disk.
    pub disk: Duration,
    /// The longest that a node is woken too late.
    pub lateness: Duration,
    /// How many of a thousand incarnations begin on a host whose wall clock has gone back by an
    /// hour. It counts for nothing where there is a record.
    pub wall_back: Permille,
    /// How many of a thousand inputs are followed by a [`Input::Timeout`] that is not due.
    pub early: Permille,
    /// The member whose file has another lock delay than all others' files, until it is mended.
    pub odd_file: Option<NodeId>,
}

impl Surroundings {
    /// A network without faults, exact clocks, and a disk that takes no time.
    pub const fn perfect(delay: Duration) -> Self {
        Self {
            conditions: Conditions::perfect(delay),
            clocks: BTreeMap::new(),
            disk: Duration::ZERO,
            lateness: Duration::ZERO,
            wall_back: 0,
            early: 0,
            odd_file: None,
        }
    }
}

/// A group in simulated time. `A` is what the driver plans for itself.
#[derive(Debug)]
pub struct Cluster<A> {
    settings: Settings,
    /// What its datagrams say of the group.
    group: GroupId,
    surroundings: Surroundings,
    /// The members and the voters by the files.
    listed: BTreeSet<NodeId>,
    voters: BTreeSet<NodeId>,
    /// The cluster that they name, if they do.
    named: Option<ClusterId>,
    /// Where what decides on views lies.
    lies: Option<Lies>,
    /// What was sent, where datagrams are forged.
    overheard: Option<Overheard>,
    hosts: Hosts<Member, A>,
    turns: VecDeque<Turn<A>>,
    /// Whether the driver is told of each step.
    tells_steps: bool,
    checkers: Checkers,
    transmissions: Transmissions,
}

/// What the driver is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn<A> {
    /// A node tells its callers something.
    Told(Process, Event),
    /// What the driver planned for this time.
    Act(A),
    /// A node has taken a step, if the driver wants to know.
    Stepped(Process),
}

/// What runs in the process of a member.
#[derive(Debug)]
struct Member {
    node: Node,
    /// The lease, the members and the voters of the file that it has read.
    file: (Duration, BTreeSet<NodeId>, BTreeSet<NodeId>),
}

#[derive(Clone, Debug)]
struct Datagram {
    bytes: Vec<u8>,
    /// The engines' messages in it, if the history is kept.
    messages: Range<u64>,
}

impl Actor for Member {
    type Message = Datagram;
    type Record = Record;

    fn corrupt(mut datagram: Datagram, network: &mut Network) -> Datagram {
        network.corrupt(&mut datagram.bytes);
        datagram.messages = 0..0;
        datagram
    }
}

impl<A> Cluster<A> {
    /// The members `1..=size`, none of them started. `locks` are all that will be asked for,
    /// with their permits.
    pub fn new(
        size: u16,
        settings: Settings,
        surroundings: Surroundings,
        locks: BTreeMap<LockName, NonZeroU32>,
        mut choices: Choices,
        trace: Trace,
    ) -> Self {
        let members: Vec<NodeId> = (1..=size).filter_map(NodeId::new).collect();
        let all = members.iter().copied();
        let mut checkers = match settings.failure {
            Failure::Quorum => {
                let leases = Leases::new(settings.lease, surroundings.clocks.clone());
                let first = u32::try_from(WALL.as_secs()).ok().and_then(Epoch::new);
                Checkers::with_leases(locks, all, leases, first.expect("before 2093"))
            }
            Failure::PresumeFailed => Checkers::presuming(locks, all),
            Failure::Unanimity => Checkers::new(locks, all),
        };
        if surroundings.odd_file.is_some() {
            checkers.change_lock_delay();
        }
        let network = Network::new(surroundings.conditions, choices.fork());
        let mut hosts = Hosts::new(network, choices, trace);
        for node in &members {
            let clock = surroundings.clocks.get(node).copied();
            hosts.add(*node, clock.unwrap_or_default());
        }
        Self {
            listed: members.iter().copied().collect(),
            voters: members.iter().copied().take(MAX_VOTERS).collect(),
            named: None,
            lies: None,
            overheard: None,
            hosts,
            checkers,
            group: GroupId::of(&settings.group),
            settings,
            surroundings,
            turns: VecDeque::new(),
            tells_steps: false,
            transmissions: Transmissions::default(),
        }
    }

    /// Takes more than `limit` inputs of all nodes together for a breach of [`Rule::Restraint`].
    ///
    /// [`Rule::Restraint`]: super::checkers::Rule::Restraint
    pub const fn limit_steps(&mut self, limit: u64) {
        self.hosts.limit_steps(limit);
    }

    /// From now on the driver is told of each step of a node, after what that node tells.
    pub(super) const fn tell_steps(&mut self) {
        self.tells_steps = true;
    }

    /// Who votes on views, by the files that are read from now on; at first the first seven members.
    pub fn set_voters(&mut self, voters: BTreeSet<NodeId>) {
        self.voters = voters;
    }

    /// From now on the logs that decide on views, of members that start, lie.
    pub(super) fn set_lies(&mut self, lies: Lies) {
        self.lies = Some(lies);
        self.checkers.distrust_views();
    }

    /// How long leases are, by the files that are read from now on.
    pub fn set_lease(&mut self, lease: Duration) {
        self.settings.lease = lease;
        self.checkers.change_lease(lease);
    }

    /// How long leases are, by the files.
    pub const fn lease(&self) -> Duration {
        self.settings.lease
    }

    /// Whether the process in this member's place has read another file than the present one.
    pub fn has_old_file(&self, node: NodeId) -> bool {
        let present = (self.settings.lease, &self.listed, &self.voters);
        self.hosts.actor(node).is_some_and(|member| {
            let (lease, listed, voters) = &member.file;
            (*lease, listed, voters) != present
        })
    }

    /// Gives the member whose file differs the file of the others, which it reads when it starts again;
    /// which member that is.
    pub fn mend_file(&mut self) -> Option<NodeId> {
        self.surroundings.odd_file.take()
    }

    /// The members and the voters by the files that are read from now on. A host that is not among
    /// them has a file that lists it too.
    pub fn list(&mut self, members: BTreeSet<NodeId>, voters: BTreeSet<NodeId>) {
        if members != self.listed {
            self.checkers.change_list();
        }
        (self.listed, self.voters) = (members, voters);
    }

    /// The cluster that the files name that are read from now on.
    pub fn name_cluster(&mut self, cluster: Option<ClusterId>) {
        self.named = cluster;
    }

    /// The members by the files.
    pub const fn listed(&self) -> &BTreeSet<NodeId> {
        &self.listed
    }

    /// Puts `record` on this member's disk, in whose place no process may run.
    ///
    /// # Panics
    /// If one does.
    pub fn put_record(&mut self, node: NodeId, record: Record) {
        assert!(self.process(node).is_none(), "its process has it");
        *self.hosts.disk_mut(node) = Some(record);
    }

    /// From now on there may be another cluster than members remember.
    pub fn allow_other_cluster(&mut self) {
        self.checkers.allow_other_cluster();
    }

    /// Who votes on views, by the files.
    pub const fn voters(&self) -> &BTreeSet<NodeId> {
        &self.voters
    }

    /// All members.
    pub fn members(&self) -> impl Iterator<Item = NodeId> {
        self.hosts.nodes()
    }

    /// The process that runs in this member's place, if there is one.
    pub fn process(&self, node: NodeId) -> Option<Process> {
        self.hosts.process(node)
    }

    /// The node that runs in this member's place, if there is one.
    pub fn node(&self, node: NodeId) -> Option<&Node> {
        self.hosts.actor(node).map(|member| &member.node)
    }

    /// What is on this member's disk.
    pub fn disk(&self, node: NodeId) -> Option<&Record> {
        self.hosts.disk(node)
    }

    /// The quorum as the process that runs at that member sees it.
    pub fn quorum(&self, node: NodeId) -> Option<QuorumOverview> {
        let local = self.hosts.clock(node).shows(self.now());
        Some(self.node(node)?.quorum(local))
    }

    /// Whether this member's host stands still.
    pub fn is_paused(&self, node: NodeId) -> bool {
        self.hosts.is_paused(node)
    }

    /// The time.
    pub const fn now(&self) -> Time {
        self.hosts.now()
    }

    /// Inputs of all nodes so far.
    pub const fn steps(&self) -> u64 {
        self.hosts.steps()
    }

    /// What the network did.
    pub const fn network_stats(&self) -> NetworkStats {
        self.hosts.network.network_stats()
    }

    /// The network, to cut and heal it.
    pub const fn network(&mut self) -> &mut Network {
        &mut self.hosts.network
    }

    /// The judges.
    pub const fn checkers(&self) -> &Checkers {
        &self.checkers
    }

    /// What happened so far, as one number.
    pub const fn fingerprint(&self) -> u64 {
        self.hosts.trace.fingerprint()
    }

    /// What happened so far, if the trace keeps it.
    pub fn history(&self) -> &[Moment] {
        self.hosts.trace.history()
    }

    /// Writes `words` into the trace.
    pub fn say(&mut self, words: core::fmt::Arguments<'_>) {
        self.hosts.say(words);
    }

    /// Plans `act` for `delay` from now.
    pub fn plan(&mut self, delay: Duration, act: A) {
        self.hosts.plan(delay, act);
    }

    /// The same for what is done on this member's host, and not while that stands still.
    pub fn plan_at(&mut self, node: NodeId, delay: Duration, act: A) {
        self.hosts.plan_at(node, delay, act);
    }

    /// Gives `command` to the process in this member's place; whether there is one.
    ///
    /// # Errors
    /// A rule was broken.
    pub fn command(&mut self, node: NodeId, command: &Command) -> Result<bool, Violation> {
        let Some(process) = self.process(node) else {
            return Ok(false);
        };
        self.say(format_args!("{process} is told {command:?}"));
        self.record_command(node, command);
        self.checkers.commands(self.now(), process, command)?;
        self.input(process, Input::Command(command))?;
        Ok(true)
    }

    /// Has an operator ask a node for a change, and give up after as many leases as agents do.
    ///
    /// # Errors
    /// A rule was broken.
    pub fn change(&mut self, node: NodeId, change: Change) -> Result<bool, Violation> {
        let local = self.hosts.clock(node).shows(self.now());
        let until = local + self.lease() * 4;
        self.command(node, &Command::Change { change, until })
    }

    /// Goes on until there is something for the driver, or nothing is left to happen by `end`.
    ///
    /// # Errors
    /// A rule was broken.
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
                    process,
                    from,
                    message,
                } => self.arrive(process, from, &message)?,
                Happened::Alarm(process) => self.input(process, Input::Timeout)?,
                Happened::Written(process) => self.written(process)?,
            }
        }
    }
}

/// How many can vote.
const MAX_VOTERS: usize = 7;
/// The wall clock at the start, in seconds since 2025-01-01.
const WALL: Duration = Duration::from_secs(60_000_000);
