//! Searches the simulated cluster: plays every run that deviates from the ordinary one in few
//! choices, and says which one failed and how to play it again.
//!
//! ```text
//! cargo run --release -p distlock-lab \
//!     --example sim_search -- --engine manager --failure quorum --members 3 --deviations 1 --jobs 2
//! ```
//!
//! With one deviation that is each datagram lost, late, or come twice; each member crashed, stopped, cut
//! off or leaving after each of its steps; each caller that gives up, dies or only tries. With two it is
//! every pair of them. CONTRIBUTING.md says what is not searched.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use distlock_lab::campaign::{self, Report};
use distlock_lab::choices::{Choices, Deviations, Search};
use distlock_lab::explorer::{self, Explored};
use distlock_lab::trace::Sink;
use distlock_protocol::{Algorithm, Failure};

use engines::Engines;
use support::{Progress, Seeds, Stopped, run_all, tell};

#[path = "support/engines.rs"]
mod engines;
mod support;

/// Plays every run of a small group that deviates from the ordinary one in few choices.
#[derive(Debug, Parser)]
struct Options {
    /// The algorithm under test, by its name in the configuration, or `all`.
    #[arg(long, default_value = "all")]
    engine: Engines,
    /// What decides on views.
    #[arg(long, default_value = "quorum", value_parser = failure, conflicts_with = "bare")]
    failure: Failure,
    /// Bare engines, without nodes and links, over a network that loses nothing.
    #[arg(long)]
    bare: bool,
    /// How many members.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=9))]
    members: u16,
    /// In how many choices a run may deviate.
    #[arg(long, default_value_t = 1)]
    deviations: usize,
    /// How many choices a second deviation is at most after the first, and so on.
    #[arg(long, default_value_t = u64::MAX, hide_default_value = true)]
    within: u64,
    /// Only runs whose first deviation is one of these, written FIRST..END, counted from 0.
    #[arg(long)]
    firsts: Option<Seeds>,
    /// How many runs are played at the same time.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Where to keep what is done; what is done already is not done again.
    #[arg(long)]
    resume: Option<PathBuf>,
    /// Play the run with these deviations alone, as 812=1,840=3 or none, and tell everything that
    /// happens.
    #[arg(long, conflicts_with_all = ["deviations", "firsts", "resume"])]
    play: Option<Deviations>,
}

fn failure(name: &str) -> Result<Failure, &'static str> {
    let all = [Failure::Quorum, Failure::PresumeFailed, Failure::Unanimity];
    let named = all.into_iter().find(|it| it.to_string() == name);
    named.ok_or("views come from quorum, presume-failed or unanimity")
}

fn main() -> ExitCode {
    let options = Options::parse();
    match all_engines(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sim_search: {error}");
            ExitCode::FAILURE
        }
    }
}

fn all_engines(options: &Options) -> Result<(), Error> {
    let mut progress = Progress::open(options.resume.as_deref())?;
    for algorithm in &options.engine.0 {
        let by_quorum = !options.bare && options.failure == Failure::Quorum;
        if by_quorum && algorithm.is_probabilistic() {
            println!(
                "{algorithm} excludes by chance: no quorum has it serve a lock, and it is left out"
            );
            continue;
        }
        let group = Group {
            algorithm: *algorithm,
            failure: (!options.bare).then_some(options.failure),
            members: options.members,
        };
        match &options.play {
            Some(deviations) => {
                let mut search = Search::new(deviations.clone(), 0, 0);
                let choices = search.next_run().expect("one run at least");
                let played = group.play(choices, Some(Box::new(tell)))?;
                if !search.took_all() {
                    return Err(Error::NotReached(search.choices_made()));
                }
                println!("{group}, deviations {deviations}: passed\n    {played}");
            }
            None => search(options, group, &mut progress)?,
        }
    }
    Ok(())
}

/// What is searched.
#[derive(Clone, Copy, Debug)]
struct Group {
    algorithm: Algorithm,
    /// What decides on views; `None`: bare engines.
    failure: Option<Failure>,
    members: u16,
}

impl fmt::Display for Group {
    /// The options that name it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            algorithm,
            failure,
            members,
        } = self;
        write!(f, "--engine {algorithm} --members {members} ")?;
        match failure {
            Some(failure) => write!(f, "--failure {failure}"),
            None => f.write_str("--bare"),
        }
    }
}

impl Group {
    fn play(self, choices: Choices, sink: Option<Sink>) -> Result<Tally, String> {
        let Self {
            algorithm,
            failure,
            members,
        } = self;
        let played = match failure {
            Some(failure) => campaign::run_searched(algorithm, failure, members, choices, sink)
                .map(|(report, _)| Tally::Node(report.into())),
            None => explorer::explore_searched(algorithm, members, choices, sink).map(Tally::Bare),
        };
        played.map_err(|violation| violation.to_string())
    }
}

/// Plays the ordinary run, then all that follow from each first deviation.
fn search(options: &Options, group: Group, progress: &mut Progress) -> Result<(), Error> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a rate need not count a suspended machine"
    )]
    let clock = Instant::now();
    let mut ordinary = Search::new(Deviations::default(), 0, 0);
    let mut total = Searched::default();
    total.play(&mut ordinary, group)?;
    let choices = ordinary.choices_made();
    let firsts = ordinary.successors();
    let most = options.deviations.min(1) * firsts.len();
    let chosen = options.firsts.clone().unwrap_or(Seeds(0..most as u64));
    if chosen.0.end > most as u64 {
        return Err(Error::Beyond(most));
    }
    // What is counted is another thing in another build.
    let deviations = options.deviations;
    let mut key = format!("{choices} choices: {group} --deviations {deviations}");
    if options.within < u64::MAX {
        key.push_str(&format!(" --within {}", options.within));
    }
    key.push_str(&format!(" --firsts {chosen}"));
    let run = |index: u64| {
        let first = firsts[index as usize].clone();
        let mut search = Search::new(first, options.deviations - 1, options.within);
        let mut searched = Searched::default();
        while searched.play(&mut search, group)? {}
        Ok(searched)
    };
    let already = run_all(progress, &key, &chosen, options.jobs, run, |searched| {
        total.runs += searched.runs;
        total.tally.add(&searched.tally);
    });
    let already = already.map_err(|stopped| match stopped {
        Stopped::Progress(error) => Error::Progress(error),
        Stopped::Seed { seed, what } => Error::Run(format!("first deviation {seed}: {what}")),
    })?;
    let runs = total.runs;
    let rate = runs as f64 / clock.elapsed().as_secs_f64();
    println!(
        "{key}: passed, {runs} runs at {rate:.0} a second, with {} of {} first deviations, {already} of \
         them before",
        chosen.count(),
        firsts.len()
    );
    println!("    {}", total.tally);
    Ok(())
}

/// What happened in some runs.
#[derive(Debug, Default)]
struct Searched {
    runs: u64,
    tally: Tally,
}

impl Searched {
    /// Plays the next run, if there is one.
    fn play(&mut self, search: &mut Search, group: Group) -> Result<bool, String> {
        let Some(choices) = search.next_run() else {
            return Ok(false);
        };
        let deviations = search.deviations();
        let played = support::caught(|| group.play(choices, None)).map_err(|what| {
            format!(
                "{group}, deviations {deviations}: {what}\nplay it again: cargo run --release -p \
                 distlock-lab --example sim_search -- {group} --play {deviations}"
            )
        })?;
        self.runs += 1;
        self.tally.add(&played);
        Ok(true)
    }
}

/// What happened in some runs, in numbers.
#[derive(Clone, Debug, Default)]
enum Tally {
    #[default]
    Nothing,
    Node(Box<Report>),
    Bare(Explored),
}

impl Tally {
    fn add(&mut self, other: &Self) {
        match (&mut *self, other) {
            (Self::Node(sum), Self::Node(report)) => sum.add(report),
            (Self::Bare(sum), Self::Bare(explored)) => sum.add(explored),
            (_, Self::Nothing) => {}
            (sum, other) => *sum = other.clone(),
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Node(report) => write!(f, "{report:?}"),
            Self::Bare(explored) => write!(f, "{explored:?}"),
        }
    }
}

#[derive(Debug)]
enum Error {
    /// A run broke a rule.
    Run(String),
    /// A replayed run ended, after this number of choices, before it had come to all of its deviations.
    NotReached(u64),
    /// `--firsts` goes beyond the last first deviation; how many there are.
    Beyond(usize),
    Progress(support::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(what) => f.write_str(what),
            Self::NotReached(made) => write!(
                f,
                "the run made {made} choices, and did not come to all of these deviations: they are those of \
                 another group, or of another build"
            ),
            Self::Beyond(most) => write!(
                f,
                "there are {most} first deviations here: --firsts ends there at the latest"
            ),
            Self::Progress(error) => error.fmt(f),
        }
    }
}

impl From<String> for Error {
    fn from(what: String) -> Self {
        Self::Run(what)
    }
}

impl From<support::Error> for Error {
    fn from(error: support::Error) -> Self {
        Self::Progress(error)
    }
}
