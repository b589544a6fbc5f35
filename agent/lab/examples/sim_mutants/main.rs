//! Breaks the protocol core on purpose, one rule at a time, and demands that the simulator notices.
//!
//! ```text
//! cargo run -p distlock-lab --example sim_mutants
//! ```
//!
//! Each mutant of `mutants.toml` is a search and a replacement, in a copy of the source tree (in the target
//! directory; the sources themselves know nothing of mutants). Each that changes the body of one function only
//! stands there beside the original, and these are built together; `SWITCHED_MUTANT` switches one on by its
//! number. The others are built one by one. Each is given to `sim_campaign` for as many seeds as it says, or to
//! `host_campaign`, or to `model_check` for as many states. The unbroken core must pass the very same first, so
//! that what is caught is the breach. On simulated hosts, which take long, it must pass the first seed before,
//! and after each mutant the seed that caught that one.
//!
//! `--search` gives the mutants of engines and nodes to `sim_search`, in place of playing seeds: all
//! runs of a small group with one deviation, or three of bare engines.

mod patch;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use clap::Parser;
use patch::{Mutant, Run, Subject};

/// Breaks the protocol core on purpose, and demands that the simulator notices.
#[derive(Debug, Parser)]
struct Options {
    /// Only mutants whose name contains one of these.
    names: Vec<String>,
    /// Only those that are marked as quick, for continuous integration.
    #[arg(long)]
    quick: bool,
    /// Search a small group in place of playing seeds.
    #[arg(long)]
    search: bool,
    /// How many seeds run at the same time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

/// How much of a processor's time one mutant's seeds may take. A mutant that runs for ever is noticed too, where the unbroken core
/// has played the same seeds in that time.
const PATIENCE: Duration = Duration::from_secs(600);
const PATIENCE_OF_HOSTS: Duration = Duration::from_secs(2400);

/// At the end of a crate's root: which mutant is switched on.
const SWITCH: &str = r#"
#[allow(dead_code, clippy::all)]
pub(crate) fn mutant() -> usize {
    extern crate std;
    static MUTANT: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    let word = || std::env::var("SWITCHED_MUTANT").ok();
    *MUTANT.get_or_init(|| word().map_or(usize::MAX, |word| word.parse().expect("a number")))
}
"#;

/// Where programs begin.
const MAIN: &str = "fn main() -> ExitCode {";

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
/// Files, and what they were before a breach.
type Before = Vec<(PathBuf, String)>;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(survivors) if survivors.is_empty() => ExitCode::SUCCESS,
        Ok(survivors) => {
            eprintln!("sim_mutants: not noticed: {}", survivors.join(", "));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("sim_mutants: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the names of the mutants that nothing noticed.
fn run(options: &Options) -> Result<Vec<String>> {
    let mutants: Vec<Mutant> = patch::all()?
        .into_iter()
        .filter(|mutant| options.quick <= mutant.quick)
        .filter(|mutant| {
            options.names.is_empty() || options.names.iter().any(|part| mutant.name.contains(part))
        })
        .filter_map(|mutant| {
            if options.search {
                searched(mutant)
            } else {
                Some(mutant)
            }
        })
        .collect();
    if mutants.is_empty() {
        return Err("no mutant has such a name".into());
    }
    let runs = widest(&mutants);
    let programs = runs.iter().map(|run| program(&run.subject)).collect();
    let bench = Bench::new(options.jobs, programs)?;
    let numbered: Vec<_> = mutants.into_iter().enumerate().collect();
    let (changed, apart) = bench.switch(&numbered)?;
    let built = bench.build();
    built.map_err(|error| format!("the mutants beside what they change: {error}"))?;
    bench.keep_unbroken()?;
    for Run { subject, seeds } in &runs {
        let seeds = if takes_long(subject) { 1 } else { *seeds };
        if let Outcome::Caught(what) = bench.run(subject, 0..seeds, &bench.built(), None)? {
            return Err(format!("the unbroken core fails: {what}").into());
        }
    }
    println!(
        "the unbroken core passes; {} mutants follow",
        numbered.len()
    );
    let mut survivors = Vec::new();
    let mut note = |mutant: &Mutant, is_noticed: bool| {
        if !is_noticed {
            survivors.push(mutant.name.clone());
        }
    };
    let (apart, switched): (Vec<_>, Vec<_>) = numbered
        .iter()
        .partition(|(number, _)| apart.contains(number));
    for (number, mutant) in switched {
        note(mutant, bench.judge(mutant, Some(*number))?);
    }
    restore(changed)?;
    for (_, mutant) in apart {
        let changed = bench.breach(mutant)?;
        // The others are to be played nevertheless.
        match bench.build() {
            Ok(()) => note(mutant, bench.judge(mutant, None)?),
            Err(error) => {
                println!("{:<40} {error}", mutant.name);
                note(mutant, false);
            }
        }
        restore(vec![changed])?;
    }
    Ok(survivors)
}

/// Puts back what files were.
fn restore(files: Before) -> Result<()> {
    for (path, whole) in files {
        fs::write(path, whole)?;
    }
    Ok(())
}

/// The same, to be noticed by a search where it is by seeds of engines or nodes.
fn searched(mutant: Mutant) -> Option<Mutant> {
    let Subject::Engine {
        engine,
        bare,
        failure,
        directed,
    } = &mutant.run.subject
    else {
        return None;
    };
    let search = match (bare, failure.as_deref()) {
        (true, _) => format!("--engine {engine} --bare --deviations 3 --within 50"),
        // Logs are as they should be in a search.
        (false, Some("lying-quorum")) => return None,
        (false, Some(failure)) => format!("--engine {engine} --failure {failure}"),
        (false, None) if *directed => format!("--engine {engine} --failure quorum"),
        (false, None) => format!("--engine {engine} --failure unanimity"),
    };
    let subject = Subject::Search { search };
    let seeds = mutant.run.seeds;
    let run = Run { subject, seeds };
    Some(Mutant { run, ..mutant })
}

/// The runs that contain all runs of `mutants`.
fn widest(mutants: &[Mutant]) -> Vec<Run> {
    let mut seeds = BTreeMap::new();
    for Mutant { run, .. } in mutants {
        let most = seeds.entry(run.subject.clone()).or_insert(0);
        *most = run.seeds.max(*most);
    }
    let run = |(subject, seeds)| Run { subject, seeds };
    seeds.into_iter().map(run).collect()
}

/// The program that runs it.
fn program(subject: &Subject) -> &'static str {
    match subject {
        Subject::Engine { .. } | Subject::Elections { .. } | Subject::World { .. } => {
            "sim_campaign"
        }
        Subject::Search { .. } => "sim_search",
        Subject::Model { .. } => "model_check",
        Subject::Hosts { .. } => "host_campaign",
    }
}

/// Whether one seed takes about a second.
const fn takes_long(subject: &Subject) -> bool {
    matches!(subject, Subject::Hosts { .. })
}

/// How that calls it.
fn arguments(subject: &Subject) -> Vec<&str> {
    match subject {
        Subject::Engine {
            engine,
            bare,
            failure,
            directed,
        } => {
            let mut arguments = vec!["--engine", engine];
            arguments.extend(bare.then_some("--bare"));
            arguments.extend(directed.then_some("--directed"));
            if let Some(failure) = failure {
                arguments.extend(["--failure", failure]);
            }
            arguments
        }
        Subject::Elections { elections } => vec!["--elections", elections],
        Subject::World { world } => vec!["--world", world],
        Subject::Search { search } => search.split_whitespace().collect(),
        Subject::Model { model } => model.split_whitespace().collect(),
        Subject::Hosts { hosts, trouble } => {
            let mut arguments = vec!["--engine", hosts];
            if let Some(trouble) = trouble {
                arguments.extend(["--trouble", trouble]);
            }
            arguments
        }
    }
}

/// Where mutants are built and run.
struct Bench {
    tree: PathBuf,
    target: PathBuf,
    programs: BTreeSet<&'static str>,
    jobs: usize,
}

enum Outcome {
    Passed,
    Caught(String),
}

impl Bench {
    /// Copies the sources as they lie in the working tree.
    fn new(jobs: usize, programs: BTreeSet<&'static str>) -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .nth(2)
            .ok_or("no workspace")?;
        let home = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        let home = home.unwrap_or_else(|| root.join("target")).join("mutants");
        let bench = Self {
            tree: home.join("tree"),
            target: home.join("build"),
            programs,
            jobs,
        };
        if bench.tree.exists() {
            fs::remove_dir_all(&bench.tree)?;
        }
        let list = [
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ];
        let files = Command::new("git").args(list).current_dir(root).output()?;
        if !files.status.success() {
            return Err("the list of source files comes from git, and this is no checkout".into());
        }
        for file in String::from_utf8(files.stdout)?.split_terminator('\0') {
            let (from, to) = (root.join(file), bench.tree.join(file));
            // A file that was deleted and not yet committed is still listed.
            if from.exists() {
                fs::create_dir_all(to.parent().ok_or("a file without a directory")?)?;
                fs::copy(from, to)?;
            }
        }
        Ok(bench)
    }

    /// Writes this breach. Returns what the file was.
    fn breach(&self, mutant: &Mutant) -> Result<(PathBuf, String)> {
        let path = self.tree.join("agent").join(&mutant.file);
        let whole = fs::read_to_string(&path)?;
        fs::write(&path, mutant.apply(&whole)?)?;
        Ok((path, whole))
    }

    /// Writes all breaches that can be switched on. Returns what the files were, and the numbers of the others.
    fn switch(&self, mutants: &[(usize, Mutant)]) -> Result<(Before, Vec<usize>)> {
        let mut by_file = BTreeMap::<_, Vec<_>>::new();
        for (number, mutant) in mutants {
            let of_file = by_file.entry(&mutant.file).or_default();
            of_file.push((*number, mutant.clone()));
        }
        let (mut files, mut apart) = (Vec::new(), Vec::new());
        let mut roots = BTreeSet::new();
        for (file, mutants) in by_file {
            let path = self.tree.join("agent").join(file);
            let whole = fs::read_to_string(&path)?;
            let (text, others) = patch::switch(&whole, &mutants)?;
            apart.extend(others);
            fs::write(&path, text)?;
            let sources = path.ancestors().find(|it| it.ends_with("src"));
            roots.insert(sources.ok_or("a file of no crate")?.to_owned());
            files.push((path, whole));
        }
        for root in roots {
            for name in ["lib.rs", "main.rs"] {
                let path = root.join(name);
                let Ok(whole) = fs::read_to_string(&path) else {
                    continue;
                };
                let mut text = format!("{whole}{SWITCH}");
                if name == "main.rs" {
                    // Before a guardian forgets its environment.
                    let begins = text.find(MAIN).ok_or("a program without a beginning")?;
                    text.insert_str(begins + MAIN.len(), "mutant();");
                }
                fs::write(&path, text)?;
                // If a mutant is in it, what it was is known already.
                if !files.iter().any(|(changed, _)| *changed == path) {
                    files.push((path, whole));
                }
            }
        }
        Ok((files, apart))
    }

    fn build(&self) -> Result<()> {
        let build = "build --quiet --release -p distlock-lab";
        let mut build: Vec<_> = build.split_whitespace().collect();
        build.extend(self.programs.iter().flat_map(|name| ["--example", *name]));
        if self.programs.contains("host_campaign") {
            build.extend(["-p", "distlock-cli", "--bin", "distlock"]);
        }
        // Not `env!("CARGO")`, the toolchain's own: then nobody tells rustup's `rustc` which
        // toolchain builds, and it takes that of each dependency's rust-toolchain.toml.
        let output = Command::new("cargo")
            .args(build)
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            // One changed file builds in seconds, and runs nearly as fast.
            .env("CARGO_INCREMENTAL", "1")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "256")
            .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
            .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
            .output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!(
            "does not build:\n{}",
            String::from_utf8_lossy(&output.stderr)
        )
        .into())
    }

    /// Where the programs are, as they were built last.
    fn built(&self) -> PathBuf {
        self.target.join("release")
    }

    /// Where they are as they were before the first breach.
    fn unbroken(&self) -> PathBuf {
        self.target.with_file_name("unbroken")
    }

    fn keep_unbroken(&self) -> Result<()> {
        let kept = self.unbroken();
        fs::create_dir_all(kept.join("examples"))?;
        let mut files: Vec<_> = self
            .programs
            .iter()
            .map(|it| format!("examples/{it}"))
            .collect();
        if self.programs.contains("host_campaign") {
            files.push("distlock".to_owned());
        }
        for file in files {
            fs::copy(self.built().join(&file), kept.join(&file))?;
        }
        Ok(())
    }

    /// Whether what is built notices this mutant, after it was switched on by its number if it has one.
    fn judge(&self, mutant: &Mutant, number: Option<usize>) -> Result<bool> {
        let Run { subject, seeds } = &mutant.run;
        let (what, is_noticed) = match self.run(subject, 0..*seeds, &self.built(), number)? {
            Outcome::Passed => (format!("SURVIVED {seeds}"), false),
            Outcome::Caught(what) if takes_long(subject) => {
                let is_breach = self.passes_unbroken(subject, &what)?;
                let verdict = if is_breach { "" } else { "NOT DECIDED: " };
                (format!("{verdict}{what}"), is_breach)
            }
            Outcome::Caught(what) => (what, true),
        };
        println!("{:<40} {what}", mutant.name);
        Ok(is_noticed)
    }

    /// Demands that the unbroken core passes the seed by which `what` says that a breach was noticed;
    /// whether `what` names one.
    fn passes_unbroken(&self, subject: &Subject, what: &str) -> Result<bool> {
        let seed = what
            .strip_prefix("seed ")
            .and_then(|rest| rest.split(':').next());
        let Some(seed) = seed.and_then(|seed| seed.parse().ok()) else {
            return Ok(false);
        };
        match self.run(subject, seed..seed + 1, &self.unbroken(), None)? {
            Outcome::Passed => Ok(true),
            Outcome::Caught(what) => {
                Err(format!("the unbroken core fails on that seed too: {what}").into())
            }
        }
    }

    /// Plays these seeds, or as many states, by the programs in the directory `programs`, with a mutant switched on.
    fn run(
        &self,
        subject: &Subject,
        seeds: Range<u64>,
        programs: &Path,
        mutant: Option<usize>,
    ) -> Result<Outcome> {
        let program = program(subject);
        let mut command = Command::new(programs.join("examples").join(program));
        let jobs = self.jobs.to_string();
        command.args(arguments(subject)).args(["--jobs", &jobs]);
        match mutant {
            Some(number) => command.env("SWITCHED_MUTANT", number.to_string()),
            None => command.env_remove("SWITCHED_MUTANT"),
        };
        if let Subject::Hosts { .. } = subject {
            command.arg("--program").arg(programs.join("distlock"));
        }
        match subject {
            Subject::Model { .. } => command.arg("--states").arg(seeds.end.to_string()),
            Subject::Search { .. } => &mut command,
            _ => command
                .arg("--seeds")
                .arg(format!("{}..{}", seeds.start, seeds.end)),
        };
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut stderr = child.stderr.take().ok_or("no standard error")?;
        let (sender, receiver) = mpsc::channel();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            let read = stderr.read_to_string(&mut text).map(|_| text);
            // The receiver is gone if it waited too long.
            let _ = sender.send(());
            read
        });
        let patience = if takes_long(subject) {
            PATIENCE_OF_HOSTS
        } else {
            PATIENCE
        };
        if !ends(&receiver, child.id(), patience) {
            child.kill()?;
            child.wait()?;
            return Ok(Outcome::Caught("runs for ever".to_owned()));
        }
        let text = reader.join().map_err(|_| "the reader panicked")??;
        if child.wait()?.success() {
            return Ok(Outcome::Passed);
        }
        let verdict = text
            .lines()
            .find_map(|line| line.strip_prefix(program)?.strip_prefix(": "));
        let verdict = verdict.ok_or_else(|| format!("{program} did not run: {text}"))?;
        Ok(Outcome::Caught(verdict.to_owned()))
    }
}

/// How many times as long as its patience a run may last that has little of the processors: continuous integration
/// runs mutants on what other steps leave.
const SHARE: u32 = 6;

/// Waits for the end of the process `pid`, of which `receiver` hears; `false` if it does not end.
fn ends(receiver: &mpsc::Receiver<()>, pid: u32, patience: Duration) -> bool {
    let look = Duration::from_secs(1);
    for _ in 0..(patience * SHARE).as_secs() {
        if receiver.recv_timeout(look).is_ok() {
            return true;
        }
        if used_time(pid).is_some_and(|used| used > patience) {
            return false;
        }
    }
    false
}

/// The processors' time that a process has used; `None` if it has ended, or the system does not say so.
fn used_time(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may have anything in it: the 14th and the 15th of proc_pid_stat(5), in hundredths of a
    // second.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some(Duration::from_millis((ticks()? + ticks()?) * 10))
}
