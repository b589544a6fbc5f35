//! Plays schedules on what orders the views, and says which one failed and how to play it again.
//!
//! ```text
//! cargo run --release -p distlock-lab \
//!     --example view_log_fuzz -- --schedules 0..300000 --jobs 2 --resume schedules.txt
//! ```
//!
//! With `--library noraft-0.4.0` they are played on a release that is known to be wrong: then it is
//! a failure if all pass.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use distlock_lab::trace::Sink;
use distlock_lab::view_log::{self, Report};
use distlock_protocol::membership::quorum::log::library::Noraft;
use old_release::OldRelease;
use support::{Progress, Seeds, Stopped, run_all, tell};

mod old_release;
#[path = "../support/mod.rs"]
mod support;

/// Plays schedules on what orders the views, until one fails.
#[derive(Debug, Parser)]
struct Options {
    /// Which schedules: the first, and the one after the last.
    #[arg(long, default_value = "0..10000")]
    schedules: Seeds,
    /// What is inside of the logs.
    #[arg(long, default_value = "noraft")]
    library: Inside,
    /// How many schedules run at the same time.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Where to keep what is done; what is done already is not done again.
    #[arg(long)]
    resume: Option<PathBuf>,
    /// Play each schedule twice, and compare.
    #[arg(long)]
    twice: bool,
    /// Tell everything that happens.
    #[arg(long)]
    trace: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Inside {
    /// The release in use.
    #[value(name = "noraft")]
    Present,
    /// One that is known to be wrong.
    #[value(name = "noraft-0.4.0")]
    Old,
}

impl fmt::Display for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Present => "noraft",
            Self::Old => "noraft-0.4.0",
        })
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let outcome = play_all(&options);
    let expected = options.library == Inside::Present;
    match outcome {
        Ok(()) if expected => ExitCode::SUCCESS,
        Ok(()) => {
            eprintln!("view_log_fuzz: a release that is known to be wrong passes");
            ExitCode::FAILURE
        }
        Err(Stopped::Progress(error)) => {
            eprintln!("view_log_fuzz: {error}");
            ExitCode::FAILURE
        }
        Err(Stopped::Seed { seed, what }) => {
            let library = options.library;
            println!("{library}, schedule {seed}: {what}");
            println!(
                "play it again: cargo run --release -p distlock-lab --example view_log_fuzz -- --library {library} --schedules \
                 {seed}..{} --trace",
                seed + 1
            );
            ExitCode::from(u8::from(expected))
        }
    }
}

fn play_all(options: &Options) -> Result<(), Stopped> {
    let mut progress = Progress::open(options.resume.as_deref())?;
    let key = format!("{} {}", options.library, options.schedules);
    #[expect(
        clippy::disallowed_methods,
        reason = "a rate need not count a suspended machine"
    )]
    let clock = Instant::now();
    let mut total = Report::default();
    let (schedules, jobs) = (&options.schedules, options.jobs);
    let run = |schedule| play(options, schedule);
    let already = run_all(&mut progress, &key, schedules, jobs, run, |report| {
        total.add(&report);
    })?;
    let seconds = clock.elapsed().as_secs_f64();
    let rate = (schedules.count() - already) as f64 / seconds;
    println!("{key}: passed, {already} before and the rest at {rate:.0} schedules/s");
    println!("    {total:?}");
    Ok(())
}

fn play(options: &Options, schedule: u64) -> Result<Report, String> {
    let run = || {
        let sink = options.trace.then(|| -> Sink { Box::new(tell) });
        let outcome = match options.library {
            Inside::Present => view_log::run::<Noraft>(schedule, sink),
            Inside::Old => view_log::run::<OldRelease>(schedule, sink),
        };
        outcome.map_err(|violation| violation.to_string())
    };
    let first = run()?;
    if options.twice && run()? != first {
        return Err("the same schedule played twice gives two different runs".to_owned());
    }
    Ok(first.0)
}
