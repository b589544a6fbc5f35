//! Processes for tests: the test program starts itself again, in a role.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

const ROLE: &str = "DISTLOCK_TEST_ROLE";
const DIRECTORY: &str = "DISTLOCK_TEST_DIRECTORY";

/// Where a process in a role finds the local group of its environment, in its directory.
pub(crate) const LOCAL: &str = "local";

/// The role of this process, and its directory; `None` in the process that runs the tests. The
/// test called `role` asks this, and does nothing there.
pub(crate) fn role() -> Option<(String, std::path::PathBuf)> {
    let role = std::env::var(ROLE).ok()?;
    Some((role, std::env::var_os(DIRECTORY)?.into()))
}

/// A process in a role. Dropping it kills it.
pub(crate) struct Process {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts this test program in `role`.
    pub(crate) fn start(role: &str, directory: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["role", "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(DIRECTORY, directory)
            .env("DISTLOCK_DIR", directory.join(LOCAL))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self {
            child,
            stdin,
            lines,
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// The next thing it [`say`]s.
    #[track_caller]
    pub(crate) fn hear(&mut self) -> String {
        loop {
            let line = self.lines.next().expect("the process ended").unwrap();
            // The test runner's own words may stand before it.
            if let Some((_, said)) = line.split_once(SAID) {
                return said.to_owned();
            }
        }
    }

    /// Lets it go on from [`pause`].
    pub(crate) fn go_on(&mut self) {
        writeln!(self.stdin).unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// Ends it by SIGKILL, and waits until it is gone.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end, which must be an orderly one.
    #[track_caller]
    pub(crate) fn join(mut self) {
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const SAID: &str = "said: ";

/// In a role: says something to the test.
pub(crate) fn say(what: impl std::fmt::Display) {
    println!("{SAID}{what}");
}

/// In a role: waits for the test.
pub(crate) fn pause() {
    std::io::stdin()
        .lock()
        .read_line(&mut String::new())
        .unwrap();
}

/// Nanoseconds of a clock that all processes share.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
    u64::try_from(now.tv_sec()).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec()).unwrap()
}
