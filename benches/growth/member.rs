//! The processes that are measured: members of a group, and the programs that use a member's agent.

use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use distlock::{Agent, Config, DistMutex, Mutex};
use tempfile::TempDir;

use crate::ROLE;
use crate::process::{Process, Usage};
use crate::report::median;
use crate::turns::{Turns, now};

/// What a process is told: its number, and the directory with the configuration.
const ID: &str = "DISTLOCK_BENCH_ID";
const DIRECTORY: &str = "DISTLOCK_BENCH_DIRECTORY";

/// A group of members, each in a process.
pub(crate) struct Group {
    // They end before the directory goes.
    pub(crate) members: Vec<Process>,
    directory: TempDir,
}

impl Group {
    /// Starts it, and returns once every member has entered a lock.
    pub(crate) fn start(size: u16) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        configure(directory.path(), size);
        let mut members: Vec<_> = (1..=size)
            .map(|id| start("member", id, directory.path()))
            .collect();
        for member in &mut members {
            member.answer();
        }
        Self { members, directory }
    }

    /// A process with so many connections to the first member's agent, each of a thread of its own.
    pub(crate) fn clients(&self, count: usize) -> Process {
        let count = u16::try_from(count).expect("not so many");
        let mut clients = start("clients", count, self.directory.path());
        clients.answer();
        clients
    }

    /// Has members forget how often they have handed over a lock.
    pub(crate) fn forget_turns(&self) {
        // There is none before the first time.
        let _ = fs::remove_file(self.directory.path().join("turns"));
    }

    /// What all members have used so far, together.
    pub(crate) fn usage(&self) -> Usage {
        let usages = self.members.iter().map(Process::usage);
        usages.fold(Usage::default(), |sum, it| Usage {
            processor: sum.processor + it.processor,
            wakeups: sum.wakeups + it.wakeups,
        })
    }
}

fn start(role: &str, id: u16, directory: &Path) -> Process {
    let directory = directory.to_str().expect("tempdir is UTF-8");
    Process::start(&[
        (ROLE, role.to_owned()),
        (ID, id.to_string()),
        (DIRECTORY, directory.to_owned()),
    ])
}

fn configure(directory: &Path, size: u16) {
    // All are bound at once, so that no two get the same port.
    let sockets: Vec<_> = (0..size)
        .map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port"))
        .collect();
    let mut text = "[group]\nname = \"bench\"\n".to_owned();
    for (socket, id) in sockets.iter().zip(1..) {
        let address = socket.local_addr().expect("it is bound");
        text += &format!("[[member]]\nid = {id}\naddress = \"udp:{address}\"\n");
    }
    fs::write(directory.join("distlock.toml"), text).expect("our own directory");
}

/// The role: a member.
pub(crate) fn run_member() {
    let (id, directory) = told();
    let config = Config::load(directory.join("distlock.toml")).expect("we wrote it");
    let node = config.node(id).expect("the member is in it");
    let node = node.with_state_dir(&directory);
    let node = node.with_socket(directory.join(format!("{id}.socket")));
    let agent = Agent::from_config(node).expect("its address is free");
    enter(&lock(&agent, 0));
    serve(|what, numbers| match (what, numbers) {
        ("enter", &[first, count]) => vec![enter_each(&agent, first, count)],
        ("random", &[locks, count]) => vec![enter_random(&agent, locks, count)],
        ("contend", &[threads, start, nanos]) => {
            let turns = Turns::open(&directory, id);
            let lock = lock(&agent, 0);
            let locks = (0..threads).map(|_| lock.clone());
            let handed_over = std::sync::Mutex::default();
            let mut answer = contend(start, nanos, locks, &|lock| {
                let turns = turns.take(lock);
                let mut latest = handed_over.lock().expect("nobody panics");
                *latest = turns.max(*latest);
            });
            let (count, total) = handed_over.into_inner().expect("nobody panics");
            answer.extend([count as f64, total.as_nanos() as f64]);
            answer
        }
        _ => panic!("what is {what} {numbers:?}?"),
    });
}

/// The role: so many programs that use the first member's agent.
pub(crate) fn run_clients() {
    let (count, directory) = told();
    let connect = |_| Agent::connect(directory.join("1.socket")).expect("it takes so many");
    let agents: Vec<_> = (0..count).map(connect).collect();
    serve(|what, numbers| match (what, numbers) {
        ("one", &[start, nanos]) => {
            let locks = agents.iter().map(|agent| lock(agent, 0));
            contend(start, nanos, locks, &enter)
        }
        ("each", &[start, nanos]) => {
            let locks = (1..)
                .zip(&agents)
                .map(|(number, agent)| lock(agent, number));
            contend(start, nanos, locks, &enter)
        }
        _ => panic!("what is {what} {numbers:?}?"),
    });
}

fn told() -> (u16, PathBuf) {
    let variable = |name| std::env::var(name).expect("the parent says it");
    let id = variable(ID).parse().expect("a number");
    (id, variable(DIRECTORY).into())
}

/// Answers each line of the input, the first one unasked.
fn serve(mut answer: impl FnMut(&str, &[u64]) -> Vec<f64>) {
    println!();
    for line in std::io::stdin().lines() {
        let line = line.expect("the parent writes text");
        let mut words = line.split(' ');
        let what = words.next().expect("a first word");
        let numbers: Vec<u64> = words.map(|it| it.parse().expect("a number")).collect();
        let answer: Vec<_> = answer(what, &numbers).iter().map(f64::to_string).collect();
        println!("{}", answer.join(" "));
    }
}

fn lock(agent: &Agent, number: u64) -> Mutex {
    agent
        .mutex(format!("lock-{number}"))
        .expect("the name is one")
}

fn enter(lock: &Mutex) {
    drop(lock.lock().expect("all members are there"));
}

/// The median time until each of these locks is held, one after another, in nanoseconds.
fn enter_each(agent: &Agent, first: u64, count: u64) -> f64 {
    let times = (first..first + count).map(|number| {
        let lock = lock(agent, number);
        let start = now();
        let guard = lock.lock().expect("all members are there");
        let time = now() - start;
        drop(guard);
        time.as_nanos() as f64
    });
    median(times.collect()).expect("there are some")
}

/// The median time until one of so many locks is held, each time another one.
fn enter_random(agent: &Agent, locks: u64, count: u64) -> f64 {
    let mut random = 1_u64;
    let times = (0..count).map(|_| {
        // Of a linear congruential generator the upper bits are good.
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        enter_each(agent, 1 + (random >> 33) % locks, 1)
    });
    median(times.collect()).expect("there are some")
}

/// A thread for each of these locks enters it again and again, from `start` on, for so long: how often
/// all of them were inside.
fn contend(
    start: u64,
    nanos: u64,
    locks: impl Iterator<Item = Mutex>,
    enter: &(dyn Fn(&Mutex) + Sync),
) -> Vec<f64> {
    let entries = AtomicU64::new(0);
    let time = || now().as_nanos() as u64;
    thread::scope(|scope| {
        for lock in locks {
            let entries = &entries;
            scope.spawn(move || {
                thread::sleep(std::time::Duration::from_nanos(
                    start.saturating_sub(time()),
                ));
                while time() < start + nanos {
                    enter(&lock);
                    entries.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    vec![entries.load(Ordering::Relaxed) as f64]
}
