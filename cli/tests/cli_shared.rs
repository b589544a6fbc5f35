//! `distlock run -s`: readers together, writers alone, in every kind of group.

mod cli_support;

use std::process::Command;

use cli_support::group::Group;
use cli_support::{Holder, Local, assert_refused, eventually, output, spawn};
use serde_json::Value;

/// Two ways into one group, and what it says of itself.
struct Ways<'a> {
    first: &'a dyn Fn(&[&str]) -> Command,
    second: &'a dyn Fn(&[&str]) -> Command,
    status: &'a dyn Fn() -> Value,
}

const HOLD: [&str; 6] = ["book", "--", "sh", "-c", "echo in; read x; exit 3", "sh"];

fn hold(way: &dyn Fn(&[&str]) -> Command, mode: &str) -> Holder {
    Holder::start(way(&[&["run", mode][..], &HOLD].concat()))
}

fn try_it(way: &dyn Fn(&[&str]) -> Command, mode: &str) -> Option<i32> {
    output(&mut way(&["run", "-n", "-E", "9", mode, "book", "true"]))
        .status
        .code()
}

fn readers_share_and_writers_do_not(ways: &Ways<'_>) {
    let book = |status: &Value| {
        let locks = status["locks"].as_array().expect("locks").iter();
        locks.clone().find(|lock| lock["name"] == "book").cloned()
    };
    let (first, second) = (hold(ways.first, "-s"), hold(ways.second, "--shared"));
    eventually("status has both readers", || {
        let lock = book(&(ways.status)()).unwrap_or_default();
        let holders = lock["holders"].as_array().cloned().unwrap_or_default();
        let has = |pid: u32| holders.iter().any(|holder| holder["pid"] == pid);
        holders.len() == 2
            && has(first.child.id())
            && has(second.child.id())
            && holders[0]["fence"] != holders[1]["fence"]
    });
    assert_eq!(try_it(ways.first, "-x"), Some(9));
    assert_eq!(try_it(ways.second, "-x"), Some(9));

    // A writer is inside only when all readers are gone.
    let mut writer = spawn((ways.first)(&["run", "book", "true"]));
    eventually("the writer waits", || {
        let lock = book(&(ways.status)()).unwrap_or_default();
        lock["waiters"][0]["pid"] == writer.id()
    });
    assert_eq!(first.let_go().code(), Some(3));
    assert!(writer.try_wait().expect("its status").is_none());
    assert_eq!(second.let_go().code(), Some(3));
    assert!(writer.wait().expect("it ends").success());

    let writer = hold(ways.first, "-x");
    assert_eq!(try_it(ways.second, "-s"), Some(9));
    let mut readers = [0; 3].map(|_| {
        let wait = ["run", "-s", "book", "--", "true"];
        (ways.second)(&wait).spawn().expect("it starts")
    });
    assert_eq!(writer.let_go().code(), Some(3));
    for reader in &mut readers {
        assert!(reader.wait().expect("it ends").success());
    }
}

#[test]
fn in_the_local_group() {
    let group = Local::new();
    let way = |args: &[&str]| group.distlock(args);
    readers_share_and_writers_do_not(&Ways {
        first: &way,
        second: &way,
        status: &|| group.status(),
    });
    assert!(
        group.status()["locks"]
            .as_array()
            .expect("locks")
            .is_empty()
    );
}

#[test]
fn through_the_agents_of_two_hosts() {
    let (group, _agents) = Group::running(2);
    readers_share_and_writers_do_not(&Ways {
        first: &|args| group.client(1, args),
        second: &|args| group.client(2, args),
        status: &|| group.status(1),
    });
}

#[test]
fn as_a_member() {
    let group = Group::unix(3);
    // Two of the three stay, and the third is whoever runs.
    let _agents = [1, 2].map(|id| group.agent(id));
    let member = |args: &[&str]| group.member(3, args);
    let reader = hold(&member, "-s");
    let client = hold(&|args| group.client(1, args), "-s");
    let late = output(&mut group.client(2, ["run", "-w", "0.2", "book", "true"]));
    assert_refused(&late, 1, &["book"]);
    // The last member to be there leaves last.
    assert_eq!(client.let_go().code(), Some(3));
    assert_eq!(reader.let_go().code(), Some(3));
}

#[test]
fn what_cannot_be_shared_says_so() {
    let (group, _agent) = Group::alone();
    let shared = |args: &[&str]| output(group.client(1, ["run", "-s"]).args(args));
    for args in [
        &["ring", "true"][..],
        &["--algorithm", "bakery", "x", "true"],
    ] {
        assert_refused(&shared(args), 78, &["shared", "manager"]);
    }
    // A new lock may be served by an algorithm that shares.
    let served = shared(&["--algorithm", "semaphore", "new", "true"]);
    assert_eq!(served.status.code(), Some(0));
}

#[test]
fn a_readers_death_frees_its_share() {
    let group = Local::new();
    let way = |args: &[&str]| group.distlock(args);
    let (dies, stays) = (hold(&way, "-s"), hold(&way, "-s"));
    dies.signal(nix::sys::signal::Signal::SIGKILL);
    dies.wait();
    assert_eq!(try_it(&way, "-x"), Some(9));
    stays.let_go();
    let next = ["run", "-w", "20", "book", "true"];
    assert_eq!(output(&mut way(&next)).status.code(), Some(0));
}
