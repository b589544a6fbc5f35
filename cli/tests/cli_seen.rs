//! What it costs to be seen: metrics that are served and read each second, a log of JSON lines, an audit log.
//!
//! `DISTLOCK_ROUNDS=10 cargo test --release --test cli_seen -- --nocapture` measures it: rounds of three groups in
//! turn, and the medians of the rounds.

mod cli_support;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cli_support::group::{AgentProcess, Group};
use distlock::{Agent, DistMutex};
use nix::time::{ClockId, clock_gettime};

const MEMBERS: usize = 3;
/// Entries of a round: by loan, and by a request to the agent.
const BY_LOAN: usize = 20_000;
const BY_REQUEST: usize = 1_000;

fn now() -> Duration {
    Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has it"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    Not,
    /// Its metrics are read each second, and what happens is a line of JSON.
    Read,
    /// That, and an audit log.
    Audited,
}

/// A group whose agents are seen so.
struct Watched {
    _group: Group,
    agents: Vec<AgentProcess>,
    client: Agent,
    _reader: Option<Reader>,
}

impl Watched {
    fn start(seen: Seen) -> Self {
        let group = Group::unix(MEMBERS);
        let text = fs::read_to_string(group.config()).expect("the configuration");
        let asked = "[[lock]]\nname = \"asked\"\nalgorithm = \"ricart-agrawala\"\n";
        let mut sockets = Vec::new();
        let agents = (1..=MEMBERS).map(|id| {
            let mut own = format!("{text}{asked}");
            if seen >= Seen::Read {
                let socket = group.file(&format!("metrics{id}"));
                own += &format!("[metrics]\nlisten = \"unix:{}\"\n", socket.display());
                sockets.push(socket);
            }
            if seen == Seen::Audited {
                own += &format!("[audit]\nfile = {:?}\n", group.file(&format!("audit{id}")));
            }
            let file = group.file(&format!("{id}.toml"));
            fs::write(&file, own).expect("a file");
            let mut command = group.agent_command(id);
            command.env("DISTLOCK_CONFIG", file);
            if seen >= Seen::Read {
                command.args(["--log-format", "json"]);
            }
            let log = File::create(group.file(&format!("{id}.log"))).expect("a file");
            AgentProcess::start_with_log(&mut command, log)
        });
        let agents = agents.collect();
        let client = Agent::connect(group.socket(1)).expect("an agent");
        Self {
            _group: group,
            agents,
            client,
            _reader: (seen >= Seen::Read).then(|| Reader::start(sockets)),
        }
    }

    /// Enters `lock` `count` times; the times that the entries took, the shortest first.
    fn enter(&self, lock: &str, count: usize) -> Vec<Duration> {
        let mutex = self.client.mutex(lock).expect("a lock");
        let mut times = Vec::new();
        for _ in 0..count {
            let start = now();
            let guard = mutex.lock().expect("it is free");
            times.push(now() - start);
            drop(guard);
        }
        times.sort();
        times
    }

    /// The memory of its agents that is in use, in KiB each.
    fn memory(&self) -> usize {
        let of = |agent: &AgentProcess| {
            let status = fs::read_to_string(format!("/proc/{}/status", agent.child.id()));
            let status = status.expect("it runs");
            let line = status.lines().find(|line| line.starts_with("VmRSS:"));
            let number = line.and_then(|line| line.split_whitespace().nth(1));
            number.and_then(|it| it.parse::<usize>().ok()).expect("KiB")
        };
        self.agents.iter().map(of).sum::<usize>() / MEMBERS
    }
}

/// A thread that reads the metrics of all agents each second.
struct Reader {
    is_over: Arc<AtomicBool>,
    read: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    fn start(sockets: Vec<PathBuf>) -> Self {
        let (is_over, read) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (over, count) = (Arc::clone(&is_over), Arc::clone(&read));
        let thread = thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                for socket in &sockets {
                    let mut stream = UnixStream::connect(socket).expect("it is served");
                    let ask = b"GET /metrics HTTP/1.0\r\n\r\n";
                    stream.write_all(ask).expect("it is asked");
                    let mut page = String::new();
                    stream.read_to_string(&mut page).expect("it answers");
                    assert!(page.contains("distlock_grants_total"), "{page}");
                }
                count.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_secs(1));
            }
        });
        Self {
            is_over,
            read,
            thread: Some(thread),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        if !thread::panicking() {
            assert!(ended.is_some_and(|ended| ended.is_ok()), "it was not read");
            assert!(self.read.load(Ordering::Relaxed) > 0);
        }
    }
}

fn median(mut values: Vec<Duration>) -> Duration {
    values.sort();
    values[values.len() / 2]
}

#[test]
fn what_is_read_costs_an_entry_nothing_and_what_is_audited_is_asked_for() {
    let rounds = std::env::var("DISTLOCK_ROUNDS").map_or(3, |it| it.parse().expect("a number"));
    let all = [Seen::Not, Seen::Read, Seen::Audited].map(|seen| (seen, Watched::start(seen)));
    // The locks come to be lent.
    for (_, watched) in &all {
        watched.enter("lent", 1_000);
        watched.enter("asked", 100);
    }
    // By group and lock: the medians and the 99th percentiles of the rounds.
    let mut taken = [const { [const { (Vec::new(), Vec::new()) }; 2] }; 3];
    for _ in 0..rounds {
        for ((seen, watched), taken) in all.iter().zip(&mut taken) {
            let is_lent = *seen != Seen::Audited;
            let first = if is_lent { BY_LOAN } else { BY_REQUEST };
            let locks = [("lent", first), ("asked", BY_REQUEST)];
            for ((lock, count), (medians, late)) in locks.into_iter().zip(taken) {
                let times = watched.enter(lock, count);
                medians.push(times[count / 2]);
                late.push(times[count * 99 / 100]);
            }
        }
    }
    let mut lent = Vec::new();
    for ((seen, watched), taken) in all.iter().zip(taken) {
        let told = taken.map(|(medians, late)| (median(medians), median(late)));
        let [by_loan, by_request] = told;
        lent.push(by_loan.0);
        println!(
            "{seen:?}: lent lock {:?}, 99th percentile {:?}; by request {:?}, {:?}; an agent {} KiB",
            by_loan.0,
            by_loan.1,
            by_request.0,
            by_request.1,
            watched.memory()
        );
    }
    assert!(
        lent[1] < lent[0] * 2,
        "entries cost more when metrics are read: {lent:?}"
    );
    assert!(
        lent[2] > lent[0] * 10,
        "entries of audited locks are by loan: {lent:?}"
    );
}
