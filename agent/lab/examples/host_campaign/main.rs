//! Plays the whole agent: the real programs, each a process, on simulated hosts.
//!
//! ```text
//! cargo build --release -p distlock-cli
//! cargo run --release -p distlock-lab --example host_campaign -- \
//!     --program target/release/distlock --seeds 0..100
//! ```
//!
//! `hosts/shim.c` is loaded into each process. Of all their threads one runs at a time, and every call that
//! waits, sends, receives, reads, or changes a file is a place where it may have to stand still: which one
//! runs, for how long, what becomes of datagrams and what befalls hosts and processes is chosen from the seed.

mod disk;
mod kernel;
mod network;
mod outcome;
mod page;
mod program;
mod scheduler;
mod sealed;
mod world;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use clap::{Parser, Subcommand};
use distlock_protocol::checksum::crc_32c;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use outcome::{Log, Outcome, Subject};
use program::{Manner, Mode};
use world::Trouble;

#[derive(Debug, Parser)]
struct Options {
    #[command(subcommand)]
    role: Option<Role>,
    /// The program `distlock` that is put to the test.
    #[arg(long, default_value = "target/debug/distlock")]
    program: PathBuf,
    /// The algorithm: one, or `all`, of which each seed chooses one.
    #[arg(long, default_value = "all")]
    engine: String,
    /// Of which kind all worlds are; if it is not given, each seed chooses.
    #[arg(long)]
    trouble: Option<Trouble>,
    /// The seeds to play, as FROM..TO.
    #[arg(long, default_value = "0..10")]
    seeds: String,
    /// How many seeds are played at the same time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// A file of the seeds that have passed, and what took place in each: they are not played again.
    #[arg(long)]
    log: Option<PathBuf>,
    /// Plays each seed twice, and fails if the two runs differ.
    #[arg(long)]
    twice: bool,
    /// Writes every turn to standard error.
    #[arg(long)]
    trace: bool,
}

/// What this program is to be in a simulated world.
#[derive(Debug, Subcommand)]
enum Role {
    /// The scheduler and judge of one seed, in namespaces of its own.
    World {
        #[arg(long)]
        seed: u64,
        #[arg(long)]
        engine: Option<String>,
        #[arg(long)]
        trouble: Option<Trouble>,
        #[arg(long)]
        program: PathBuf,
        #[arg(long)]
        shim: PathBuf,
        #[arg(long)]
        trace: bool,
    },
    /// A program that enters a lock.
    Enters {
        /// Its host's agent; without one it is a member of the group itself.
        #[arg(long)]
        socket: Option<PathBuf>,
        lock: String,
        times: u32,
        stay_ms: u64,
        mode: Mode,
        /// Inside, it says what its agent cannot understand.
        #[arg(long, requires = "socket")]
        garbles: bool,
        /// It has the library abort it when the lock is lost.
        #[arg(long)]
        aborts: bool,
    },
    /// The command of `distlock run`.
    Command {
        stay_ms: u64,
        manner: Manner,
        mode: Mode,
        lock: String,
    },
}

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// So many seeds of all kinds play all that there is.
const ENOUGH: usize = 10_000;

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("host_campaign: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<ExitCode> {
    let options = Options::parse();
    match options.role {
        None => campaign(&options),
        Some(Role::World {
            seed,
            engine,
            trouble,
            program,
            shim,
            trace,
        }) => world::play(seed, engine.as_deref(), trouble, &program, &shim, trace),
        Some(Role::Enters {
            socket,
            lock,
            times,
            stay_ms,
            mode,
            garbles,
            aborts,
        }) => {
            let stay = Duration::from_millis(stay_ms);
            let manner = (mode, garbles, aborts);
            program::enters(socket.as_deref(), &lock, (times, stay), manner)?;
            Ok(ExitCode::SUCCESS)
        }
        Some(Role::Command {
            stay_ms,
            manner,
            mode,
            lock,
        }) => {
            program::command(stay_ms, manner, (mode, &lock))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// What is loaded into every process.
const SHIM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/hosts/shim.c");

/// Builds the shim in `dir`.
fn shim(dir: &Path) -> Result<PathBuf> {
    let path = dir.join("shim.so");
    let mut compiler = Command::new("cc");
    compiler.args([
        "-std=gnu11",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-shared",
        "-fPIC",
        "-pthread",
        "-o",
    ]);
    if !compiler.arg(&path).arg(SHIM).status()?.success() {
        return Err("the shim does not compile".into());
    }
    Ok(path)
}

/// Plays the seeds until one fails.
fn campaign(options: &Options) -> Result<ExitCode> {
    let (from, to) = options
        .seeds
        .split_once("..")
        .ok_or("seeds are given as FROM..TO")?;
    let (from, to) = (from.parse()?, to.parse()?);
    let dir = tempfile::tempdir()?;
    let program = options.program.canonicalize()?;
    let log = match &options.log {
        Some(path) => Log::open(path, &subject(options, &program)?)?,
        None => Log::default(),
    };
    let before = log.len();
    let campaign = Campaign {
        shim: shim(dir.path())?,
        program,
        own: std::env::current_exe()?,
        options,
        next: AtomicU64::new(from),
        log: Mutex::new(log),
        failed: Mutex::new(None),
    };
    let begun = SystemTime::now();
    thread::scope(|scope| {
        for job in 0..options.jobs {
            let campaign = &campaign;
            scope.spawn(move || {
                // Of a world one thread runs at a time, and is woken soonest where the one before it ran.
                if let Err(error) = pin(job) {
                    eprintln!("host_campaign: worlds move from one processor to another: {error}");
                }
                campaign.work(to);
            });
        }
    });
    let failed = campaign.failed.into_inner();
    let log = campaign
        .log
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    let (now, took) = (log.len() - before, begun.elapsed().unwrap_or_default());
    println!("{log}; {now} of them now, in {:.0} s", took.as_secs_f64());
    let Some((seed, what)) = failed.unwrap_or_else(PoisonError::into_inner) else {
        let is_of_all = options.engine == "all" && options.trouble.is_none();
        let lacks = log.lacks();
        if log.len() >= ENOUGH && is_of_all && !lacks.is_empty() {
            return Err(format!("{} seeds, and none has played {lacks:?}", log.len()).into());
        }
        return Ok(ExitCode::SUCCESS);
    };
    let program = options.program.display();
    let engine = &options.engine;
    let trouble = options.trouble.map_or_else(String::new, |trouble| {
        format!(" --trouble {}", trouble.word())
    });
    eprintln!(
        "host_campaign: seed {seed}: {what}\nto play it again:\n  cargo run --release -p distlock-lab \
         --example host_campaign -- --program {program} --engine {engine}{trouble} --seeds {seed}..{}",
        seed + 1
    );
    Ok(ExitCode::FAILURE)
}

/// What a log is of.
fn subject(options: &Options, program: &Path) -> Result<Subject> {
    Ok(Subject {
        program: crc_32c(&fs::read(program)?),
        campaign: crc_32c(&[fs::read(std::env::current_exe()?)?, fs::read(SHIM)?].concat()),
        engine: options.engine.clone(),
        trouble: options.trouble.map(|trouble| trouble.word().to_owned()),
        twice: options.twice,
    })
}

/// Has this thread, and whatever it starts, run on one of the processors only.
fn pin(job: usize) -> nix::Result<()> {
    let allowed = sched_getaffinity(Pid::from_raw(0))?;
    let is_allowed = |cpu: &usize| allowed.is_set(*cpu) == Ok(true);
    let allowed: Vec<_> = (0..CpuSet::count()).filter(is_allowed).collect();
    let mut own = CpuSet::new();
    own.set(allowed[job % allowed.len()])?;
    sched_setaffinity(Pid::from_raw(0), &own)
}

struct Campaign<'a> {
    shim: PathBuf,
    program: PathBuf,
    own: PathBuf,
    options: &'a Options,
    next: AtomicU64,
    log: Mutex<Log>,
    /// The first seed that failed, and why.
    failed: Mutex<Option<(u64, String)>>,
}

impl Campaign<'_> {
    /// Plays seeds below `end`, as long as none has failed.
    fn work(&self, end: u64) {
        while self.failed().is_none() {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return;
            }
            if self.log().has(seed) {
                continue;
            }
            if let Err(error) = self.pass(seed) {
                self.failed().get_or_insert((seed, error.to_string()));
            }
        }
    }

    /// Plays a seed, once or twice, and keeps what came of it.
    ///
    /// # Errors
    /// What went wrong.
    fn pass(&self, seed: u64) -> Result<()> {
        let first = self.play(seed)?;
        if self.options.twice {
            let second = self.play(seed);
            let second = second.map_err(|error| format!("only the second run fails: {error}"))?;
            if first != second {
                return Err(format!("two runs differ:\n  {first}\n  {second}").into());
            }
        }
        println!("seed {seed}: {first}");
        self.log().add(seed, first)
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self) -> MutexGuard<'_, Option<(u64, String)>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plays a seed in namespaces of its own.
    fn play(&self, seed: u64) -> Result<Outcome> {
        let mut world = Command::new("setpriv");
        // The world ends with the campaign.
        world.args(["--pdeathsig", "KILL", "unshare"]);
        world.args([
            "--pid",
            "--fork",
            "--kill-child",
            "--mount",
            "--mount-proc",
            "--net",
        ]);
        // Addresses are keys of futexes, and hash tables may go by them.
        world.args(["setarch", "--addr-no-randomize"]);
        world.arg(&self.own).arg("world");
        world.arg("--seed").arg(seed.to_string());
        world.arg("--program").arg(&self.program);
        world.arg("--shim").arg(&self.shim);
        if self.options.engine != "all" {
            world.arg("--engine").arg(&self.options.engine);
        }
        if let Some(trouble) = self.options.trouble {
            world.args(["--trouble", trouble.word()]);
        }
        if self.options.trace {
            world.arg("--trace");
        }
        let output = world.stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stdout).into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}
