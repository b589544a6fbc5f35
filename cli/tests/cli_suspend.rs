//! A host that was suspended for longer than the lease: the command is killed as soon as the host
//! wakes, whoever is left to do it.

mod cli_support;

use distlock::DistMutex;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cli_support::group::{AgentProcess, Group};
use cli_support::suspend::Host;
use cli_support::{Process, eventually, guardian_of, is_running, pid_of, spawn};
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

/// Long, so that nobody wakes by chance: who sleeps by a clock that stands still does so for seconds.
const LEASE: Duration = Duration::from_secs(20);
const SUSPENDED: Duration = Duration::from_secs(60);
/// How long after waking a command may still run. The machine does other things too; what is asked of
/// it is a tenth of a second.
const SOON: Duration = Duration::from_millis(if cfg!(debug_assertions) { 250 } else { 100 });

/// Set in the process that is to hold a lock: the socket of its agent, or the configuration by which it
/// is member 1 itself.
const HOLDER_SOCKET: &str = "HOLDER_SOCKET";
const HOLDER_CONFIG: &str = "HOLDER_CONFIG";

/// Three members with a long lease, of whom the first is on a host of its own.
struct World {
    host: Host,
    group: Group,
    config: PathBuf,
}

impl World {
    fn new() -> Self {
        let group = Group::unix(3);
        let lease_ms = LEASE.as_millis().try_into().expect("a short time");
        let config = group.write_config("long.toml", lease_ms);
        let host = Host::new();
        Self {
            host,
            group,
            config,
        }
    }

    fn agent(&self, id: usize) -> AgentProcess {
        let mut command = self.group.agent_command(id);
        command.env("DISTLOCK_CONFIG", &self.config);
        if id == 1 {
            command = self.host.runs(command);
        }
        AgentProcess::start(command)
    }

    /// Runs a command under a lock, on the first host.
    fn run(&self, command: Command) -> Runner {
        let mut command = self.host.runs(command);
        command.args([
            "x",
            "--",
            "sh",
            "-c",
            "trap '' TERM; echo $$; exec sleep 600",
        ]);
        let mut child = Process(spawn(command.stdout(Stdio::piped())));
        let command = child.first_line().parse().expect("a pid");
        Runner { child, command }
    }

    /// This program on the first host, as it holds a lock that it is to end with.
    fn holder(&self, key: &str, value: &Path) -> Runner {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["holds_and_aborts_on_loss", "--exact", "--nocapture"]);
        command
            .env(key, value)
            .env("DISTLOCK_STATE_DIR", self.group.state());
        let mut command = self.host.runs(command);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Process(spawn(command));
        let stdout = child.stdout.take().expect("a pipe");
        let mut lines = BufReader::new(stdout).lines();
        assert!(lines.any(|line| line.expect("text").ends_with("inside")));
        let command = pid_of(&child).as_raw();
        Runner { child, command }
    }

    /// Suspends the first host, and wakes it while `thread` does not run, though the agent's thread of
    /// the same process does, and is heard by the others, who did not sleep.
    fn suspend_and_renew(&self, thread: Pid, runner: &Runner) {
        let thread = ThreadAsleep::new(thread);
        self.host.was_suspended_for(SUSPENDED);
        std::thread::sleep(Duration::from_millis(500));
        assert!(is_running(runner.command));
        drop(thread);
        eventually("the command is gone", || !is_running(runner.command));
    }

    /// Suspends the first host, and waits until the command is gone; how long that took on waking.
    fn suspend(&self, runner: &Runner) -> Duration {
        // By now all sleep that are to. Nothing tells of that: what is tried is that their sleep ends
        // in time, which was set before.
        std::thread::sleep(Duration::from_millis(500));
        assert!(is_running(runner.command));
        self.host.was_suspended_for(SUSPENDED);
        #[expect(clippy::disallowed_methods, reason = "no lease is measured by it")]
        let woken = Instant::now();
        eventually("the command is gone", || !is_running(runner.command));
        woken.elapsed()
    }
}

struct Runner {
    child: Process,
    command: i32,
}

/// A process that does not run yet when its host has woken: until this is dropped.
struct Asleep(Pid);

impl Asleep {
    fn new(pid: Pid) -> Self {
        kill(pid, Signal::SIGSTOP).expect("it is there");
        Self(pid)
    }
}

impl Drop for Asleep {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

/// A thread that does not run yet when its host has woken, though others of its process do: until this
/// is dropped.
struct ThreadAsleep(Pid);

impl ThreadAsleep {
    fn new(thread: Pid) -> Self {
        ptrace::seize(thread, ptrace::Options::empty()).expect("it is a child's");
        ptrace::interrupt(thread).expect("it is there");
        waitpid(thread, Some(WaitPidFlag::__WALL)).expect("it stops");
        Self(thread)
    }
}

impl Drop for ThreadAsleep {
    fn drop(&mut self) {
        ptrace::detach(self.0, None).expect("it is there");
    }
}

/// The runner does it, while neither its guardian nor its agent runs yet.
#[test]
fn a_runner_whose_host_was_suspended_kills_its_command_on_waking() {
    let world = World::new();
    let agents = [1, 2, 3].map(|id| world.agent(id));
    let runner = world.run(world.group.client(1, ["run"]));
    let others = [pid_of(&agents[0].child), guardian_of(pid_of(&runner.child))];
    let _others = others.map(Asleep::new);
    let took = world.suspend(&runner);
    assert!(took < SOON, "{took:?}");
}

/// The guardian does it, while neither the runner nor its agent runs yet.
#[test]
fn a_guardian_whose_host_was_suspended_kills_the_command_on_waking() {
    let world = World::new();
    let agents = [1, 2, 3].map(|id| world.agent(id));
    let runner = world.run(world.group.client(1, ["run"]));
    let others = [pid_of(&agents[0].child), pid_of(&runner.child)];
    let _others = others.map(Asleep::new);
    let took = world.suspend(&runner);
    assert!(took < SOON, "{took:?}");
}

/// The agent does it, while neither the runner nor its guardian runs yet.
#[test]
fn an_agent_whose_host_was_suspended_kills_its_clients_commands_on_waking() {
    let world = World::new();
    let _agents = [1, 2, 3].map(|id| world.agent(id));
    let runner = world.run(world.group.client(1, ["run"]));
    let others = [pid_of(&runner.child), guardian_of(pid_of(&runner.child))];
    let _others = others.map(Asleep::new);
    let took = world.suspend(&runner);
    assert!(took < SOON, "{took:?}");
}

/// A runner that is a member itself, while its guardian does not run yet.
#[test]
fn a_member_whose_host_was_suspended_kills_its_command_on_waking() {
    let world = World::new();
    let _agents = [2, 3].map(|id| world.agent(id));
    let mut command = world.group.member(1, ["run"]);
    command.env("DISTLOCK_CONFIG", &world.config);
    let runner = world.run(command);
    let _guardian = Asleep::new(guardian_of(pid_of(&runner.child)));
    let took = world.suspend(&runner);
    assert!(took < SOON, "{took:?}");
}

/// A runner that is a member itself, whose agent's thread has renewed the lease before the one looks at
/// it that waits for the command: the others did not sleep, and let nobody in meanwhile.
#[test]
fn a_lease_that_lapsed_is_over_for_the_command_also_when_it_was_renewed() {
    let world = World::new();
    let _agents = [2, 3].map(|id| world.agent(id));
    let mut command = world.group.member(1, ["run"]);
    command.env("DISTLOCK_CONFIG", &world.config);
    let runner = world.run(command);
    let _guardian = Asleep::new(guardian_of(pid_of(&runner.child)));
    world.suspend_and_renew(pid_of(&runner.child), &runner);
}

/// The same of a program that asked to be ended rather than go on without its lock.
#[test]
fn a_member_that_aborts_on_loss_does_so_also_when_its_lease_was_renewed() {
    let world = World::new();
    let _agents = [2, 3].map(|id| world.agent(id));
    let holder = world.holder(HOLDER_CONFIG, &world.config);
    let tasks = format!("/proc/{}/task", holder.command);
    let mut tasks = fs::read_dir(tasks)
        .expect("it is there")
        .map(Result::unwrap);
    let is_watch = |task: &fs::DirEntry| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name == "distlock-watch\n")
    };
    let watch = tasks.find(is_watch).expect("its thread").file_name();
    let watch = watch
        .to_str()
        .and_then(|id| id.parse().ok())
        .expect("an id");
    world.suspend_and_renew(Pid::from_raw(watch), &holder);
}

/// A program that asked to be ended rather than go on without its lock.
#[test]
fn a_program_that_aborts_on_loss_does_so_on_waking() {
    let world = World::new();
    let agents = [1, 2, 3].map(|id| world.agent(id));
    let runner = world.holder(HOLDER_SOCKET, &world.group.socket(1));
    let _agent = Asleep::new(pid_of(&agents[0].child));
    let took = world.suspend(&runner);
    assert!(took < SOON, "{took:?}");
}

/// The program of the test before, in a process that it starts; else it does nothing.
#[test]
fn holds_and_aborts_on_loss() {
    let agent = if let Some(socket) = std::env::var_os(HOLDER_SOCKET) {
        distlock::Agent::connect(socket).expect("an agent")
    } else if let Some(config) = std::env::var_os(HOLDER_CONFIG) {
        let config = distlock::Config::load(config).expect("a configuration");
        distlock::Agent::from_config(config.node(1)).expect("member 1")
    } else {
        return;
    };
    let options = distlock::LockOptions::new().abort_on_loss(true);
    let guard = agent
        .mutex_with("x", &options)
        .expect("a name and a thread")
        .lock()
        .expect("it is free");
    println!("inside");
    // Until the test that started it ends: it has the other end open, and says nothing.
    let _ = std::io::stdin().read(&mut [0]);
    drop(guard);
}
