//! The critical sections: what runs inside, writes to the resource, and logs.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::num::NonZeroU32;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use distlock::{Agent, DistMutex, Guard, HandleError, LockError, Semaphore, TimedLockError};

use crate::clock::now_ns;
use crate::history::Mode;
use crate::locks::{Lock, Served};
use crate::resource::STAY;
use crate::rng::Rng;

/// The library in a process of its own.
pub(crate) const PROGRAM: &str = "program";
/// `distlock run` with a command.
pub(crate) const COMMAND: &str = "command";

const ROLE: &str = "DISTLOCK_LAB_ROLE";
const WHO: &str = "DISTLOCK_LAB_WHO";
const DIRECTORY: &str = "DISTLOCK_LAB_DIRECTORY";
const SOCKET: &str = "DISTLOCK_LAB_SOCKET";
const LOCKS: &str = "DISTLOCK_LAB_LOCKS";

/// How often a stay writes, unless it is asked to write on.
const WRITES: usize = 3;
const BETWEEN_WRITES: Duration = Duration::from_millis(2);
/// How long a program waits to be let in, until it says that it is still there.
const TURN: Duration = Duration::from_secs(2);
/// Until it looks for its agent again.
const AGAIN: Duration = Duration::from_millis(20);

/// Where in the laboratory's directory what is.
pub(crate) fn logs(directory: &Path) -> PathBuf {
    directory.join("logs")
}

pub(crate) fn resource(directory: &Path) -> PathBuf {
    directory.join("resource.sock")
}

/// This test program in a role; `who` is `HOST.WAY.INCARNATION`.
pub(crate) fn program(directory: &Path, who: &str, socket: &Path, locks: &[Lock]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the test has a path"));
    command.args(role_arguments());
    command.env(ROLE, PROGRAM).env(SOCKET, socket);
    command.env(LOCKS, Lock::format(locks));
    command.env(WHO, who).env(DIRECTORY, directory);
    command
}

/// `distlock run` with this test program as its command.
pub(crate) fn command(directory: &Path, who: &str, socket: &Path, lock: &Lock) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_distlock"));
    command.args(["run", "-w", "2", "--socket"]).arg(socket);
    command.arg(&lock.name).arg("--");
    command.arg(std::env::current_exe().expect("the test has a path"));
    command.args(role_arguments());
    command.env(ROLE, COMMAND);
    command.env(WHO, who).env(DIRECTORY, directory);
    command
}

fn role_arguments() -> [&'static str; 4] {
    ["role", "--exact", "--nocapture", "--test-threads=1"]
}

/// Plays the role this process has, if any; the process ends with it.
pub(crate) fn play() {
    let variable = |name| std::env::var(name).expect("the laboratory sets it");
    match std::env::var(ROLE).as_deref() {
        Ok(PROGRAM) => {
            let locks = Lock::parse(&variable(LOCKS));
            Insider::new(&variable(WHO), variable(DIRECTORY).as_ref())
                .take_turns(variable(SOCKET).as_ref(), &locks);
        }
        Ok(COMMAND) => {
            let (name, fence) = (variable("DISTLOCK_NAME"), variable("DISTLOCK_FENCE"));
            let fence = fence.parse().expect("a fence");
            let mut insider = Insider::new(&variable(WHO), variable(DIRECTORY).as_ref());
            // That this runs is all the proof it has, and all it needs: it is ended with the lock.
            let entry = (&*name, Mode::Exclusive, fence);
            insider.stay(entry, (now_ns(), now_ns()), None);
        }
        _ => {}
    }
}

/// A lock as the library has it.
enum Handle {
    Mutex(Mode, Arc<dyn DistMutex>),
    Semaphore(Semaphore),
}

impl Handle {
    /// All ways into `locks`; `None` if the agent has gone meanwhile.
    fn all(agent: &Agent, locks: &[Lock]) -> Option<Vec<Self>> {
        let mut handles = Vec::new();
        let there = |error| match error {
            HandleError::Closed => None::<()>,
            error => panic!("a configured lock: {error}"),
        };
        for lock in locks {
            if let Served::Permits(permits) = lock.served {
                let permits = u32::try_from(permits).ok().and_then(NonZeroU32::new);
                match agent.semaphore(&*lock.name, permits) {
                    Ok(semaphore) => handles.push(Self::Semaphore(semaphore)),
                    Err(error) => there(error)?,
                }
                continue;
            }
            match agent.mutex(&*lock.name) {
                Ok(mutex) => {
                    let shared = (lock.served == Served::Shared).then(|| mutex.shared());
                    handles.push(Self::Mutex(Mode::Exclusive, Arc::new(mutex)));
                    handles.extend(shared.map(|shared| Self::Mutex(Mode::Shared, shared)));
                }
                Err(error) => there(error)?,
            }
        }
        Some(handles)
    }

    fn enter(&self) -> Result<Guard, TimedLockError> {
        match self {
            Self::Mutex(_, mutex) => mutex.try_lock_for(TURN),
            Self::Semaphore(semaphore) => semaphore.try_acquire_for(TURN),
        }
    }

    fn mode(&self) -> Mode {
        match self {
            Self::Mutex(mode, _) => *mode,
            Self::Semaphore(_) => Mode::Exclusive,
        }
    }

    fn name(&self) -> &str {
        let name = match self {
            Self::Mutex(_, mutex) => mutex.name(),
            Self::Semaphore(semaphore) => semaphore.name(),
        };
        std::str::from_utf8(name.as_bytes()).expect("the laboratory's names are text")
    }
}

/// A process that goes in and out.
struct Insider {
    who: String,
    log: File,
    resource: UnixStream,
    answers: BufReader<UnixStream>,
    stay: u64,
}

impl Insider {
    fn new(who: &str, directory: &Path) -> Self {
        let resource = UnixStream::connect(resource(directory)).expect("the resource");
        let answers = BufReader::new(resource.try_clone().expect("a descriptor"));
        let log = logs(directory).join(who);
        let mut options = OpenOptions::new();
        Self {
            who: who.to_owned(),
            log: options.append(true).create(true).open(log).expect("a log"),
            resource,
            answers,
            stay: 0,
        }
    }

    /// Enters all of `locks` in turn, until it is killed.
    fn take_turns(&mut self, socket: &Path, locks: &[Lock]) {
        let mut rng = Rng::new(now_ns());
        loop {
            let agent = Agent::connect(socket).ok();
            let handles = agent.as_ref().and_then(|agent| Handle::all(agent, locks));
            if let Some(mut handles) = handles {
                rng.shuffle(&mut handles);
                while handles.iter().all(|handle| self.try_turn(handle)) {
                    thread::sleep(Duration::from_millis(rng.range(0, 10)));
                }
            }
            thread::sleep(AGAIN);
        }
    }

    /// `false` when the agent has gone.
    fn try_turn(&mut self, handle: &Handle) -> bool {
        let asked = now_ns();
        let guard = match handle.enter() {
            Ok(guard) => guard,
            // The agent may be stopped, as the group may be without a majority, and the store away.
            Err(
                TimedLockError::TimedOut
                | TimedLockError::Failed(
                    LockError::NoQuorum { .. }
                    | LockError::NoAnswer { .. }
                    | LockError::Unreachable { .. }
                    | LockError::Store { .. },
                ),
            ) => return true,
            Err(TimedLockError::Failed(LockError::Disconnected { .. })) => return false,
            Err(error) => panic!("{} of {}: {error}", handle.name(), self.who),
        };
        let entered = now_ns();
        // Entered counts from before it was held, not from when this process got to say so.
        if guard.is_held() {
            let fence = guard.fence().expect("the group gives fences").as_u64();
            let entry = (handle.name(), handle.mode(), fence);
            self.stay(entry, (asked, entered), Some(&guard));
        }
        // It was lost on the way in, or left, or lost inside, which is logged.
        drop(guard);
        true
    }

    /// Inside: writes, and says so as long as the guard is held, if there is one to ask.
    fn stay(
        &mut self,
        (lock, mode, fence): (&str, Mode, u64),
        (asked, entered): (u64, u64),
        guard: Option<&Guard>,
    ) {
        self.stay += 1;
        let entry = format!("{} {} {lock} {} {fence}", self.who, self.stay, mode.name());
        self.say(&format!("enter {entry} {asked} {entered}"));
        for written in 1.. {
            let Some(is_asked) = self.write(&entry) else {
                return;
            };
            let what = if guard.is_some() { "held" } else { "inside" };
            if !self.confirm(what, guard) {
                return;
            }
            thread::sleep(BETWEEN_WRITES);
            if written >= WRITES && !is_asked {
                break;
            }
        }
        self.confirm("leave", guard);
    }

    /// Logs `what` with a time at which it was held, or its loss.
    fn confirm(&mut self, what: &str, guard: Option<&Guard>) -> bool {
        let time = now_ns();
        let is_held = guard.is_none_or(Guard::is_held);
        let what = if is_held { what } else { "lost" };
        let line = format!("{what} {} {} {time}", self.who, self.stay);
        self.say(&line);
        is_held
    }

    /// Whether it is asked to stay; `None` if there is no resource any more: the laboratory closes.
    fn write(&mut self, entry: &str) -> Option<bool> {
        let mut answer = String::new();
        let line = format!("{entry} {}\n", std::process::id());
        self.resource.write_all(line.as_bytes()).ok()?;
        self.answers.read_line(&mut answer).ok()?;
        let (_verdict, wish) = answer.trim_end().split_once(' ')?;
        Some(wish == STAY)
    }

    /// One system call, so that a line is whole or missing.
    fn say(&mut self, line: &str) {
        let line = format!("{line}\n");
        self.log
            .write_all(line.as_bytes())
            .expect("room for the log");
    }
}
