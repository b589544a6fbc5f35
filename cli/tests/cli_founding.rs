//! What an operator may do to files, states and hosts, with the real program: two never get in, and
//! somebody is told.

mod cli_support;

use std::fs::{self, File};
use std::time::Duration;

use cli_support::group::{AgentProcess, Group};
use cli_support::{assert_refused, eventually, exits, output, pid_of, stdout};
use distlock_agent::runtime::clock;
use nix::sys::signal::{Signal, kill};
use serde_json::json;

/// Writes the group's file anew, with these lines at its beginning.
fn rewrite(group: &Group, lease_ms: u64, lines: &str) {
    group.write_config_with("group.toml", lines, lease_ms);
}

fn voters(group: &Group, asked: usize) -> serde_json::Value {
    group.status(asked)["quorum"]["voters"].clone()
}

/// Six members, all up; the files come to name other voters, and these hosts restart.
#[test]
fn files_with_other_voters_make_no_second_cluster() {
    let group = Group::udp(6);
    rewrite(&group, 2000, "voters = [1, 2, 3]\n");
    let mut agents = group.agents(6);
    let cluster = group.status(1)["quorum"]["cluster"].clone();
    let holder = group.hold(1, "printer");
    rewrite(&group, 2000, "voters = [4, 5, 6]\n");
    for id in 4..=6 {
        let old = &mut agents[id - 1].child;
        kill(pid_of(old), Signal::SIGKILL).expect("it is there");
        old.wait().expect("it ends");
        agents[id - 1] = group.agent(id);
        eventually("it is in a view again", || {
            group.status(id)["quorum"]["ok"] == true
        });
    }
    for id in 1..=6 {
        let status = group.status(id);
        assert_eq!(status["quorum"]["cluster"], cluster, "{status}");
        assert_eq!(status["quorum"]["voters"], json!([1, 2, 3]), "{status}");
        exits(group.client(id, ["run", "-w", "0.5", "printer", "true"]), 1);
    }
    // The file that differs is named.
    let told = stdout(&output(&mut group.client(6, ["status"])));
    assert!(told.contains("lists other voters (4, 5, 6)"), "{told}");
    assert_eq!(holder.let_go().code(), Some(3));
    exits(group.client(6, ["run", "-w", "10", "printer", "true"]), 0);
}

/// Its agent cannot hear that member, and the group has to go on without one of the two.
#[test]
fn a_file_that_leaves_a_member_out_is_told_of() {
    let group = Group::udp(3);
    rewrite(&group, 1000, "");
    let mut agents = group.agents(3);
    let fewer = group.config_without_last();
    let log = group.file("1.log");
    agents.remove(0).end_by(Signal::SIGKILL);
    let mut command = group.agent_command(1);
    command.env("DISTLOCK_CONFIG", fewer);
    let _agent = AgentProcess::start_with_log(&mut command, File::create(&log).expect("a file"));
    eventually("it is told", || {
        let told = fs::read_to_string(&log).expect("the log");
        told.contains("member 3 is in the group, but this host's file does not list it")
    });
    let told = stdout(&output(&mut group.client(1, ["status"])));
    assert!(told.contains("file does not list member 3: "), "{told}");
}

#[test]
fn an_operator_names_the_voters() {
    let group = Group::udp(4);
    rewrite(&group, 1000, "voters = [1]\n");
    let mut agents = group.agents(4);
    assert_eq!(voters(&group, 4), json!([1]));
    for (args, words) in [
        (&["members", "voters", "9"][..], "no member 9"),
        (&["members", "voters", "0"], "0"),
        (&["members", "voters"], "ID"),
    ] {
        assert_refused(&output(&mut group.client(2, args)), 64, &[words]);
    }
    for _ in 0..2 {
        exits(group.client(2, ["members", "voters", "2", "3", "4"]), 0);
    }
    eventually("they vote", || {
        (1..=4).all(|id| voters(&group, id) == json!([2, 3, 4]))
    });
    // Who voted before is needed no more.
    drop(agents.remove(0));
    exits(group.client(3, ["run", "-w", "10", "x", "true"]), 0);
}

/// The voters restart with a shorter lease, while a holder under the longer one stands still.
#[test]
fn a_lease_that_became_shorter_is_waited_for() {
    const LONG_MS: u64 = 8000;
    let group = Group::udp(4);
    rewrite(&group, LONG_MS, "voters = [1, 2, 3]\n");
    let mut agents = group.agents(4);
    let holder = group.hold(4, "printer");
    let stopped = agents.pop().expect("the fourth");
    kill(pid_of(&stopped.child), Signal::SIGSTOP).expect("it is there");
    let since = clock::now();
    drop(agents);
    rewrite(&group, 1000, "voters = [1, 2, 3]\n");
    let _agents = group.agents(3);
    exits(group.client(1, ["run", "-w", "30", "printer", "true"]), 0);
    // It was renewed a fifth of a lease before it was stopped, at most.
    let least = Duration::from_millis(LONG_MS * 4 / 5);
    let waited = clock::now().since(since);
    assert!(waited >= least, "{waited:?}");
    drop(stopped);
    drop(holder);
}

/// A member that was in a cluster is not started so that others could hold the same locks.
#[test]
fn a_group_is_not_renamed_nor_its_failure_changed_by_one_file() {
    let group = Group::unix(1);
    drop(group.agents(1));
    let text = fs::read_to_string(group.config()).expect("a file");
    let renamed = text.replace("name = \"shop\"", "name = \"store\"");
    for (text, words) in [
        (
            renamed,
            &["\"shop\"", "\"store\"", "renamed on every host"][..],
        ),
        (
            format!("failure = \"presume-failed\"\n{text}"),
            &["presume-failed", "two could hold a lock", "cluster"],
        ),
    ] {
        fs::write(group.config(), text).expect("a file");
        assert_refused(&output(&mut group.agent_command(1)), 78, words);
    }
    fs::write(group.config(), text).expect("a file");
    drop(group.agents(1));
}

/// What the founding waits for is told.
#[test]
fn a_founding_says_who_is_absent_and_until_when_it_waits() {
    let group = Group::udp(2);
    rewrite(&group, 2000, "");
    let _first = group.agent(1);
    eventually("the absent is named", || {
        let quorum = group.status(1)["quorum"].clone();
        quorum["founded"] == false && quorum["missing"] == json!([2])
    });
    let _second = group.agent(2);
    eventually("the time is told", || {
        let told = stdout(&output(&mut group.client(1, ["status"])));
        told.contains("The group begins in ")
    });
    exits(group.client(1, ["run", "-w", "20", "x", "true"]), 0);
    let status = group.status(1);
    let cluster = status["quorum"]["cluster"].as_str().expect("a name");
    assert_eq!(cluster.len(), 16, "{status}");
    // A file may name it, and another one is refused.
    let text = fs::read_to_string(group.config()).expect("a file");
    let named = text.replace("name = \"shop\"", "name = \"shop\"\ncluster = \"12\"");
    fs::write(group.config(), named).expect("a file");
    let check = output(&mut group.member(2, ["run", "x", "true"]));
    assert_refused(&check, 78, &["16 hexadecimal digits"]);
}
