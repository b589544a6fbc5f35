//! `status --watch` and `who --watch`: the state, and a line for each change, until nobody reads it, a
//! signal comes, or there is no way to the group any more.

mod cli_support;
#[path = "cli_support/schema.rs"]
mod schema;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStderr, ChildStdout, Command, ExitStatus, Stdio};

use cli_support::group::Group;
use cli_support::{Local, Process, eventually, pid_of, refuses, spawn};
use nix::sys::signal::{Signal, kill};
use schema::assert_valid;
use serde_json::Value;

/// A running `--watch`.
struct Watch {
    child: Process,
    lines: Option<BufReader<ChildStdout>>,
    errors: ChildStderr,
}

impl Watch {
    fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = Process(spawn(command.stderr(Stdio::piped())));
        Self {
            lines: child.stdout.take().map(BufReader::new),
            errors: child.stderr.take().expect("a pipe"),
            child,
        }
    }

    /// The next line; `None` at the end.
    fn next(&mut self) -> Option<String> {
        let mut line = String::new();
        let lines = self.lines.as_mut().expect("it is read");
        lines.read_line(&mut line).expect("a line");
        line.strip_suffix('\n').map(str::to_owned)
    }

    /// The next line without its time.
    #[track_caller]
    fn fact(&mut self) -> String {
        let line = self.next().expect("a line");
        let (time, fact) = line.split_once(' ').expect("a time");
        humantime::parse_rfc3339(time).expect("RFC 3339");
        fact.to_owned()
    }

    /// Reads on until a line is `fact`; what came before it.
    #[track_caller]
    fn until(&mut self, fact: &str) -> Vec<String> {
        let mut before = Vec::new();
        loop {
            let next = self.fact();
            if next == fact {
                return before;
            }
            before.push(next);
        }
    }

    /// The next line's JSON.
    #[track_caller]
    fn json(&mut self) -> Value {
        let line = self.next().expect("a line");
        let line = serde_json::from_str(&line).expect("JSON");
        assert_valid("line", &line);
        line
    }

    /// The next line of JSON that tells such an event.
    #[track_caller]
    fn event(&mut self, event: &str) -> Value {
        loop {
            let line = self.json();
            if line["event"] == event {
                return line;
            }
        }
    }

    /// How it ends, and what it says on standard error.
    fn end(mut self) -> (ExitStatus, String) {
        let mut said = String::new();
        self.errors.read_to_string(&mut said).expect("its words");
        (self.child.wait().expect("it ends"), said)
    }
}

fn host() -> String {
    let host = nix::unistd::gethostname().expect("it has one");
    host.into_string().expect("text")
}

#[test]
fn the_local_groups_holders_and_waiters_are_told() {
    let group = Local::new();
    let holder = group.hold("printer");
    let fence = group.status()["locks"][0]["holders"][0]["fence"].clone();
    let mut watch = Watch::start(group.distlock(["status", "--watch", "--interval", "0.1"]));
    let who = |pid: u32| format!("printer: pid {pid} (host {})", host());
    let first = who(holder.child.id());
    assert_eq!(watch.fact(), "group local");
    assert_eq!(watch.fact(), format!("{first} holds, fence {fence}: sh"));

    let mut command = group.distlock(["run", "printer", "--", "cat"]);
    let mut waiter = Process(spawn(command.stdin(Stdio::piped()).stdout(Stdio::null())));
    let second = who(waiter.id());
    assert_eq!(watch.fact(), format!("{second} waits"));
    holder.let_go();
    let before = watch.until(&format!("{second} waits no more"));
    let released = format!("{first} released, fence {fence}");
    assert_eq!(before.first(), Some(&released));
    let holds = watch.fact();
    assert!(
        holds.starts_with(&format!("{second} holds, fence ")),
        "{holds}"
    );
    drop(waiter.stdin.take());
    assert!(waiter.wait().expect("it ends").success());
    let released = watch.until("printer: free");
    let begins = format!("{second} released, fence ");
    assert!(
        released.len() == 1 && released[0].starts_with(&begins),
        "{released:?}"
    );
}

#[test]
fn one_lock_is_told_of_by_json_lines() {
    let (group, _agents) = Group::running(2);
    let _other = group.hold(1, "other");
    let args = ["who", "printer", "--watch", "--json", "--interval", "0.1"];
    let mut watch = Watch::start(group.client(1, args));
    let first = watch.json();
    assert_eq!(
        (&first["event"], &first["group"], &first["member"]),
        (&"group".into(), &"shop".into(), &1.into())
    );
    assert_eq!(watch.json()["quorum"]["ok"], true);
    let free = watch.json();
    assert_eq!(
        (&free["event"], &free["lock"]),
        (&"free".into(), &"printer".into())
    );

    let holder = group.hold(2, "printer");
    let hold = watch.json();
    assert_eq!(
        (&hold["event"], &hold["lock"]),
        (&"hold".into(), &"printer".into())
    );
    assert_eq!(hold["holder"]["member"], 2);
    assert_eq!(hold["holder"]["pid"], holder.child.id());
    let mut waiter = spawn(group.client(1, ["run", "printer", "true"]));
    let wait = watch.event("wait");
    assert_eq!(wait["waiter"]["pid"], waiter.id());
    holder.let_go();
    let release = watch.event("release");
    assert_eq!(release["holder"]["fence"], hold["holder"]["fence"]);
    assert_eq!(watch.event("unwait")["waiter"]["pid"], waiter.id());
    assert!(waiter.wait().expect("it ends").success());
}

/// The interval is an hour: so it is events that have the state asked for.
#[test]
fn what_happens_to_members_is_told_at_once() {
    let (group, agents) = Group::running(2);
    let args = ["status", "--watch", "--interval", "3600"];
    let mut watch = Watch::start(group.client(1, args));
    let state = watch.until("quorum: members 1, 2 vote");
    for fact in ["group shop, member 1", "member 1: alive", "member 2: alive"] {
        assert!(state.iter().any(|it| it == fact), "{fact} in {state:?}");
    }
    let epoch = state[1].strip_prefix("epoch ").expect("a view");
    assert!(epoch.ends_with(": members 1, 2"), "{epoch}");

    kill(pid_of(&agents[1].child), Signal::SIGSTOP).expect("it is there");
    let told = watch.until("quorum lost: member 2 is silent");
    assert!(
        told.iter().any(|it| it.starts_with("member 2: suspect")),
        "{told:?}"
    );
    kill(pid_of(&agents[1].child), Signal::SIGCONT).expect("it is there");
    watch.until("quorum: members 1, 2 vote");
}

#[test]
fn a_watch_ends_with_its_reader_by_a_signal_and_with_its_agent() {
    let (group, mut agents) = Group::running(1);
    let start = || {
        let mut watch = Watch::start(group.client(1, ["status", "--watch"]));
        watch.until("quorum: member 1 votes");
        watch
    };
    // Nothing changes: it is not by writing that it finds out.
    let mut unread = start();
    unread.lines = None;
    let (status, said) = unread.end();
    assert_eq!((status.code(), said.as_str()), (Some(0), ""));

    let asked = start();
    kill(pid_of(&asked.child), Signal::SIGTERM).expect("it is there");
    let (status, said) = asked.end();
    assert_eq!(status.signal(), Some(libc::SIGTERM));
    assert_eq!(said, "");

    let mut left = start();
    agents.remove(0).end_by(Signal::SIGTERM);
    while left.next().is_some() {}
    let (status, said) = left.end();
    assert_eq!(status.code(), Some(69), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.starts_with("distlock: the agent cannot be used any more"),
        "{said}"
    );
}

/// The group does not wait for the lease of a member that left, as it does for that of a silent one.
#[test]
fn a_member_that_watches_leaves_when_a_signal_ends_it() {
    let group = Group::unix(2);
    let _agent = group.agent(1);
    let mut watch = Watch::start(group.member(2, ["status", "--watch"]));
    watch.until("quorum: members 1, 2 vote");
    kill(pid_of(&watch.child), Signal::SIGTERM).expect("it is there");
    let (status, said) = watch.end();
    assert_eq!((status.signal(), said.as_str()), (Some(libc::SIGTERM), ""));
    eventually("member 2 has left", || {
        group.status(1)["members"][1]["state"] == "left"
    });
}

#[test]
fn what_makes_no_sense_is_64() {
    let group = Local::new();
    let interval = "an interval is 0.1 to 3600 seconds";
    for seconds in ["0", "-1", "0.09", "3601", "nan", "inf", "x", ""] {
        let args = ["status", "--watch", "--interval", seconds];
        let words = ["'distlock status --help'", interval];
        refuses(
            group.distlock(args),
            64,
            &words[..1 + usize::from(!seconds.is_empty())],
        );
    }
    for args in [
        &["status", "--interval", "2"][..],
        &["who", "x", "--interval", "2"],
        &["status", "--watch", "--check"],
        &["members", "--watch"],
    ] {
        refuses(group.distlock(args), 64, &["--help"]);
    }
    refuses(group.distlock(["who", "--watch", ""]), 64, &["who"]);
}
