//! `distlock elect`: one leads, another takes over.

mod cli_support;

use std::process::{Child, Command, Stdio};

use cli_support::group::Group;
use cli_support::{Holder, Local, assert_refused, eventually, output, refuses, shell_code};
use nix::sys::signal::Signal;

/// What runs at the leader. Its last line is its code.
const COMMAND: [&str; 6] = ["elect", "job", "--", "sh", "-c", "echo in; read x; exit 3"];

/// Somebody who campaigns, until it is dropped.
struct Candidate(Child);

impl Candidate {
    fn start(mut command: Command) -> Self {
        let spawned = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(spawned.expect("it starts"))
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The member that leads, and its fence.
fn leader(group: &Group, asked: usize) -> Option<(u64, u64)> {
    let status = group.status(asked);
    let locks = status["locks"].as_array()?;
    let job = locks.iter().find(|lock| lock["name"] == "job")?;
    let holder = job["holders"].as_array()?.first()?;
    Some((holder["member"].as_u64()?, holder["fence"].as_u64()?))
}

fn waiters(group: &Group, asked: usize) -> usize {
    let status = group.status(asked);
    let locks = status["locks"].as_array().cloned().unwrap_or_default();
    let job = locks.iter().find(|lock| lock["name"] == "job");
    job.and_then(|job| job["waiters"].as_array().map(Vec::len))
        .unwrap_or(0)
}

/// On each of three hosts somebody campaigns. The leader's command ends, then the host of the next
/// leader dies: each time another takes over, with a higher fence.
#[test]
fn another_takes_over_when_the_leader_ends_or_its_host_dies() {
    let group = Group::udp(3);
    let mut agents = group.agents(3);
    let first = Holder::start(group.client(1, COMMAND));
    let (member, fence) = leader(&group, 2).expect("somebody leads");
    assert_eq!(member, 1);
    let _candidates = [2, 3].map(|id| Candidate::start(group.client(id, COMMAND)));
    eventually("two others campaign", || waiters(&group, 1) == 2);

    // Who leads holds the lock of that name.
    let mut run = group.client(1, ["run", "-n", "job", "true"]);
    assert_eq!(output(&mut run).status.code(), Some(1));
    let mut elect = group.client(1, ["elect", "-w", "0.2", "-E", "7", "job", "true"]);
    assert_eq!(output(&mut elect).status.code(), Some(7));
    let who = output(&mut group.client(3, ["who", "--json", "job"]));
    let said = String::from_utf8_lossy(&who.stdout).into_owned();
    assert!(
        said.contains("\"member\":1") || said.contains("\"member\": 1"),
        "{said}"
    );

    assert_eq!(shell_code(first.let_go()), 3, "it ends as its command does");
    eventually("the highest leads", || {
        leader(&group, 1).is_some_and(|(member, _)| member == 3)
    });
    let (_, second) = leader(&group, 1).expect("somebody leads");
    assert!(second > fence);

    agents.pop().expect("three").end_by(Signal::SIGKILL);
    eventually("the last one leads", || {
        leader(&group, 2).is_some_and(|(member, _)| member == 2)
    });
    let (_, third) = leader(&group, 2).expect("somebody leads");
    assert!(third > second);
}

#[test]
fn nobody_waits_who_does_not_want_to() {
    let (group, _agents) = Group::running(2);
    let leads = Holder::start(group.client(1, COMMAND));
    for id in [1, 2] {
        let mut elect = group.client(id, ["elect", "-n", "job", "true"]);
        assert_eq!(output(&mut elect).status.code(), Some(1), "member {id}");
    }
    leads.let_go();
    for id in [1, 2] {
        let mut elect = group.client(id, ["elect", "-n", "job", "--", "sh", "-c", "exit 9"]);
        assert_eq!(output(&mut elect).status.code(), Some(9), "member {id}");
    }
}

#[test]
fn the_algorithm_must_be_the_groups() {
    let (group, _agents) = Group::running(1);
    let elect = |algorithm: &str| {
        let args = ["elect", "--algorithm", algorithm, "job", "true"];
        output(&mut group.client(1, args))
    };
    assert_eq!(elect("bully").status.code(), Some(0));
    assert_refused(&elect("ring"), 78, &["bully", "ring"]);
    assert_refused(&elect("paxos"), 64, &["paxos", "chang-roberts"]);
    // A lock with several permits has no single holder.
    let mut several = group.client(1, ["elect", "licences", "true"]);
    assert_refused(&output(&mut several), 78, &["licences", "2 permits"]);
}

/// There the kernel elects, and there is nothing to choose.
#[test]
fn in_the_local_group() {
    let local = Local::new();
    let run = |args: &[&str]| output(&mut local.distlock(args));
    assert_eq!(run(&["elect", "job", "true"]).status.code(), Some(0));
    let named = run(&[
        "elect",
        "--algorithm",
        "kernel",
        "job",
        "sh",
        "-c",
        "exit 4",
    ]);
    assert_eq!(named.status.code(), Some(4));
    assert_refused(
        &run(&["elect", "--algorithm", "bully", "job", "true"]),
        78,
        &["kernel"],
    );
    let leads = Holder::start(local.distlock(COMMAND));
    assert_eq!(run(&["elect", "-n", "job", "true"]).status.code(), Some(1));
    assert_eq!(run(&["run", "-n", "job", "true"]).status.code(), Some(1));
    assert_eq!(shell_code(leads.let_go()), 3);
}

#[test]
fn usage_is_that_of_elect() {
    let local = Local::new();
    refuses(local.distlock(["elect", "job"]), 64, &["elect"]);
    assert_refused(
        &output(&mut local.distlock(["elect", "-s", "job", "true"])),
        64,
        &["elect"],
    );
}
