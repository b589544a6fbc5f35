//! What a command has left behind ends with its lease, also where its guardian stands still.

mod cli_support;

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, SystemTime};

use cli_support::group::{AgentProcess, Group, LEASE_MS};
use cli_support::{Holder, eventually, guardian_of, is_running, pid_of};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// It says `in` and the number of a process that it leaves behind as soon as its input ends.
const LEAVING: &str = "setsid sleep 600 >/dev/null 2>&1 & echo in; echo $!; read line; exit 3";

/// A command of this kind, and what it is about to leave. Its guardian is stopped.
fn start(group: &Group) -> (Holder, i32) {
    let mut holder = Holder::start(group.client(1, ["run", "x", "--", "bash", "-c", LEAVING]));
    let left = holder.line().parse().expect("a pid");
    kill(guardian_of(holder.pid()), Signal::SIGSTOP).expect("it is there");
    (holder, left)
}

fn stop(agent: &AgentProcess) -> SystemTime {
    kill(pid_of(&agent.child), Signal::SIGSTOP).expect("it is there");
    SystemTime::now()
}

#[track_caller]
fn ends_with_its_lease(left: i32, since: SystemTime) {
    eventually("what was left has ended", || !is_running(left));
    let took = since.elapsed().expect("the clock goes on");
    assert!(took < Duration::from_millis(LEASE_MS), "{took:?}");
}

/// Found by the campaign of simulated hosts, seed 47 of `manager`: the runner waited for its guardian for as
/// long as the lease lasts, did not look at the lease meanwhile, and left behind what it had to end.
#[test]
fn a_runner_whose_guardian_and_agent_stand_still_ends_what_its_command_has_left() {
    let (group, agent) = Group::alone();
    let (mut holder, left) = start(&group);
    let since = stop(&agent);
    holder.end_input();
    ends_with_its_lease(left, since);
}

/// The same where the guardian alone stands still. The runner that has ended it stays.
fn start_with_runner_that_stays(group: &Group) -> (Holder, i32) {
    let (mut holder, left) = start(group);
    let guardian = guardian_of(holder.pid());
    holder.end_input();
    eventually("its guardian has ended", || !is_running(guardian.as_raw()));
    std::thread::sleep(Duration::from_millis(100));
    assert!(is_running(holder.pid().as_raw()));
    assert!(is_running(left));
    (holder, left)
}

#[test]
fn a_runner_whose_guardian_does_not_answer_stays_as_long_as_something_is_left() {
    let (group, agent) = Group::alone();
    let (holder, left) = start_with_runner_that_stays(&group);
    ends_with_its_lease(left, stop(&agent));
    // Its command had the lock to its end.
    assert_eq!(holder.wait().code(), Some(3));
}

#[test]
fn a_runner_that_stays_ends_by_a_signal() {
    let (group, _agent) = Group::alone();
    let (holder, left) = start_with_runner_that_stays(&group);
    holder.signal(Signal::SIGTERM);
    assert_eq!(holder.wait().signal(), Some(Signal::SIGTERM as i32));
    kill(Pid::from_raw(left), Signal::SIGKILL).expect("it is there");
}
