//! A host that was suspended for longer than the lease: the command is killed as soon as the host
//! wakes, whoever is left to do it.

mod cli_support;

use distlock::DistMutex;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cli_support::group::{AgentProcess, Group};
use cli_support::suspend::Host;
use cli_support::{Process, eventually, guardian_of, is_running, pid_of, spawn};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Long, so that nobody wakes by chance: who sleeps by a clock that stands still does so for seconds.
const LEASE: Duration = Duration::from_secs(20);
const SUSPENDED: Duration = Duration::from_secs(60);
/// How long after waking a command may still run. The machine does other things too; what is asked of
/// it is a tenth of a second.
const SOON: Duration = Duration::from_millis(if cfg!(debug_assertions) { 250 } else { 100 });

/// Set in the process that is to hold a lock: the socket of its agent.
const HOLDER_SOCKET: &str = "HOLDER_SOCKET";

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
        let config = group.write_config("long.toml", "ricart-agrawala", lease_ms);
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

/// A program that asked to be ended rather than go on without its lock.
#[test]
fn a_program_that_aborts_on_loss_does_so_on_waking() {
    let world = World::new();
    let agents = [1, 2, 3].map(|id| world.agent(id));
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["holds_and_aborts_on_loss", "--exact", "--nocapture"]);
    command.env(HOLDER_SOCKET, world.group.socket(1));
    let mut command = world.host.runs(command);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = Process(spawn(command));
    let stdout = child.stdout.take().expect("a pipe");
    let mut lines = BufReader::new(stdout).lines();
    assert!(lines.any(|line| line.expect("text").ends_with("inside")));
    let command = pid_of(&child).as_raw();
    let runner = Runner { child, command };
    let _agent = Asleep::new(pid_of(&agents[0].child));
    let took = world.suspend(&runner);
    assert!(took < SOON, "{took:?}");
}

/// The program of the test before, in a process that it starts; else it does nothing.
#[test]
fn holds_and_aborts_on_loss() {
    let Some(socket) = std::env::var_os(HOLDER_SOCKET) else {
        return;
    };
    let agent = distlock::Agent::connect(socket).expect("an agent");
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
