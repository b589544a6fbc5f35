//! Counts the system calls of a process, as strace sees them.
//!
//! strace(1) needs no rights but those over a process of one's own, and counts those of all threads, the
//! agent's among them. (To forbid them by seccomp(2), as `entry_cost.rs` does where there are to be none,
//! counts nothing; perf(1) needs rights; valgrind, which counts instructions, runs one thread at a time.)

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::ops::RangeInclusive;
use std::os::unix::process::parent_id;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use tempfile::TempDir;

/// What a process that is started does.
const ROLE: &str = "DISTLOCK_TEST_DOES";

/// What follows the name of a call that found nothing there.
pub(crate) const NOTHING: &str = ": EAGAIN";

/// What this process was started for; `None` in the test itself.
pub(crate) fn role() -> Option<String> {
    env::var(ROLE).ok()
}

/// Answers each line of the input by doing what it says, between two system calls by which what comes
/// between them is found.
pub(crate) fn obey(mut act: impl FnMut(&str)) {
    println!("begun");
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let _ = parent_id();
        act(&line);
        let _ = parent_id();
        println!("{line}");
    }
}

/// A process of this program that obeys, counted or not. It ends when its input does.
pub(crate) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    trace: Option<TempDir>,
}

impl Process {
    /// Plays `test` once more, for `role`. `None`: it is to be counted, and there is no strace.
    ///
    /// # Panics
    /// There has to be a strace.
    pub(crate) fn start(test: &str, role: &str, is_counted: bool) -> Option<Self> {
        let program = env::current_exe().unwrap();
        let trace = is_counted.then(|| tempfile::tempdir().unwrap());
        let mut command = match &trace {
            None => Command::new(program),
            Some(directory) => {
                let mut command = Command::new("strace");
                command.args(["-f", "-qq", "-e", "signal=none", "-o"]);
                command.arg(directory.path().join("trace")).arg(program);
                command
            }
        };
        command
            .args(["--exact", test, "--nocapture"])
            .env(ROLE, role);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                let required = env::var("DISTLOCK_TESTS").is_ok_and(|tests| tests == "all");
                assert!(!required, "DISTLOCK_TESTS=all, and strace: {error}");
                println!("SKIPPED: strace: {error}");
                return None;
            }
        };
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        Some(Self {
            input: child.stdin.take(),
            child,
            output,
            trace,
        })
    }

    /// Has it do what its role has under this name.
    pub(crate) fn tell(&mut self, what: &str) {
        writeln!(self.input.as_mut().unwrap(), "{what}").unwrap();
    }

    /// Returns when it has done what it was told. (The test's own words come on the same way.)
    pub(crate) fn await_line(&mut self, expected: &str) {
        while self
            .output
            .next()
            .expect("it has said why it ended")
            .unwrap()
            != expected
        {}
    }

    /// Has it end; whether it did so in good order. What it says at its end is read, too.
    fn wait(&mut self) -> bool {
        drop(self.input.take());
        self.output.by_ref().for_each(drop);
        self.child.wait().is_ok_and(|status| status.success())
    }

    /// Ends it: what system calls were made each time that it did what it was told. Those by which it
    /// reads and answers lines are not among them.
    pub(crate) fn end(mut self) -> Vec<Calls> {
        assert!(self.wait());
        let trace = self.trace.as_ref().expect("it is counted");
        let trace = fs::read_to_string(trace.path().join("trace")).unwrap();
        let mut times = Vec::new();
        let mut present: Option<(&str, Calls)> = None;
        for line in trace.lines() {
            // "4711  name(…) = 0"; or, where other threads called something meanwhile,
            // "4711  name(… <unfinished ...>" and later "4711  <... name resumed>…) = 0". It counts where it ends.
            let Some((thread, call)) = line.split_once(' ') else {
                continue;
            };
            let call = call.trim_start();
            let name = call.strip_prefix("<... ").unwrap_or(call);
            let name = name.split(['(', ' ']).next().unwrap_or_default();
            let is_name = name.starts_with(|first: char| first.is_ascii_lowercase());
            if !is_name || call.ends_with("<unfinished ...>") {
                continue;
            }
            if name == "getppid" {
                match present.take() {
                    Some((_, calls)) => times.push(calls),
                    None => present = Some((thread, Calls::default())),
                }
            } else if let Some((obeys, calls)) = &mut present {
                let calls = match thread == *obeys {
                    true => &mut calls.own,
                    false => &mut calls.agent,
                };
                let is_in_vain = call.contains(" = -1 EAGAIN ");
                let nothing = if is_in_vain { NOTHING } else { "" };
                calls.push(format!("{name}{nothing}"));
            }
        }
        assert!(!times.is_empty(), "strace has seen nothing: {trace}");
        times
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.wait();
    }
}

/// The system calls that were made, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls {
    /// By the thread that obeys.
    pub(crate) own: Vec<String>,
    /// By all others: the agent's.
    pub(crate) agent: Vec<String>,
}

/// Demands that of so many times the cheapest took at most so many system calls, and not so many fewer that
/// something else was counted: in the others a timer may have run out, or somebody have asked whether this
/// member is there.
pub(crate) fn expect_least(
    times: impl Iterator<Item = Vec<String>>,
    limits: RangeInclusive<usize>,
) {
    let least = times.min_by_key(Vec::len).expect("once at least");
    println!("{least:?}");
    assert!(
        limits.contains(&least.len()),
        "{} calls: {least:?}",
        least.len()
    );
}
