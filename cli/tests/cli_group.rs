//! Configured groups: `distlock agent`, and `run` through it or as a member. What they tell of a
//! group is in `cli_status.rs`.

mod cli_support;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};
use std::time::{Duration, SystemTime};

use cli_support::group::{AgentProcess, Group, LEASE_MS};
use cli_support::{
    Holder, Local, assert_refused, distlock, eventually, exits, is_running, output, pid_of,
    refuses, spawn, stderr, stdout,
};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use serde_json::json;

#[test]
fn an_unserved_socket_is_never_replaced_by_another_group() {
    let group = Local::new();
    let socket = group.file("agent.sock");
    let socket = socket.to_str().expect("text");
    let said = output(&mut group.distlock(["run", "--socket", socket, "x", "true"]));
    assert_refused(&said, 69, &[socket]);
    let mut command = group.distlock(["run", "x", "true"]);
    refuses(command.env("DISTLOCK_SOCKET", socket), 69, &[socket]);
    // Something is there that nobody serves.
    drop(std::os::unix::net::UnixListener::bind(socket).expect("a socket"));
    let said = output(&mut group.distlock(["status", "--socket", socket]));
    assert_refused(&said, 69, &[socket]);
}

#[test]
fn a_configuration_that_is_not_there_is_66() {
    let group = Local::new();
    let file = group.file("group.toml");
    let file = file.to_str().expect("text");
    for args in [&["run", "x", "true"][..], &["status"], &["agent"]] {
        let (command, rest) = args.split_first().expect("a command");
        let said = output(
            group
                .distlock([command, "--config", file, "--id", "1"])
                .args(rest),
        );
        assert_refused(&said, 66, &[file]);
    }
    let mut command = group.distlock(["run", "x", "true"]);
    let said = output(command.env("DISTLOCK_CONFIG", file).env("DISTLOCK_ID", "1"));
    assert_refused(&said, 66, &[file]);
}

#[test]
fn a_wrong_configuration_is_78_with_file_and_line() {
    let group = Local::new();
    let file = group.file("group.toml");
    fs::write(&file, "[group]\nname = \"shop\"\nfrobnicate = 1\n").expect("a file");
    let file = file.to_str().expect("text");
    let said = output(&mut group.distlock(["run", "--config", file, "--id", "1", "x", "true"]));
    assert_refused(&said, 78, &[file, "3", "frobnicate"]);
}

#[test]
fn what_is_there_and_is_no_configuration_is_78() {
    let group = Local::new();
    for (place, why) in [
        (group.file(""), "name the file in it"),
        ("/dev/null".into(), "no regular file"),
    ] {
        let place = place.to_str().expect("text");
        let run = ["run", "--config", place, "--id", "1", "x", "true"];
        assert_refused(&output(&mut group.distlock(run)), 78, &[place, why]);
    }
}

#[test]
fn a_path_at_which_no_socket_can_be_is_refused_as_what_it_is() {
    let group = Group::unix(1);
    let long = format!("/tmp/{}", "a".repeat(103));
    let file = group.config();
    let missing = group.file("no/such/socket");
    let text = |path: &std::path::Path| path.to_str().expect("text").to_owned();
    for (path, as_client, as_agent) in [
        (long.as_str(), 64, 64),
        (&text(&missing), 69, 66),
        (&text(&file), 69, 78),
    ] {
        let run = ["run", "--socket", path, "x", "true"];
        assert_refused(&output(distlock().args(run)), as_client, &[path]);
        let mut run = distlock();
        run.args(["run", "x", "true"]).env("DISTLOCK_SOCKET", path);
        assert_refused(&output(&mut run), as_client, &[path]);
        let agent = ["agent", "--socket", path];
        assert_refused(&output(&mut group.member(1, agent)), as_agent, &[path]);
    }
    assert!(file.exists(), "what is no socket is left alone");
}

/// What one thread asks an agent that stands still, no other thread waits for.
#[test]
fn threads_of_a_client_do_not_wait_for_each_others_questions() {
    let (group, agent) = Group::alone();
    let client = distlock::Agent::connect(group.socket(1)).expect("its agent");
    let _known = client.mutex("known").expect("a handle");
    kill(pid_of(&agent.child), Signal::SIGSTOP).expect("it is there");
    // It stands still only some time after it is told to, and answers until then.
    let stopped = waitpid(pid_of(&agent.child), Some(WaitPidFlag::WUNTRACED));
    assert!(
        matches!(stopped, Ok(WaitStatus::Stopped(..))),
        "{stopped:?}"
    );
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| client.mutex("unknown").is_ok());
        // By the end of this time it has asked, and none of the looks had to wait for it.
        let start = SystemTime::now();
        while start.elapsed().unwrap_or_default() < Duration::from_secs(1) {
            let looked = SystemTime::now();
            client.mutex("known").expect("a handle");
            let took = looked.elapsed().unwrap_or_default();
            assert!(took < Duration::from_millis(800), "{took:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(!asks.is_finished(), "the agent stands still");
        kill(pid_of(&agent.child), Signal::SIGCONT).expect("it is there");
        assert!(asks.join().expect("no panic"));
    });
}

#[test]
fn an_agent_says_ready_serves_and_leaves() {
    let group = Group::unix(1);
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let agent = group.agent(1);
        exits(group.client(1, ["run", "x", "--", "sh", "-c", "exit 7"]), 7);
        assert_eq!(agent.end_by(signal).code(), Some(0));
        assert!(!group.socket(1).exists(), "it takes its socket away");
        refuses(group.client(1, ["run", "x", "true"]), 69, &["1.sock"]);
    }
}

#[test]
fn hosts_take_turns_through_their_agents() {
    for group in [Group::udp(3), Group::unix(3)] {
        let _agents = group.agents(3);
        for name in ["printer", "ring"] {
            let first = group.hold(1, name);
            exits(group.client(2, ["run", "-n", "-E", "9", name, "true"]), 9);
            let late = output(&mut group.client(3, ["run", "-w", "0.2", name, "true"]));
            assert_refused(&late, 1, &[name]);
            assert_eq!(first.let_go().code(), Some(3));
            exits(group.client(2, ["run", "-w", "20", name, "true"]), 0);
        }
    }
}

#[test]
fn fences_rise_from_host_to_host() {
    let (group, _agents) = Group::running(2);
    let mut last = 0;
    for round in 0..6 {
        let print = ["run", "x", "sh", "-c", r#"echo "$DISTLOCK_FENCE""#];
        let said = stdout(&output(&mut group.client(round % 2 + 1, print)));
        let fence: u64 = said.trim().parse().expect("a fence");
        assert!(fence > last, "{fence} after {last}");
        last = fence;
    }
}

#[test]
fn a_member_for_the_duration_of_a_command() {
    let group = Group::unix(2);
    let _agent = group.agent(1);
    let script = r#"echo "$DISTLOCK_NAME $DISTLOCK_FENCE"; exit 5"#;
    for _ in 0..2 {
        let said = exits(group.member(2, ["run", "-w", "20", "x", "-c", script]), 5);
        assert!(stdout(&said).starts_with("x "), "{said:?}");
    }
    // By flags too.
    let (config, state) = (group.config(), group.state());
    let mut command = distlock();
    command
        .arg("run")
        .arg("--config")
        .arg(config)
        .args(["--id", "2", "--state-dir"])
        .arg(state);
    assert_eq!(
        output(command.args(["x", "sh", "-c", "exit 6"]))
            .status
            .code(),
        Some(6)
    );
}

#[test]
fn an_id_that_runs_already_is_69() {
    let (group, _agent) = Group::alone();
    refuses(group.member(1, ["run", "x", "true"]), 69, &["member 1"]);
    assert_refused(&output(&mut group.agent_command(1)), 69, &["member 1"]);
    // Another state directory does not make it another member: its address is taken.
    let mut elsewhere = group.agent_command(1);
    elsewhere.env("DISTLOCK_STATE_DIR", group.file("elsewhere"));
    let words = ["the address unix:", "1.dgram", "in use", "Agent::open"];
    assert_refused(&output(&mut elsewhere), 69, &words);
    // The socket is another thing than the address.
    let group = Group::unix(2);
    let _agent = group.agent(1);
    let mut second = group.member(2, ["agent", "--socket"]);
    let said = refuses(
        second.arg(group.socket(1)),
        69,
        &["another agent serves at", "1.sock", "serve at another"],
    );
    assert!(!stderr(&said).contains("address"), "{said:?}");
}

#[test]
fn a_member_that_is_not_in_the_file_is_78() {
    let group = Group::unix(2);
    refuses(group.member(3, ["run", "x", "true"]), 78, &["3", "1, 2"]);
}

#[test]
fn without_the_others_it_gives_up_after_a_lease_and_names_them() {
    let group = Group::unix(3);
    let _agent = group.agent(1);
    for mut command in [
        group.client(1, ["run", "x", "true"]),
        group.member(2, ["run", "x", "true"]),
    ] {
        let start = SystemTime::now();
        assert_refused(&output(&mut command), 69, &["3"]);
        let waited = start.elapsed().expect("the clock goes on");
        assert!(
            waited >= Duration::from_millis(LEASE_MS * 9 / 10),
            "{waited:?}"
        );
        assert!(waited < Duration::from_millis(LEASE_MS * 4), "{waited:?}");
    }
    // With a time limit it is the limit that counts, longer than a lease or shorter.
    for limit in [LEASE_MS / 4, LEASE_MS * 3 / 2] {
        let seconds = format!("{}", limit as f64 / 1000.0);
        let start = SystemTime::now();
        let said = output(&mut group.client(1, ["run", "-w", &seconds, "-E", "9", "x", "true"]));
        assert_refused(&said, 69, &["no quorum", "3"]);
        let waited = start.elapsed().expect("the clock goes on");
        assert!(
            waited >= Duration::from_millis(limit),
            "{limit}: {waited:?}"
        );
        assert!(
            waited < Duration::from_millis(limit + 2000),
            "{limit}: {waited:?}"
        );
    }
}

#[test]
fn members_that_disagree_are_told_the_key() {
    let group = Group::unix(2);
    let _agent = group.agent(1);
    for (file, lines, lease_ms, key) in [
        ("lease.toml", "", LEASE_MS * 2, "lease"),
        ("by.toml", "algorithm = \"bakery\"\n", LEASE_MS, "algorithm"),
    ] {
        let config = group.write_config_with(file, lines, lease_ms);
        let mut command = group.member(2, ["run", "-w", "20", "x", "true"]);
        let said = output(command.env("DISTLOCK_CONFIG", &config));
        assert_refused(&said, 78, &[key, "member 1"]);
    }
}

/// Of three members one is away: there is no view that would show that the other two agree.
#[test]
fn a_file_that_was_mended_is_complained_of_no_more() {
    let group = Group::udp(3);
    let _first = group.agent(1);
    let other = group.write_config("other-lease.toml", LEASE_MS * 2);
    let mut command = group.agent_command(2);
    command.arg("--config").arg(other);
    let wrong = AgentProcess::start(command);
    let second = || group.status(1)["members"][1].clone();
    eventually("the difference is told", || {
        let detail = second()["detail"].as_str().map(str::to_owned);
        detail.is_some_and(|detail| detail.starts_with("lease: "))
    });
    drop(wrong);
    let _mended = group.agent(2);
    eventually("it is there, and nothing is said of it", || {
        second()["state"] == "joining" && second()["detail"] == ""
    });
}

#[test]
fn the_algorithm_must_be_the_one_in_use() {
    let (group, _agent) = Group::alone();
    let with =
        |algorithm, name| output(group.client(1, ["run", "--algorithm", algorithm, name, "true"]));
    assert_eq!(with("bakery", "new").status.code(), Some(0));
    assert_eq!(with("token-ring-requests", "ring").status.code(), Some(0));
    assert_refused(&with("bakery", "ring"), 78, &["token-ring-requests"]);
    assert_refused(&with("kernel", "new"), 78, &["kernel"]);
    for other in ["kernel", "maekawa"] {
        assert_refused(&with(other, "ring"), 78, &[other, "token-ring-requests"]);
        assert_refused(&with(other, "licences"), 78, &[other, "manager"]);
    }
}

#[test]
fn a_lock_with_permits_lets_as_many_in() {
    let (group, _agents) = Group::running(2);
    let first = group.hold(1, "licences");
    let second = group.hold(2, "licences");
    for id in [1, 2] {
        let full = output(&mut group.client(id, ["run", "-n", "licences", "true"]));
        assert_refused(&full, 1, &["licences"]);
    }
    let mut third = spawn(group.client(1, ["run", "--algorithm", "manager", "licences", "true"]));
    eventually("two are inside, and the third waits", || {
        let lock = &group.status(2)["locks"][0];
        lock["holders"].as_array().is_some_and(|all| all.len() == 2)
            && lock["waiters"][0]["pid"] == third.id()
    });
    assert_eq!(second.let_go().code(), Some(3));
    assert!(third.wait().expect("it ends").success());
    assert_eq!(first.let_go().code(), Some(3));
    let shared = output(&mut group.client(1, ["run", "-s", "licences", "true"]));
    assert_refused(&shared, 78, &["licences", "2 permits", "-s"]);
}

#[test]
fn a_signal_ends_the_waiting_for_another_host() {
    let (group, mut agents) = Group::running(2);
    let holder = group.hold(1, "x");
    let waits = |waiter: &Child, member: u64| {
        let waiters = group.status(1)["locks"][0]["waiters"].take();
        waiters.as_array().is_some_and(|waiters| {
            waiters
                .iter()
                .any(|it| it["pid"] == waiter.id() && it["member"] == member)
        })
    };
    let ends_by_term = |mut waiter: Child| {
        kill(pid_of(&waiter), Signal::SIGTERM).expect("it is there");
        assert_eq!(waiter.wait().expect("it ends").signal(), Some(15));
    };
    // A client of the other host's agent.
    let waiter = spawn(group.client(2, ["run", "x", "true"]));
    eventually("the client waits", || waits(&waiter, 2));
    ends_by_term(waiter);
    eventually("its request is withdrawn", || {
        group.status(1)["locks"][0]["waiters"] == json!([])
    });

    // A member: it leaves before it dies.
    assert!(agents.remove(1).end_by(Signal::SIGTERM).success());
    let waiter = spawn(group.member(2, ["run", "-w", "600", "x", "true"]));
    eventually("the member waits", || waits(&waiter, 2));
    ends_by_term(waiter);
    assert!(!group.file("2.dgram").exists(), "it left in order");
    assert_eq!(holder.let_go().code(), Some(3));
}

#[test]
fn a_signal_ends_the_waiting_for_a_group_that_does_not_form() {
    let group = Group::unix(2);
    let mut waiter = spawn(group.member(1, ["run", "-w", "600", "x", "true"]));
    eventually("it runs", || group.file("1.dgram").exists());
    let start = SystemTime::now();
    kill(pid_of(&waiter), Signal::SIGTERM).expect("it is there");
    assert_eq!(waiter.wait().expect("it ends").signal(), Some(15));
    assert!(start.elapsed().expect("the clock goes on") < Duration::from_secs(5));
    assert!(!group.file("1.dgram").exists(), "it left in order");
}

#[test]
fn when_the_agent_dies_the_command_is_ended_first_by_term_then_by_kill() {
    let group = Group::unix(1);
    let scripts = [
        (
            "trap 'echo asked; exit 0' TERM; echo in; echo $$; while :; do sleep 0.01; done",
            "asked",
        ),
        (
            "trap '' TERM; echo in; echo $$; while :; do sleep 0.01; done",
            "",
        ),
    ];
    for (script, last_word) in scripts {
        let agent = group.agent(1);
        let args = [
            "run",
            "--lost-exit-code",
            "33",
            "x",
            "--",
            "sh",
            "-c",
            script,
        ];
        let mut command = group.client(1, args);
        let mut holder = Holder::start({
            command.stderr(Stdio::piped());
            command
        });
        let pid: i32 = holder.line().parse().expect("a pid");
        let start = SystemTime::now();
        agent.end_by(Signal::SIGKILL);
        assert_eq!(holder.line(), last_word);
        let said = holder.child.stderr.take().expect("a pipe");
        assert_eq!(holder.wait().code(), Some(33));
        assert!(!is_running(pid));
        let took = start.elapsed().expect("the clock goes on");
        assert!(
            took < Duration::from_millis(LEASE_MS * 9 / 10),
            "within the lease: {took:?}"
        );
        let said = std::io::read_to_string(said).expect("text");
        // The shell may tell of its own child.
        let ours: Vec<_> = said
            .lines()
            .filter(|line| line.starts_with("distlock: "))
            .collect();
        assert!(ours.len() == 1 && ours[0].contains("lost"), "{said:?}");
    }
    // The default code.
    let agent = group.agent(1);
    let holder = group.hold(1, "x");
    agent.end_by(Signal::SIGKILL);
    assert_eq!(holder.wait().code(), Some(79));
}

#[test]
fn a_lost_locks_whole_process_group_ends() {
    let (group, agent) = Group::alone();
    let script = "trap '' TERM; sleep 600 & echo in; echo $!; wait";
    let mut holder = Holder::start(group.client(1, ["run", "x", "--", "sh", "-c", script]));
    let line = holder.line();
    let child: i32 = line.parse().expect("a pid");
    agent.end_by(Signal::SIGKILL);
    assert_eq!(holder.wait().code(), Some(79));
    eventually("all of the group is gone", || !is_running(child));
}

#[test]
fn an_agent_that_leaves_takes_its_locks_back() {
    let (group, agent) = Group::alone();
    let holder = group.hold(1, "x");
    assert_eq!(agent.end_by(Signal::SIGTERM).code(), Some(0));
    assert_eq!(holder.wait().code(), Some(79));
}

#[test]
fn an_agents_socket_is_its_users_alone() {
    use std::os::unix::fs::PermissionsExt;
    let (group, _agent) = Group::alone();
    let mode = fs::metadata(group.socket(1))
        .expect("a socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_clients_command_dies_with_its_runner_and_the_lock_is_free() {
    let (group, _agent) = Group::alone();
    let script = "trap '' TERM HUP INT; echo in; echo $$; while :; do read line; done";
    let mut holder = Holder::start(group.client(1, ["run", "x", "--", "sh", "-c", script]));
    let command: i32 = holder.line().parse().expect("a pid");
    holder.signal(Signal::SIGKILL);
    eventually("the command is gone", || !is_running(command));
    assert_eq!(holder.wait().signal(), Some(9));
    exits(group.client(1, ["run", "-w", "20", "x", "true"]), 0);
}

#[test]
fn an_agent_whose_file_differs_from_the_groups_is_refused_with_78() {
    let (group, mut agents) = Group::running(2);
    // A group that has not formed yet would refuse neither.
    eventually("the group forms", || group.status(1)["epoch"] != 0);
    assert!(agents.remove(1).end_by(Signal::SIGTERM).success());
    let config = group.write_config("other.toml", LEASE_MS * 2);
    let said = exits(group.agent_command(2).env("DISTLOCK_CONFIG", config), 78);
    let why = String::from_utf8(said.stderr).expect("text");
    assert!(why.contains("member 1") && why.contains("lease"), "{why}");
}

/// Who can put a socket beside those of members can be taken for one of them.
#[test]
fn a_members_socket_is_in_nobody_elses_directory() {
    let group = Group::unix(1);
    let directory = group.file(".");
    let mode = |mode| fs::set_permissions(&directory, Permissions::from_mode(mode)).unwrap();
    let run = || output(&mut group.member(1, ["run", "printer", "--", "true"]));
    for open in [0o770, 0o1777] {
        mode(open);
        assert_refused(
            &run(),
            78,
            &["1.dgram", &format!("{open:04o}"), "chmod go-w"],
        );
    }
    mode(0o755);
    assert_eq!(run().status.code(), Some(0));
}
