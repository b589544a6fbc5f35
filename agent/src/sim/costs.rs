//! What an entry costs: messages, response time and synchronisation delay.
//!
//! The conventions are those of the algorithms' reference table. T is the one-way delay, constant;
//! E the time inside. *Light*: one request at a time, from every member equally often. *Heavy*: a
//! closed loop, each member asks again the instant it leaves. *Burst*: all ask once, from rest.
//! The response time is from the request to the exit; the synchronisation delay from an exit to
//! the next entry, where somebody waits. A message is what an engine sends to another member's;
//! acknowledgements and retries of the links are not counted.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::time::Duration;

use super::bare::{self, Bare};
use super::checkers::{Violation, violation};
use super::cluster::{self, Cluster, Surroundings};
use super::network::{Conditions, Network};
use super::rng::Rng;
use super::trace::Trace;
use crate::protocol::lock::{Algorithm, LockSpec};
use crate::protocol::{
    Command, ElectionAlgorithm, Event, Failure, Incarnation, LockName, Mode, NodeId, Release,
    RequestId, Settings, Ticket, Time, Wait,
};

/// Who asks when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// One request at a time.
    Light,
    /// Everybody, again and again.
    Heavy,
    /// Everybody, once.
    Burst,
}

/// What some entries cost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// The one-way delay, T.
    pub unit: Duration,
    /// How many entries.
    pub entries: u64,
    /// Their messages, by kind.
    pub messages: BTreeMap<&'static str, u64>,
    /// From request to exit.
    pub response: Times,
    /// From an exit to the next entry, where somebody waited.
    pub sync: Times,
    /// How long all of it took.
    pub elapsed: Duration,
}

impl Costs {
    /// Messages of all kinds.
    pub fn total(&self) -> u64 {
        self.messages.values().sum()
    }

    /// Messages an entry, in the mean.
    pub fn per_entry(&self) -> f64 {
        self.total() as f64 / self.entries as f64
    }
}

/// Durations of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// How many.
    pub count: u32,
    /// All together.
    pub sum: Duration,
    /// The longest.
    pub longest: Duration,
}

impl Times {
    /// The mean in units of `unit`; not a number if there were none.
    pub fn mean_in(&self, unit: Duration) -> f64 {
        self.sum.as_secs_f64() / unit.as_secs_f64() / f64::from(self.count)
    }

    fn add(&mut self, time: Duration) {
        self.count += 1;
        self.sum += time;
        self.longest = self.longest.max(time);
    }
}

/// How many one-way delays a caller stays inside: long enough for a request of the bakery, the
/// slowest, to be in its queue before the next exit even in a group of two. That is what the
/// table's heavy load means.
pub const INSIDE: u32 = 6;

/// The one-way delay between bare engines: long beside the 20 ms at most that an idle token rests
/// at each member, which the table does not know.
const BARE_DELAY: Duration = Duration::from_secs(10);

/// The one-way delay between nodes: short beside the time after which a link repeats itself.
const NODE_DELAY: Duration = Duration::from_millis(5);

/// Which member asks when, under light load: every ordered pair of members follows each other
/// exactly once (a de Bruijn cycle), so that means over "the last one" and "this one" are exact.
/// The cycle ends with the last member.
pub fn light_cycle(size: usize) -> impl Iterator<Item = usize> {
    (0..size).flat_map(move |first| {
        core::iter::once(first).chain((first + 1..size).flat_map(move |next| [first, next]))
    })
}

/// How many rounds of all members a heavy load is measured for, after as many to warm up.
pub const ROUNDS: u64 = 10;

/// How many entries the mean of a perpetual ring under light load is taken over, at least.
const SAMPLES: usize = 4000;

/// Measures bare engines of `algorithm` in `size` members.
///
/// # Errors
/// The rule that the engines broke.
pub fn measure_bare(algorithm: Algorithm, size: u16, load: Load) -> Result<Costs, Violation> {
    let network = Network::new(Conditions::perfect(BARE_DELAY), Rng::new(0));
    let bare = Bare::new(
        LockSpec::exclusive(algorithm),
        size,
        network,
        Trace::new(None),
    )?;
    measure(bare, algorithm, load)
}

/// Measures whole nodes whose lock is served by `algorithm`, in `size` members: the messages are
/// those that the nodes count themselves. A perpetual ring under light load is for bare engines.
///
/// # Errors
/// The rule that the nodes broke.
pub fn measure_nodes(algorithm: Algorithm, size: u16, load: Load) -> Result<Costs, Violation> {
    measure(Nodes::new(algorithm, size)?, algorithm, load)
}

fn measure(world: impl World, algorithm: Algorithm, load: Load) -> Result<Costs, Violation> {
    let members = world.members();
    let size = members.len() as u64;
    let cycle: Vec<NodeId> = light_cycle(members.len()).map(|i| members[i]).collect();
    let mut bench = Bench::new(world, load == Load::Heavy);
    match load {
        Load::Light if algorithm == Algorithm::TokenRing => {
            bench.reset();
            bench.light_on_a_perpetual_ring(&cycle)?;
        }
        Load::Light => {
            // The first cycle brings the engines where a cycle ends.
            bench.in_turns(&cycle)?;
            bench.reset();
            bench.in_turns(&cycle)?;
        }
        Load::Heavy => {
            bench.everybody(&members);
            bench.until(ROUNDS * size)?;
            bench.reset();
            bench.until(ROUNDS * size)?;
        }
        Load::Burst => {
            bench.reset();
            bench.everybody(&members);
            bench.until(size)?;
            bench.pause(bench.world.delay() * 2)?;
        }
    }
    Ok(bench.finish())
}

/// A request: its member, and its number there.
type Key = (NodeId, u64);

/// What is planned for callers.
#[derive(Clone, Copy, Debug)]
enum Act {
    Want(NodeId),
    Exit(Key),
    Nothing,
}

/// What happens.
enum Step {
    Entered(Key),
    Act(Act),
}

/// What is measured: engines, with or without nodes around them.
trait World {
    /// The one-way delay.
    fn delay(&self) -> Duration;
    fn members(&self) -> Vec<NodeId>;
    fn now(&self) -> Time;
    fn plan(&mut self, delay: Duration, act: Act);
    fn ask(&mut self, node: NodeId) -> Result<Key, Violation>;
    fn release(&mut self, key: Key) -> Result<(), Violation>;
    /// Whether somebody waits.
    fn is_contended(&self) -> bool;
    fn next(&mut self, end: Time) -> Result<Option<Step>, Violation>;
    /// Messages sent since the start, by kind.
    fn counts(&self) -> BTreeMap<&'static str, u64>;
}

impl World for Bare<Act> {
    fn delay(&self) -> Duration {
        BARE_DELAY
    }

    fn members(&self) -> Vec<NodeId> {
        self.members().to_vec()
    }

    fn now(&self) -> Time {
        self.now()
    }

    fn plan(&mut self, delay: Duration, act: Act) {
        self.plan(delay, act);
    }

    fn ask(&mut self, node: NodeId) -> Result<Key, Violation> {
        self.ask(node, Mode::Exclusive, false)
            .map(|id| (node, id.seq))
    }

    fn release(&mut self, (node, seq): Key) -> Result<(), Violation> {
        let incarnation = Incarnation(1);
        let id = RequestId {
            node,
            incarnation,
            seq,
        };
        self.release(id, Release::Given)
    }

    fn is_contended(&self) -> bool {
        self.waiting() > 0
    }

    fn next(&mut self, end: Time) -> Result<Option<Step>, Violation> {
        loop {
            match self.next(end)? {
                Some(bare::Turn::Granted(id)) => return Ok(Some(Step::Entered((id.node, id.seq)))),
                Some(bare::Turn::Act(act)) => return Ok(Some(Step::Act(act))),
                Some(bare::Turn::Busy(_)) => {}
                None => return Ok(None),
            }
        }
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.counts().clone()
    }
}

/// Whole nodes, with a view in force.
struct Nodes {
    cluster: Cluster<Act>,
    lock: LockName,
    tickets: u64,
}

impl Nodes {
    fn new(algorithm: Algorithm, size: u16) -> Result<Self, Violation> {
        let lock = LockName::new("printer").expect("a good name");
        let settings = Settings {
            group: String::from("costs"),
            lease: Duration::from_secs(5),
            failure: Failure::Unanimity,
            lock_delay: Duration::ZERO,
            election: ElectionAlgorithm::Bully,
            algorithm,
            locks: BTreeMap::new(),
        };
        let locks = BTreeMap::from([(lock.clone(), NonZeroU32::MIN)]);
        let surroundings = Surroundings::perfect(NODE_DELAY);
        let (rng, trace) = (Rng::new(0), Trace::new(None));
        let mut cluster = Cluster::new(size, settings, surroundings, locks, rng, trace);
        for node in cluster.members().collect::<Vec<_>>() {
            cluster.start(node)?;
        }
        // Long enough for greetings and a view.
        let end = cluster.now() + Duration::from_secs(1);
        while cluster.next(end)?.is_some() {}
        let tickets = 0;
        Ok(Self {
            cluster,
            lock,
            tickets,
        })
    }
}

impl World for Nodes {
    fn delay(&self) -> Duration {
        NODE_DELAY
    }

    fn members(&self) -> Vec<NodeId> {
        self.cluster.members().collect()
    }

    fn now(&self) -> Time {
        self.cluster.now()
    }

    fn plan(&mut self, delay: Duration, act: Act) {
        self.cluster.plan(delay, act);
    }

    fn ask(&mut self, node: NodeId) -> Result<Key, Violation> {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let (lock, wait) = (self.lock.clone(), Wait::Cancelled);
        let acquire = Command::Acquire {
            ticket,
            lock,
            spec: None,
            mode: Mode::Exclusive,
            wait,
        };
        self.cluster.command(node, &acquire)?;
        Ok((node, ticket.0))
    }

    fn release(&mut self, (node, ticket): Key) -> Result<(), Violation> {
        let ticket = Ticket(ticket);
        self.cluster.command(
            node,
            &Command::Release {
                ticket,
                how: Release::Given,
            },
        )?;
        Ok(())
    }

    fn is_contended(&self) -> bool {
        self.cluster.checkers().waiting() > 0
    }

    fn next(&mut self, end: Time) -> Result<Option<Step>, Violation> {
        loop {
            match self.cluster.next(end)? {
                Some(cluster::Turn::Told(process, Event::Granted { ticket, .. })) => {
                    return Ok(Some(Step::Entered((process.node, ticket.0))));
                }
                Some(cluster::Turn::Told(..)) => {}
                Some(cluster::Turn::Act(act)) => return Ok(Some(Step::Act(act))),
                None => return Ok(None),
            }
        }
    }

    fn counts(&self) -> BTreeMap<&'static str, u64> {
        let mut sum = BTreeMap::new();
        for node in self
            .cluster
            .members()
            .filter_map(|node| self.cluster.node(node))
        {
            for ((_, kind), count) in &node.counters().engine_messages {
                *sum.entry(*kind).or_default() += count;
            }
        }
        sum
    }
}

struct Bench<W> {
    world: W,
    closed_loop: bool,
    asked: BTreeMap<Key, Time>,
    /// The last exit that somebody waited for.
    exit: Option<Time>,
    /// Since when it is measured, and what had been sent by then.
    since: (Time, BTreeMap<&'static str, u64>),
    costs: Costs,
}

impl<W: World> Bench<W> {
    fn new(world: W, closed_loop: bool) -> Self {
        Self {
            costs: Costs {
                unit: world.delay(),
                ..Costs::default()
            },
            world,
            closed_loop,
            asked: BTreeMap::new(),
            exit: None,
            since: (Time::ZERO, BTreeMap::new()),
        }
    }

    /// From now on it is measured; requests that wait go on.
    fn reset(&mut self) {
        self.since = (self.world.now(), self.world.counts());
        self.costs = Costs {
            unit: self.world.delay(),
            ..Costs::default()
        };
    }

    fn finish(mut self) -> Costs {
        let (since, before) = self.since;
        self.costs.elapsed = self.world.now().since(since);
        let counts = self.world.counts().into_iter();
        let sent = counts.map(|(kind, n)| (kind, n - before.get(kind).copied().unwrap_or(0)));
        self.costs.messages = sent.filter(|(_, count)| *count > 0).collect();
        self.costs
    }

    fn everybody(&mut self, members: &[NodeId]) {
        for node in members {
            self.world.plan(Duration::ZERO, Act::Want(*node));
        }
    }

    /// One after the other, each when all is quiet again.
    fn in_turns(&mut self, turns: &[NodeId]) -> Result<(), Violation> {
        let quiet = self.world.delay() * 4 * self.world.members().len() as u32;
        for node in turns {
            self.world.plan(Duration::ZERO, Act::Want(*node));
            self.until(self.costs.entries + 1)?;
            self.pause(quiet)?;
        }
        Ok(())
    }

    /// Each time after a pause of random length, so that the token is met at every place.
    fn light_on_a_perpetual_ring(&mut self, cycle: &[NodeId]) -> Result<(), Violation> {
        let round = self.world.delay() * self.world.members().len() as u32;
        let mut rng = Rng::new(1);
        for node in cycle
            .iter()
            .cycle()
            .take(SAMPLES.next_multiple_of(cycle.len()))
        {
            self.pause(rng.duration(round * 2..=round * 3))?;
            self.world.plan(Duration::ZERO, Act::Want(*node));
            self.until(self.costs.entries + 1)?;
        }
        Ok(())
    }

    fn pause(&mut self, pause: Duration) -> Result<(), Violation> {
        self.world.plan(pause, Act::Nothing);
        while !matches!(self.next()?, Step::Act(Act::Nothing)) {}
        Ok(())
    }

    /// Goes on until that many have left.
    fn until(&mut self, entries: u64) -> Result<(), Violation> {
        while self.costs.entries < entries {
            match self.next()? {
                Step::Entered(key) => {
                    if let Some(exit) = self.exit.take() {
                        self.costs.sync.add(self.world.now().since(exit));
                    }
                    self.world.plan(self.world.delay() * INSIDE, Act::Exit(key));
                }
                Step::Act(Act::Want(node)) => self.ask(node)?,
                Step::Act(Act::Exit(key)) => self.leave(key)?,
                Step::Act(Act::Nothing) => {}
            }
        }
        Ok(())
    }

    fn ask(&mut self, node: NodeId) -> Result<(), Violation> {
        let key = self.world.ask(node)?;
        self.asked.insert(key, self.world.now());
        Ok(())
    }

    fn leave(&mut self, key: Key) -> Result<(), Violation> {
        let now = self.world.now();
        self.costs.entries += 1;
        if let Some(asked) = self.asked.remove(&key) {
            self.costs.response.add(now.since(asked));
        }
        self.exit = self.world.is_contended().then_some(now);
        self.world.release(key)?;
        if self.closed_loop {
            self.ask(key.0)
        } else {
            Ok(())
        }
    }

    fn next(&mut self) -> Result<Step, Violation> {
        let patience = self.world.delay() * 100 * self.world.members().len() as u32;
        let end = self.world.now() + patience;
        let step = self.world.next(end)?;
        step.ok_or_else(|| violation!(end, Progress, "nobody enters any more"))
    }
}
