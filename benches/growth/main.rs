//! What grows with a group: its members, its locks, those who wait for one, and the programs that use one
//! agent. Every row has beside it what theory says that it grows with.
//!
//! ```text
//! cargo bench -p distlock-benches --bench growth                        everything: some ten minutes
//! cargo bench -p distlock-benches --bench growth -- members             members, locks, waiters or clients
//! cargo bench -p distlock-benches --bench growth -- idle                64 members that want nothing
//! cargo bench -p distlock-benches --bench growth -- --small             less of each, to try it out
//! cargo bench -p distlock-benches --bench growth -- --json $PWD/growth.json
//!                                      and in a file, for plots (CONTRIBUTING.md)
//! ```
//!
//! A member is a process. The processor's time of idle members is hardly disturbed by other work on the
//! machine; times are.

mod curves;
#[path = "../turns/floor.rs"]
mod floor;
mod member;
#[path = "../turns/place.rs"]
#[expect(dead_code, reason = "members run where the kernel likes")]
mod place;
mod process;
mod report;
#[path = "../turns/turns.rs"]
mod turns;

use std::process::ExitCode;

/// The role of a process of this program that is not the one that measures.
const ROLE: &str = "DISTLOCK_BENCH_ROLE";

/// What there is to measure, and how much of it.
struct Arguments {
    curves: Vec<String>,
    is_small: bool,
    json: Option<String>,
}

fn main() -> ExitCode {
    match std::env::var(ROLE).as_deref() {
        Ok("echo") => floor::echo(),
        Ok("member") => member::run_member(),
        Ok("clients") => member::run_clients(),
        _ => return measure(),
    }
    ExitCode::SUCCESS
}

fn measure() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("growth: {error}");
            return ExitCode::from(2);
        }
    };
    let rows = curves::measure(&arguments.curves, arguments.is_small);
    print!("{}", report::table(&rows));
    if let Some(path) = arguments.json
        && let Err(error) = std::fs::write(&path, report::json(&rows))
    {
        eprintln!("growth: {path}: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        curves: Vec::new(),
        is_small: false,
        json: None,
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            // Cargo says so to every benchmark.
            "--bench" => {}
            "--small" => arguments.is_small = true,
            "--json" => arguments.json = Some(words.next().ok_or("--json needs a file")?),
            curve if curves::NAMES.contains(&curve) => arguments.curves.push(word),
            _ => return Err(format!("{word} is none of {}", curves::NAMES.join(", "))),
        }
    }
    if arguments.curves.is_empty() {
        let all = curves::NAMES.iter().filter(|name| **name != "idle");
        arguments.curves = all.map(|&name| name.to_owned()).collect();
    }
    Ok(arguments)
}
