//! What an entry costs: messages, response time and synchronisation delay.
//!
//! The conventions are those of the algorithms' reference table. T is the one-way delay, constant;
//! E the time inside. *Light*: one request at a time, from every member equally often. *Heavy*: a
//! closed loop, each member asks again the instant it leaves. *Burst*: all ask once, from rest.
//! The response time is from the request to the exit; the synchronisation delay from an exit to
//! the next entry, where somebody waits. A message is what an engine sends to another member's;
//! acknowledgements and retries of the links are not counted.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use super::bare::{Bare, Turn};
use super::checkers::{Violation, violation};
use super::network::{Conditions, Network};
use super::rng::Rng;
use crate::protocol::lock::{Algorithm, LockSpec};
use crate::protocol::{NodeId, RequestId, Time};

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
    /// The mean, in units of `unit`; not a number if there were none.
    pub fn mean(&self, unit: Duration) -> f64 {
        self.sum.as_secs_f64() / unit.as_secs_f64() / f64::from(self.count)
    }

    fn add(&mut self, time: Duration) {
        self.count += 1;
        self.sum += time;
        self.longest = self.longest.max(time);
    }
}

/// Takes the times of entries.
#[derive(Debug, Default)]
pub(super) struct Meter {
    asked: BTreeMap<u64, Time>,
    exit: Option<Time>,
    since: Time,
    costs: Costs,
}

impl Meter {
    /// A caller asks; `key` is its name for the request.
    pub(super) fn asks(&mut self, key: u64, now: Time) {
        self.asked.insert(key, now);
    }

    /// It enters.
    pub(super) fn enters(&mut self, now: Time) {
        if let Some(exit) = self.exit.take() {
            self.costs.sync.add(now.since(exit));
        }
    }

    /// It leaves; `contended`: somebody waits.
    pub(super) fn leaves(&mut self, key: u64, now: Time, contended: bool) {
        self.costs.entries += 1;
        if let Some(asked) = self.asked.remove(&key) {
            self.costs.response.add(now.since(asked));
        }
        self.exit = contended.then_some(now);
    }

    pub(super) const fn entries(&self) -> u64 {
        self.costs.entries
    }

    /// Forgets what was measured; requests that wait go on.
    pub(super) fn reset(&mut self, now: Time) {
        self.costs = Costs::default();
        self.since = now;
    }

    pub(super) fn finish(self, now: Time, messages: BTreeMap<&'static str, u64>) -> Costs {
        Costs {
            messages,
            elapsed: now.since(self.since),
            ..self.costs
        }
    }
}

/// The one-way delay of bare engines. Long beside the 20 ms at most that an idle token rests at
/// each member, which the table's T does not know.
pub const T: Duration = Duration::from_secs(10);
/// The time inside: long enough for a request of the bakery, the slowest, to be in its queue before
/// the next exit even in a group of two. That is what the table's heavy load means.
pub const E: Duration = Duration::from_secs(60);

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
    let network = Network::new(Conditions::perfect(T), Rng::new(0));
    let bare = Bare::new(LockSpec::exclusive(algorithm), size, network)?;
    let mut bench = Bench {
        bare,
        meter: Meter::default(),
        closed_loop: load == Load::Heavy,
    };
    let members = bench.bare.members().to_vec();
    match load {
        Load::Light if algorithm == Algorithm::TokenRing => bench.light_on_a_perpetual_ring()?,
        Load::Light => {
            // The first cycle brings the engines where a cycle ends.
            bench.in_turns(
                &light_cycle(members.len())
                    .map(|i| members[i])
                    .collect::<Vec<_>>(),
            )?;
            bench.reset();
            bench.in_turns(
                &light_cycle(members.len())
                    .map(|i| members[i])
                    .collect::<Vec<_>>(),
            )?;
        }
        Load::Heavy => {
            bench.everybody(&members);
            bench.until(ROUNDS * u64::from(size))?;
            bench.reset();
            bench.until(ROUNDS * u64::from(size))?;
        }
        Load::Burst => {
            bench.everybody(&members);
            bench.until(u64::from(size))?;
            bench.pause(T * 2)?;
        }
    }
    Ok(bench
        .meter
        .finish(bench.bare.now(), bench.bare.counts().clone()))
}

/// What is planned for a bare engine's callers.
#[derive(Clone, Copy, Debug)]
enum Act {
    Want(NodeId),
    Exit(RequestId),
    Nothing,
}

struct Bench {
    bare: Bare<Act>,
    meter: Meter,
    closed_loop: bool,
}

impl Bench {
    fn reset(&mut self) {
        self.bare.reset_counts();
        self.meter.reset(self.bare.now());
    }

    fn everybody(&mut self, members: &[NodeId]) {
        for node in members {
            self.bare.plan(Duration::ZERO, Act::Want(*node));
        }
    }

    /// One after the other, each when all is quiet again.
    fn in_turns(&mut self, turns: &[NodeId]) -> Result<(), Violation> {
        let quiet = T * 4 * self.bare.members().len() as u32;
        for node in turns {
            self.bare.plan(Duration::ZERO, Act::Want(*node));
            self.until(self.meter.entries() + 1)?;
            self.pause(quiet)?;
        }
        Ok(())
    }

    /// Each time after a pause of random length, so that the token is met at every place.
    fn light_on_a_perpetual_ring(&mut self) -> Result<(), Violation> {
        let members = self.bare.members().to_vec();
        let round = T * members.len() as u32;
        let mut rng = Rng::new(1);
        let cycle = light_cycle(members.len())
            .map(|i| members[i])
            .collect::<Vec<_>>();
        for node in cycle
            .iter()
            .cycle()
            .take(cycle.len() * SAMPLES.div_ceil(cycle.len()))
        {
            self.pause(rng.duration(round * 2..=round * 3))?;
            self.bare.plan(Duration::ZERO, Act::Want(*node));
            self.until(self.meter.entries() + 1)?;
        }
        Ok(())
    }

    fn pause(&mut self, pause: Duration) -> Result<(), Violation> {
        self.bare.plan(pause, Act::Nothing);
        while !matches!(self.next()?, Turn::Act(Act::Nothing)) {}
        Ok(())
    }

    /// Goes on until that many have left.
    fn until(&mut self, entries: u64) -> Result<(), Violation> {
        while self.meter.entries() < entries {
            match self.next()? {
                Turn::Granted(id) => {
                    self.meter.enters(self.bare.now());
                    self.bare.plan(E, Act::Exit(id));
                }
                Turn::Act(Act::Want(node)) => self.ask(node)?,
                Turn::Act(Act::Exit(id)) => {
                    self.meter
                        .leaves(key(id), self.bare.now(), self.bare.waiting() > 0);
                    self.bare.release(id)?;
                    if self.closed_loop {
                        self.ask(id.node)?;
                    }
                }
                Turn::Act(Act::Nothing) | Turn::Busy(_) => {}
            }
        }
        Ok(())
    }

    fn ask(&mut self, node: NodeId) -> Result<(), Violation> {
        let id = self.bare.ask(node, false)?;
        self.meter.asks(key(id), self.bare.now());
        Ok(())
    }

    fn next(&mut self) -> Result<Turn<Act>, Violation> {
        let end = self.bare.now() + T * 100 * self.bare.members().len() as u32;
        let turn = self.bare.next(end)?;
        turn.ok_or_else(|| violation!(end, Progress, "nobody enters any more"))
    }
}

/// One number for a request.
fn key(id: RequestId) -> u64 {
    (u64::from(id.node.as_u16()) << 48) | id.seq
}
