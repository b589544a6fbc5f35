//! `-n` and `-w` keep their time whatever the host's agent does: stands still, also with its queue
//! full.

mod cli_support;

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use cli_support::group::{AgentProcess, Group};
use cli_support::{assert_refused, exits, pid_of};
use distlock::{Agent, DistMutex, LockError, TimedLockError, TryLockError};
use nix::sys::signal::{Signal, kill};
use socket2::{Domain, SockAddr, Socket, Type};

/// More than what is promised, for a machine that does other things too.
const SLACK: Duration = Duration::from_millis(600);
/// The program's name for what it cannot use: no agent, no quorum.
const UNAVAILABLE: i32 = 69;

/// What `act` returns, which took between `least` and `most`.
#[track_caller]
fn timed<T>(least: Duration, most: Duration, act: impl FnOnce() -> T) -> T {
    let start = SystemTime::now();
    let done = act();
    let took = start.elapsed().expect("time goes on");
    assert!(took >= least, "{took:?} is less than {least:?}");
    assert!(took <= most + SLACK, "{took:?} is more than {most:?}");
    done
}

/// What the program says; it is ended if that takes too long.
fn output(mut command: Command) -> Output {
    struct Guard(Option<Child>);
    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.iter_mut().for_each(|child| drop(child.kill()));
        }
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let child = command.stderr(Stdio::piped()).spawn().expect("it starts");
    let mut guard = Guard(Some(child));
    let start = SystemTime::now();
    loop {
        let child = guard.0.as_mut().expect("it was not taken");
        if child.try_wait().expect("a child").is_some() {
            break;
        }
        let waited = start.elapsed().expect("time goes on");
        assert!(waited < Duration::from_secs(20), "it is still there");
        std::thread::sleep(Duration::from_millis(2));
    }
    let child = guard.0.take().expect("it was not taken");
    child.wait_with_output().expect("a child")
}

/// What is said of an agent that is not connected to in time.
const NOT_CONNECTED: [&str; 2] = ["no agent answers", "timed out"];
/// What is said of an agent that does not tell how the lock is served.
const NOT_TOLD: [&str; 1] = ["the agent does not answer"];

/// `distlock run` with these options, through `socket`, is refused with 69 and these words between
/// `least` and `most` milliseconds.
#[track_caller]
fn is_refused_in_time(socket: &Path, options: &[&str], [least, most]: [u64; 2], words: &[&str]) {
    let mut command = cli_support::distlock();
    command.env("DISTLOCK_SOCKET", socket).arg("run");
    command.args(options).args(["x", "--", "echo", "inside"]);
    let [least, most] = [least, most].map(Duration::from_millis);
    let output = timed(least, most, || output(command));
    assert_refused(&output, UNAVAILABLE, words);
}

#[test]
fn an_agent_that_stands_still_takes_nobody_more_time_than_there_is() {
    let group = Group::unix(1);
    let agent = group.agents(1).remove(0);
    // Connected before, so that the request is what is not answered.
    let client = Agent::connect(group.socket(1)).expect("an agent");
    let mutex = client.mutex("x").expect("a name");
    kill(pid_of(&agent.child), Signal::SIGSTOP).expect("it is there");
    is_refused_in_time(&group.socket(1), &["-n"], [900, 1_000], &NOT_CONNECTED);
    is_refused_in_time(&group.socket(1), &["-w", "0"], [900, 1_000], &NOT_CONNECTED);
    is_refused_in_time(&group.socket(1), &["-w", "0.5"], [500, 700], &NOT_CONNECTED);
    let millis = Duration::from_millis;
    let tried = timed(millis(500), millis(1_000), || mutex.try_lock());
    assert!(
        matches!(tried, Err(TryLockError::Failed(LockError::NoAnswer { .. }))),
        "{tried:?}"
    );
    let limit = millis(300);
    let waited = timed(limit, millis(500), || mutex.try_lock_for(limit));
    assert!(
        matches!(
            waited,
            Err(TimedLockError::Failed(LockError::NoAnswer { .. }))
        ),
        "{waited:?}"
    );
    kill(pid_of(&agent.child), Signal::SIGCONT).expect("it is there");
    // What was not waited for is not held either.
    drop(mutex.lock().expect("it is free"));
}

/// There is one deadline for all: what the agent takes until it lets a program in is not there for
/// its answer.
#[test]
fn an_agent_that_stands_still_after_its_welcome_takes_nobody_more_time_than_there_is() {
    let (group, _agent) = Group::alone();
    let (socket, agents) = (group.file("late"), group.socket(1));
    let listener = UnixListener::bind(&socket).expect("a new path");
    std::thread::spawn(move || {
        for client in listener.incoming().take(2) {
            let mut client = client.expect("a client");
            let mut agent = UnixStream::connect(&agents).expect("an agent");
            let mut welcome = [0; 4096];
            let len = agent.read(&mut welcome).expect("its first message");
            std::thread::sleep(Duration::from_millis(400));
            client
                .write_all(&welcome[..len])
                .expect("it waits for that");
            // Nothing else comes, and the streams stay open until this process ends.
            std::mem::forget((client, agent));
        }
    });
    is_refused_in_time(&socket, &["-n"], [900, 1_000], &NOT_TOLD);
    is_refused_in_time(&socket, &["-w", "0.5"], [500, 700], &NOT_TOLD);
}

/// The agent is there, and lets nobody in before a lease of its last incarnation is over: a program may
/// hold the lock yet.
#[test]
fn a_lock_that_waits_for_a_former_lease_counts_as_held_for_those_who_do_not_wait() {
    let group = Group::unix(1);
    let config = group.write_config("long.toml", 6_000);
    let agent = || {
        let mut agent = group.agent_command(1);
        agent.env("DISTLOCK_CONFIG", &config);
        AgentProcess::start(agent)
    };
    let first = agent();
    exits(group.client(1, ["run", "x", "true"]), 0);
    first.end_by(Signal::SIGKILL);
    let _next = agent();
    let tries = group.client(1, ["run", "-n", "x", "--", "echo", "inside"]);
    let output = timed(Duration::ZERO, Duration::from_secs(1), || output(tries));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(output.stdout, b"");
}

/// Nobody holds the lock. Whether it is free cannot be found out while its manager stands still, and
/// it is not said to be held; what a third member holds is. A member that is not asked may stand still.
#[test]
fn a_member_that_stands_still_does_not_hold_what_it_does_not_answer_for() {
    let group = Group::unix(3);
    let config = group.write_config("long.toml", 10_000);
    let start = |member| {
        let mut agent = group.agent_command(member);
        agent.env("DISTLOCK_CONFIG", &config);
        AgentProcess::start(agent)
    };
    let agents = [1, 2, 3].map(start);
    exits(group.client(1, ["run", "x", "true"]), 0);
    let holder = Agent::connect(group.socket(3)).expect("an agent");
    let mutex = holder.mutex("y").expect("a name");
    let held = mutex.lock().expect("it is free");
    exits(group.client(1, ["run", "-n", "y", "true"]), 1);
    // Of members 1 to 3 the second manages "x".
    let signal = |id: usize, signal| {
        kill(pid_of(&agents[id - 1].child), signal).expect("it is there");
    };
    signal(2, Signal::SIGSTOP);
    let silent = ["no answer in time from member 2"];
    is_refused_in_time(&group.socket(1), &["-n"], [500, 1_000], &silent);
    signal(2, Signal::SIGCONT);
    signal(3, Signal::SIGSTOP);
    exits(group.client(1, ["run", "-n", "x", "true"]), 0);
    signal(3, Signal::SIGCONT);
    drop(held);
}

/// Nobody is taken from its queue, and nobody else comes in.
#[test]
fn a_queue_that_is_full_takes_nobody_more_time_than_there_is() {
    let group = Group::unix(1);
    let socket = group.socket(1);
    let listener = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
    let address = SockAddr::unix(&socket).expect("a path");
    listener.bind(&address).expect("a new path");
    listener.listen(2).expect("a bound socket");
    let _listener = UnixListener::from(std::os::fd::OwnedFd::from(listener));
    let mut queue = Vec::new();
    loop {
        let next = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
        next.set_nonblocking(true).expect("a socket");
        if next.connect(&address).is_err() {
            break;
        }
        queue.push(next);
        assert!(queue.len() < 100, "it is never full");
    }
    is_refused_in_time(&socket, &["-n"], [900, 1_000], &NOT_CONNECTED);
    is_refused_in_time(&socket, &["-w", "0.5"], [500, 700], &NOT_CONNECTED);
}
