//! `distlock agent` under a service manager: a socket that is passed, and a watchdog. The launcher
//! here does what systemd does, which need not run.

mod cli_support;

use std::fs::File;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use cli_support::group::{AgentProcess, Group};
use cli_support::{
    assert_refused, eventually, exits, is_running, output, pid_of, refuses, skipped, wrapped,
};
use nix::sys::signal::{Signal, kill};

/// The agent of member 1, started with `sockets` as descriptors from 3 on.
fn launch(group: &Group, sockets: &[OwnedFd]) -> Command {
    let plain = group.member(1, ["agent"]);
    let mut command = Command::new("sh");
    // A shell knows the number of the process that it will become another program in.
    command.args(["-c", r#"LISTEN_PID=${PASSED_TO:-$$} exec "$0" "$@""#]);
    let mut command = wrapped(command, &plain);
    command.env("LISTEN_FDS", sockets.len().to_string());
    let sockets: Vec<RawFd> = sockets.iter().map(AsRawFd::as_raw_fd).collect();
    #[expect(
        unsafe_code,
        reason = "what a service manager does between fork and exec"
    )]
    // SAFETY: the closure makes system calls only.
    unsafe {
        command.pre_exec(move || {
            // Out of the way first: a source may have the number of another's target.
            let mut high = [-1; 8];
            for (copy, &socket) in high.iter_mut().zip(&sockets) {
                *copy = libc::fcntl(socket, libc::F_DUPFD_CLOEXEC, 100);
            }
            for (&copy, target) in high.iter().zip(3..).filter(|(copy, _)| **copy >= 0) {
                libc::dup2(copy, target);
            }
            Ok(())
        });
    }
    command
}

fn listener(group: &Group) -> [OwnedFd; 1] {
    [UnixListener::bind(group.socket(1))
        .expect("a socket")
        .into()]
}

#[test]
fn a_socket_that_is_passed_is_served_and_left_to_who_made_it() {
    let group = Group::unix(1);
    let passed = listener(&group);
    let early = group.client(1, ["run", "x", "true"]).spawn();
    let mut early = early.expect("it starts");
    let agent = AgentProcess::start(launch(&group, &passed));
    assert!(
        early.wait().expect("it ends").success(),
        "it has waited for the agent"
    );
    exits(group.client(1, ["run", "x", "--", "sh", "-c", "exit 7"]), 7);
    assert_eq!(agent.end_by(Signal::SIGTERM).code(), Some(0));
    assert!(group.socket(1).exists(), "it is not the agent's to remove");

    // Between two incarnations of the agent nobody is sent to another group.
    let between = group.client(1, ["run", "x", "true"]).spawn();
    let mut between = between.expect("it starts");
    let agent = AgentProcess::start(launch(&group, &passed));
    assert!(between.wait().expect("it ends").success());
    drop(agent);
}

#[test]
fn old_streams_are_not_taken_up_again_though_the_socket_is_the_same() {
    let group = Group::unix(1);
    let passed = listener(&group);
    let agent = AgentProcess::start(launch(&group, &passed));
    let holder = group.hold(1, "x");
    agent.end_by(Signal::SIGKILL);
    let _agent = AgentProcess::start(launch(&group, &passed));
    assert_eq!(holder.wait().code(), Some(79));
}

#[test]
fn what_is_passed_and_cannot_be_served_is_refused() {
    let group = Group::unix(1);
    let refused = |sockets: &[OwnedFd], words: &[&str]| {
        assert_refused(&output(&mut launch(&group, sockets)), 78, words);
    };
    let datagram = UnixDatagram::bind(group.file("datagram")).expect("a socket");
    refused(&[datagram.into()], &["no Unix stream socket"]);
    let (stream, other) = UnixStream::pair().expect("two");
    refused(&[stream.into()], &["does not listen"]);
    refused(&[other.into()], &["ListenStream="]);
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a socket");
    refused(&[tcp.into()], &["no Unix stream socket"]);
    let file = File::open(group.config()).expect("a file");
    refused(&[file.into()], &["no socket"]);
    let name = SocketAddr::from_abstract_name(std::process::id().to_string()).expect("a name");
    let nobodys = UnixListener::bind_addr(&name).expect("a socket");
    refused(&[nobodys.into()], &["abstract name", "with a path"]);
    let [socket] = listener(&group);
    let again = socket.try_clone().expect("a copy");
    refused(&[socket, again], &["2 sockets"]);
}

#[test]
fn what_the_manager_says_must_be_sense() {
    let group = Group::unix(1);
    let passed = listener(&group);
    let said = |key: &str, value: &str| output(launch(&group, &passed).env(key, value));
    assert_refused(&said("LISTEN_FDS", "many"), 78, &["LISTEN_FDS"]);
    // Nothing is open there.
    assert_refused(&said("LISTEN_FDS", "50"), 78, &["LISTEN_FDS"]);
    assert_refused(&said("PASSED_TO", "me"), 78, &["LISTEN_PID"]);
    assert_refused(&said("LISTEN_FDNAMES", "a:b"), 78, &["LISTEN_FDNAMES"]);
    // A name that fits is none of the agent's business.
    let mut named = launch(&group, &passed);
    named.env("LISTEN_FDNAMES", "whatever");
    assert!(AgentProcess::start(named).end_by(Signal::SIGTERM).success());
}

#[test]
fn what_is_passed_to_another_process_is_not_ours() {
    let group = Group::unix(1);
    let passed = listener(&group);
    let mut command = launch(&group, &passed);
    let own = group.file("own.sock");
    let agent = AgentProcess::start({
        command
            .env("PASSED_TO", "1")
            .args(["--socket".as_ref(), own.as_os_str()]);
        command
    });
    let said = output(
        group
            .client(1, ["run", "x", "true"])
            .env("DISTLOCK_SOCKET", &own),
    );
    assert_eq!(said.status.code(), Some(0), "{said:?}");
    assert_eq!(agent.end_by(Signal::SIGTERM).code(), Some(0));
    assert!(!own.exists());
}

#[test]
fn a_socket_that_is_named_must_be_the_one_that_is_passed() {
    let group = Group::unix(1);
    let passed = listener(&group);
    let with = |path: &std::path::Path| {
        let mut command = launch(&group, &passed);
        command.arg("--socket").arg(path);
        command
    };
    refuses(with(&group.file("other.sock")), 64, &["other.sock"]);
    // However it is spelled.
    let spelled = group.file(".").join("1.sock");
    let agent = AgentProcess::start(with(&spelled));
    exits(group.client(1, ["run", "x", "true"]), 0);
    drop(agent);
}

/// The same with systemd's own launcher, which starts the agent when the first program connects.
#[test]
fn systemds_launcher_starts_the_agent_for_its_first_client() {
    let group = Group::unix(1);
    let plain = group.member(1, ["agent"]);
    let mut command = Command::new("systemd-socket-activate");
    command
        .arg("--listen")
        .arg(group.socket(1))
        .arg("--fdname=clients");
    for (key, value) in plain.get_envs() {
        // It passes on what it is told to, and no more.
        if let Some(value) = value {
            let mut pair = key.to_owned();
            pair.push("=");
            pair.push(value);
            command.arg("--setenv").arg(pair);
        }
    }
    command.arg(plain.get_program()).args(plain.get_args());
    let launcher = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut launcher) = launcher else {
        return skipped("systemd-socket-activate is not installed");
    };
    eventually("it listens", || {
        // The socket is there some time before that: the kernel's table has a flag for it.
        let path = format!(" {}", group.socket(1).display());
        let table = std::fs::read_to_string("/proc/net/unix").expect("the table of sockets");
        let mut lines = table.lines().filter(|line| line.ends_with(&path));
        lines.any(|line| line.split_whitespace().nth(3) == Some("00010000"))
    });
    let said = output(&mut group.client(1, ["run", "x", "--", "sh", "-c", "exit 7"]));
    // The launcher has become the agent.
    kill(pid_of(&launcher), Signal::SIGTERM).expect("it is there");
    assert_eq!(launcher.wait().expect("it ends").code(), Some(0));
    assert_eq!(said.status.code(), Some(7), "{said:?}");
}

/// A manager's end of the notification socket.
struct Ear(UnixDatagram);

impl Ear {
    fn new(group: &Group) -> Self {
        let ear = UnixDatagram::bind(group.file("notify")).expect("a socket");
        Self(ear)
    }

    /// The next word, if one comes in that time.
    fn hear(&self, limit: Duration) -> Option<String> {
        self.0.set_read_timeout(Some(limit)).expect("a socket");
        let mut buffer = [0; 256];
        let len = self.0.recv(&mut buffer).ok()?;
        Some(String::from_utf8_lossy(&buffer[..len]).into_owned())
    }
}

const LONG: Duration = Duration::from_secs(30);

#[test]
fn the_watchdog_hears_of_an_agent_as_long_as_it_goes_on() {
    let group = Group::unix(1);
    let ear = Ear::new(&group);
    let start = || {
        let mut command = group.agent_command(1);
        command.env("NOTIFY_SOCKET", group.file("notify"));
        command.env("WATCHDOG_USEC", "200000");
        command
    };
    let agent = AgentProcess::start(start());
    let begun = SystemTime::now();
    for _ in 0..10 {
        let word = ear.hear(LONG).expect("a word");
        assert!(
            ["READY=1\n", "WATCHDOG=1\n"].contains(&word.as_str()),
            "{word}"
        );
    }
    let took = begun.elapsed().expect("the clock goes on");
    // Each half of the limit.
    assert!(took > Duration::from_millis(500), "{took:?}");

    kill(pid_of(&agent.child), Signal::SIGSTOP).expect("it is there");
    eventually("it is silent", || {
        ear.hear(Duration::from_millis(400)).is_none()
    });
    kill(pid_of(&agent.child), Signal::SIGCONT).expect("it is there");
    assert_eq!(ear.hear(LONG).as_deref(), Some("WATCHDOG=1\n"));
    let pid = agent.child.id().cast_signed();
    assert_eq!(agent.end_by(Signal::SIGTERM).code(), Some(0));
    assert!(!is_running(pid));
}

#[test]
fn a_watchdog_of_another_process_is_not_fed() {
    let group = Group::unix(1);
    let ear = Ear::new(&group);
    for (usec, pid) in [("20000", "1"), ("0", ""), ("often", "")] {
        let mut command = group.agent_command(1);
        command.env("NOTIFY_SOCKET", group.file("notify"));
        command.env("WATCHDOG_USEC", usec);
        if !pid.is_empty() {
            command.env("WATCHDOG_PID", pid);
        }
        let agent = AgentProcess::start(command);
        assert_eq!(agent.end_by(Signal::SIGTERM).code(), Some(0));
        assert_eq!(ear.hear(LONG).as_deref(), Some("READY=1\n"));
        assert_eq!(ear.hear(LONG).as_deref(), Some("STOPPING=1\n"));
    }
}
