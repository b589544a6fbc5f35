//! Runs bare engines at random: reordering, duplicates, cancellations, new views, restarts.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use super::bare::{Bare, Turn};
use super::checkers::{Violation, violation};
use super::choices::{Choices, Permille};
use super::network::{Conditions, Delay, Network, NetworkStats};
use super::plan::chosen::{SEARCHED_ENTRIES, SEARCHED_RATE};
use super::plan::permits;
use super::trace::{Sink, Trace};
use distlock_protocol::lock::{Algorithm, LockSpec, Priority};
use distlock_protocol::{Mode, NodeId, Release, RequestId, Time};

/// What happened in one exploration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// Grants.
    pub grants: u64,
    /// Those of readers, and of several permits, that were given when they were asked for.
    pub at_once: u64,
    /// Requests that were cancelled while they waited.
    pub cancelled: u64,
    /// Views installed after the first.
    pub installs: u64,
    /// Members that restarted.
    pub restarts: u64,
    /// Callers that ended inside while their members lived.
    pub deaths: u64,
    /// What the network did.
    pub network_stats: NetworkStats,
}

impl Explored {
    /// Adds up.
    pub fn add(&mut self, other: &Self) {
        self.grants += other.grants;
        self.at_once += other.at_once;
        self.cancelled += other.cancelled;
        self.installs += other.installs;
        self.restarts += other.restarts;
        self.deaths += other.deaths;
        self.network_stats.add(&other.network_stats);
    }
}

/// Runs the engines of `algorithm` as `seed` says: first with everything that may go wrong, then
/// without, until each member has entered once more and nothing is under way. The trace goes to
/// `sink`, if there is one.
///
/// # Errors
/// The rule that the engines broke.
///
/// # Panics
/// An engine panicked.
pub fn explore(algorithm: Algorithm, seed: u64, sink: Option<Sink>) -> Result<Explored, Violation> {
    Exploration::new(algorithm, seed, Trace::new(sink))?.run()
}

/// Runs the engines of a group of `members` as `choices` say, which are those of a
/// [search](crate::choices::Search): everybody enters about twice while messages are late or come
/// twice, callers give up or die, and views change; then once more, as in [`explore`].
///
/// # Errors
/// The rule that the engines broke.
///
/// # Panics
/// An engine panicked.
pub fn explore_searched(
    algorithm: Algorithm,
    members: u16,
    choices: Choices,
    sink: Option<Sink>,
) -> Result<Explored, Violation> {
    Exploration::searched(algorithm, members, choices, Trace::new(sink))?.run()
}

/// How long a message is under way in the mean.
const DELAY: Duration = Duration::from_millis(1);
/// Grants in the first part of a run.
const GRANTS: u64 = 60;
/// How long the first part may take: a run in which nearly everything is cancelled ends too.
const UNREST: Duration = Duration::from_secs(20);
/// How long the second part may take. Nine members wait for each other's exits and messages, of
/// which the slowest of a run takes some ten mean delays: far below this.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many callers of one member a manager may let in in a row.
const BATCH: u32 = 32;

#[derive(Clone, Copy, Debug)]
enum Act {
    Want(NodeId),
    GiveUp(RequestId),
    Exit(RequestId),
    View,
}

struct Exploration {
    bare: Bare<Act>,
    choices: Choices,
    spec: LockSpec,
    /// After how many grants the second part begins.
    grants: u64,
    cancels: Permille,
    tries: Permille,
    /// How many of a thousand share the lock.
    shared: Permille,
    /// How many of a thousand end inside.
    deaths: Permille,
    think: Duration,
    stay: Duration,
    views: Option<Duration>,
    /// Whether in each member several callers wait at once, so that one asks as another leaves.
    has_crowds: bool,
    /// Whether the second part has begun.
    calm: bool,
    /// Who has to enter once more before the end.
    to_enter: BTreeSet<NodeId>,
    explored: Explored,
}

impl Exploration {
    fn new(algorithm: Algorithm, seed: u64, trace: Trace) -> Result<Self, Violation> {
        let mut choices = Choices::new(seed);
        let size = choices.within(1..=9) as u16;
        let permits = permits(algorithm, &mut choices);
        let priority = if algorithm == Algorithm::CarvalhoRoucairol {
            Priority::ALL[choices.index(Priority::ALL.len())]
        } else {
            Priority::Lamport
        };
        let spec = LockSpec {
            algorithm,
            permits,
            priority,
        };
        let conditions = Conditions {
            delay: Delay::Exponential(DELAY),
            loss: 0,
            duplication: if choices.chance(750) { 200 } else { 0 },
            corruption: 0,
            late: (0, Duration::ZERO),
            in_order: choices.chance(200),
        };
        let network = Network::new(conditions, choices.fork());
        let short_or_long = |choices: &mut Choices| DELAY * [0, 1, 4, 20][choices.index(4)];
        Ok(Self {
            bare: Bare::new(spec, size, network, trace)?,
            spec,
            grants: GRANTS,
            cancels: [0, 200, 500][choices.index(3)],
            tries: [0, 300][choices.index(2)],
            shared: if spec.can_serve(Mode::Shared) {
                [0, 300, 950][choices.index(3)]
            } else {
                0
            },
            think: short_or_long(&mut choices),
            stay: short_or_long(&mut choices),
            views: choices.chance(500).then(|| DELAY * 40),
            deaths: [0, 100, 300][choices.index(3)],
            has_crowds: algorithm == Algorithm::Manager && seed % 4 == 3,
            calm: false,
            to_enter: BTreeSet::new(),
            explored: Explored::default(),
            choices,
        })
    }

    fn searched(
        algorithm: Algorithm,
        members: u16,
        mut choices: Choices,
        trace: Trace,
    ) -> Result<Self, Violation> {
        let spec = LockSpec::exclusive(algorithm);
        let conditions = Conditions {
            duplication: SEARCHED_RATE,
            late: (SEARCHED_RATE, DELAY * 4),
            in_order: false,
            ..Conditions::perfect(DELAY)
        };
        let network = Network::new(conditions, choices.fork());
        Ok(Self {
            bare: Bare::new(spec, members, network, trace)?,
            spec,
            grants: SEARCHED_ENTRIES * u64::from(members),
            cancels: SEARCHED_RATE,
            tries: SEARCHED_RATE,
            shared: if spec.can_serve(Mode::Shared) {
                SEARCHED_RATE
            } else {
                0
            },
            think: DELAY * 4,
            stay: DELAY * 4,
            views: Some(DELAY * 20),
            deaths: SEARCHED_RATE,
            has_crowds: false,
            calm: false,
            to_enter: BTreeSet::new(),
            explored: Explored::default(),
            choices,
        })
    }

    fn run(mut self) -> Result<Explored, Violation> {
        for node in self.bare.members().to_vec() {
            self.want_later(node);
        }
        self.plan_view();
        let end = self.bare.now() + UNREST;
        while self.explored.grants < self.grants
            && let Some(turn) = self.bare.next(end)?
        {
            self.take(turn)?;
        }
        self.settle()?;
        self.explored.network_stats = self.bare.network_stats();
        Ok(self.explored)
    }

    /// The second part: no more cancellations and views. Those who wait are served though nobody
    /// says anything new; then everybody enters once more. After each of the two, nothing is said.
    fn settle(&mut self) -> Result<(), Violation> {
        self.calm = true;
        self.choices.end_search();
        let end = self.bare.now() + PATIENCE;
        self.finish(end)?;
        self.fall_silent()?;
        self.to_enter = self.bare.members().iter().copied().collect();
        for node in self.bare.members().to_vec() {
            self.want_later(node);
        }
        let end = self.bare.now() + PATIENCE;
        self.finish(end)?;
        self.fall_silent()
    }

    /// Once nobody wants anything, nobody says anything; the perpetual ring never ends.
    fn fall_silent(&mut self) -> Result<(), Violation> {
        if self.spec.algorithm == Algorithm::TokenRing {
            return Ok(());
        }
        let end = self.bare.now() + PATIENCE;
        while let Some(turn) = self.bare.next(end)? {
            self.take(turn)?;
        }
        if self.bare.in_flight() > 0 {
            return Err(violation!(
                self.bare.now(),
                Restraint,
                "messages still go round though nobody wants to enter"
            ));
        }
        Ok(())
    }

    /// Goes on until nobody waits, nobody is inside, and everybody has entered who has to.
    fn finish(&mut self, end: Time) -> Result<(), Violation> {
        while !self.is_over() {
            let Some(turn) = self.bare.next(end)? else {
                return Err(self.stuck());
            };
            self.take(turn)?;
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        let mut members = self.bare.members().iter();
        self.to_enter.is_empty()
            && self.bare.waiting() == 0
            && !members.any(|node| self.bare.inside(*node).is_some())
    }

    fn stuck(&self) -> Violation {
        violation!(
            self.bare.now(),
            Progress,
            "{} request(s) wait, and members {:?} did not enter once more, with {} message(s) \
             under way",
            self.bare.waiting(),
            self.to_enter
                .iter()
                .map(|node| node.as_u16())
                .collect::<Vec<_>>(),
            self.bare.in_flight()
        )
    }

    fn take(&mut self, turn: Turn<Act>) -> Result<(), Violation> {
        match turn {
            Turn::Granted(id) => self.enter(id),
            Turn::Busy(id) => self.back_out(id)?,
            Turn::Act(Act::Want(node)) => self.ask(node)?,
            Turn::Act(Act::GiveUp(id)) => self.give_up(id)?,
            Turn::Act(Act::Exit(id)) => {
                let dies = !self.calm && self.choices.chance(self.deaths);
                let is_alone = self.bare.inside(id.node) == Some(Mode::Exclusive);
                let is_first = self.spec.permits.get() == 1 && !self.bare.is_waiting(id.node);
                if self.has_crowds && !self.calm && !dies && is_alone && is_first {
                    self.bare.release_to_next(id, BATCH)?;
                    return self.ask(id.node);
                }
                self.explored.deaths += u64::from(dies);
                let how = if dies {
                    Release::Abandoned
                } else {
                    Release::Given
                };
                self.bare.release(id, how)?;
                self.want_later(id.node);
            }
            Turn::Act(Act::View) => self.change_view()?,
        }
        Ok(())
    }

    fn ask(&mut self, node: NodeId) -> Result<(), Violation> {
        let shares = self.choices.chance(self.shared);
        let mode = if shares {
            Mode::Shared
        } else {
            Mode::Exclusive
        };
        let fits = match self.bare.inside(node) {
            None => true,
            Some(inside) => self.spec.permits.get() > 1 || (shares && inside == Mode::Shared),
        };
        if self.bare.is_waiting(node) || !fits {
            return Ok(());
        }
        if self.calm && !self.to_enter.contains(&node) {
            return Ok(());
        }
        let tries = !self.calm && self.choices.chance(self.tries);
        let cancels = self.choices.chance(self.cancels) && !self.calm;
        let id = self.bare.ask(node, mode, tries)?;
        let is_joint = shares || self.spec.permits.get() > 1;
        self.explored.at_once += u64::from(is_joint && !self.bare.is_waiting(node));
        if cancels {
            let after = self.choices.exponential(DELAY * 4);
            self.bare.plan(after, Act::GiveUp(id));
        }
        Ok(())
    }

    fn enter(&mut self, id: RequestId) {
        self.explored.grants += 1;
        self.to_enter.remove(&id.node);
        let stay = self.choices.exponential(self.stay);
        self.bare.plan(stay, Act::Exit(id));
        // A semaphore lets a member in again while it is inside.
        if (self.spec.permits.get() > 1 || self.shared > 0) && !self.calm {
            self.want_later(id.node);
        }
    }

    fn give_up(&mut self, id: RequestId) -> Result<(), Violation> {
        if self.calm { Ok(()) } else { self.back_out(id) }
    }

    fn back_out(&mut self, id: RequestId) -> Result<(), Violation> {
        if self.bare.cancel(id)? {
            self.explored.cancelled += 1;
            self.want_later(id.node);
        }
        Ok(())
    }

    fn change_view(&mut self) -> Result<(), Violation> {
        if self.calm {
            return Ok(());
        }
        let mut restarted = BTreeSet::new();
        for node in self.bare.members().to_vec() {
            if self.choices.chance(100) {
                restarted.insert(node);
            }
        }
        self.explored.installs += 1;
        self.explored.restarts += restarted.len() as u64;
        self.bare.install(&restarted)?;
        for node in restarted {
            self.want_later(node);
        }
        self.plan_view();
        Ok(())
    }

    fn want_later(&mut self, node: NodeId) {
        let think = self.choices.exponential(self.think);
        self.bare.plan(think, Act::Want(node));
    }

    fn plan_view(&mut self) {
        if let Some(mean) = self.views {
            let after = self.choices.exponential(mean);
            self.bare.plan(after, Act::View);
        }
    }
}
