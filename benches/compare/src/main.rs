//! What it takes to take turns by distlock, and by what else there is, in interleaved rounds of one
//! run, beside a bare mio ping-pong. `benches/compare/README.md` says what the columns mean;
//! `benches/compare/run` starts the servers and this.
//!
//! ```text
//! compare [--rounds 5] [--secs 1] [--only PART,PART] [--free] [--json FILE]
//!         [--server NAME=ADDRESS,ADDRESS@PID,PID]...
//! ```

mod arguments;
mod crew;
#[path = "../../turns/floor.rs"]
mod floor;
mod locks;
#[path = "../../turns/place.rs"]
mod place;
mod report;
mod shared;
mod worker;

use std::process::ExitCode;
use std::thread;

use crate::arguments::Arguments;
use crate::crew::Crew;
use crate::floor::Echo;
use crate::place::{Place, Transport};
use crate::report::Round;
use crate::shared::now;

/// The role of a process of this program that is not the one that measures.
const ROLE: &str = "DISTLOCK_BENCH_ROLE";

/// How often a datagram goes there and back for a round's ping-pong.
const ROUND_TRIPS: usize = 5000;

fn main() -> ExitCode {
    match std::env::var(ROLE).as_deref() {
        Ok("echo") => floor::echo(),
        Ok("agent") => worker::run_agent(),
        Ok("worker") => worker::run(),
        _ => return measure(),
    }
    ExitCode::SUCCESS
}

fn measure() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("compare: {error}");
            return ExitCode::from(2);
        }
    };
    let systems = arguments.systems();
    let mut rounds = Vec::new();
    for number in 1..=arguments.rounds {
        let mut round = Round::default();
        for transport in Transport::ALL {
            round
                .floors
                .push((transport.to_string(), ping_pong(transport)));
        }
        for &(system, server) in &systems {
            let name = system.name();
            eprintln!("round {number}: {name}");
            let row = Crew::start(system, server, &arguments).measure();
            round.rows.push((name, row));
        }
        rounds.push(round);
    }
    print!("{}", report::table(&rounds));
    if let Some(path) = &arguments.json {
        let text = format!("{:#}\n", report::json(&rounds, arguments.json()));
        if let Err(error) = std::fs::write(path, text) {
            eprintln!("compare: {}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// The median of a datagram there and back, in nanoseconds; each end on a core of its own, if there
/// are two.
fn ping_pong(transport: Transport) -> f64 {
    let measured = move || {
        let place = *Place::available().first().expect("at least one core");
        place.pin_measured();
        let mut echo = Echo::start(transport, place);
        let times: Vec<_> = (0..ROUND_TRIPS)
            .map(|_| {
                let start = now();
                echo.round_trip();
                (now() - start) as f64
            })
            .collect();
        report::median(times.into_iter()).expect("there are some")
    };
    // Of its own, for only this thread to be pinned.
    thread::spawn(measured).join().expect("it does not panic")
}
