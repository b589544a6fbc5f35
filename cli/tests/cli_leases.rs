//! The command never outlives its lease: who is cut off from the majority, or whose agent stands
//! still, ends it in time and says so.

mod cli_support;

use std::io::read_to_string;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use cli_support::group::{AgentProcess, Group, LEASE_MS};
use cli_support::{
    Holder, eventually, exits, guardian_of, is_running, output, pid_of, skipped, stdout, wrapped,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::geteuid;

const LEASE: Duration = Duration::from_millis(LEASE_MS);

/// It heeds SIGTERM by a word only, and then goes on.
const DEAF: &str = "trap 'echo asked' TERM; echo in; echo $$; while :; do sleep 0.01; done";

/// A runner, and the process of its command.
struct Runner {
    holder: Holder,
    command: i32,
}

impl Runner {
    fn start(mut command: Command, args: &[&str]) -> Self {
        command.args(args).args(["--", "bash", "-c", DEAF]);
        command.stderr(Stdio::piped());
        let mut holder = Holder::start(command);
        let command = holder.line().parse().expect("a pid");
        Self { holder, command }
    }

    /// The exit code, and what was said on standard error; what the command said must be that it
    /// was asked to end.
    fn end(mut self) -> (Option<i32>, String) {
        let asked = String::from_utf8(self.holder.rest()).expect("text");
        // Its runner asks it, and perhaps the agent.
        assert!(
            asked.starts_with("asked\n"),
            "it was killed at once: {asked}"
        );
        let stderr = self.holder.child.stderr.take().expect("a pipe");
        let why = read_to_string(stderr).expect("text");
        // The shell may have told of its children.
        let why = why.lines().filter(|line| line.starts_with("distlock: "));
        let why: Vec<_> = why.map(str::to_owned).collect();
        let [why] = &why[..] else {
            panic!("one line, and not {why:?}");
        };
        (self.holder.wait().code(), why.clone())
    }
}

fn stop(agents: &[AgentProcess], signal: Signal) {
    for agent in agents {
        kill(pid_of(&agent.child), signal).expect("it is there");
    }
}

/// How long it took until the command was gone.
fn gone_after(runner: &Runner, start: SystemTime) -> Duration {
    eventually("the command's end", || !is_running(runner.command));
    start.elapsed().expect("time goes on")
}

fn assert_not_renewed(runner: Runner, code: i32) {
    let (status, why) = runner.end();
    assert_eq!(status, Some(code), "{why}");
    for word in ["'x'", "not renewed", "was ended", "majority"] {
        assert!(why.contains(word), "{word:?} is not in {why}");
    }
}

#[test]
fn a_client_without_a_majority_ends_its_command() {
    let (group, agents) = Group::running(3);
    let runner = Runner::start(group.client(1, ["run"]), &["--lost-exit-code", "42", "x"]);
    let start = SystemTime::now();
    stop(&agents[1..], Signal::SIGSTOP);
    let took = gone_after(&runner, start);
    assert!(took > LEASE / 2, "{took:?}: the lease was not used up");
    assert_not_renewed(runner, 42);
    // Without a quorum nobody is let in, and it says what is missing.
    let refused = output(&mut group.client(1, ["run", "y", "true"]));
    cli_support::assert_refused(&refused, 69, &["2", "3"]);
    stop(&agents[1..], Signal::SIGCONT);
    let again = output(&mut group.client(1, ["run", "-w", "25", "x", "echo", "again"]));
    assert_eq!(stdout(&again), "again\n", "{again:?}");
}

#[test]
fn a_member_without_a_majority_ends_its_command() {
    let group = Group::unix(3);
    let others: Vec<_> = (2..=3).map(|id| group.agent(id)).collect();
    let runner = Runner::start(group.member(1, ["run"]), &["x"]);
    let start = SystemTime::now();
    stop(&others, Signal::SIGSTOP);
    gone_after(&runner, start);
    assert_not_renewed(runner, 79);
    stop(&others, Signal::SIGCONT);
}

/// The runner knows its lease, and the command is gone before another host's has the lock.
#[test]
fn a_client_of_an_agent_that_stands_still_ends_its_command() {
    let (group, agents) = Group::running(3);
    let runner = Runner::start(group.client(1, ["run"]), &["x"]);
    stop(&agents[..1], Signal::SIGSTOP);
    let look = format!(
        "grep -s '^State:.[^ZX]' /proc/{}/status; echo alone",
        runner.command
    );
    let next = output(&mut group.client(2, ["run", "-w", "25", "x", "--", "sh", "-c", &look]));
    assert_eq!(stdout(&next), "alone\n", "{next:?}");
    stop(&agents[..1], Signal::SIGCONT);
    assert_not_renewed(runner, 79);
}

/// The agent does for the runner what that cannot do, and its guardian neither.
#[test]
fn an_agent_without_a_majority_ends_the_command_of_a_runner_that_stands_still() {
    let (group, agents) = Group::running(3);
    let runner = Runner::start(group.client(1, ["run"]), &["x"]);
    kill(guardian_of(runner.holder.pid()), Signal::SIGKILL).expect("it is there");
    runner.holder.signal(Signal::SIGSTOP);
    let start = SystemTime::now();
    stop(&agents[1..], Signal::SIGSTOP);
    gone_after(&runner, start);
    stop(&agents[1..], Signal::SIGCONT);
    runner.holder.signal(Signal::SIGCONT);
    let (status, why) = runner.end();
    assert_eq!(status, Some(79), "{why}");
}

/// Its clock shows another time than its agent's, and so the lease that it is told: taken as it is,
/// that would last for as long as the one is behind the other.
#[test]
fn a_client_in_another_time_namespace_knows_when_its_lease_ends() {
    let (group, agents) = Group::running(3);
    let uptime = std::fs::read_to_string("/proc/uptime").expect("it is mounted");
    let uptime: u64 = uptime
        .split('.')
        .next()
        .and_then(|secs| secs.parse().ok())
        .expect("seconds");
    let behind = format!("-{}", uptime / 2);
    for offset in [&*behind, "100000"] {
        let inside = |command: &Command| {
            let mut outer = Command::new("unshare");
            outer.args(["--time", "--boottime", offset, "--fork", "--kill-child"]);
            wrapped(outer, command)
        };
        let plain = output(inside(&group.client(1, ["run", "-w", "25", "x", "true"])));
        if plain.status.code() != Some(0) && !geteuid().is_root() {
            return skipped("no time namespaces here");
        }
        let runner = Runner::start(inside(&group.client(1, ["run", "-w", "25"])), &["x"]);
        // Several leases long, each of which is renewed.
        exits(group.client(2, ["run", "-w", "2.5", "x", "true"]), 1);
        assert!(is_running(runner.command));
        let start = SystemTime::now();
        stop(&agents[..1], Signal::SIGSTOP);
        let took = gone_after(&runner, start);
        assert!(took < 2 * LEASE, "{took:?}");
        stop(&agents[..1], Signal::SIGCONT);
        let (status, _) = runner.end();
        assert_eq!(status, Some(79));
    }
}
