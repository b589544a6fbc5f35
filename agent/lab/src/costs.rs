//! What an entry costs: messages, response time and synchronisation delay.
//!
//! The conventions are those of the algorithms' [reference] table. T is the one-way delay; E the
//! time inside. *Light*: one request at a time, from every member equally often, or at random where
//! it matters who came before the last one. *Heavy*: a closed loop, each member asks again the
//! instant it leaves. *Burst*: all ask once, from rest. The response time is from the request to
//! the exit; the synchronisation delay from an exit to the next entry, where somebody waits. A
//! message is what an engine sends to another member's; acknowledgements and retries of the links
//! are not counted.
//!
//! [reference]: super::reference

mod bench;
mod world;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use bench::Bench;
use world::{Nodes, World};

use super::bare::Bare;
use super::checkers::Violation;
use super::choices::{Choices, Permille};
use super::history::Moment;
use super::network::{Conditions, Delay, Network, NetworkStats};
use super::trace::Trace;
use distlock_protocol::lock::{Algorithm, LockSpec};
use distlock_protocol::{NodeId, Time};

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

impl Load {
    /// All loads.
    pub const ALL: [Self; 3] = [Self::Light, Self::Heavy, Self::Burst];
}

/// How messages are delayed; T is the mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Always T.
    Constant,
    /// Exponentially distributed. Messages from one member to another stay in order.
    Exponential,
}

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// The engines alone, with links that lose nothing.
    Engines,
    /// Whole nodes, with links, views and leases around the engines. They survive loss and crashes.
    Nodes {
        /// Whether the views are those of a majority, or never without anybody.
        quorum: bool,
    },
}

/// The end of one member, without a word.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Crash {
    /// Which.
    pub node: NodeId,
    /// When.
    pub when: When,
}

/// When a member crashes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// That many T after the measurement began.
    After(f64),
    /// In the middle of its first stay inside after the measurement began.
    Inside,
}

/// A run, before it begins.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What serves the lock.
    pub algorithm: Algorithm,
    /// How many members.
    pub members: u16,
    /// Who asks when.
    pub load: Load,
    /// What is run.
    pub body: Body,
    /// How messages are delayed.
    pub spread: Spread,
    /// How many of a thousand datagrams never arrive; only nodes bear it.
    pub loss: Permille,
    /// Who crashes; only nodes under the views of a majority bear it.
    pub crashes: Vec<Crash>,
    /// How long a caller stays inside, in T.
    pub inside: f64,
    /// How many entries are measured; `None`: as many as make the means exact, or 1,000 under light
    /// load where those would be too many. A burst has as many as there are members.
    pub entries: Option<u64>,
    /// What chance follows from.
    pub seed: u64,
    /// Whether its history is kept.
    pub keeps_history: bool,
}

impl Setup {
    /// What the reference table is about.
    pub const fn new(algorithm: Algorithm, members: u16, load: Load, body: Body) -> Self {
        Self {
            algorithm,
            members,
            load,
            body,
            spread: Spread::Constant,
            loss: 0,
            crashes: Vec::new(),
            inside: INSIDE as f64,
            entries: None,
            seed: 0,
            keeps_history: false,
        }
    }

    /// The one-way delay, T.
    const fn unit(&self) -> Duration {
        match self.body {
            Body::Engines if matches!(self.algorithm, Algorithm::Singhal | Algorithm::Voting) => {
                SHORT_DELAY
            }
            Body::Engines => BARE_DELAY,
            Body::Nodes { .. } => NODE_DELAY,
        }
    }

    fn conditions(&self) -> Conditions {
        let unit = self.unit();
        Conditions {
            delay: match self.spread {
                Spread::Constant => Delay::Constant(unit),
                Spread::Exponential => Delay::Exponential(unit),
            },
            loss: self.loss,
            ..Conditions::perfect(unit)
        }
    }

    fn trace(&self) -> Trace {
        let trace = Trace::new(None);
        if self.keeps_history {
            trace.with_history()
        } else {
            trace
        }
    }
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Run {
    /// What was measured.
    pub costs: Costs,
    /// What happened, if that was to be kept: also before the measurement began.
    pub history: Vec<Moment>,
    /// When it began.
    pub since: Time,
    /// What the network did.
    pub network_stats: NetworkStats,
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
    /// Grants that were lost before their holder left: it crashed, or was taken for dead.
    pub lost: u64,
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

/// The same where who waits acts by itself: short beside the 200 ms after which it asks everybody
/// by Singhal's algorithm, which the table does not know either, and beside the pauses of voting.
const SHORT_DELAY: Duration = Duration::from_millis(20);

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

/// The largest group of which all pairs are gone through, and that many rounds.
const LARGEST: usize = 64;

/// How many entries a mean over random callers is taken over, where nobody says how many.
const DRAWN: u64 = 1000;

/// How many entries the mean under light load is taken over, at least, of a perpetual ring and
/// where it matters who came before the last one.
const SAMPLES: u64 = 4000;

/// Measures bare engines of `algorithm` in `size` members.
///
/// # Errors
/// The rule that the engines broke.
pub fn measure_bare(algorithm: Algorithm, size: u16, load: Load) -> Result<Costs, Violation> {
    let setup = Setup::new(algorithm, size, load, Body::Engines);
    measure(&setup).map(|run| run.costs)
}

/// Measures whole nodes whose lock is served by `algorithm`, in `size` members: the messages are
/// those that the nodes count themselves. A perpetual ring under light load is for bare engines.
///
/// # Errors
/// The rule that the nodes broke.
pub fn measure_nodes(algorithm: Algorithm, size: u16, load: Load) -> Result<Costs, Violation> {
    let setup = Setup::new(algorithm, size, load, Body::Nodes { quorum: false });
    measure(&setup).map(|run| run.costs)
}

/// Runs what `setup` says.
///
/// # Errors
/// The rule that the engines or the nodes broke.
///
/// # Panics
/// If somebody shall crash who has no node around its engine.
pub fn measure(setup: &Setup) -> Result<Run, Violation> {
    match setup.body {
        Body::Engines => {
            let spec = LockSpec::exclusive(setup.algorithm);
            let network = Network::new(setup.conditions(), Choices::new(setup.seed));
            let bare = Bare::new(spec, setup.members, network, setup.trace())?;
            measure_in(bare, setup)
        }
        Body::Nodes { quorum } => measure_in(Nodes::new(setup, quorum)?, setup),
    }
}

fn measure_in(world: impl World, setup: &Setup) -> Result<Run, Violation> {
    let members = world.members();
    let size = members.len() as u64;
    let small = members.len() <= LARGEST;
    let by_history = matches!(
        setup.algorithm,
        Algorithm::CarvalhoRoucairol | Algorithm::Singhal
    );
    let mut choices = Choices::new(setup.seed.wrapping_add(1));
    let mut bench = Bench::new(world, setup);
    match setup.load {
        Load::Light if setup.algorithm == Algorithm::TokenRing => {
            let cycle: Vec<NodeId> = light_cycle(members.len()).map(|i| members[i]).collect();
            let entries = setup.entries.unwrap_or(SAMPLES);
            let whole = entries.next_multiple_of(cycle.len() as u64);
            let entries = setup.entries.unwrap_or(whole) as usize;
            bench.reset();
            let turns = cycle.into_iter().cycle().take(entries);
            bench.light_on_a_perpetual_ring(turns, &mut choices)?;
        }
        // What an entry costs depends on all that have entered since one's last time.
        Load::Light if setup.entries.is_none() && by_history => {
            let mut drawn = core::iter::repeat_with(|| members[choices.index(members.len())]);
            bench.in_turns(drawn.by_ref().take(10 * members.len()))?;
            bench.reset();
            bench.in_turns(drawn.take(SAMPLES as usize))?;
        }
        Load::Light if setup.entries.is_none() && small => {
            // The first cycle brings the engines where a cycle ends.
            let cycle: Vec<NodeId> = light_cycle(members.len()).map(|i| members[i]).collect();
            bench.in_turns(cycle.iter().copied())?;
            bench.reset();
            bench.in_turns(cycle.into_iter())?;
        }
        Load::Light => {
            let entries = setup.entries.unwrap_or(DRAWN);
            bench.reset();
            bench.in_turns((0..entries).map(|_| members[choices.index(members.len())]))?;
        }
        Load::Heavy => {
            let rounds = if small { ROUNDS } else { 1 };
            bench.everybody(&members);
            bench.until(rounds * size)?;
            bench.reset();
            bench.until(setup.entries.unwrap_or(rounds * size))?;
        }
        Load::Burst => {
            bench.reset();
            bench.everybody(&members);
            bench.until_nobody_wants()?;
            bench.pause(setup.unit() * 2)?;
        }
    }
    Ok(bench.finish())
}
