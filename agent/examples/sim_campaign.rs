//! Runs many seeds of the simulator, and says which one failed and how to play it again.
//!
//! ```text
//! cargo run --release -p distlock-agent --no-default-features --features sim \
//!     --example sim_campaign -- --engine all --seeds 0..20000 --jobs 2 --resume campaign.txt
//! ```

use std::any::Any;
use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use clap::Parser;
use distlock_agent::protocol::Algorithm;
use distlock_agent::sim::campaign::{self, Report};
use distlock_agent::sim::explorer::{self, Explored};
use distlock_agent::sim::trace::Sink;

/// Runs seeds of the simulator until one fails.
#[derive(Debug, Parser)]
struct Options {
    /// The algorithm under test, by its name in the configuration, or `all`.
    #[arg(long, default_value = "all")]
    engine: Engines,
    /// Which seeds: the first, and the one after the last.
    #[arg(long, default_value = "0..1000")]
    seeds: Seeds,
    /// Bare engines, without nodes and links, over a network that loses nothing.
    #[arg(long)]
    bare: bool,
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

/// How many seeds are done between two looks at the clock and at the file.
const BLOCK: u64 = 500;

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
    for algorithm in &options.engine.0 {
        one_engine(options, *algorithm, &mut progress)?;
    }
    Ok(())
}

fn one_engine(
    options: &Options,
    algorithm: Algorithm,
    progress: &mut Progress,
) -> Result<(), Error> {
    let level = if options.bare { "bare" } else { "node" };
    let key = format!("{level} {algorithm} {}", options.seeds);
    let Range { start, end } = options.seeds.0;
    let mut next = progress.done(&key).unwrap_or(start);
    let already = next - start;
    #[expect(
        clippy::disallowed_methods,
        reason = "a rate need not count a suspended machine"
    )]
    let clock = Instant::now();
    let mut total = Tally::default();
    while next < end {
        let block = next..end.min(next + BLOCK);
        total.add(&run_block(options, algorithm, block.clone())?);
        next = block.end;
        progress.note(&key, next)?;
    }
    let seconds = clock.elapsed().as_secs_f64();
    let rate = (next - start - already) as f64 / seconds;
    println!("{key}: passed, {already} before and the rest at {rate:.0} seeds/s");
    println!("    {total}");
    Ok(())
}

/// Runs the seeds of `block`, some at a time.
fn run_block(options: &Options, algorithm: Algorithm, block: Range<u64>) -> Result<Tally, Error> {
    let next = AtomicU64::new(block.start);
    let failed = AtomicBool::new(false);
    let total = Mutex::new((Tally::default(), Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= block.end {
                        break;
                    }
                    let outcome = run_seed(options, algorithm, seed);
                    let mut total = total.lock().unwrap();
                    match outcome {
                        Ok(tally) => total.0.add(&tally),
                        Err(what) => {
                            failed.store(true, Ordering::Relaxed);
                            total.1.push((seed, what));
                        }
                    }
                }
            });
        }
    });
    let (tally, failures) = total.into_inner().unwrap();
    match failures.into_iter().min_by_key(|(seed, _)| *seed) {
        None => Ok(tally),
        Some((seed, what)) => Err(Error::Seed {
            algorithm,
            seed,
            bare: options.bare,
            what,
        }),
    }
}

fn run_seed(options: &Options, algorithm: Algorithm, seed: u64) -> Result<Tally, String> {
    let run = || {
        let sink = options.trace.then(|| -> Sink { Box::new(tell) });
        if options.bare {
            let explored = explorer::explore(algorithm, seed, sink);
            return explored
                .map(|explored| (Tally::Bare(explored), 0))
                .map_err(|v| v.to_string());
        }
        let outcome = campaign::run(algorithm, seed, sink);
        outcome
            .map(|(report, print)| (Tally::Node(report), print))
            .map_err(|v| v.to_string())
    };
    let run = || catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(words(&*panic)));
    let first = run()?;
    if options.twice && run()? != first {
        return Err("the same seed played twice gives two different runs".to_owned());
    }
    Ok(first.0)
}

/// Tells one line of a trace; a reader that has seen enough, such as a pager, ends it.
fn tell(line: fmt::Arguments<'_>) {
    if writeln!(io::stdout(), "{line}").is_err() {
        std::process::exit(0);
    }
}

/// What a panic says.
fn words(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().map(String::as_str);
    let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panicked: {}", words.unwrap_or("without words"))
}

/// What happened in some seeds.
#[derive(Clone, Debug, Default, PartialEq)]
enum Tally {
    #[default]
    Nothing,
    Node(Report),
    Bare(Explored),
}

impl Tally {
    fn add(&mut self, other: &Self) {
        match (&mut *self, other) {
            (Self::Node(sum), Self::Node(report)) => sum.add(report),
            (Self::Bare(sum), Self::Bare(explored)) => sum.add(explored),
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
        }
    }
}

/// What is done already, kept in a file of lines `KEY = NEXT SEED`.
#[derive(Debug)]
struct Progress {
    path: Option<PathBuf>,
    done: Vec<(String, u64)>,
}

impl Progress {
    fn open(path: Option<&Path>) -> Result<Self, Error> {
        let text = match path.map(fs::read_to_string) {
            None => String::new(),
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Some(text) => text?,
        };
        let parse = |line: &str| {
            let (key, next) = line.rsplit_once(" = ")?;
            Some((key.to_owned(), next.parse().ok()?))
        };
        let done = text
            .lines()
            .map(|line| parse(line).ok_or(Error::Resume(line.to_owned())));
        Ok(Self {
            path: path.map(Path::to_owned),
            done: done.collect::<Result<_, _>>()?,
        })
    }

    fn done(&self, key: &str) -> Option<u64> {
        self.done
            .iter()
            .find(|(done, _)| done == key)
            .map(|(_, next)| *next)
    }

    /// The new file takes the place of the old one in one step.
    fn note(&mut self, key: &str, next: u64) -> io::Result<()> {
        self.done.retain(|(done, _)| done != key);
        self.done.push((key.to_owned(), next));
        let Some(path) = &self.path else {
            return Ok(());
        };
        let fresh = path.with_extension("new");
        let mut file = fs::File::create(&fresh)?;
        for (key, next) in &self.done {
            writeln!(file, "{key} = {next}")?;
        }
        drop(file);
        fs::rename(fresh, path)
    }
}

#[derive(Debug)]
enum Error {
    Seed {
        algorithm: Algorithm,
        seed: u64,
        bare: bool,
        what: String,
    },
    Resume(String),
    Io(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seed {
                algorithm,
                seed,
                bare,
                what,
            } => {
                let level = if *bare { " --bare" } else { "" };
                writeln!(f, "{algorithm}, seed {seed}: {what}")?;
                write!(
                    f,
                    "play it again: cargo run --release -p distlock-agent --no-default-features \
                     --features sim --example sim_campaign -- --engine {algorithm} --seeds \
                     {seed}..{}{level} --trace",
                    seed + 1
                )
            }
            Self::Resume(line) => write!(f, "no line of a resume file: {line:?}; remove the file"),
            Self::Io(error) => write!(f, "resume file: {error}"),
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

#[derive(Clone, Debug)]
struct Engines(Vec<Algorithm>);

impl FromStr for Engines {
    type Err = distlock_agent::protocol::UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "all" => Ok(Self(Algorithm::ALL.to_vec())),
            name => Ok(Self(vec![name.parse()?])),
        }
    }
}

#[derive(Clone, Debug)]
struct Seeds(Range<u64>);

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let range = text.split_once("..").and_then(|(start, end)| {
            let range = start.parse().ok()?..end.parse().ok()?;
            (range.start < range.end).then_some(range)
        });
        range
            .map(Self)
            .ok_or_else(|| "seeds are written FIRST..END, as in 0..1000".to_owned())
    }
}

impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.0.start, self.0.end)
    }
}
