//! What is told of the quorum: a host without one says so, in words, in JSON and by its exit code.

mod cli_support;

use std::time::Duration;

use cli_support::group::{AgentProcess, Group, LEASE_MS};
use cli_support::{
    Holder, Local, assert_refused, distlock, eventually, exits, output, pid_of, refuses, stderr,
    stdout,
};
use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};

fn stop(agents: &[AgentProcess], signal: Signal) {
    for agent in agents {
        kill(pid_of(&agent.child), signal).expect("it is there");
    }
}

/// What `distlock` says with these arguments to the agent of member 1, and its exit code.
fn ask(group: &Group, args: &[&str]) -> (String, Option<i32>) {
    let said = output(&mut group.client(1, args));
    (stdout(&said), said.status.code())
}

fn json_of(group: &Group, args: &[&str]) -> Value {
    serde_json::from_str(&ask(group, args).0).expect("JSON")
}

#[test]
fn a_host_that_is_cut_off_says_no_quorum() {
    let (group, agents) = Group::running(3);
    eventually("all is well", || {
        ask(&group, &["status", "--check"]).1 == Some(0)
    });
    let (text, _) = ask(&group, &["status"]);
    assert!(text.starts_with("Group shop, member 1, epoch "), "{text}");
    assert!(text.contains("\nQuorum: members 1, 2, 3 vote.\n"), "{text}");

    stop(&agents[1..], Signal::SIGSTOP);
    eventually("it is noticed", || group.status(1)["quorum"]["ok"] == false);
    let status = json_of(&group, &["status", "--json"]);
    assert_eq!(status["schema"], 1);
    assert_eq!(status["member"], 1);
    assert_eq!(status["quorum"]["voters"], json!([1, 2, 3]));
    eventually("both are noticed", || {
        group.status(1)["quorum"]["missing"] == json!([2, 3])
    });
    let (text, code) = ask(&group, &["status"]);
    assert_eq!(code, Some(0), "it says what it knows");
    let line = "NO QUORUM: members 1, 2, 3 vote; members 2, 3 are silent. ";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("silent for "), "{text}");
    assert!(!text.contains("No lock is held"), "nobody knows: {text}");
    for args in [&["members"][..], &["who", "x"]] {
        assert!(ask(&group, args).0.contains("NO QUORUM"), "{args:?}");
        let json = json_of(&group, &[args, &["--json"]].concat());
        assert_eq!(json["quorum"]["ok"], false, "{json}");
        assert_eq!((&json["schema"], &json["member"]), (&json!(1), &json!(1)));
    }

    for args in [&["status", "--check"][..], &["status", "--check", "--json"]] {
        let said = exits(group.client(1, args), 69);
        assert!(stdout(&said).contains("shop"), "it says what it knows, too");
        let why = stderr(&said);
        assert_eq!(why.lines().count(), 1, "{why}");
        assert!(why.contains("no quorum: members 2, 3 are silent"), "{why}");
    }
    stop(&agents[1..], Signal::SIGCONT);
    eventually("all is well", || {
        ask(&group, &["status", "--check"]).1 == Some(0)
    });
}

#[test]
fn one_voter_of_three_that_is_silent_is_named_and_no_failure() {
    let (group, mut agents) = Group::running(3);
    drop(agents.pop());
    eventually("it is noticed", || {
        let (text, code) = ask(&group, &["status", "--check"]);
        text.contains("\nQuorum: members 1, 2, 3 vote; member 3 is silent.\n") && code == Some(0)
    });
}

#[test]
fn check_is_69_without_an_agent_and_0_in_the_local_group() {
    let local = Local::new();
    let well = exits(local.distlock(["status", "--check", "--json"]), 0);
    let status: Value = serde_json::from_slice(&well.stdout).expect("JSON");
    assert_eq!(status["quorum"]["ok"], true);
    assert_eq!(
        (&status["schema"], &status["member"]),
        (&json!(1), &json!(0))
    );
    let socket = local.file("nobody.sock");
    let socket = socket.to_str().expect("text");
    let said = output(distlock().args(["status", "--check", "--socket", socket]));
    assert_refused(&said, 69, &[socket]);
}

/// Nobody has been there yet: the group cannot begin, and whoever asks is told for whom it waits.
#[test]
fn a_group_that_never_began_says_for_whom_it_waits() {
    let group = Group::unix(3);
    let _agents = [group.agent(1), group.agent(2)];
    eventually("it is known who is missing", || {
        group.status(1)["quorum"]["missing"] == json!([3])
    });
    let (text, code) = ask(&group, &["status", "--check"]);
    assert_eq!(code, Some(69));
    assert!(
        text.contains("NO QUORUM: members 1, 2, 3 are to vote; member 3 is silent"),
        "{text}"
    );
    assert!(
        text.contains("begins only when all are there at once"),
        "{text}"
    );
    assert_eq!(group.status(1)["quorum"]["founded"], false);
    let refused = output(&mut group.client(1, ["run", "x", "true"]));
    assert_refused(&refused, 69, &["member 3", "all are there at once"]);
}

/// Passwords stand in command lines, and the status is for all members and their programs.
#[test]
fn arguments_are_told_only_where_the_hosts_file_says_so() {
    let group = Group::unix(2);
    let whole = format!(
        "command_lines = true\n{}",
        std::fs::read_to_string(group.config()).expect("a file")
    );
    let file = group.file("whole.toml");
    std::fs::write(&file, whole).expect("a file");
    let mut second = group.agent_command(2);
    second.env("DISTLOCK_CONFIG", &file);
    let _agents = [group.agent(1), AgentProcess::start(second)];
    for (id, told) in [(1, "sh"), (2, "/bin/sh -c echo in; read x; echo SECRET")] {
        let script = "echo in; read x; echo SECRET";
        let run = ["run", "x", "--", "/bin/sh", "-c", script];
        let holder = Holder::start(group.client(id, run));
        for asked in [1, 2] {
            let holders = &group.status(asked)["locks"][0]["holders"];
            assert_eq!(holders[0]["command"], told, "{id} of {asked}: {holders}");
            let text = stdout(&output(&mut group.client(asked, ["status"])));
            assert_eq!(text.contains("SECRET"), id == 2, "{text}");
        }
        holder.let_go();
    }
}

#[test]
fn arguments_are_not_told_in_the_local_group() {
    let local = Local::new();
    let holder = local.hold("x");
    assert_eq!(local.status()["locks"][0]["holders"][0]["command"], "sh");
    holder.let_go();
}

/// On loopback any user of the host can send what members send.
#[test]
fn unsealed_loopback_is_called_insecure() {
    let group = Group::udp(1);
    let log = group.file("log");
    let file = std::fs::File::create(&log).expect("a file");
    let _agent = AgentProcess::start_with_log(&mut group.agent_command(1), file);
    let logged = std::fs::read_to_string(&log).expect("text");
    assert!(logged.contains("any user of this host"), "{logged}");
    assert_eq!(group.status(1)["protection"]["insecure"], true);
    let (text, _) = ask(&group, &["status"]);
    assert!(text.contains("INSECURE: datagrams on loopback"), "{text}");
    let (group, _agent) = Group::alone();
    assert_eq!(group.status(1)["protection"]["insecure"], false);
}

#[test]
fn the_log_says_that_there_is_no_quorum_and_who_is_missing() {
    let group = Group::unix(3);
    let log = group.file("log");
    let file = std::fs::File::create(&log).expect("a file");
    let agent = AgentProcess::start_with_log(&mut group.agent_command(1), file);
    let logged = |what: &str| std::fs::read_to_string(&log).is_ok_and(|log| log.contains(what));
    eventually("what the founding waits for", || {
        logged(
            "no quorum: members 2, 3 are silent, and the group begins only when all are there at once: ",
        )
    });
    let others = [group.agent(2), group.agent(3)];
    eventually("its end", || logged("there is a quorum again"));
    stop(&others, Signal::SIGSTOP);
    eventually("the silence", || {
        logged("no quorum: members 2, 3 are silent: This host")
    });
    stop(&others, Signal::SIGCONT);
    drop((agent, others));
}

/// What is left of the cluster says so, and what to do, at every voter.
#[test]
fn a_majority_that_lost_its_state_is_told_of_recover() {
    let (group, mut agents) = Group::running(3);
    for id in [2, 1] {
        agents.remove(id - 1).end_by(Signal::SIGKILL);
        let state = group.state().join(format!("shop-{id}"));
        std::fs::remove_dir_all(&state).expect("its state");
    }
    let log = group.file("log");
    let file = std::fs::File::create(&log).expect("a file");
    agents.push(AgentProcess::start_with_log(
        &mut group.agent_command(1),
        file,
    ));
    agents.push(group.agent(2));
    for id in 1..=3 {
        eventually("it is told", || {
            group.status(id)["quorum"]["state_lost"] == json!([1, 2])
        });
        let text = stdout(&output(&mut group.client(id, ["status"])));
        assert!(text.contains("NO QUORUM"), "{text}");
        assert!(
            text.contains("members 1, 2 have lost their states"),
            "{text}"
        );
        assert!(text.contains("'distlock recover'"), "{text}");
        refuses(
            group.client(id, ["run", "x", "true"]),
            69,
            &["members 1, 2 have lost their states", "recover"],
        );
    }
    eventually("the log says so, too", || {
        std::fs::read_to_string(&log).is_ok_and(|log| log.contains("'distlock recover'"))
    });
}

#[test]
fn a_time_to_wait_that_ends_without_a_quorum_is_69_and_1_where_the_lock_is_held() {
    let (group, agents) = Group::running(3);
    let holder = group.hold(2, "x");
    let wait = ["run", "-E", "9", "-w", "0.3", "x", "true"];
    refuses(group.client(1, wait), 9, &["'x' not acquired"]);
    holder.let_go();
    stop(&agents[1..], Signal::SIGSTOP);
    eventually("it is noticed", || group.status(1)["quorum"]["ok"] == false);
    for seconds in ["0.1", "1.5"] {
        let wait = ["run", "-E", "9", "-w", seconds, "x", "true"];
        let said = output(&mut group.client(1, wait));
        // A busy agent may answer too late to say why.
        assert_refused(&said, 69, &["no "]);
    }
    stop(&agents[1..], Signal::SIGCONT);
}

/// The lease of an incarnation that was killed is waited out, and that is no lack of a quorum.
#[test]
fn to_wait_out_a_former_lease_is_no_lack_of_a_quorum() {
    let group = Group::unix(1);
    let agent = group.agents(1).pop().expect("one");
    let runner = group.hold(1, "x");
    agent.end_by(Signal::SIGKILL);
    drop(runner);
    let agent = group.agent(1);
    let seconds = format!("{}", Duration::from_millis(LEASE_MS / 3).as_secs_f64());
    let said = output(&mut group.client(1, ["run", "-E", "9", "-w", &seconds, "x", "true"]));
    assert_refused(&said, 9, &["'x' not acquired"]);
    drop(agent);
}
