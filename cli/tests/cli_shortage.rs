//! What the system refuses to an agent: room on its disk, a sync, a thread.

mod cli_support;

use distlock::DistMutex;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;
use std::time::{Duration, SystemTime};

use cli_support::disk::SmallDisk;
use cli_support::group::{AgentProcess, Group, LEASE_MS};
use cli_support::users::{LIMITED, as_user, copy_of_program, is_root};
use cli_support::{
    Holder, eventually, exits, guardian_of, is_running, output, pid_of, skipped, stderr, stdout,
    wrapped,
};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The agent of member 1 cannot write its state while `breaks` has been and `mends` has not: it ends,
/// its client's command with it, and begins again from what it had written before.
fn ends_and_comes_back(
    group: &Group,
    command: impl Fn() -> Command,
    breaks: impl FnOnce(),
    mends: impl FnOnce(),
    word: &str,
) {
    let log = group.file("log");
    let mut agent =
        AgentProcess::start_with_log(&mut command(), fs::File::create(&log).expect("a file"));
    let other = group.agent(2);
    let epoch = || group.status(1)["epoch"].as_u64().expect("a number");
    eventually("the group has formed", || epoch() > 0);
    let holder = group.hold(1, "x");
    let before = epoch();
    breaks();
    // The other member's next incarnation makes a new epoch, which must be written down.
    other.end_by(Signal::SIGKILL);
    let _other = group.agent(2);
    assert_eq!(agent.child.wait().expect("it ends").code(), Some(69));
    assert_eq!(holder.wait().code(), Some(79), "its lock is lost");
    let said = fs::read_to_string(&log).expect("text");
    assert!(
        said.contains(word) && said.contains("shop-1/state"),
        "{said}"
    );

    // It does not begin without it either, nor as a new member when it does.
    let refused = output(&mut command());
    assert!(!refused.status.success(), "{refused:?}");
    assert!(stderr(&refused).contains(word), "{refused:?}");
    mends();
    let _agent = AgentProcess::start(command());
    eventually("both are in a view", || epoch() > before);
    exits(group.client(1, ["run", "-w", "20", "x", "true"]), 0);
}

#[test]
fn an_agent_whose_disk_is_full_ends_and_goes_on_when_there_is_room() {
    if !is_root() {
        return;
    }
    let group = Group::unix(2);
    let disk = SmallDisk::at(&group.state());
    let filler = group.state().join("filler");
    let on_disk = |script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).arg(&filler);
        output(&mut disk.with(&shell))
    };
    ends_and_comes_back(
        &group,
        || disk.with(&group.agent_command(1)),
        || {
            let filled = on_disk("head -c 1M /dev/zero > \"$0\"");
            assert!(stderr(&filled).contains("No space left"), "{filled:?}");
        },
        || assert!(on_disk("rm \"$0\"").status.success()),
        "No space left",
    );
}

/// Three agents, of which the first has a slow disk and waits for it; and a command that runs under a
/// lock there.
struct SlowDisk {
    agents: Vec<AgentProcess>,
    runner: Holder,
    command: i32,
}

impl SlowDisk {
    /// Its disk takes so many seconds, which is several leases.
    fn new(group: &Group, seconds: u8) -> Self {
        let sign = group.file("slow");
        let mut command = group.agent_command(1);
        command.env("LD_PRELOAD", group.bad_disk());
        command.env("DISTLOCK_TEST_SLOW_DISK", &sign);
        let mut agents = vec![AgentProcess::start(command)];
        agents.extend([2, 3].map(|id| group.agent(id)));
        let script = "echo in; echo $$; exec sleep 600";
        let mut runner = Holder::start(group.client(1, ["run", "x", "--", "sh", "-c", script]));
        let command = runner.line().parse().expect("a pid");
        fs::write(&sign, seconds.to_string()).expect("a file");
        // A view without this one is voted on, and votes are on disk before they are said.
        kill(pid_of(&agents[2].child), Signal::SIGSTOP).expect("it is there");
        eventually("the disk is waited for", || {
            fs::read_to_string(&sign).expect("a file").contains("waits")
        });
        Self {
            agents,
            runner,
            command,
        }
    }
}

/// The agent's thread waited for the disk: nothing was renewed, and the lock was lost.
#[test]
fn a_disk_that_takes_longer_than_a_lease_costs_no_lease() {
    let group = Group::unix(3);
    let slow = SlowDisk::new(&group, 4);
    let lease = Duration::from_millis(LEASE_MS);
    std::thread::sleep(lease * 3);
    assert!(is_running(slow.command), "its lease was not renewed");
    kill(Pid::from_raw(slow.command), Signal::SIGTERM).expect("it is there");
    assert_eq!(slow.runner.wait().code(), Some(143), "it was not lost");
    fs::remove_file(group.file("slow")).expect("it was there");
    let again = output(&mut group.client(1, ["run", "-w", "25", "x", "echo", "again"]));
    assert_eq!(stdout(&again), "again\n", "{again:?}");
    drop(slow.agents);
}

/// The agent's thread waited for the disk: nobody ended the command of a runner that stood still,
/// whose guardian was dead.
#[test]
fn a_disk_that_takes_longer_than_a_lease_keeps_no_command_alive() {
    let group = Group::unix(3);
    let slow = SlowDisk::new(&group, 8);
    kill(guardian_of(slow.runner.pid()), Signal::SIGKILL).expect("it is there");
    slow.runner.signal(Signal::SIGSTOP);
    // Now there is no majority.
    kill(pid_of(&slow.agents[1].child), Signal::SIGSTOP).expect("it is there");
    let start = SystemTime::now();
    eventually("the command is gone", || !is_running(slow.command));
    let took = start.elapsed().expect("time goes on");
    assert!(took < 3 * Duration::from_millis(LEASE_MS), "{took:?}");
    slow.runner.signal(Signal::SIGKILL);
}

#[test]
fn an_agent_whose_disk_fails_to_sync_ends_and_goes_on_when_it_does() {
    let group = Group::unix(2);
    let library = group.bad_disk();
    let sign = group.file("bad");
    let command = || {
        let mut agent = group.agent_command(1);
        agent.env("LD_PRELOAD", &library);
        agent.env("DISTLOCK_TEST_BAD_DISK", &sign);
        agent
    };
    ends_and_comes_back(
        &group,
        command,
        || fs::write(&sign, "").expect("a file"),
        || fs::remove_file(&sign).expect("it was there"),
        "Input/output error",
    );
}

/// The usual limit of open files would be too low for the clients that an agent takes.
#[test]
fn an_agent_has_as_many_open_files_as_it_may() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("there is one");
    if hard < 1_024 {
        return skipped("1024 descriptors are needed: ulimit -Hn");
    }
    // For its own ends of the streams.
    setrlimit(Resource::RLIMIT_NOFILE, hard.min(4_096), hard).expect("it may");
    // What is set, and how many of 200 clients there is room for: all; those that two descriptors
    // each can be had for.
    for (limit, soft, welcome) in [("256:1024", 1_024, 200..=200), ("256:256", 256, 80..=120)] {
        let group = Group::unix(1);
        let mut prlimit = Command::new("prlimit");
        prlimit.arg(format!("--nofile={limit}"));
        let agent = AgentProcess::start(wrapped(prlimit, &group.agent_command(1)));
        let limits = format!("/proc/{}/limits", agent.child.id());
        let limits = fs::read_to_string(limits).expect("Linux has it");
        let files = limits
            .lines()
            .find(|line| line.starts_with("Max open files"));
        let allowed = files.and_then(|line| line.split_whitespace().nth(3));
        assert_eq!(allowed, Some(soft.to_string().as_str()), "{limits}");

        let connect = |_| match distlock::Agent::connect(group.socket(1)) {
            Ok(client) => Some(client),
            Err(error) if error.to_string().contains("too many clients") => None,
            Err(error) => panic!("{error}"),
        };
        let clients: Vec<_> = (0..200).filter_map(connect).collect();
        assert!(welcome.contains(&clients.len()), "{}", clients.len());
        let held = clients[0].mutex("x").expect("a handle");
        let held = held.lock().expect("it is free");
        let told = clients[0].status().expect("its agent's").clients;
        let told = told.expect("it has a service");
        assert_eq!(told.connected, clients.len() as u64);
        let refused = told.dropped.get("few-descriptors").copied();
        assert_eq!(refused.unwrap_or_default(), 200 - told.connected);
        held.unlock().expect("it was held");
    }
}

/// Root is refused no thread, so the agent is another user's.
#[test]
fn an_agent_that_gets_no_thread_is_an_error_that_leaves_nothing() {
    if !is_root() {
        return;
    }
    let group = Group::unix(1);
    let program = copy_of_program(&group.file(""));
    let state = group.file("state");
    fs::create_dir(&state).expect("a directory");
    for dir in [group.file(""), state.clone()] {
        fs::set_permissions(&dir, Permissions::from_mode(0o755)).expect("its mode");
        chown(&dir, Some(LIMITED), Some(LIMITED)).expect("root may");
    }
    let with_limit = |limit: &str| {
        let mut user = as_user(LIMITED);
        user.args(["prlimit", limit]).arg(&program);
        user.args(["agent", "--socket"]).arg(group.socket(1));
        user.env("DISTLOCK_CONFIG", group.config());
        user.env("DISTLOCK_ID", "1")
            .env("DISTLOCK_STATE_DIR", &state);
        user
    };
    let refused = exits(with_limit("--nproc=1"), 69);
    assert!(stderr(&refused).contains("thread"), "{refused:?}");
    assert!(!group.socket(1).exists() && !group.file("1.dgram").exists());
    let _agent = AgentProcess::start(with_limit("--nproc=100"));
    // Root would not believe an agent that anybody can have put into /tmp.
    let mut user = as_user(LIMITED);
    user.arg(&program).args(["run", "-w", "20", "x", "true"]);
    exits(user.env("DISTLOCK_SOCKET", group.socket(1)), 0);
}
