//! The program `distlock`: locks for shell scripts, and the agent of a host.

mod agent;
mod args;
mod audit;
mod cgroup;
mod colours;
mod command;
mod command_line;
mod completions;
mod config;
mod descendants;
mod diagram;
mod doctor;
mod exit;
mod fence;
mod group;
mod guardian;
mod holder;
mod keygen;
mod lease_monitor;
mod log;
mod manager;
mod members;
mod metrics;
mod quorum;
mod recover;
mod refusal;
mod run;
mod signals;
mod sim;
mod spawn;
mod status;
mod store;
mod terminal;
mod top;
mod trace;
mod waiting;
mod watch;
mod way;

use std::process::ExitCode;

use args::Command;

fn main() -> ExitCode {
    if let Some(answered) = completions::answer() {
        return answered.unwrap_or_else(|failure| failure.report());
    }
    let done = match command_line::parse() {
        Ok(Command::Run(args)) => run::run(&args),
        Ok(Command::Elect(args)) => run::elect(&args),
        Ok(Command::Agent(args)) => agent::agent(&args),
        Ok(Command::Status(args)) => status::status(&args),
        Ok(Command::Members(args)) => status::members(&args),
        Ok(Command::Who(args)) => status::who(&args),
        Ok(Command::Top(args)) => top::top(&args),
        Ok(Command::Metrics(args)) => metrics::metrics(&args),
        Ok(Command::Recover(args)) => recover::recover(&args),
        Ok(Command::Fence(args)) => fence::fence(&args.command),
        Ok(Command::Store(args)) => store::store(&args.command),
        Ok(Command::Doctor(args)) => doctor::doctor(&args),
        Ok(Command::Audit(args)) => audit::audit(&args.command),
        Ok(Command::Config(args)) => config::config(&args.command),
        Ok(Command::Keygen(args)) => keygen::keygen(&args),
        Ok(Command::Sim(args)) => sim::sim(&args),
        Ok(Command::Trace(args)) => trace::trace(&args),
        Ok(Command::Completions(args)) => completions::completions(&args),
        Err(done) => done,
    };
    done.unwrap_or_else(|failure| failure.report())
}
