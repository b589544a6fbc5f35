//! A process that holds a lock, and is killed.

use std::env;
use std::io::{BufRead as _, BufReader, Read as _, stdin};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use distlock::discovery::GroupOptions;
use distlock::{Agent, DistMutex as _};

use crate::bench::WAIT;

/// The variables that tell the process where its group is, and which lock to take.
const PLACE: &str = "DISTLOCK_TEST_CONFORMANCE_PLACE";
const LOCK: &str = "DISTLOCK_TEST_CONFORMANCE_LOCK";
/// What a directory of a local group begins with; all others are places of `Agent::open_at`.
pub(crate) const LOCAL: &str = "directory:";
/// What it says when it holds the lock.
const HELD: &str = "it holds the lock";

/// A process of this very program.
pub(crate) struct Holder(Child);

impl Holder {
    /// Starts one, and returns when it holds the lock.
    pub(crate) fn start((place, state): (String, PathBuf), lock: &str) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "killed::holds_until_it_is_killed", "--nocapture"])
            .env(PLACE, place)
            .env(LOCK, lock)
            .env("DISTLOCK_STATE_DIR", state)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let holder = Self(child);
        let mut said = output.lines().map_while(Result::ok);
        assert!(said.any(|line| line.ends_with(HELD)), "it never holds");
        holder
    }

    /// Kills it.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // If it has ended already there is nothing to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What such a process does; in the test itself it is nothing.
#[test]
fn holds_until_it_is_killed() {
    let (Ok(place), Ok(lock)) = (env::var(PLACE), env::var(LOCK)) else {
        return;
    };
    let agent = match place.strip_prefix(LOCAL) {
        Some(directory) => Agent::local_in(directory).unwrap(),
        None => GroupOptions::new()
            .at(place.as_str())
            .find()
            .unwrap()
            .open()
            .unwrap(),
    };
    let _guard = agent.mutex(lock).unwrap().try_lock_for(WAIT).unwrap();
    println!("\n{HELD}");
    // It ends with the test, whatever becomes of that.
    let _ = stdin().read(&mut [0]);
}
