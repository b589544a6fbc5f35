//! The command never outlives its lock: who dies or stands still, and what is left of the command.

mod cli_support;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, SystemTime};

use cli_support::group::{AgentProcess, Group, LEASE_MS};
use cli_support::users::is_root;
use cli_support::{
    Holder, Local, assert_refused, eventually, exits, guardian_of, is_running, output, pid_of,
    refuses, stdout, wrapped,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// What runs under the lock: it says `in`, then the numbers of its processes, and goes on.
const SCRIPTS: [(&str, &str); 4] = [
    ("plain", "echo in; echo $$; while :; do sleep 1; done"),
    (
        "deaf",
        "trap '' TERM HUP INT; echo in; echo $$; while :; do sleep 1; done",
    ),
    (
        "with children",
        "(trap '' TERM; exec sleep 600) & a=$!; sleep 600 & echo in; echo $$ $a $!; wait",
    ),
    (
        "closed",
        "exec 0<&-; echo in; echo $$; exec 1>&- 2>&- 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; \
         for fd in /proc/$$/fd/*; do fd=${fd##*/}; [ $fd -lt 250 ] && eval \"exec $fd>&-\"; done; \
         while :; do sleep 1; done",
    ),
];

/// Stops a runner, and ends its guardian: of those who could end the command its agent is left.
fn stop_with_guardian(holder: &Holder) {
    kill(guardian_of(holder.pid()), Signal::SIGKILL).expect("it is there");
    holder.signal(Signal::SIGSTOP);
}

/// A holder, and the numbers of the processes that work under its lock.
fn start(command: Command) -> (Holder, Vec<i32>) {
    let mut holder = Holder::start(command);
    let line = holder.line();
    let pids = line
        .split_whitespace()
        .map(|pid| pid.parse().expect("a pid"));
    (holder, pids.collect())
}

fn bash(way: impl Fn(&[&str]) -> Command, script: &str) -> Command {
    way(&["run", "x", "--", "bash", "-c", script])
}

/// Waits for the lock, and sees that none of `pids` is left.
fn next_is_alone(mut next: Command, pids: &[i32], what: &str) {
    // The next command looks itself, so that nothing lies between the grant and the look.
    let list: Vec<_> = pids.iter().map(ToString::to_string).collect();
    let look = "for pid; do grep -qs '^State:.[^ZX]' /proc/$pid/status && echo $pid; done; true";
    next.args(["run", "-w", "60", "x", "--", "bash", "-c", look, "look"])
        .args(&list);
    let said = output(&mut next);
    assert_eq!(said.status.code(), Some(0), "{what}: {said:?}");
    assert_eq!(stdout(&said), "", "{what}: {pids:?} run on");
}

/// Lets a runner that was stopped go on, and sees that it ends as one that has lost its lock.
#[track_caller]
fn goes_on_without_its_lock(holder: Holder, what: &str) {
    holder.signal(Signal::SIGCONT);
    assert_eq!(holder.wait().code(), Some(79), "{what}");
}

/// Stops the runner of `script` through the first of three hosts' agents, or has it run on, and kills
/// that agent: another host is let in when all of the command has ended.
#[track_caller]
fn ends_with_the_lease(
    what: &str,
    script: &str,
    is_stopped: bool,
    way: impl Fn(Command) -> Command,
) {
    let (group, mut agents) = Group::running(3);
    let (holder, pids) = start(way(bash(|args| group.client(1, args), script)));
    if is_stopped {
        holder.signal(Signal::SIGSTOP);
    }
    agents.remove(0).end_by(Signal::SIGKILL);
    next_is_alone(group.client(2, [] as [&str; 0]), &pids, what);
    goes_on_without_its_lock(holder, what);
}

/// Runs, by `way`, a command that ends with 5 and leaves a process behind. The number of that.
#[track_caller]
fn leave_behind(way: impl Fn(&[&str]) -> Command) -> i32 {
    let script = "sleep 600 >/dev/null 2>&1 & echo $!; exit 5";
    let said = exits(way(&["run", "x", "--", "sh", "-c", script]), 5);
    stdout(&said).trim().parse().expect("a pid")
}

fn end(pids: &[i32]) {
    for &pid in pids {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
    // What they have open is closed some time after the signal was sent.
    eventually("they are gone", || !pids.iter().any(|&pid| is_running(pid)));
}

#[test]
fn the_runners_death_is_the_commands_and_then_the_lock_is_free() {
    for (what, script) in SCRIPTS {
        let (group, _agents) = Group::running(2);
        let (holder, pids) = start(bash(|args| group.client(1, args), script));
        holder.signal(Signal::SIGKILL);
        next_is_alone(group.client(2, [] as [&str; 0]), &pids, what);
        assert_eq!(holder.wait().signal(), Some(9));
    }
}

#[test]
fn a_stopped_runner_that_is_killed_is_no_different() {
    let (group, _agent) = Group::alone();
    let (holder, pids) = start(bash(|args| group.client(1, args), SCRIPTS[2].1));
    holder.signal(Signal::SIGSTOP);
    let busy = output(&mut group.client(1, ["run", "-w", "0.3", "x", "true"]));
    assert_refused(&busy, 1, &["x"]);
    assert!(pids.iter().all(|&pid| is_running(pid)));
    holder.signal(Signal::SIGKILL);
    next_is_alone(group.client(1, [] as [&str; 0]), &pids, "stopped");
}

#[test]
fn the_commands_death_is_told_and_its_children_keep_the_lock() {
    let (group, _agent) = Group::alone();
    let (holder, pids) = start(bash(|args| group.client(1, args), SCRIPTS[2].1));
    kill(Pid::from_raw(pids[0]), Signal::SIGKILL).expect("it is there");
    assert_eq!(holder.wait().code(), Some(128 + 9));
    refuses(group.client(1, ["run", "-n", "x", "true"]), 1, &["x"]);
    end(&pids[1..]);
    next_is_alone(group.client(1, [] as [&str; 0]), &pids, "children");
}

#[test]
fn what_the_command_leaves_behind_keeps_the_lock() {
    let leaves = |way: &dyn Fn(&[&str]) -> Command| {
        let left = leave_behind(way);
        exits(way(&["run", "-n", "x", "true"]), 1);
        // It is no orphan that somebody ends: its runner has left in order.
        assert!(is_running(left));
        end(&[left]);
        exits(way(&["run", "-w", "20", "x", "true"]), 0);
    };
    let (group, _agent) = Group::alone();
    leaves(&|args| group.client(1, args));
    let local = Local::new();
    leaves(&|args| local.distlock(args));
}

#[test]
fn a_member_stays_as_long_as_what_its_command_left_behind() {
    let group = Group::unix(1);
    let script = "sleep 600 >/dev/null 2>&1 & echo in; echo $!; exit 5";
    let (mut holder, left) = start(bash(|args| group.member(1, args), script));
    eventually("the command has ended and was waited for", || {
        let children = format!("/proc/{0}/task/{0}/children", holder.pid());
        let children = fs::read_to_string(children).unwrap_or_default();
        // It adopts what the command has left behind.
        let mut children: Vec<_> = children.split_whitespace().collect();
        children.retain(|child| *child != left[0].to_string());
        children == [guardian_of(holder.pid()).to_string()]
    });
    assert!(holder.child.try_wait().expect("its status").is_none());
    end(&left);
    assert_eq!(holder.wait().code(), Some(5));
}

#[test]
fn after_a_members_death_what_its_command_left_keeps_its_place() {
    let group = Group::unix(2);
    let _agent = group.agent(1);
    let (holder, pids) = start(bash(
        |args| group.member(2, args),
        "sleep 600 & setsid bash -c \"echo in; echo $$ $! \\$\\$; exec sleep 600\" & wait",
    ));
    let has_cgroup = cgroup_of(pids[2]).is_some();
    holder.signal(Signal::SIGKILL);
    eventually("the command and its group are gone", || {
        !pids[..2].iter().any(|&pid| is_running(pid))
    });
    if has_cgroup {
        eventually("what had left the group ends, too", || !is_running(pids[2]));
        return next_is_alone(group.member(2, [] as [&str; 0]), &pids, "a member");
    }
    // What had left the group is not: so nobody comes in, neither here nor elsewhere.
    assert!(is_running(pids[2]));
    refuses(group.member(2, ["run", "x", "true"]), 69, &["member 2"]);
    let other = output(&mut group.client(1, ["run", "-w", "0.3", "x", "true"]));
    // Held by another, or, once its silence is noticed, without a quorum.
    let code = other.status.code();
    assert!(matches!(code, Some(1 | 69)), "{other:?}");
    end(&pids);
    next_is_alone(group.member(2, [] as [&str; 0]), &pids, "a member");
}

#[test]
fn an_agent_that_leaves_ends_the_commands_first_also_for_a_stopped_runner() {
    for (what, script) in SCRIPTS {
        let (group, mut agents) = Group::running(2);
        let (holder, pids) = start(bash(|args| group.client(1, args), script));
        stop_with_guardian(&holder);
        let leaving = agents.remove(0);
        kill(pid_of(&leaving.child), Signal::SIGTERM).expect("it is there");
        let mut leaving = leaving;
        let status = leaving.child.wait().expect("it ends");
        assert_eq!(status.code(), Some(0), "{what}");
        assert!(pids.iter().all(|&pid| !is_running(pid)), "{what}");
        goes_on_without_its_lock(holder, what);
    }
}

#[test]
fn the_agents_death_ends_the_command_before_the_next_incarnation_lets_anybody_in() {
    for (what, script) in SCRIPTS {
        let (group, agent) = Group::alone();
        let (holder, pids) = start(bash(|args| group.client(1, args), script));
        agent.end_by(Signal::SIGKILL);
        let start = SystemTime::now();
        let _next = group.agent(1);
        next_is_alone(group.client(1, [] as [&str; 0]), &pids, what);
        let waited = start.elapsed().expect("the clock goes on");
        assert!(waited >= Duration::from_millis(LEASE_MS / 2), "{waited:?}");
        // An old stream is never taken up again.
        assert_eq!(holder.wait().code(), Some(79), "{what}");
    }
}

#[test]
fn who_waits_and_dies_leaves_no_trace() {
    let (group, _agent) = Group::alone();
    let holder = group.hold(1, "x");
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        let mut waiter = group
            .client(1, ["run", "x", "touch"])
            .arg(group.file("ran"))
            .spawn()
            .expect("it starts");
        let waits = || group.status(1)["locks"][0]["waiters"][0]["pid"] == waiter.id();
        eventually("it waits", waits);
        kill(pid_of(&waiter), Signal::SIGSTOP).expect("it is there");
        kill(pid_of(&waiter), signal).expect("it is there");
        kill(pid_of(&waiter), Signal::SIGCONT).expect("it is there");
        assert_eq!(signal_of(&mut waiter), Some(signal as i32));
        eventually("its request is gone", || {
            group.status(1)["locks"][0]["waiters"][0].is_null()
        });
    }
    assert_eq!(holder.let_go().code(), Some(3));
    assert!(!group.file("ran").exists());
}

fn signal_of(child: &mut Child) -> Option<i32> {
    child.wait().expect("it ends").signal()
}

/// Nobody is left who could end the command but its guardian: another host is let in when the lease
/// is over.
#[test]
fn a_stopped_runners_command_ends_with_the_lease_though_its_agent_was_killed() {
    for (what, script) in SCRIPTS {
        ends_with_the_lease(what, script, true, |run| run);
    }
}

/// A member that stands still ends nothing itself either.
#[test]
fn a_stopped_members_command_ends_with_the_lease() {
    for (what, script) in SCRIPTS {
        let group = Group::unix(3);
        let _agents = [group.agent(2), group.agent(3)];
        let (holder, pids) = start(bash(|args| group.member(1, args), script));
        holder.signal(Signal::SIGSTOP);
        next_is_alone(group.client(2, [] as [&str; 0]), &pids, what);
        goes_on_without_its_lock(holder, what);
    }
}

/// What has left the process group, and closed all that it inherited.
const ESCAPED: &str = "setsid bash -c 'for fd in /proc/$$/fd/*; do fd=${fd##*/}; \
                       [ $fd -gt 2 ] && [ $fd -lt 250 ] && eval \"exec $fd>&-\"; done; \
                       echo in; echo $$; exec 1>&-; exec sleep 600' & wait";

/// As long as the runner has not died, nothing that the command has started can escape: with the
/// lease all of it ends, whoever stands still.
#[test]
fn what_has_left_its_group_and_closed_its_descriptors_ends_with_the_lease() {
    for is_stopped in [true, false] {
        ends_with_the_lease("escaped", ESCAPED, is_stopped, |run| run);
        ends_with_the_lease("adopted", ESCAPED, is_stopped, without_control_groups);
    }
}

/// `command` where it can make no control group, also as root.
fn without_control_groups(command: Command) -> Command {
    if !is_root() {
        return command;
    }
    let mut hidden = Command::new("unshare");
    let script = r#"mount -t tmpfs none /sys/fs/cgroup && exec "$@""#;
    hidden.args(["--mount", "sh", "-c", script, "sh"]);
    wrapped(hidden, &command)
}

/// Also what the command has left behind, and what a dead runner's was.
#[test]
fn a_guardian_stays_as_long_as_what_the_command_left_behind() {
    let (group, mut agents) = Group::running(3);
    let left = leave_behind(|args| group.client(1, args));
    agents.remove(0).end_by(Signal::SIGKILL);
    assert!(is_running(left), "its lease is not over");
    next_is_alone(group.client(2, [] as [&str; 0]), &[left], "left behind");
}

/// The control group of its own that the command `pid` is in, if one could be had.
fn cgroup_of(pid: i32) -> Option<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("it is there");
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let is_own = own.rsplit('/').next()?.starts_with("distlock-");
    let mounts =
        ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(|mount| PathBuf::from(mount).join(own));
    mounts.into_iter().find(|path| is_own && path.exists())
}

#[test]
fn no_guardian_is_left_when_all_is_over() {
    let (group, _agent) = Group::alone();
    let holder = group.hold(1, "x");
    let guardian = guardian_of(holder.pid());
    let session = nix::unistd::getsid(Some(guardian)).expect("it is there");
    assert_eq!(session, guardian, "a session of its own");
    let environment = fs::read(format!("/proc/{guardian}/environ")).expect("its environment");
    assert!(environment.iter().all(|&byte| byte == 0), "{environment:?}");
    let open = fs::read_dir(format!("/proc/{guardian}/fd")).expect("its descriptors");
    let mut open: Vec<_> = open
        .map(|entry| fs::read_link(entry.expect("one").path()).expect("a link"))
        .map(|path| path.to_string_lossy().into_owned())
        .filter(|path| path != "/dev/null")
        .map(|path| path.split(['[', '<']).next().expect("a word").to_owned())
        .collect();
    open.sort();
    // Its timer and bell, both ends of the lifeline, its line, the command once it has heard of it,
    // and the command's control group where there is one.
    let cgroup = open.iter().filter(|path| path.contains("/distlock-"));
    let cgroup = cgroup.count();
    assert!(matches!(cgroup, 0 | 3), "{open:?}");
    let others = open.len() - cgroup;
    assert!(matches!(others, 5..=7), "{open:?}");
    assert_eq!(holder.let_go().code(), Some(3));
    assert!(!is_running(guardian.as_raw()));

    // It ends what a dead runner has left, and then itself.
    let (holder, pids) = start(bash(|args| group.client(1, args), SCRIPTS[2].1));
    let guardian = guardian_of(holder.pid());
    holder.signal(Signal::SIGKILL);
    eventually("it has ended", || !is_running(guardian.as_raw()));
    // It has seen that they had closed all, which they do some time before they are gone.
    eventually("all are gone", || !pids.iter().any(|&pid| is_running(pid)));
}

/// Nobody else is left to do it: the agent stands still, and the lease is far from over.
#[test]
fn what_a_dead_runner_has_left_its_guardian_ends_at_once() {
    let group = Group::unix(1);
    let lease = Duration::from_secs(10);
    let lease_ms = lease.as_millis().try_into().expect("a short time");
    let config = group.write_config("long.toml", lease_ms);
    let mut agent = group.agent_command(1);
    agent.env("DISTLOCK_CONFIG", config);
    let agent = AgentProcess::start(agent);
    let (holder, pids) = start(bash(|args| group.client(1, args), SCRIPTS[2].1));
    kill(pid_of(&agent.child), Signal::SIGSTOP).expect("it is there");
    let start = SystemTime::now();
    holder.signal(Signal::SIGKILL);
    eventually("all are gone", || !pids.iter().any(|&pid| is_running(pid)));
    let took = start.elapsed().expect("the clock goes on");
    // Of the lease two thirds are left at least, and with it they would end anyway.
    assert!(took < lease / 3, "{took:?}");
}

/// Waits until the runner has closed its own writing end of the lifeline: one that is stopped
/// before it comes to that counts as a command.
fn await_closed(runner: Pid) {
    eventually("it has the reading end only", || {
        let open = fs::read_dir(format!("/proc/{runner}/fd")).expect("its descriptors");
        let paths = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        let of_lifeline = |path: &PathBuf| path.to_string_lossy().contains("/lifelines/");
        paths.filter(of_lifeline).count() == 1
    });
}

/// The agent's next incarnation sees by the lifelines whether commands of the last one are left, when
/// nobody is left who could have ended them; and ends them itself.
#[test]
fn the_next_incarnation_lets_nobody_in_before_the_last_ones_commands_have_ended() {
    for (what, script) in SCRIPTS {
        let group = Group::unix(1);
        // An agent ends them after half a lease, and what is asked here takes a while.
        group.write_config("group.toml", 4 * LEASE_MS);
        let agent = group.agent(1);
        let (holder, pids) = start(bash(|args| group.client(1, args), script));
        await_closed(holder.pid());
        group.await_known_command();
        stop_with_guardian(&holder);
        agent.end_by(Signal::SIGKILL);
        // As many as it takes: in none of them anybody comes in.
        for _ in 0..2 {
            let next = group.agent(1);
            let status = stdout(&output(&mut group.client(1, ["status"])));
            assert!(
                status.contains("still run: it lets no program in"),
                "{what}: {status}"
            );
            let busy = output(&mut group.client(1, ["run", "-n", "x", "true"]));
            // On a busy machine it may be answered too late.
            assert!(
                matches!(busy.status.code(), Some(1 | 69)),
                "{what}: {busy:?}"
            );
            next.end_by(Signal::SIGKILL);
        }
        assert!(pids.iter().any(|&pid| is_running(pid)), "{what}");
        let _next = group.agent(1);
        next_is_alone(group.client(1, [] as [&str; 0]), &pids, what);
        eventually("they are forgotten", || {
            let lifelines = fs::read_dir(group.lifelines());
            lifelines.expect("its lifelines").count() == 0
        });
        goes_on_without_its_lock(holder, what);
    }
}

/// The guardian, which keeps the lock as the command does, lets it go when it has ended the command.
#[test]
fn the_next_incarnation_lets_others_in_though_the_runner_stands_still() {
    let (group, agent) = Group::alone();
    let (holder, pids) = start(bash(|args| group.client(1, args), SCRIPTS[0].1));
    await_closed(holder.pid());
    holder.signal(Signal::SIGSTOP);
    agent.end_by(Signal::SIGKILL);
    let _next = group.agent(1);
    next_is_alone(group.client(1, [] as [&str; 0]), &pids, "stopped");
    goes_on_without_its_lock(holder, "stopped");
}

/// A defect or a full disk ends a session without any order. The runner stands still, and its
/// guardian is dead, so only the agent can end the command.
#[test]
fn an_agent_that_fails_ends_the_commands_of_runners_that_stand_still() {
    for (what, script) in SCRIPTS {
        let (group, mut agents) = Group::running(2);
        let (holder, pids) = start(bash(|args| group.client(1, args), script));
        stop_with_guardian(&holder);
        // The other member's next incarnation makes a new epoch, which must be written down.
        let mine = group.state().join("shop-1");
        fs::remove_dir_all(&mine).expect("its state");
        agents.remove(1).end_by(Signal::SIGKILL);
        let _other = group.agent(2);
        let mut failed = agents.remove(0);
        assert_eq!(
            failed.child.wait().expect("it ends").code(),
            Some(69),
            "{what}"
        );
        let there: Vec<_> = pids.iter().filter(|&&pid| is_running(pid)).collect();
        assert_eq!(there, [&0; 0], "{what}");
        goes_on_without_its_lock(holder, what);
    }
}

/// Nor what has only closed what it inherited, once the command is gone that could be waited for.
#[test]
fn what_closes_its_descriptors_is_not_covered_when_its_command_has_ended() {
    let leave = "read pid < <(exec 2>/dev/null; for fd in /proc/$BASHPID/fd/*; do \
                 fd=${fd##*/}; [ $fd -gt 2 ] && [ $fd -lt 250 ] && eval \"exec $fd>&-\"; done; \
                 echo $BASHPID; exec sleep 600 >/dev/null); echo $pid; exit 5";
    let (group, _agent) = Group::alone();
    let local = Local::new();
    let leaves = |way: &dyn Fn(&[&str]) -> Command| {
        let said = exits(way(&["run", "x", "--", "bash", "-c", leave]), 5);
        let left: i32 = stdout(&said).trim().parse().expect("a pid");
        exits(way(&["run", "-n", "x", "true"]), 0);
        assert!(is_running(left));
        end(&[left]);
    };
    leaves(&|args| group.client(1, args));
    leaves(&|args| local.distlock(args));
}

/// What the manual says is not covered: where there is no control group, only the fence protects from
/// what has left the process group and closed what it inherited.
#[test]
fn what_leaves_its_group_and_closes_its_descriptors_ends_by_its_control_group_alone() {
    let (group, _agent) = Group::alone();
    let (holder, pids) = start(bash(|args| group.client(1, args), ESCAPED));
    let cgroup = cgroup_of(pids[0]);
    let guardian = guardian_of(holder.pid());
    holder.signal(Signal::SIGKILL);
    if let Some(cgroup) = cgroup {
        next_is_alone(group.client(1, [] as [&str; 0]), &pids, "escaped");
        eventually("it has ended", || !is_running(guardian.as_raw()));
        assert!(!cgroup.exists(), "{cgroup:?} is left");
    } else {
        exits(group.client(1, ["run", "-w", "20", "x", "true"]), 0);
        assert!(is_running(pids[0]));
        end(&pids);
    }

    // With either of the two alone it is covered in any case: the lock waits for what only left the
    // group, and is not ended.
    let script = "setsid bash -c 'echo in; echo $$; exec sleep 600' & wait";
    let (holder, pids) = start(bash(|args| group.client(1, args), script));
    let is_ended = cgroup_of(pids[0]).is_some();
    holder.signal(Signal::SIGKILL);
    if !is_ended {
        let busy = output(&mut group.client(1, ["run", "-w", "0.3", "x", "true"]));
        assert_refused(&busy, 1, &["x"]);
        end(&pids);
    }
    next_is_alone(group.client(1, [] as [&str; 0]), &pids, "setsid");
}

/// Where nothing ends it, what a command of other credentials has left keeps the lock, also when it
/// has closed what it inherited: here its guardian stands still before it could end it.
#[test]
fn a_guardian_keeps_the_lock_as_long_as_the_control_group_is_in_use() {
    let (group, _agent) = Group::alone();
    let (holder, pids) = start(bash(|args| group.client(1, args), ESCAPED));
    if cgroup_of(pids[0]).is_none() {
        eprintln!("SKIPPED: this process may make no control group");
        return;
    }
    let guardian = guardian_of(holder.pid());
    kill(guardian, Signal::SIGSTOP).expect("it is there");
    holder.signal(Signal::SIGKILL);
    assert_eq!(holder.wait().signal(), Some(9));
    let busy = output(&mut group.client(1, ["run", "-w", "0.5", "x", "true"]));
    assert_refused(&busy, 1, &["x"]);
    assert!(is_running(pids[0]));
    kill(guardian, Signal::SIGCONT).expect("it is there");
    next_is_alone(group.client(1, [] as [&str; 0]), &pids, "escaped");
}

/// In order: a daemon that closed what it inherited is no concern of the lock's, as with flock(1),
/// and the next command removes the control group that it leaves.
#[test]
fn an_empty_control_group_is_removed_by_the_next_command() {
    let leave = "setsid bash -c 'for fd in /proc/$$/fd/*; do fd=${fd##*/}; \
                 [ $fd -gt 2 ] && [ $fd -lt 250 ] && eval \"exec $fd>&-\"; done; \
                 echo $$; exec sleep 600 >/dev/null 2>&1' & sleep 0.3";
    let (group, _agent) = Group::alone();
    let said = output(&mut bash(|args| group.client(1, args), leave));
    let daemon: i32 = stdout(&said).trim().parse().expect("a pid");
    exits(group.client(1, ["run", "-n", "x", "true"]), 0);
    assert!(is_running(daemon));
    let cgroup = cgroup_of(daemon);
    end(&[daemon]);
    if let Some(cgroup) = cgroup {
        assert!(cgroup.exists());
        assert_eq!(
            group
                .client(1, ["run", "y", "true"])
                .status()
                .expect("it runs")
                .code(),
            Some(0)
        );
        assert!(!cgroup.exists(), "{cgroup:?} is left");
    }
}
