//! What the programs share that run seeds by the thousand: many at a time, and on from where the
//! last run was ended.

use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

mod words;

pub(crate) use words::{tell, words};

/// How many seeds are done between two looks at the clock and at the file.
const BLOCK: u64 = 500;

/// Runs all `seeds` that are not done yet, `jobs` at a time, and hands what each gives to `add`.
/// How many were done already, or else the lowest seed that is known to fail, and why.
pub(crate) fn run_all<T: Send>(
    progress: &mut Progress,
    key: &str,
    seeds: &Seeds,
    jobs: usize,
    run: impl Fn(u64) -> Result<T, String> + Sync,
    mut add: impl FnMut(T),
) -> Result<u64, Stopped> {
    let Range { start, end } = seeds.0;
    let mut next = progress.done(key).unwrap_or(start);
    let already = next - start;
    while next < end {
        let block = next..end.min(next + BLOCK);
        next = block.end;
        for result in run_block(block, jobs, &run)? {
            add(result);
        }
        progress.note(key, next).map_err(Error::Io)?;
    }
    Ok(already)
}

fn run_block<T: Send>(
    block: Range<u64>,
    jobs: usize,
    run: &(impl Fn(u64) -> Result<T, String> + Sync),
) -> Result<Vec<T>, Stopped> {
    let next = AtomicU64::new(block.start);
    let failed = AtomicBool::new(false);
    let outcomes = Mutex::new((Vec::new(), Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= block.end {
                        break;
                    }
                    let outcome = caught(|| run(seed));
                    let mut outcomes = outcomes.lock().unwrap();
                    match outcome {
                        Ok(result) => outcomes.0.push(result),
                        Err(what) => {
                            failed.store(true, Ordering::Relaxed);
                            outcomes.1.push((seed, what));
                        }
                    }
                }
            });
        }
    });
    let (results, failures) = outcomes.into_inner().unwrap();
    match failures.into_iter().min_by_key(|(seed, _)| *seed) {
        None => Ok(results),
        Some((seed, what)) => Err(Stopped::Seed { seed, what }),
    }
}

/// What `run` says; of a panic, what that says.
pub(crate) fn caught<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(words(&*panic)))
}

/// Why not all seeds were run.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// This one failed.
    Seed { seed: u64, what: String },
    /// What is done could not be kept.
    Progress(Error),
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Self::Progress(error)
    }
}

/// What is done already, kept in a file of lines `KEY = NEXT SEED`.
#[derive(Debug)]
pub(crate) struct Progress {
    path: Option<PathBuf>,
    done: Vec<(String, u64)>,
}

impl Progress {
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, Error> {
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

/// What is wrong with the file of what is done.
#[derive(Debug)]
pub(crate) enum Error {
    Resume(String),
    Io(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
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

/// A range of seeds.
#[derive(Clone, Debug)]
pub(crate) struct Seeds(pub(crate) Range<u64>);

impl Seeds {
    /// How many.
    pub(crate) fn count(&self) -> u64 {
        self.0.end - self.0.start
    }
}

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
