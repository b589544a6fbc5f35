//! What members ask of the kernel, counted, so that nothing slips in: beside `entry_cost.rs`, by which a
//! thread that enters a lent lock makes no system call at all.

#[path = "support/system_calls.rs"]
mod system_calls;

use std::fs;
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::Duration;

use distlock::{Agent, Config, DistMutex};
use system_calls::{NOTHING, Process, expect_least, obey, role};
use tempfile::TempDir;

/// How often an entry is counted.
const TIMES: usize = 15;
/// How many entries are counted before the cheapest is taken.
const ENOUGH: usize = 5;
/// Until all that an entry leads to has been said.
const MOMENT: Duration = Duration::from_millis(100);
/// Long enough for members to ask each other, and to have their leases renewed, as often as ever.
const WHILE: Duration = Duration::from_secs(2);

/// A group of three, over UDP. The manager of the lock [`LOCK`] is its second member.
struct Group {
    directory: TempDir,
}

const LOCK: &str = "x";

impl Group {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        static PORT: AtomicU16 = AtomicU16::new(7000);
        // No other process has these, and no other test of this one.
        let [_, a, b, c] = process::id().to_be_bytes();
        let mut text = "[group]\nname = \"shop\"\n".to_owned();
        for id in 1..=3 {
            let port = PORT.fetch_add(1, Ordering::Relaxed);
            let address = format!("127.{a}.{b}.{}:{port}", c.max(1));
            text += &format!("[[member]]\nid = {id}\naddress = \"udp:{address}\"\n");
        }
        fs::write(directory.path().join("distlock.toml"), text).unwrap();
        Self { directory }
    }

    /// Its members, each in a process; only these are counted. `None` if there is nothing to count by.
    fn start(&self, test: &str, counted: &[u16]) -> Option<[Process; 3]> {
        let directory = self.directory.path().display();
        let [first, second, third] = [1, 2, 3].map(|id| {
            let role = format!("{id} {directory}");
            Process::start(test, &role, counted.contains(&id))
        });
        let mut members = [first?, second?, third?];
        // Once all have entered it, all are there.
        for member in &mut members {
            member.await_line("begun");
            member.tell("enter");
            member.await_line("enter");
        }
        Some(members)
    }
}

/// A member, as which this process was started.
fn be_a_member(role: &str) {
    let (id, directory) = role.split_once(' ').unwrap();
    let directory = Path::new(directory);
    let config = Config::load(directory.join("distlock.toml")).unwrap();
    let node = config.node(id.parse().unwrap()).unwrap();
    let agent = Agent::from_config(node.with_state_dir(directory)).unwrap();
    let lock = agent.mutex(LOCK).unwrap();
    obey(|what| match what {
        "enter" => drop(lock.lock().unwrap()),
        "watch" => {
            println!("watches");
            thread::sleep(MOMENT);
        }
        "rest" => thread::sleep(WHILE),
        _ => unreachable!("{what}"),
    });
}

/// The first and the third member enter the lock in turn, so that each gives it back.
fn enter_in_turn([first, manager, third]: &mut [Process; 3]) {
    for _ in 0..TIMES {
        for member in [&mut *first, third] {
            manager.tell("watch");
            manager.await_line("watches");
            member.tell("enter");
            member.await_line("enter");
            manager.await_line("watch");
        }
    }
}

#[test]
fn who_enters_a_lock_of_another_member() {
    if let Some(role) = role() {
        return be_a_member(&role);
    }
    let group = Group::new();
    let test = "who_enters_a_lock_of_another_member";
    // On a busy machine it may be the agent that takes almost every token off the socket, and a thread that
    // does may have tried a loan that had just ended: the cheapest of several entries is counted.
    let mut times = Vec::new();
    for _ in 0..8 {
        let Some(mut members) = group.start(test, &[1]) else {
            return;
        };
        enter_in_turn(&mut members);
        let [first, ..] = members;
        // The first entry makes what the others find.
        let entries = first.end().into_iter().skip(1).map(|calls| calls.own);
        // Where the thread took its token off the socket itself. Whether it has to wake the agent, by
        // write(2), or to wait for it for a moment, by futex(2), is a matter of what that does just then.
        let entries = entries.filter(|calls| calls.iter().any(|call| call == "recvfrom"));
        times.extend(entries.map(|mut calls| {
            calls.retain(|call| call != "write" && !call.starts_with("futex"));
            calls
        }));
        if times.len() >= ENOUGH {
            break;
        }
    }
    assert!(!times.is_empty(), "no thread took its token off the socket");
    // Whose entry it is; lead; ask; get the token; see that nothing else is there; lead no more; give it back.
    expect_least(times.into_iter(), 7..=7);
}

#[test]
fn the_manager_of_a_lock_that_is_entered() {
    if let Some(role) = role() {
        return be_a_member(&role);
    }
    let group = Group::new();
    let test = "the_manager_of_a_lock_that_is_entered";
    let Some(mut members) = group.start(test, &[2]) else {
        return;
    };
    enter_in_turn(&mut members);
    let [_, manager, _] = members;
    let times = manager.end().into_iter().map(|calls| calls.agent);
    // The request: get it, send the token, see that nothing else is there, set the timer, wait. The return: get
    // it, see that nothing else is there, set the timer for its acknowledgement, wait. That: send it, set the
    // timer, wait. The return may be there when the agent looks for something else.
    let times = times.skip(1).filter(|calls| {
        let count = |name| calls.iter().filter(|call| *call == name).count();
        // On a busy machine not all of it is said in time.
        count("recvfrom") >= 2 && count("sendto") >= 2
    });
    expect_least(times, 8..=12);
}

#[test]
fn a_member_that_wants_nothing() {
    if let Some(role) = role() {
        return be_a_member(&role);
    }
    let group = Group::new();
    let test = "a_member_that_wants_nothing";
    let Some(mut members) = group.start(test, &[2]) else {
        return;
    };
    thread::sleep(WHILE);
    let [_, idle, _] = &mut members;
    for _ in 0..4 {
        idle.tell("rest");
        idle.await_line("rest");
    }
    let [_, idle, _] = members;
    let times: Vec<_> = idle.end().into_iter().skip(1).collect();
    // It votes, as all do in a small group: so it renews leases, and hears and says how the voters are.
    expect_least(times.iter().map(|calls| calls.agent.clone()), 40..=160);
    // Each time that it is woken it sees once at most that nothing more is there, and sets its timer once.
    let count = |name: &str| {
        let calls = times.iter().flat_map(|calls| &calls.agent);
        calls.filter(|call| *call == name).count()
    };
    let rounds = count("epoll_wait") + times.len();
    let looks = count(&format!("recvfrom{NOTHING}"));
    assert!((1..=rounds).contains(&looks), "{times:?}");
    assert!(count("timerfd_settime") <= rounds, "{times:?}");
}
