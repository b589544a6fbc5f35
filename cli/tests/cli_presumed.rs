//! `failure = "presume-failed"`: agents in processes of their own, and what is told of the danger.

mod cli_support;

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use cli_support::group::{AgentProcess, Group};
use cli_support::{Holder, eventually, exits, output, stderr, stdout};
use nix::sys::signal::Signal;
use serde_json::json;

/// What the command says of its fence, and then it holds the lock.
const SCRIPT: &str = "echo in; echo \"fence ${DISTLOCK_FENCE-none}\"; read x; exit 3";

fn group(size: usize) -> Group {
    let group = Group::udp(size);
    let text = fs::read_to_string(group.config()).expect("it was just written");
    let text = format!("failure = \"presume-failed\"\n{text}");
    fs::write(group.config(), text).expect("a file");
    group
}

fn run(group: &Group, id: usize, name: &str) -> Holder {
    Holder::start(group.client(id, ["run", name, "--", "sh", "-c", SCRIPT]))
}

/// The holder is a member itself. Half a lease of silence later the others go on without it.
#[test]
fn the_lock_of_a_member_that_was_killed_is_taken_over() {
    for name in ["plain", "ring", "licences"] {
        let group = group(3);
        let _agents = [2, 3].map(|id| group.agent(id));
        let mut command = group.member(1, ["run", name, "--", "sh", "-c", SCRIPT]);
        command.stderr(Stdio::null());
        let mut holder = Holder::start(command);
        assert_eq!(holder.line(), "fence none", "{name}");
        eventually("all are in one view", || {
            let members = group.status(2)["members"].take();
            let members = members.as_array().expect("a list");
            members.iter().all(|member| member["state"] == "alive")
        });
        // Of the counting semaphore both permits are to be taken.
        let _other = (name == "licences").then(|| run(&group, 3, name));
        holder.signal(Signal::SIGKILL);
        #[expect(
            clippy::disallowed_methods,
            reason = "a bound need not count a suspended machine"
        )]
        let killed = Instant::now();
        let mut next = run(&group, 2, name);
        assert_eq!(next.line(), "fence none", "{name}");
        // Silence is noticed after half of it; the rest is for machines that are busy.
        assert!(killed.elapsed() < Duration::from_secs(5), "{name}");
        assert_eq!(next.let_go().code(), Some(3));
        holder.wait();
    }
}

#[test]
fn a_member_that_comes_back_is_in_the_view_again() {
    let group = group(3);
    let mut agents = group.agents(3);
    agents.remove(0).end_by(Signal::SIGKILL);
    eventually("it is silent", || {
        group.status(2)["members"][0]["state"] == "suspect"
    });
    assert_eq!(run(&group, 2, "x").let_go().code(), Some(3));
    let _again = group.agent(1);
    eventually("it is there", || {
        group.status(3)["members"][0]["state"] == "alive"
    });
    assert_eq!(run(&group, 1, "x").let_go().code(), Some(3));
}

/// Views go on without one of the two, and never contain both.
#[test]
fn a_file_that_leaves_a_member_out_is_told_of() {
    let group = group(3);
    let mut agents = group.agents(3);
    agents.remove(1).end_by(Signal::SIGKILL);
    let mut command = group.agent_command(2);
    command.env("DISTLOCK_CONFIG", group.config_without_last());
    let _agent = AgentProcess::start(command);
    eventually("status says it", || {
        let told = stdout(&output(&mut group.client(2, ["status"])));
        told.contains("file does not list member 3: ")
    });
    eventually("it is in a view", || {
        group.status(1)["members"][1]["state"] == "alive"
    });
    let told = group.status(2)["quorum"]["unlisted"].take();
    assert_eq!(told, json!([3]));
}

#[test]
fn the_danger_is_told() {
    let group = group(1);
    let said = stderr(&exits(group.member(1, ["run", "x", "true"]), 0));
    // The other line is of loopback that is not sealed.
    assert_eq!(said.lines().count(), 2, "{said:?}");
    let danger = said.lines().find(|line| line.contains("presume-failed"));
    for words in ["distlock: ", "two", "no fences"] {
        assert!(danger.is_some_and(|line| line.contains(words)), "{said:?}");
    }
    let _agents = group.agents(1);
    let status = stdout(&output(&mut group.client(1, ["status"])));
    assert!(status.contains("two can hold a lock at once"), "{status}");
    let _holder = run(&group, 1, "x");
    let status = group.status(1);
    assert_eq!(status["failure"], "presume-failed");
    assert_eq!(status["locks"][0]["holders"][0]["fence"], json!(null));
}

/// The example of the lecture: one is inside for 30 s, and a member restarts once an hour.
#[test]
fn voting_is_served_and_how_probably_it_excludes_is_told() {
    let group = group(3);
    let text = fs::read_to_string(group.config()).expect("a file");
    let text = format!("{text}\n[[lock]]\nname = \"chance\"\nalgorithm = \"voting\"\n");
    fs::write(group.config(), text).expect("a file");
    let _agents = [2, 3].map(|id| group.agent(id));
    let said = stderr(&exits(group.member(1, ["run", "chance", "true"]), 0));
    for words in ["voting", "3 of 3 votes", "5.8e-7", "no fences"] {
        assert!(said.contains(words), "{said:?}");
    }
    let mut holder = run(&group, 2, "chance");
    assert_eq!(holder.line(), "fence none");
    exits(group.client(3, ["run", "-n", "chance", "true"]), 1);
    assert_eq!(holder.let_go().code(), Some(3));
}

/// Where a majority decides, also a lock that the file does not list is not served so.
#[test]
fn voting_is_refused_where_a_majority_decides() {
    let group = Group::udp(1);
    let said = output(&mut group.member(1, ["run", "--algorithm", "voting", "new", "true"]));
    assert_eq!(said.status.code(), Some(78), "{said:?}");
    let said = stderr(&said);
    assert!(
        said.contains("voting") && said.contains("quorum"),
        "{said:?}"
    );
}
