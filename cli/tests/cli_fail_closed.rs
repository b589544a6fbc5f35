//! What operators do to files, hosts and versions: nobody gets in beside another, and somebody is
//! told. doc/fail-closed.md has the whole list.

mod cli_support;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use cli_support::group::{AgentProcess, Group, LEASE_MS};
use cli_support::{Holder, distlock, eventually, exits, output, refuses, stderr, stdout};
use distlock_agent::protocol::wire::VERSION;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const LEASE: Duration = Duration::from_millis(LEASE_MS);

fn log_of(file: &Path) -> String {
    fs::read_to_string(file).expect("a log")
}

/// The agent of member `id` with another configuration or state, and what it logs.
fn agent_with(group: &Group, id: usize, key: &str, value: &Path, log: &Path) -> AgentProcess {
    let mut command = group.agent_command(id);
    command.env(key, value);
    AgentProcess::start_with_log(&mut command, fs::File::create(log).expect("a log"))
}

fn fence_of(group: &Group, id: usize) -> u64 {
    let print = [
        "run",
        "-w",
        "25",
        "x",
        "sh",
        "-c",
        r#"echo "$DISTLOCK_FENCE""#,
    ];
    let said = output(&mut group.client(id, print));
    stdout(&said)
        .trim()
        .parse()
        .unwrap_or_else(|_| panic!("{said:?}"))
}

fn new_key(file: &Path) {
    exits(distlock().arg("keygen").arg(file), 0);
}

/// Neither half of four voters is a majority: whoever is inside loses its lock, nobody enters, and
/// each half is told that the other has another key.
#[test]
fn a_key_changed_on_half_of_the_hosts_lets_nobody_in() {
    let group = Group::udp(4);
    // Four agents that seal are slow on a busy machine.
    let base = group.write_config("base.toml", 3 * LEASE_MS);
    let text = fs::read_to_string(base).expect("a file");
    let file = |half: &str| group.file(&format!("{half}.toml"));
    for half in ["a", "b"] {
        let text = format!("key_file = \"{half}.key\"\n{text}");
        fs::write(file(half), text).expect("a file");
    }
    new_key(&group.file("a.key"));
    fs::copy(group.file("a.key"), group.file("b.key")).expect("the same key");
    let log = |id| group.file(&format!("{id}.log"));
    let agents: Vec<_> = (1..=4)
        .map(|id| {
            let config = file(if id <= 2 { "a" } else { "b" });
            agent_with(&group, id, "DISTLOCK_CONFIG", &config, &log(id))
        })
        .collect();
    eventually("a quorum", || group.status(1)["quorum"]["ok"] == true);
    let before = fence_of(&group, 3);
    let holder = group.hold(1, "x");

    new_key(&group.file("new.key"));
    fs::rename(group.file("new.key"), group.file("b.key")).expect("another key");
    assert_eq!(
        holder.wait().code(),
        Some(79),
        "the lock is lost, and its command ended"
    );
    for id in 1..=4 {
        eventually("the loss", || group.status(id)["quorum"]["ok"] == false);
        exits(group.client(id, ["run", "-w", "0.5", "x", "true"]), 69);
    }
    for (id, other) in [(1, 2), (3, 0)] {
        eventually("the reason", || {
            let detail = &group.status(id)["members"][other]["detail"];
            let detail = detail.as_str().expect("text");
            detail.contains("is sealed with the key") && detail.contains("which is not here")
        });
        eventually("the reason in the log", || {
            log_of(&log(id)).contains("see that all members have the same key_file")
        });
    }
    fs::copy(group.file("a.key"), group.file("again.key")).expect("the key");
    fs::rename(group.file("again.key"), group.file("b.key")).expect("the same key");
    assert!(fence_of(&group, 3) > before);
    eventually("all is well", || {
        output(&mut group.client(1, ["status", "--check"]))
            .status
            .success()
            && group.status(1)["members"][2]["detail"] == ""
    });
    drop(agents);
}

/// Whoever comes with another file is told what differs, and enters nothing.
#[test]
fn a_file_that_comes_to_say_another_group_or_failure_is_refused() {
    let group = Group::unix(2);
    let _agent = group.agent(1);
    let text = fs::read_to_string(group.config()).expect("a file");
    for (key, changed) in [
        ("failure", format!("failure = \"presume-failed\"\n{text}")),
        (
            "group.name",
            text.replace("name = \"shop\"", "name = \"renamed\""),
        ),
    ] {
        let config = group.file("changed.toml");
        fs::write(&config, changed).expect("a file");
        // A state of its own would say so before anybody is asked.
        let _ = fs::remove_dir_all(group.state().join("shop-2"));
        let mut command = group.member(2, ["run", "-w", "20", "x", "true"]);
        let said = stderr(&exits(command.env("DISTLOCK_CONFIG", &config), 78));
        assert!(said.contains(key) && said.contains("member 1"), "{said}");
    }
}

/// A host reboots that keeps its state in memory, or is installed anew under its id. What it held
/// is waited out, it comes back as a new voter, and fences rise; it was warned.
#[test]
fn state_in_memory_that_a_reboot_loses_lets_nobody_in_too_early() {
    let group = Group::unix(3);
    let memory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let start = |id: usize| {
        let log = group.file(&format!("{id}.log"));
        agent_with(&group, id, "DISTLOCK_STATE_DIR", memory.path(), &log)
    };
    let mut agents: Vec<_> = (1..=3).map(start).collect();
    for id in 1..=3 {
        let log = log_of(&group.file(&format!("{id}.log")));
        assert!(log.contains("is in memory and lost at a reboot"), "{log}");
    }
    let before = fence_of(&group, 1);
    let holder = group.hold(1, "x");
    let rebooted = SystemTime::now();
    // All of the host ends at once.
    agents.remove(0).end_by(Signal::SIGKILL);
    drop(holder);
    fs::remove_dir_all(memory.path().join("shop-1")).expect("its state");
    agents.insert(0, start(1));
    let fence = fence_of(&group, 2);
    let waited = rebooted.elapsed().expect("time goes on");
    assert!(
        waited >= LEASE / 2,
        "{waited:?}: its lease was not waited out"
    );
    assert!(fence > before, "{fence} after {before}");
    eventually("it votes again", || {
        let quorum = &group.status(1)["quorum"];
        let votes = quorum["ok"] == true && quorum["voters"] == json!([1, 2, 3]);
        votes && quorum["missing"] == json!([]) && quorum["state_lost"] == json!([])
    });
    assert!(fence_of(&group, 1) > fence);
}

/// A member that says what this version does not know is not heard, and both hosts' operators learn
/// why, whether one of the two seals, or both, or none. It need say no more than its version, which
/// comes first.
#[test]
fn a_member_of_another_version_is_not_heard_and_named() {
    for (has_key, first) in [(false, 2), (false, 0x82), (true, 2), (true, 0x82)] {
        let group = Group::unix(2);
        let other = UnixDatagram::bind(group.file("2.dgram")).expect("its address");
        let log = group.file("log");
        let file = fs::File::create(&log).expect("a log");
        let mut command = group.agent_command(1);
        if has_key {
            new_key(&group.file("shop.key"));
            let text = fs::read_to_string(group.config()).expect("the configuration");
            let config = group.file("sealed.toml");
            fs::write(&config, format!("key_file = \"shop.key\"\n{text}")).expect("a file");
            command.env("DISTLOCK_CONFIG", config);
        }
        let agent = AgentProcess::start_with_log(&mut command, file);
        let mut datagram = [0; 64];
        datagram[0] = first;
        let told = format!("is of version 2 of datagrams, and here that is {VERSION}");
        let mut sent = 0;
        eventually("it is told", || {
            other
                .send_to(&datagram, group.file("1.dgram"))
                .expect("it is there");
            sent += 1;
            thread::sleep(Duration::from_millis(200));
            let detail = &group.status(1)["members"][1]["detail"];
            let is_told = detail.as_str().expect("text").contains(&told);
            assert!(!is_told || sent >= 5, "told after {sent}");
            is_told
        });
        assert!(log_of(&log).contains("install the same version on all hosts"));
        let dropped = &group.status(1)["protection"]["dropped"];
        let why = if has_key { "malformed" } else { "version" };
        assert!(dropped[why].as_u64() >= Some(5), "{dropped}");
        refuses(group.client(1, ["run", "x", "true"]), 69, &["no quorum"]);
        drop(agent);
    }
}

/// A program of one build and an agent of another: the program is refused and told what to do, and
/// the agent goes on.
#[test]
fn a_program_of_another_build_is_refused() {
    let group = Group::unix(1);
    let path = group.file("other.sock");
    let listener = UnixListener::bind(&path).expect("a socket");
    let serve = thread::spawn(move || {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().expect("a client");
            // The first message of the version before.
            let _ = stream.write_all(b"\0\0\0\x02\x06\x00");
            let _ = stream.read(&mut [0; 64]);
        }
    });
    for args in [&["run", "x", "true"][..], &["status", "--check"]] {
        let mut command = distlock();
        refuses(
            command.args(args).env("DISTLOCK_SOCKET", &path),
            69,
            &["other.sock", "no agent of this build", "restart the agent"],
        );
    }
    serve.join().expect("no panic");

    let _agent = group.agent(1);
    let mut old = UnixStream::connect(group.socket(1)).expect("the agent");
    old.write_all(b"\0\0\0\x02\x06\x05").expect("a message");
    let mut said = Vec::new();
    old.read_to_end(&mut said).expect("the end of the stream");
    let well: Value = group.status(1);
    assert_eq!(well["clients"]["connected"], 1, "{well}");
    Holder::start(group.client(1, ["run", "x", "--", "sh", "-c", "echo in; read x"])).let_go();
}
