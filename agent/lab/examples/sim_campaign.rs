//! Runs many seeds of the simulator, and says which one failed and how to play it again.
//!
//! ```text
//! cargo run --release -p distlock-lab \
//!     --example sim_campaign -- --engine all --seeds 0..40000 --jobs 2 --resume campaign.txt
//! ```

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Instant;

use clap::Parser;
use distlock_lab::campaign::{self, Report};
use distlock_lab::checkers::Violation;
use distlock_lab::explorer::{self, Explored};
use distlock_lab::ledger;
use distlock_lab::multicast;
use distlock_lab::networks::{tokens, wireless};
use distlock_lab::trace::Sink;
use distlock_lab::view_log;
use distlock_protocol::membership::quorum::log::library::Noraft;
use distlock_protocol::{Algorithm, ElectionAlgorithm, Failure};

use engines::Engines;
use old_release::OldRelease;
use support::{Progress, Seeds, Stopped, run_all, tell};

#[path = "support/engines.rs"]
mod engines;
#[path = "support/old_release.rs"]
mod old_release;
mod support;

/// Runs seeds of the simulator until one fails.
#[derive(Debug, Parser)]
struct Options {
    /// The algorithm under test, by its name in the configuration, or `all`.
    #[arg(long, default_value = "all")]
    engine: Engines,
    /// Which seeds: the first, and the one after the last.
    #[arg(long, default_value = "0..1000")]
    seeds: Seeds,
    /// What decides on views where whole nodes run.
    #[arg(long, default_value = "unanimity", conflicts_with = "bare")]
    failure: Views,
    /// Aim faults at what views and leases rest on, in whole nodes under quorum views.
    #[arg(long, conflicts_with_all = ["bare", "failure"])]
    directed: bool,
    /// Bare engines, without nodes and links, over a network that loses nothing.
    #[arg(long)]
    bare: bool,
    /// Elections by this algorithm, in whole nodes.
    #[arg(long, conflicts_with_all = ["engine", "bare"])]
    elections: Option<ElectionAlgorithm>,
    /// What stands beside the locks, below the views, or in place of both.
    #[arg(long, conflicts_with_all = ["engine", "bare", "failure", "elections"])]
    world: Option<World>,
    /// How many seeds run at the same time.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Where to keep what is done; what is done already is not done again.
    #[arg(long)]
    resume: Option<PathBuf>,
    /// Play each seed twice, and compare every byte.
    #[arg(long)]
    twice: bool,
    /// Tell everything that happens.
    #[arg(long)]
    trace: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match all_engines(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sim_campaign: {error}");
            ExitCode::FAILURE
        }
    }
}

fn all_engines(options: &Options) -> Result<(), Error> {
    let mut progress = Progress::open(options.resume.as_deref())?;
    if let Some(algorithm) = options.elections {
        let Views::By(failure) = options.failure else {
            return Err(Error::NoLyingElections);
        };
        return one_subject(
            options,
            Subject::Elections(algorithm, failure),
            &mut progress,
        );
    }
    if let Some(world) = options.world {
        return one_subject(options, Subject::World(world), &mut progress);
    }
    for algorithm in &options.engine.0 {
        let by_quorum = !matches!(
            options.failure,
            Views::By(Failure::PresumeFailed | Failure::Unanimity)
        );
        let by_quorum = by_quorum || options.directed;
        let subject = if options.bare {
            Subject::Bare(*algorithm)
        } else if by_quorum && algorithm.is_probabilistic() {
            println!(
                "{algorithm} excludes by chance: no quorum has it serve a lock, and it is left out"
            );
            continue;
        } else if options.directed {
            Subject::Directed(*algorithm)
        } else {
            Subject::Node(*algorithm, options.failure)
        };
        one_subject(options, subject, &mut progress)?;
    }
    Ok(())
}

/// What is put to the test.
#[derive(Clone, Copy, Debug)]
enum Subject {
    Node(Algorithm, Views),
    Directed(Algorithm),
    Bare(Algorithm),
    Elections(ElectionAlgorithm, Failure),
    World(World),
}

impl Subject {
    /// The options that name it.
    fn arguments(self) -> String {
        match self {
            Self::Node(algorithm, views) => format!("--failure {views} --engine {algorithm}"),
            Self::Directed(algorithm) => format!("--directed --engine {algorithm}"),
            Self::Bare(algorithm) => format!("--engine {algorithm} --bare"),
            Self::Elections(algorithm, failure) => {
                format!("--elections {algorithm} --failure {failure}")
            }
            Self::World(world) => format!("--world {world}"),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(algorithm, views) => write!(f, "node {algorithm} {views}"),
            Self::Directed(algorithm) => write!(f, "directed {algorithm}"),
            Self::Bare(algorithm) => write!(f, "bare {algorithm}"),
            Self::Elections(algorithm, failure) => write!(f, "elections {algorithm} {failure}"),
            Self::World(world) => write!(f, "world {world}"),
        }
    }
}

/// What decides on views.
#[derive(Clone, Copy, Debug)]
enum Views {
    By(Failure),
    /// A majority of voters, whose logs lie.
    LyingQuorum,
}

impl FromStr for Views {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = [
            Self::By(Failure::Quorum),
            Self::LyingQuorum,
            Self::By(Failure::PresumeFailed),
            Self::By(Failure::Unanimity),
        ];
        let views = known.into_iter().find(|it| it.to_string() == name);
        views.ok_or_else(|| {
            "views come from quorum, lying-quorum, presume-failed or unanimity".to_owned()
        })
    }
}

impl fmt::Display for Views {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::By(failure) => failure.fmt(f),
            Self::LyingQuorum => f.write_str("lying-quorum"),
        }
    }
}

/// What stands beside the locks, below the views, or in place of both.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum World {
    /// Totally ordered multicast.
    Multicast,
    /// The best leader among nodes that reach their neighbours only.
    Wireless,
    /// Super-peers by repelling tokens.
    Tokens,
    /// Ledgers of agents that share a store.
    Ledger,
    /// The logs of the voters alone.
    ViewLog,
    /// The same with a release of the library inside that is known to be wrong: some seed fails.
    OldViewLog,
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Multicast => "multicast",
            Self::Wireless => "wireless",
            Self::Tokens => "tokens",
            Self::Ledger => "ledger",
            Self::ViewLog => "view-log",
            Self::OldViewLog => "old-view-log",
        })
    }
}

impl World {
    fn explore(self, seed: u64, sink: Option<Sink>) -> Result<(Tally, u64), Violation> {
        Ok(match self {
            Self::Multicast => {
                let (explored, print) = multicast::explore(seed, sink)?;
                (Tally::Multicast(explored), print)
            }
            Self::Wireless => {
                let (explored, print) = wireless::explore(seed, sink)?;
                (Tally::Wireless(explored), print)
            }
            Self::Tokens => {
                let (explored, print) = tokens::explore(seed, sink)?;
                (Tally::Tokens(explored), print)
            }
            Self::Ledger => {
                let (report, print) = ledger::run(seed, sink)?;
                (Tally::Ledger(Box::new(report)), print)
            }
            Self::ViewLog => {
                let (report, print) = view_log::run::<Noraft>(seed, sink)?;
                (Tally::ViewLog(report), print)
            }
            Self::OldViewLog => {
                let (report, print) = view_log::run::<OldRelease>(seed, sink)?;
                (Tally::ViewLog(report), print)
            }
        })
    }
}

fn one_subject(options: &Options, subject: Subject, progress: &mut Progress) -> Result<(), Error> {
    let key = format!("{subject} {}", options.seeds);
    #[expect(
        clippy::disallowed_methods,
        reason = "a rate need not count a suspended machine"
    )]
    let clock = Instant::now();
    let mut total = Tally::default();
    let run = |seed| run_seed(options, subject, seed);
    let already = run_all(progress, &key, &options.seeds, options.jobs, run, |tally| {
        total.add(&tally);
    });
    let already = already.map_err(|stopped| match stopped {
        Stopped::Progress(error) => Error::Progress(error),
        Stopped::Seed { seed, what } => Error::Seed {
            subject,
            seed,
            what,
        },
    })?;
    let seconds = clock.elapsed().as_secs_f64();
    let rate = (options.seeds.count() - already) as f64 / seconds;
    println!("{key}: passed, {already} before and the rest at {rate:.0} seeds/s");
    println!("    {total}");
    Ok(())
}

fn run_seed(options: &Options, subject: Subject, seed: u64) -> Result<Tally, String> {
    let run = || {
        let sink = options.trace.then(|| -> Sink { Box::new(tell) });
        let outcome = match subject {
            Subject::Node(algorithm, views) => match views {
                Views::By(failure) => campaign::run(algorithm, failure, seed, sink),
                Views::LyingQuorum => campaign::run_on_lies(algorithm, seed, sink),
            }
            .map(|(report, print)| (Tally::Node(report.into()), print)),
            Subject::Directed(algorithm) => campaign::run_directed(algorithm, seed, sink)
                .map(|(report, print)| (Tally::Node(report.into()), print)),
            Subject::Bare(algorithm) => {
                explorer::explore(algorithm, seed, sink).map(|explored| (Tally::Bare(explored), 0))
            }
            Subject::Elections(algorithm, failure) => {
                campaign::run_elections(algorithm, failure, seed, sink)
                    .map(|(report, print)| (Tally::Node(report.into()), print))
            }
            Subject::World(world) => world.explore(seed, sink),
        };
        outcome.map_err(|v| v.to_string())
    };
    let first = run()?;
    if options.twice && run()? != first {
        return Err("the same seed played twice gives two different runs".to_owned());
    }
    Ok(first.0)
}

/// What happened in some seeds.
#[derive(Clone, Debug, Default, PartialEq)]
enum Tally {
    #[default]
    Nothing,
    Node(Box<Report>),
    Bare(Explored),
    Multicast(multicast::Explored),
    Wireless(wireless::Explored),
    Tokens(tokens::Explored),
    Ledger(Box<ledger::Report>),
    ViewLog(view_log::Report),
}

impl Tally {
    fn add(&mut self, other: &Self) {
        match (&mut *self, other) {
            (Self::Node(sum), Self::Node(report)) => sum.add(report),
            (Self::Bare(sum), Self::Bare(explored)) => sum.add(explored),
            (Self::Multicast(sum), Self::Multicast(explored)) => sum.add(explored),
            (Self::Wireless(sum), Self::Wireless(explored)) => sum.add(explored),
            (Self::Tokens(sum), Self::Tokens(explored)) => sum.add(explored),
            (Self::Ledger(sum), Self::Ledger(report)) => sum.add(report),
            (Self::ViewLog(sum), Self::ViewLog(report)) => sum.add(report),
            (Self::Nothing, other) => *self = other.clone(),
            (_, _) => {}
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => write!(f, "nothing to do"),
            Self::Node(report) => write!(f, "{report:?}"),
            Self::Bare(explored) => write!(f, "{explored:?}"),
            Self::Multicast(explored) => write!(f, "{explored:?}"),
            Self::Wireless(explored) => write!(f, "{explored:?}"),
            Self::Tokens(explored) => write!(f, "{explored:?}"),
            Self::Ledger(report) => write!(f, "{report:?}"),
            Self::ViewLog(report) => write!(f, "{report:?}"),
        }
    }
}

#[derive(Debug)]
enum Error {
    Seed {
        subject: Subject,
        seed: u64,
        what: String,
    },
    Progress(support::Error),
    NoLyingElections,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLyingElections => {
                f.write_str("elections are not played on logs that lie: choose another --failure")
            }
            Self::Seed {
                subject,
                seed,
                what,
            } => {
                writeln!(f, "{subject}, seed {seed}: {what}")?;
                write!(
                    f,
                    "play it again: cargo run --release -p distlock-lab --example sim_campaign -- {} --seeds {seed}..{} --trace",
                    subject.arguments(),
                    seed + 1
                )
            }
            Self::Progress(error) => error.fmt(f),
        }
    }
}

impl From<support::Error> for Error {
    fn from(error: support::Error) -> Self {
        Self::Progress(error)
    }
}
