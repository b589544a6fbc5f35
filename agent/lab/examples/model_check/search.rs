//! Searches, and what they come to.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use distlock_lab::model::System;
use stateright::{Checker, Chooser, HasDiscoveries, Model};

use crate::explored::{Explored, Reached};
use crate::harvest::{Chance, Harvest};
use crate::words::tell;

/// How many states random walks go through if nothing is said.
const WALKED: usize = 1_000_000;
/// How a world is explored.
#[derive(Debug, Args)]
pub(crate) struct Search {
    /// How many distinct states each search is to find; without it, all there are.
    #[arg(long, global = true)]
    states: Option<usize>,
    /// In which order.
    #[arg(long, global = true, default_value = "all")]
    order: Order,
    /// With --order around: within how many steps.
    #[arg(long, global = true, default_value_t = 3)]
    steps: usize,
    /// How many threads.
    #[arg(long, global = true, default_value_t = 1)]
    jobs: usize,
    /// Only play this: which of its actions each state goes on with.
    #[arg(long, global = true)]
    replay: Option<Story>,
}

/// The order of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// All short stories first: what is found takes as few steps as can be.
    Wide,
    /// To the end of a story, and back to where another choice can be made.
    Deep,
    /// Whole stories by chance, as many as have that many states in all. Those may be the same; but
    /// nothing is too far away.
    Walks,
    /// From each state of whole stories that together reach every goal, everything that can happen within
    /// some steps.
    Around,
    /// One search after the other, but for the last, each of that many states.
    All,
}

named!(Order);

/// Explores a world, or plays one story of it.
pub(crate) fn check<S>(
    make: impl Fn() -> S,
    key: &str,
    search: &Search,
    weakened: bool,
) -> Result<(), Error>
where
    S: System + Send + Sync + 'static,
{
    let model = |order| Explored {
        system: make(),
        starts: Vec::new(),
        shuffles: order == Order::Deep,
        reached: AtomicU32::new(0),
        enough: AtomicBool::new(false),
    };
    if let Some(story) = &search.replay {
        return replay(&model(search.order), key, story);
    }
    // A panic is a state like another, named at the end; its backtrace is for who plays it again.
    std::panic::set_hook(Box::new(|_| {}));
    let orders: &[_] = match search.order {
        Order::Wide => &[Order::Wide],
        Order::Deep => &[Order::Deep],
        Order::Walks => &[Order::Walks],
        Order::Around => &[Order::Around],
        Order::All => &[Order::Wide, Order::Deep, Order::Walks],
    };
    let mut missing: Option<Vec<&str>> = None;
    for &order in orders {
        let outcome = explore(model(order), key, order, search);
        if let Some((name, story)) = outcome.story {
            let broken = Broken {
                key: format!("{key} --order {order}"),
                name,
                story,
            };
            if !weakened {
                return Err(Error::Broken(broken));
            }
            println!("{broken}");
            return Ok(());
        }
        let before = missing.take();
        let still = |name: &&str| before.as_ref().is_none_or(|before| before.contains(name));
        missing = Some(outcome.missing.into_iter().filter(still).collect());
    }
    let key = key.to_owned();
    match missing {
        _ if weakened => Err(Error::Unnoticed { key }),
        Some(missing) if !missing.is_empty() => Err(Error::Vacuous { key, missing }),
        _ => Ok(()),
    }
}

fn explore<S>(mut model: Explored<S>, key: &str, order: Order, search: &Search) -> Outcome
where
    S: System + Send + Sync + 'static,
{
    let start = now();
    let mut prefixes = Vec::new();
    if order == Order::Around {
        let harvest = Harvest::of(&model, search.states.unwrap_or(WALKED));
        println!(
            "{key} --order around: {} stories with {} states, after {} stories",
            harvest.stories,
            harvest.starts.len(),
            harvest.told
        );
        (model.starts, prefixes) = (harvest.starts, harvest.prefixes);
    }
    let builder = model.checker().threads(search.jobs.max(1));
    let builder = builder.finish_when(HasDiscoveries::AnyFailures);
    let outcome = match order {
        Order::Deep => finish(builder.spawn_dfs(), search.states),
        Order::Walks => {
            let states = search.states.unwrap_or(WALKED);
            let builder = builder.target_state_count(states);
            finish(builder.spawn_simulation(0, Walker), None)
        }
        // The library counts states, not steps.
        Order::Around => finish(builder.target_max_depth(search.steps + 1).spawn_bfs(), None),
        Order::Wide | Order::All => finish(builder.spawn_bfs(), search.states),
    };
    let outcome = outcome.told_from_the_beginning(&prefixes);
    let seconds = start.elapsed().as_secs_f64();
    let Outcome {
        distinct,
        generated,
        depth,
        complete,
        ..
    } = outcome;
    let all = match order {
        Order::Walks => ", if no two are the same",
        Order::Around => ", which are all there",
        _ if complete => ", which are all",
        _ => "",
    };
    println!(
        "{key} --order {order}: {distinct} distinct states{all}, of {generated} generated, down to \
         depth {depth}, in {seconds:.1} s"
    );
    outcome
}

/// What a search came to.
struct Outcome {
    distinct: usize,
    generated: usize,
    depth: usize,
    /// Whether there are no more states.
    complete: bool,
    /// Which rule is broken, and how that comes about.
    story: Option<(&'static str, Story)>,
    /// Goals that were not reached.
    missing: Vec<&'static str>,
}

impl Outcome {
    /// A story that began at one of several states, as one from the world's beginning.
    fn told_from_the_beginning(mut self, prefixes: &[Story]) -> Self {
        if let Some((_, story)) = &mut self.story
            && let Some(prefix) = prefixes.get(story.0[0])
        {
            let steps = story.0.drain(1..);
            let whole = prefix.0.iter().copied().chain(steps).collect();
            *story = Story(whole);
        }
        self
    }
}

/// Walks by chance.
#[derive(Clone)]
struct Walker;

impl<S: System> Chooser<Explored<S>> for Walker {
    type State = Chance;

    fn new_state(&self, seed: u64) -> Chance {
        Chance::new(seed)
    }

    fn choose_initial_state(&self, _: &mut Chance, _: &[Reached<S::State>]) -> usize {
        0
    }

    fn choose_action(
        &self,
        chance: &mut Chance,
        _: &Reached<S::State>,
        actions: &[S::Action],
    ) -> usize {
        chance.choose::<S>(actions)
    }
}

/// Waits until all states are known, or enough of them, or a rule is broken.
fn finish<S, C>(mut checker: C, states: Option<usize>) -> Outcome
where
    S: System,
    C: Checker<Explored<S>>,
{
    let threads = checker.handles();
    let mut complete = true;
    while !threads.iter().all(JoinHandle::is_finished) {
        sleep(Duration::from_millis(20));
        if states.is_some_and(|enough| checker.unique_state_count() >= enough) {
            checker.model().enough.store(true, Ordering::Relaxed);
            complete = false;
        }
    }
    for thread in threads {
        thread
            .join()
            .expect("panics of the code under test are caught");
    }
    let model = checker.model();
    // Stories are told by playing them again.
    model.enough.store(false, Ordering::Relaxed);
    let discoveries = checker.discoveries();
    let fails = |name: &&'static str| model.property(name).expectation.discovery_is_failure();
    let story = discoveries.keys().copied().find(fails);
    let story = story.map(|name| {
        let path = discoveries[name].encode(model);
        let story = path.parse().expect("numbers with slashes");
        (name, story)
    });
    let goals = model.system.goals().into_iter().map(|(name, _)| name);
    Outcome {
        distinct: checker.unique_state_count(),
        generated: checker.state_count(),
        depth: checker.max_depth(),
        complete: complete && story.is_none(),
        missing: goals
            .filter(|name| !discoveries.contains_key(name))
            .collect(),
        story,
    }
}

/// Plays a story, tells what happens, and what is broken at its end.
fn replay<S: System>(model: &Explored<S>, key: &str, story: &Story) -> Result<(), Error> {
    let mut states = model.init_states();
    let mut state = states.swap_remove(0);
    let mut actions = Vec::new();
    for (step, &choice) in story.0.iter().enumerate().skip(1) {
        actions.clear();
        model.actions(&state, &mut actions);
        let action = actions.get(choice).ok_or(Error::NoSuchStory { step })?;
        tell(format_args!("{step:>4} {action:?}"));
        let next = model.next_state(&state, action.clone());
        state = next.ok_or(Error::NoSuchStory { step })?;
    }
    tell(format_args!("{state:#?}"));
    let broken = match &state {
        Reached::State(state) => S::violation(state).map(ToString::to_string),
        Reached::Panic(words) => Some(words.clone()),
    };
    match broken {
        None => Ok(()),
        Some(words) => Err(Error::Replayed {
            key: key.to_owned(),
            words,
        }),
    }
}

fn now() -> Instant {
    #[expect(
        clippy::disallowed_methods,
        reason = "a rate need not count a suspended machine"
    )]
    Instant::now()
}

/// What leads to a broken rule.
#[derive(Debug)]
pub(crate) struct Broken {
    key: String,
    name: &'static str,
    story: Story,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, name, story } = self;
        let steps = story.0.len() - 1;
        writeln!(f, "{key}: broken in {steps} steps: {name}")?;
        write!(
            f,
            "play it again: cargo run --release -p distlock-lab --example model_check -- {key} --replay {story}"
        )
    }
}

/// Why a search fails.
#[derive(Debug)]
pub(crate) enum Error {
    /// What is wrong with the command line.
    Options(&'static str),
    Broken(Broken),
    Vacuous {
        key: String,
        missing: Vec<&'static str>,
    },
    Unnoticed {
        key: String,
    },
    Replayed {
        key: String,
        words: String,
    },
    NoSuchStory {
        step: usize,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Options(what) => f.write_str(what),
            Self::Broken(broken) => broken.fmt(f),
            Self::Vacuous { key, missing } => {
                let missing = missing.join("; ");
                write!(f, "{key}: never found: {missing}; allow more --states")
            }
            Self::Unnoticed { key } => write!(
                f,
                "{key}: nothing is broken, though a rule is left out; allow more --states"
            ),
            Self::Replayed { key, words } => write!(f, "{key}: {words}"),
            Self::NoSuchStory { step } => write!(
                f,
                "step {step} of that story is none of this world; give the same options, on the \
                 same sources"
            ),
        }
    }
}

/// A way through a world: which of its actions each state goes on with. The first is its beginning.
#[derive(Clone, Debug)]
pub(crate) struct Story(pub(crate) Vec<usize>);

impl FromStr for Story {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let choices = text.split('/').map(str::parse);
        choices.collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, choice) in self.0.iter().enumerate() {
            let slash = if at == 0 { "" } else { "/" };
            write!(f, "{slash}{choice}")?;
        }
        Ok(())
    }
}
