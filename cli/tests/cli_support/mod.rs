//! What the tests of the program share: a group of its own for each, and ways to wait for events.
#![allow(dead_code, reason = "each test file uses its part of it")]
#![allow(
    clippy::allow_attributes,
    reason = "expect would fail where all of it is used"
)]

pub(crate) mod disk;
pub(crate) mod doctor;
pub(crate) mod group;
pub(crate) mod prometheus;
pub(crate) mod shiviz;
pub(crate) mod suspend;
pub(crate) mod users;

use std::borrow::BorrowMut;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, SystemTime};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// Longer than anything here takes on a busy machine. Reaching it is a failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The program under test, with nothing of the caller's environment that chooses a group.
pub(crate) fn distlock() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_distlock"));
    for (key, _) in std::env::vars_os() {
        if key.as_encoded_bytes().starts_with(b"DISTLOCK_") {
            command.env_remove(key);
        }
    }
    command
}

/// A local group of its own, in a directory that goes away with it.
pub(crate) struct Local {
    dir: TempDir,
}

impl Local {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().expect("a temporary directory"),
        }
    }

    /// A file for the test's own use.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The group's directory.
    pub(crate) fn group(&self) -> PathBuf {
        self.dir.path().join("group")
    }

    /// `distlock` with these arguments, in this group.
    pub(crate) fn distlock<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = distlock();
        command.env("DISTLOCK_DIR", self.group()).args(args);
        command
    }

    /// The exit code of `distlock run` with these arguments.
    pub(crate) fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Option<i32> {
        output(self.distlock(["run"]).args(args)).status.code()
    }

    /// Holds `name` until it is let go.
    pub(crate) fn hold(&self, name: &str) -> Holder {
        Holder::start(self.distlock(["run", name, "--", "sh", "-c", "echo in; read line; exit 3"]))
    }

    /// `distlock status --json`.
    pub(crate) fn status(&self) -> serde_json::Value {
        let said = exits(self.distlock(["status", "--json"]), 0);
        serde_json::from_slice(&said.stdout).expect("JSON")
    }

    /// Waits until `process` waits for the lock `name`.
    pub(crate) fn await_waiter(&self, name: &str, process: &Child) {
        let pid = u64::from(process.id());
        eventually("the process waits", || {
            let status = self.status();
            let locks = status["locks"].as_array().expect("locks").iter();
            let mut locks = locks.filter(|lock| lock["name"] == name);
            locks.any(|lock| {
                lock["waiters"]
                    .as_array()
                    .expect("waiters")
                    .iter()
                    .any(|w| w["pid"] == pid)
            })
        });
    }
}

/// A process that ends with the test, however that ends; and so does the command of a runner.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    /// The first line that it says. Nothing more of it is read.
    pub(crate) fn first_line(&mut self) -> String {
        let mut line = String::new();
        let stdout = self.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }
}

impl Deref for Process {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Process {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only where it has ended already.
        let _ = self.kill();
        let _ = self.wait();
    }
}

/// A `distlock run` whose command has said `in`, and ends with 3 when its input ends.
pub(crate) struct Holder {
    pub(crate) child: Process,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Holder {
    /// Starts `command`, and returns when it is inside.
    pub(crate) fn start(mut command: Command) -> Self {
        let child = spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let mut child = Process(child);
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut holder = Self {
            child,
            stdin,
            stdout,
        };
        assert_eq!(holder.line(), "in");
        holder
    }

    /// The next line the command says; empty at the end of its output.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// Whatever the command still says until nobody has its output open.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.stdout.read_to_end(&mut rest).expect("its output");
        rest
    }

    pub(crate) fn pid(&self) -> Pid {
        pid_of(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("it is there");
    }

    /// Lets the command end.
    pub(crate) fn end_input(&mut self) {
        self.stdin.take();
    }

    /// Lets the command end, and waits for the program.
    pub(crate) fn let_go(mut self) -> ExitStatus {
        self.end_input();
        self.child.wait().expect("it ends")
    }

    pub(crate) fn wait(mut self) -> ExitStatus {
        let status = self.child.wait().expect("it ends");
        drop(self.stdin.take());
        status
    }
}

pub(crate) fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).expect("a pid"))
}

/// What the command says, with nothing on its input.
pub(crate) fn output(mut command: impl BorrowMut<Command>) -> Output {
    let command = command.borrow_mut().stdin(Stdio::null());
    command.output().expect("it starts")
}

/// Its standard output.
pub(crate) fn says(command: impl BorrowMut<Command>) -> String {
    stdout(&output(command))
}

/// What the command says, which must end with `code`.
#[track_caller]
pub(crate) fn exits(command: impl BorrowMut<Command>, code: i32) -> Output {
    let said = output(command);
    assert_eq!(said.status.code(), Some(code), "{said:?}");
    said
}

/// What the command says, which must refuse with `code`, as [`assert_refused`] demands.
#[track_caller]
pub(crate) fn refuses(command: impl BorrowMut<Command>, code: i32, words: &[&str]) -> Output {
    let said = output(command);
    assert_refused(&said, code, words);
    said
}

pub(crate) fn spawn(mut command: impl BorrowMut<Command>) -> Child {
    command.borrow_mut().spawn().expect("it starts")
}

/// Gives `command` the environment that `like` sets.
pub(crate) fn copy_environment(command: &mut Command, like: &Command) {
    for (key, value) in like.get_envs() {
        match value {
            Some(value) => command.env(key, value),
            None => command.env_remove(key),
        };
    }
}

/// `inner` with its arguments and its environment, run by `wrapper`.
pub(crate) fn wrapped(mut wrapper: Command, inner: &Command) -> Command {
    wrapper.arg(inner.get_program()).args(inner.get_args());
    copy_environment(&mut wrapper, inner);
    wrapper
}

/// Its standard output as text.
pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// Its standard error as text.
pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// Checks that it refused with `code`, in one line on standard error that has all of `words`, and
/// said nothing else.
#[track_caller]
pub(crate) fn assert_refused(output: &Output, code: i32, words: &[&str]) {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    let said = stderr(output);
    assert_eq!(said.lines().count(), 1, "one line: {said:?}");
    assert!(
        said.starts_with("distlock: ") && said.ends_with('\n'),
        "{said:?}"
    );
    for word in words {
        assert!(said.contains(word), "{word:?} in {said:?}");
    }
    assert!(output.stdout.is_empty(), "{output:?}");
}

/// A test does not run here; it fails where all tests were demanded.
#[track_caller]
pub(crate) fn skipped(why: &str) {
    eprintln!("SKIPPED: {why}");
    let all = std::env::var("DISTLOCK_TESTS");
    assert_ne!(all.as_deref(), Ok("all"), "{why}");
}

/// What a shell reports as `$?`.
pub(crate) fn shell_code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().expect("code or signal"))
}

/// Looks again and again, until `condition` holds.
#[track_caller]
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = SystemTime::now();
    while !condition() {
        let waited = start.elapsed().unwrap_or_default();
        assert!(waited < PATIENCE, "waited for {waited:?} until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Whether a process with this number runs; one that ended and was not waited for does not.
pub(crate) fn is_running(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|stat| {
            stat.rsplit(')')
                .next()
                .map(|rest| rest.trim_start().to_owned())
        })
        .is_some_and(|rest| !rest.starts_with(['Z', 'X']))
}

/// The guardian of the runner with this number.
pub(crate) fn guardian_of(runner: Pid) -> Pid {
    let mut found = None;
    eventually("its guardian is there", || {
        let children = format!("/proc/{runner}/task/{runner}/children");
        let children = std::fs::read_to_string(children).unwrap_or_default();
        let is_guardian = |pid: &&str| {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
            name.is_ok_and(|name| name.trim() == "distlock-guard")
        };
        found = children
            .split_whitespace()
            .find(is_guardian)
            .map(str::to_owned);
        found.is_some()
    });
    Pid::from_raw(found.expect("found").parse().expect("a pid"))
}

/// All files below `dir`.
pub(crate) fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path))
        } else {
            found.push(path)
        }
    }
    found
}

/// A terminal of its own with a shell in it, under job control.
pub(crate) struct TerminalSession {
    child: Process,
    keys: Option<ChildStdin>,
    screen: ChildStdout,
    seen: String,
}

impl TerminalSession {
    /// An interactive bash in a new pseudo-terminal that script(1) makes.
    pub(crate) fn start(mut command: Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.stderr(Stdio::inherit()).spawn();
        let mut child = Process(child.expect("script(1) is there"));
        let keys = child.stdin.take();
        let screen = child.stdout.take().expect("a pipe");
        Self {
            child,
            keys,
            screen,
            seen: String::new(),
        }
    }

    pub(crate) fn type_keys(&mut self, keys: &str) {
        let pipe = self.keys.as_mut().expect("open");
        pipe.write_all(keys.as_bytes())
            .and_then(|()| pipe.flush())
            .expect("the terminal reads");
    }

    /// Reads the screen until `text` is on it, after what was awaited before.
    #[track_caller]
    pub(crate) fn await_text(&mut self, text: &str) {
        loop {
            if let Some(at) = self.seen.find(text) {
                self.seen.drain(..at + text.len());
                return;
            }
            let fd = PollFd::new(self.screen.as_fd(), PollFlags::POLLIN);
            let limit = PollTimeout::try_from(PATIENCE).expect("in range");
            let ready = poll(&mut [fd], limit).expect("it can be waited for");
            assert!(
                ready > 0,
                "no {text:?} on the screen; there was {:?}",
                self.seen
            );
            let mut buffer = [0; 4096];
            let read = self.screen.read(&mut buffer).expect("the screen");
            assert!(
                read > 0,
                "the terminal closed before {text:?}; there was {:?}",
                self.seen
            );
            self.seen
                .push_str(&String::from_utf8_lossy(&buffer[..read]));
        }
    }

    /// Ends the shell.
    pub(crate) fn close(mut self) {
        self.type_keys("exit\n");
        let _ = self.child.wait();
    }
}
