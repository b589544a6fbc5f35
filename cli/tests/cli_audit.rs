//! The audit log, and `distlock audit verify`.

mod cli_support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cli_support::disk::SmallDisk;
use cli_support::group::{AgentProcess, Group, LEASE_MS};
use cli_support::users::is_root;
use cli_support::{assert_refused, distlock, eventually, exits, output, refuses, stderr, stdout};
use distlock::{Agent, DistMutex};
use nix::sys::signal::Signal;
use nix::unistd::getuid;
use serde_json::Value;

/// A group whose file has the audit log `audit/log` in its directory.
fn audited(size: usize) -> (Group, PathBuf) {
    let group = Group::unix(size);
    let directory = group.file("audit");
    fs::create_dir(&directory).expect("a directory");
    let log = directory.join("log");
    let text = fs::read_to_string(group.config()).expect("the configuration");
    let audit = format!("[audit]\nfile = {log:?}\n");
    fs::write(group.config(), format!("{text}{audit}")).expect("a file");
    (group, log)
}

fn verify(files: &[&Path]) -> Command {
    let mut command = distlock();
    command.args(["audit", "verify"]).args(files);
    command
}

fn lines(log: &Path) -> Vec<Value> {
    let text = fs::read_to_string(log).expect("the log");
    let line = |line| serde_json::from_str(line).expect("JSON");
    text.lines().map(line).collect()
}

/// The lines of the lock `x`, as their events and fences.
fn of_lock(log: &Path) -> Vec<(String, Option<u64>)> {
    let lines = lines(log).into_iter();
    let lines = lines.filter(|line| line["lock"] == "x");
    let word = |line: &Value| line["event"].as_str().expect("a word").to_owned();
    lines
        .map(|line| (word(&line), line["fence"].as_u64()))
        .collect()
}

fn await_event(log: &Path, event: &str) {
    eventually(event, || {
        lines(log).iter().any(|line| line["event"] == event)
    });
}

#[test]
fn each_grant_and_its_end_is_in_the_log() {
    let (group, log) = audited(1);
    let agent = group.agent(1);
    let enter = ["run", "x", "--", "sh", "-c", "echo $DISTLOCK_FENCE"];
    let fence = stdout(&exits(group.client(1, enter), 0));
    let fence: u64 = fence.trim().parse().expect("a fence");
    let (holder, dies) = (
        group.hold(1, "x"),
        group.client(1, ["run", "-n", "x", "true"]),
    );
    refuses(dies, 1, &["x"]);
    holder.signal(Signal::SIGKILL);
    drop(holder);
    await_event(&log, "abandon");
    agent.end_by(Signal::SIGTERM);

    let told = of_lock(&log);
    let words: Vec<_> = told.iter().map(|(word, _)| word.as_str()).collect();
    assert_eq!(words, ["grant", "release", "grant", "refuse", "abandon"]);
    let fences: Vec<_> = told.iter().map(|(_, fence)| *fence).collect();
    let next = Some(fence + 1)
        .filter(|_| fences[2] == Some(fence + 1))
        .or(fences[2]);
    assert_eq!(fences, [Some(fence), Some(fence), next, None, next]);
    assert!(next > Some(fence));
    let all = lines(&log);
    let grant = all
        .iter()
        .find(|line| line["event"] == "grant")
        .expect("one");
    assert_eq!(grant["uid"], getuid().as_raw());
    assert_eq!(grant["command"], "sh");
    assert_eq!(grant["mode"], "exclusive");
    assert_eq!(grant["member"], 1);
    let words = all
        .iter()
        .map(|line| line["event"].as_str().expect("a word"));
    let words: Vec<_> = words.collect();
    assert_eq!((words[0], *words.last().expect("one")), ("start", "end"));
    assert!(words.contains(&"view"), "{words:?}");
    let said = stdout(&exits(verify(&[&log]), 0));
    assert!(said.contains("number 1 to"), "{said}");
    assert!(said.contains("0 gaps"), "{said}");
}

/// Loans are entered without a word to the agent, and would not be in the log.
#[test]
fn what_comes_again_and_again_is_told_each_time() {
    let (group, log) = audited(2);
    let other = group.write_config("other.toml", LEASE_MS);
    let mut second = group.agent_command(2);
    second.env("DISTLOCK_CONFIG", other);
    let agents = [group.agent(1), AgentProcess::start(second)];
    let client = Agent::connect(group.socket(1)).expect("an agent");
    let mutex = client.mutex("x").expect("a lock");
    let mut entered = Vec::new();
    for _ in 0..100 {
        let guard = mutex.lock().expect("it is free");
        let fence = guard.fence().map(u64::from);
        entered.extend([("grant".to_owned(), fence), ("release".to_owned(), fence)]);
        guard.unlock().expect("it was held");
    }
    agents.into_iter().for_each(|agent| {
        agent.end_by(Signal::SIGTERM);
    });
    assert_eq!(of_lock(&log), entered);
}

#[test]
fn what_is_changed_or_taken_out_is_found() {
    let (group, log) = audited(1);
    let agent = group.agent(1);
    for _ in 0..3 {
        exits(group.client(1, ["run", "x", "true"]), 0);
    }
    agent.end_by(Signal::SIGTERM);
    let text = fs::read_to_string(&log).expect("the log");
    let all: Vec<_> = text.lines().collect();
    let altered = group.file("altered");
    let refused = |lines: &[&str], number: usize| {
        fs::write(&altered, lines.join("\n") + "\n").expect("a file");
        let line = format!("line {number} ");
        assert_refused(&output(&mut verify(&[&altered])), 1, &[&line, "altered"]);
    };
    let grant = all
        .iter()
        .position(|line| line.contains("\"grant\""))
        .expect("one");
    let changed = all[grant].replace("\"uid\":", "\"uid\":1");
    assert_ne!(changed, all[grant]);
    let mut with = all.clone();
    with[grant] = &changed;
    // The next line has the hash of another one.
    refused(&with, grant + 2);
    let mut without = all.clone();
    without.remove(grant);
    refused(&without, grant + 1);
    let mut swapped = all.clone();
    swapped.swap(grant, grant + 1);
    refused(&swapped, grant + 1);
    let mut other = all.clone();
    other[grant] = "{}";
    refused(&other, grant + 2);
    let mut last = all.clone();
    last.push("x");
    refused(&last, all.len() + 1);
    // What was cut off before it began, and at its end, only its numbers and its last hash tell.
    fs::write(&altered, all[2..all.len() - 1].join("\n") + "\n").expect("a file");
    let said = stdout(&exits(verify(&[&altered]), 0));
    assert!(
        said.contains(&format!("number 3 to {}", all.len() - 1)),
        "{said}"
    );
    fs::write(&altered, &text.as_bytes()[..text.len() - 4]).expect("a file");
    refuses(verify(&[&altered]), 1, &["is not whole"]);
    refuses(verify(&[&group.file("none")]), 66, &["none"]);
}

#[test]
fn a_log_goes_on_after_a_restart_and_in_a_new_file() {
    let (group, log) = audited(1);
    let agent = group.agent(1);
    exits(group.client(1, ["run", "x", "true"]), 0);
    let old = group.file("audit/log.1");
    fs::rename(&log, &old).expect("it is moved away");
    exits(group.client(1, ["run", "x", "true"]), 0);
    eventually("a new file has the entry", || {
        fs::read_to_string(&log)
            .is_ok_and(|text| text.contains("\"release\"") && text.ends_with('\n'))
    });
    agent.end_by(Signal::SIGKILL);
    let cut = fs::read(&log).expect("the log");
    // As after a power cut.
    fs::write(&log, &cut[..cut.len() - 10]).expect("a file");
    let agent = group.agent(1);
    exits(group.client(1, ["run", "-w", "30", "x", "true"]), 0);
    agent.end_by(Signal::SIGTERM);
    let said = stdout(&exits(verify(&[&old, &log]), 0));
    assert!(said.contains("number 1 to"), "{said}");
    assert!(said.contains("1 agents ended without"), "{said}");
    assert!(said.contains("1 gaps, in which 1 lines"), "{said}");
    let all = fs::read_to_string(&log).expect("the log");
    assert!(all.contains("the line before is torn"), "{all}");
    refuses(verify(&[&log, &old]), 1, &["log.1", "line 1 "]);
    // The chain of the new file begins in the middle, which its numbers tell.
    let said = stdout(&exits(verify(&[&log]), 0));
    assert!(!said.contains("number 1 to"), "{said}");
}

/// As `copytruncate` of logrotate does.
#[test]
fn a_file_that_is_emptied_goes_on_with_the_chain() {
    let (group, log) = audited(1);
    let agent = group.agent(1);
    exits(group.client(1, ["run", "x", "true"]), 0);
    await_event(&log, "release");
    let old = group.file("old");
    fs::copy(&log, &old).expect("a copy");
    fs::OpenOptions::new()
        .write(true)
        .open(&log)
        .and_then(|file| file.set_len(0))
        .expect("it is emptied");
    exits(group.client(1, ["run", "x", "true"]), 0);
    agent.end_by(Signal::SIGTERM);
    exits(verify(&[&old, &log]), 0);
}

#[test]
fn an_agent_without_its_log_does_not_start() {
    let (group, log) = audited(2);
    let _agent = group.agent(1);
    // The second one's file names the same log.
    let refused = output(&mut group.agent_command(2));
    assert_refused(&refused, 69, &["audit log", "another process"]);
    fs::write(group.file("audit/other"), "something else\n").expect("a file");
    let text = fs::read_to_string(group.config()).expect("the configuration");
    fs::write(group.config(), text.replace("audit/log", "audit/other")).expect("a file");
    let refused = output(&mut group.agent_command(2));
    assert_refused(&refused, 78, &["audit/other", "not a line of an audit log"]);
    // Nor is it ended as a line that a power cut has torn.
    fs::write(group.file("audit/other"), "something else").expect("a file");
    let refused = output(&mut group.agent_command(2));
    assert_refused(&refused, 78, &["not a line of an audit log"]);
    let kept = fs::read_to_string(group.file("audit/other")).expect("a file");
    assert_eq!(kept, "something else");
    let text = fs::read_to_string(group.config()).expect("the configuration");
    fs::write(group.config(), text.replace("audit/other", "nowhere/log")).expect("a file");
    let refused = output(&mut group.agent_command(2));
    assert_refused(&refused, 69, &["nowhere/log", "No such file"]);
    assert!(log.exists());
}

#[test]
fn a_full_disk_tells_its_gap() {
    if !is_root() {
        return;
    }
    let (group, log) = audited(1);
    let disk = SmallDisk::at(log.parent().expect("a directory"));
    let on_disk = |script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).arg(&log);
        output(&mut disk.with(&shell))
    };
    let agent = AgentProcess::start(disk.with(&group.agent_command(1)));
    let enter = || exits(group.client(1, ["run", "-w", "30", "x", "true"]), 0);
    enter();
    let filled = on_disk("head -c 10M /dev/zero > \"$0.filler\"");
    assert!(stderr(&filled).contains("No space left"), "{filled:?}");
    // More than what the last block still has room for.
    for _ in 0..20 {
        enter();
    }
    assert!(on_disk("rm \"$0.filler\"").status.success());
    eventually("the gap is told", || {
        stdout(&on_disk("cat \"$0\"")).contains("\"gap\"")
    });
    enter();
    agent.end_by(Signal::SIGTERM);
    let copy = group.file("copy");
    fs::write(&copy, on_disk("cat \"$0\"").stdout).expect("a file");
    let said = stdout(&exits(verify(&[&copy]), 0));
    assert!(!said.contains(" 0 gaps"), "{said}");
    let all = lines(&copy);
    let lost: u64 = all.iter().filter_map(|line| line["lost"].as_u64()).sum();
    let told = of_lock(&copy).len() as u64;
    assert_eq!(told + lost, 2 * 22, "{said}");
}

#[test]
fn a_member_that_writes_no_log_says_so() {
    let (group, log) = audited(1);
    let said = exits(group.member(1, ["run", "x", "true"]), 0);
    assert!(stderr(&said).contains("audit"), "{said:?}");
    assert!(!log.exists());
}

#[test]
fn an_operators_acts_are_in_the_log() {
    let (group, log) = audited(1);
    let agent = group.agent(1);
    exits(group.client(1, ["run", "-w", "30", "x", "true"]), 0);
    let address = format!("unix:{}", group.file("9").display());
    exits(group.client(1, ["members", "add", "9", &address]), 0);
    exits(group.client(1, ["members", "remove", "9"]), 0);
    await_event(&log, "member-remove");
    agent.end_by(Signal::SIGTERM);
    exits(group.member(1, ["recover", "--force"]), 0);
    let all = lines(&log);
    let one = |event: &str| {
        let mut found = all.iter().filter(|line| line["event"] == event);
        found
            .next()
            .unwrap_or_else(|| panic!("{event}: {all:?}"))
            .clone()
    };
    assert_eq!(one("member-add")["address"], address.as_str());
    for event in ["member-add", "member-remove", "recover"] {
        assert_eq!(one(event)["uid"], getuid().as_raw(), "{event}");
    }
    exits(verify(&[&log]), 0);
}

#[test]
fn a_change_of_the_voters_is_in_the_log() {
    let (group, log) = audited(3);
    let other = group.write_config("other.toml", LEASE_MS);
    let first = group.agent(1);
    let others = [2, 3].map(|id| {
        let mut agent = group.agent_command(id);
        agent.env("DISTLOCK_CONFIG", &other);
        AgentProcess::start(agent)
    });
    exits(group.client(1, ["run", "-w", "30", "x", "true"]), 0);
    exits(group.client(1, ["members", "voters", "1"]), 0);
    await_event(&log, "voters");
    let all = lines(&log);
    let voters: Vec<_> = all
        .iter()
        .filter(|line| line["event"] == "voters")
        .collect();
    let told = voters.last().expect("it was awaited");
    assert_eq!(told["members"], serde_json::json!([1]));
    assert_eq!(told["uid"], getuid().as_raw());
    drop(others);
    first.end_by(Signal::SIGTERM);
    exits(verify(&[&log]), 0);
}
