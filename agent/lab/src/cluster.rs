//! Whole nodes: processes with clocks and disks of their own, and the network between them.
//!
//! A process is a production [`Node`] and the record on its member's disk. It starts with what the
//! disk holds, and a crash takes everything else: a record that was being written is kept or lost,
//! as chance has it. A host can stand still: then nothing happens there but that its clock goes on,
//! and all that comes waits. Clocks start anywhere and run at their own rates. Time passes from one
//! happening to the next; a node is told the time of its own clock and nothing more.
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
use super::network::{Conditions, Network, NetworkStats};
use super::queue::Queue;
use super::trace::Trace;
use distlock_protocol::wire::GroupId;
use distlock_protocol::{
    ClusterId, Command, Epoch, Event, Failure, Input, LockName, Node, NodeId, QuorumOverview,
    Record, Settings, Time,
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
    seats: BTreeMap<NodeId, Seat<A>>,
    network: Network,
    choices: Choices,
    now: Time,
    queue: Queue<Happening<A>>,
    turns: VecDeque<Turn<A>>,
    checkers: Checkers,
    trace: Trace,
    transmissions: Transmissions,
    steps: u64,
    step_limit: u64,
}

/// What the driver is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn<A> {
    /// A node tells its callers something.
    Told(Process, Event),
    /// What the driver planned for this time.
    Act(A),
}

#[derive(Debug)]
enum Happening<A> {
    Arrival {
        from: NodeId,
        to: NodeId,
        bytes: Vec<u8>,
        /// The engines' messages in it, if the history is kept.
        messages: Range<u64>,
    },
    Alarm {
        process: Process,
        at: Time,
    },
    Written {
        process: Process,
    },
    Act {
        /// On whose host it is done, if on one.
        at: Option<NodeId>,
        act: A,
    },
}

impl<A> Happening<A> {
    /// On whose host it happens.
    fn place(&self) -> Option<NodeId> {
        match self {
            Self::Arrival { to, .. } => Some(*to),
            Self::Alarm { process, .. } | Self::Written { process } => Some(process.node),
            Self::Act { at, .. } => *at,
        }
    }
}

/// A member: its host's clock and disk, and the process that runs there, if any.
#[derive(Debug)]
struct Seat<A> {
    clock: Clock,
    disk: Option<Record>,
    incarnation: u32,
    running: Option<Running>,
    /// While the host stands still: what waits until it goes on.
    paused: Option<Vec<Happening<A>>>,
}

#[derive(Debug)]
struct Running {
    node: Node,
    /// The lease, the members and the voters of the file that it has read.
    file: (Duration, BTreeSet<NodeId>, BTreeSet<NodeId>),
    /// When the node is to be woken, in the simulation's time.
    alarm: Option<Time>,
    /// What is on its way to the disk.
    writing: Option<Record>,
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
        let seat = |node| Seat {
            clock: surroundings.clocks.get(node).copied().unwrap_or_default(),
            disk: None,
            incarnation: 0,
            running: None,
            paused: None,
        };
        let all = members.iter().copied();
        let checkers = match settings.failure {
            Failure::Quorum => {
                let leases = Leases::new(settings.lease, surroundings.clocks.clone());
                let first = u32::try_from(WALL.as_secs()).ok().and_then(Epoch::new);
                Checkers::with_leases(locks, all, leases, first.expect("before 2093"))
            }
            Failure::PresumeFailed => Checkers::presuming(locks, all),
            Failure::Unanimity => Checkers::new(locks, all),
        };
        Self {
            listed: members.iter().copied().collect(),
            voters: members.iter().copied().take(MAX_VOTERS).collect(),
            named: None,
            lies: None,
            overheard: None,
            seats: members.iter().map(|node| (*node, seat(node))).collect(),
            network: Network::new(surroundings.conditions, choices.fork()),
            checkers,
            choices,
            group: GroupId::of(&settings.group),
            settings,
            surroundings,
            now: Time::ZERO,
            queue: Queue::new(),
            turns: VecDeque::new(),
            trace,
            transmissions: Transmissions::default(),
            steps: 0,
            step_limit: u64::MAX,
        }
    }

    /// Takes more than `limit` inputs of all nodes together for a breach of [`Rule::Restraint`].
    ///
    /// [`Rule::Restraint`]: super::checkers::Rule::Restraint
    pub const fn limit_steps(&mut self, limit: u64) {
        self.step_limit = limit;
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
        let running = self.seats[&node].running.as_ref();
        let present = (self.settings.lease, &self.listed, &self.voters);
        running.is_some_and(|running| {
            let (lease, listed, voters) = &running.file;
            (*lease, listed, voters) != present
        })
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
        let seat = self.seats.get_mut(&node).expect("it was a member");
        seat.disk = Some(record);
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
        self.seats.keys().copied()
    }

    /// The process that runs in this member's place, if there is one.
    pub fn process(&self, node: NodeId) -> Option<Process> {
        let seat = &self.seats[&node];
        seat.running.as_ref().map(|_| Process {
            node,
            incarnation: seat.incarnation,
        })
    }

    /// The node that runs in this member's place, if there is one.
    pub fn node(&self, node: NodeId) -> Option<&Node> {
        self.seats[&node]
            .running
            .as_ref()
            .map(|running| &running.node)
    }

    /// What is on this member's disk.
    pub fn disk(&self, node: NodeId) -> Option<&Record> {
        self.seats[&node].disk.as_ref()
    }

    /// The quorum as the process that runs at that member sees it.
    pub fn quorum(&self, node: NodeId) -> Option<QuorumOverview> {
        let seat = &self.seats[&node];
        let running = seat.running.as_ref()?;
        Some(running.node.quorum(seat.clock.shows(self.now)))
    }

    /// Whether this member's host stands still.
    pub fn is_paused(&self, node: NodeId) -> bool {
        self.seats[&node].paused.is_some()
    }

    /// The time.
    pub const fn now(&self) -> Time {
        self.now
    }

    /// Inputs of all nodes so far.
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// What the network did.
    pub const fn network_stats(&self) -> NetworkStats {
        self.network.network_stats()
    }

    /// The network, to cut and heal it.
    pub const fn network(&mut self) -> &mut Network {
        &mut self.network
    }

    /// The judges.
    pub const fn checkers(&self) -> &Checkers {
        &self.checkers
    }

    /// What happened so far, as one number.
    pub const fn fingerprint(&self) -> u64 {
        self.trace.fingerprint()
    }

    /// What happened so far, if the trace keeps it.
    pub fn history(&self) -> &[Moment] {
        self.trace.history()
    }

    /// Writes `words` into the trace.
    pub fn say(&mut self, words: core::fmt::Arguments<'_>) {
        self.trace.say(self.now, words);
    }

    /// Plans `act` for `delay` from now.
    pub fn plan(&mut self, delay: Duration, act: A) {
        let happening = Happening::Act { at: None, act };
        self.queue.plan(self.now + delay, happening);
    }

    /// The same for what is done on this member's host, and not while that stands still.
    pub fn plan_at(&mut self, node: NodeId, delay: Duration, act: A) {
        let at = Some(node);
        self.queue
            .plan(self.now + delay, Happening::Act { at, act });
    }

    /// Gives `command` to the process in this member's place; whether there is one.
    ///
    /// # Errors
    /// A rule was broken.
    pub fn command(&mut self, node: NodeId, command: &Command) -> Result<bool, Violation> {
        let Some(process) = self.process(node) else {
            return Ok(false);
        };
        self.trace
            .say(self.now, format_args!("{process} is told {command:?}"));
        self.record_command(node, command);
        self.checkers.commands(self.now, process, command)?;
        self.input(process, Input::Command(command))?;
        Ok(true)
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
            let Some((at, happening)) = self.queue.pop_by(end) else {
                self.now = self.now.max(end);
                return Ok(None);
            };
            self.now = at;
            if let Some(node) = happening.place()
                && let Some(paused) = &mut self.seats.get_mut(&node).expect("a member").paused
            {
                paused.push(happening);
                continue;
            }
            match happening {
                Happening::Act { act, .. } => return Ok(Some(Turn::Act(act))),
                Happening::Arrival {
                    from,
                    to,
                    bytes,
                    messages,
                } => self.arrive(from, to, &bytes, messages)?,
                Happening::Alarm { process, at } => self.ring(process, at)?,
                Happening::Written { process } => self.written(process)?,
            }
        }
    }

    fn running(&mut self, process: Process) -> Option<(&mut Running, Clock)> {
        let seat = self.seats.get_mut(&process.node)?;
        let running = seat
            .running
            .as_mut()
            .filter(|_| seat.incarnation == process.incarnation)?;
        Some((running, seat.clock))
    }
}

/// How many can vote.
const MAX_VOTERS: usize = 7;
/// The wall clock at the start, in seconds since 2025-01-01.
const WALL: Duration = Duration::from_secs(60_000_000);
