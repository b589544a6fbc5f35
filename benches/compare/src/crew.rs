//! The processes of one system in one round, and what is measured of them.

use std::fs::{self, DirEntry};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use nix::unistd::{SysconfVar, alarm, sysconf};
use tempfile::TempDir;

use crate::ROLE;
use crate::arguments::{Arguments, Server};
use crate::locks::System;
use crate::report::{Row, median};
use crate::shared::{LOCKS, Shared, now};

/// What a process is told: the system, its number, the directory that all share, the addresses of
/// the servers, and its core if it is to have one.
pub(crate) const SYSTEM: &str = "DISTLOCK_BENCH_SYSTEM";
pub(crate) const ID: &str = "DISTLOCK_BENCH_ID";
pub(crate) const DIRECTORY: &str = "DISTLOCK_BENCH_DIRECTORY";
pub(crate) const ADDRESSES: &str = "DISTLOCK_BENCH_ADDRESSES";
pub(crate) const CORE: &str = "DISTLOCK_BENCH_CORE";

/// Nothing that a process is asked takes longer than this, in seconds: then the benchmark ends.
const PATIENCE_SECS: u32 = 120;

/// How long a lock is held where that is long, in nanoseconds.
const HOLD: u64 = 150_000_000;

/// The workers of a system, with their agents and servers.
pub(crate) struct Crew<'a> {
    // Ends before what it uses.
    workers: Vec<Process>,
    agents: Vec<Process>,
    server: &'a Server,
    shared: Shared,
    /// How long one measurement takes, in nanoseconds.
    nanos: u64,
    _directory: TempDir,
}

impl<'a> Crew<'a> {
    /// Starts them, and returns once all can go on.
    pub(crate) fn start(system: System, server: &'a Server, arguments: &Arguments) -> Self {
        alarm::set(PATIENCE_SECS);
        let directory = tempfile::tempdir().expect("a temporary directory");
        system.prepare(directory.path(), &server.addresses);
        let shared = Shared::open(directory.path());
        let start = |role, id: usize, cores: &[usize]| {
            let mut command = Command::new(std::env::current_exe().expect("we have a path"));
            command
                .env(ROLE, role)
                .env(SYSTEM, system.name())
                .env(ID, id.to_string())
                .env(DIRECTORY, directory.path())
                .env(ADDRESSES, server.addresses.join(","));
            if let Some(core) = cores.get((id - 1) % cores.len().max(1)) {
                command.env(CORE, core.to_string());
            }
            Process::start(&mut command)
        };
        let mut agents: Vec<_> = (1..=system.agents())
            .map(|id| start("agent", id, &[]))
            .collect();
        for agent in &mut agents {
            agent.answer();
        }
        // It makes what the others need.
        let mut workers = vec![start("worker", 1, &arguments.cores)];
        workers[0].answer();
        workers.extend((2..=system.workers()).map(|id| start("worker", id, &arguments.cores)));
        for worker in &mut workers[1..] {
            worker.answer();
        }
        system.started(directory.path());
        Self {
            workers,
            agents,
            server,
            shared,
            nanos: arguments.nanos,
            _directory: directory,
        }
    }

    /// All that there is to measure.
    pub(crate) fn measure(&mut self) -> Row {
        self.ask(0, "once");
        let half = self.nanos / 2;
        let acquire = self.ask(0, &format!("acquire {half}"));
        let pair = self.ask(0, &format!("pair {half}"));
        let idle = self.ask(0, "idle");
        let after_another = self.acquire_after_another();
        let two = self.contend(2, 1);
        let held = self.contend_for(2, 1, self.nanos.max(8 * HOLD), HOLD);
        let eight = self.workers.len() >= 8;
        let one = eight.then(|| self.contend(8, 1));
        let many = eight.then(|| self.contend(8, LOCKS));
        let rate = |sum: &Sum| sum.pairs * 1e9 / self.nanos as f64;
        vec![
            ("acquire", Some(acquire[0])),
            ("acquire, 99th percentile", Some(acquire[1])),
            ("acquire and release", Some(pair[0])),
            ("acquire after another", Some(after_another)),
            ("acquire after 10 ms", Some(idle[0])),
            ("hand-over, 2", two.hand_over()),
            ("hand-over, 2, held 150 ms", held.hand_over()),
            ("hand-over, 8", one.as_ref().and_then(Sum::hand_over)),
            ("pairs/s, 8, one lock", one.as_ref().map(rate)),
            ("pairs/s, 8, 1,000 locks", many.as_ref().map(rate)),
            ("processor a pair, one lock", one.and_then(|it| it.each())),
            (
                "processor a pair, 1,000 locks",
                many.and_then(|it| it.each()),
            ),
        ]
    }

    /// The median time until the first has the lock, which the second had last and does not want.
    fn acquire_after_another(&mut self) -> f64 {
        let end = now() + self.nanos / 2;
        let mut times = Vec::new();
        while times.is_empty() || now() < end {
            self.ask(1, "once");
            times.push(self.ask(0, "once")[0]);
        }
        median(times.into_iter()).expect("there are some")
    }

    /// The first `workers` want one of so many locks all the time; before it is measured, for a
    /// quarter as long.
    fn contend(&mut self, workers: usize, locks: usize) -> Sum {
        self.contend_for(workers, locks, self.nanos / 4, 0);
        self.contend_for(workers, locks, self.nanos, 0)
    }

    fn contend_for(&mut self, workers: usize, locks: usize, nanos: u64, hold: u64) -> Sum {
        alarm::set(PATIENCE_SECS);
        self.shared.begin_anew();
        let before = self.servers_time();
        // Until then all have read it.
        let start = now() + 5_000_000;
        let end = start + nanos;
        for worker in &mut self.workers[..workers] {
            worker.ask(&format!("contend {locks} {start} {end} {hold}"));
        }
        let mut sum = Sum::default();
        for worker in &mut self.workers[..workers] {
            let answer = worker.answer();
            sum.pairs += answer[0];
            sum.processor += answer[1];
            sum.turns += answer[2];
            sum.under_way += answer[3];
        }
        sum.processor += self.servers_time() - before;
        sum
    }

    fn ask(&mut self, worker: usize, question: &str) -> Vec<f64> {
        alarm::set(PATIENCE_SECS);
        self.workers[worker].ask(question);
        self.workers[worker].answer()
    }

    /// The processor's time of agents and servers so far, with the processes that they started, in
    /// nanoseconds.
    fn servers_time(&self) -> f64 {
        let agents = self.agents.iter().map(|agent| agent.child.id());
        let counted: Vec<_> = agents.chain(self.server.pids.iter().copied()).collect();
        if counted.is_empty() {
            return 0.0;
        }
        let processes = fs::read_dir("/proc").expect("it is mounted").flatten();
        let time = |process: DirEntry| {
            let pid = process.file_name().to_str()?.parse().ok()?;
            let (parent, time) = stat(&process.path())?;
            (counted.contains(&pid) || counted.contains(&parent)).then_some(time)
        };
        processes.filter_map(time).sum()
    }
}

/// A process's parent, and its processor's time in nanoseconds: fields 4, 14 and 15 of its `stat`.
fn stat(directory: &Path) -> Option<(u32, f64)> {
    let text = fs::read_to_string(directory.join("stat")).ok()?;
    // The name may have blanks and brackets in it.
    let fields: Vec<_> = text[text.rfind(')')? + 2..].split(' ').collect();
    let ticks = fields[11].parse::<f64>().ok()? + fields[12].parse::<f64>().ok()?;
    let second = sysconf(SysconfVar::CLK_TCK).ok()??;
    Some((fields[1].parse().ok()?, ticks * 1e9 / second as f64))
}

/// What all who contended had together; times in nanoseconds.
#[derive(Default)]
struct Sum {
    pairs: f64,
    processor: f64,
    turns: f64,
    under_way: f64,
}

impl Sum {
    /// The mean time from the release to the entry of another, if there was one.
    fn hand_over(&self) -> Option<f64> {
        (self.turns > 0.0).then(|| self.under_way / self.turns)
    }

    /// The processor's time for each pair, if there was one.
    fn each(&self) -> Option<f64> {
        (self.pairs > 0.0).then(|| self.processor / self.pairs)
    }
}

/// A process that does as it is told; it ends when its input does.
struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("we can be run again");
        let output = child.stdout.take().expect("it is piped");
        Self {
            input: child.stdin.take(),
            output: BufReader::new(output).lines(),
            child,
        }
    }

    fn ask(&mut self, question: &str) {
        let input = self.input.as_mut().expect("it is open");
        writeln!(input, "{question}").expect("the process runs: it has said why not");
    }

    fn answer(&mut self) -> Vec<f64> {
        let line = self.output.next().expect("it has said why it ended");
        let line = line.expect("it writes text");
        let numbers = line.split_terminator(' ');
        numbers.map(|it| it.parse().expect("a number")).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.input.take());
        if std::thread::panicking() {
            // It may wait for a lock that never comes.
            let _ = self.child.kill();
        }
        // It fails only where there is nothing left to wait for.
        let _ = self.child.wait();
    }
}
