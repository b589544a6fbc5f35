//! A group of members, each a process; the measured one is the process that measures.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use distlock::{Agent, Algorithm, Config, DistMutex, Guard, Mutex};
use tempfile::TempDir;

use crate::ROLE;
use crate::place::{self, Place, Transport};
use crate::turns::{Turns, now};

/// What a peer is told: its core, its number, and the directory with the configuration.
const CORE: &str = "DISTLOCK_BENCH_CORE";
const ID: &str = "DISTLOCK_BENCH_ID";
const DIRECTORY: &str = "DISTLOCK_BENCH_DIRECTORY";

/// What a peer is asked to do, a line each; it answers with the same line.
const CONTEND: &str = "contend";
const REST: &str = "rest";

const LOCK: &str = "bench";

/// The measured member, and its peers.
pub(crate) struct Members {
    lock: Mutex,
    // It closes before its peers end: it would miss them.
    _agent: Agent,
    peers: Vec<Peer>,
    contending: bool,
    turns: Turns,
    _directory: TempDir,
}

impl Members {
    /// Starts them, and returns once the lock has been taken for the first time.
    pub(crate) fn start(
        algorithm: Algorithm,
        transport: Transport,
        place: Place,
        size: u16,
    ) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        configure(directory.path(), algorithm, transport, size);
        let mut peers: Vec<_> = (2..=size)
            .map(|id| Peer::start(id, directory.path(), place))
            .collect();
        let agent = open(directory.path(), 1);
        let lock = agent.mutex(LOCK).expect("the name is one");
        for peer in &mut peers {
            peer.await_answer("ready");
        }
        drop(lock.lock().expect("all members are there"));
        Self {
            lock,
            peers,
            contending: false,
            turns: Turns::open(directory.path(), 1),
            _agent: agent,
            _directory: directory,
        }
    }

    /// The time until `lock` returns; the release is not counted.
    pub(crate) fn acquire(&mut self, iterations: u64) -> Duration {
        self.contend(false);
        let mut total = Duration::ZERO;
        for _ in 0..iterations {
            let start = now();
            let guard = self.enter();
            total += now() - start;
            guard.unlock().expect("it is held");
        }
        total
    }

    /// The time of acquiring and releasing.
    pub(crate) fn pair(&mut self, iterations: u64) -> Duration {
        self.contend(false);
        let start = now();
        for _ in 0..iterations {
            self.enter().unlock().expect("it is held");
        }
        now() - start
    }

    /// The time from the release by one member to the entry of another, while all of them want the
    /// lock all the time.
    pub(crate) fn hand_over(&mut self, iterations: u64) -> Duration {
        self.contend(true);
        let (first, before) = self.turns.take(&self.lock);
        loop {
            let (count, total) = self.turns.take(&self.lock);
            if count - first >= iterations {
                return (total - before).mul_f64(iterations as f64 / (count - first) as f64);
            }
        }
    }

    fn enter(&self) -> Guard {
        self.lock.lock().expect("all members are there")
    }

    fn contend(&mut self, contend: bool) {
        if self.contending != contend {
            self.contending = contend;
            for peer in &mut self.peers {
                peer.ask(if contend { CONTEND } else { REST });
            }
        }
    }
}

/// Another member's process; it ends when its input does.
struct Peer {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    fn start(id: u16, directory: &Path, place: Place) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("we have a path"))
            .env(ROLE, "member")
            .env(CORE, place.other_core().to_string())
            .env(ID, id.to_string())
            .env(DIRECTORY, directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("we can be run again");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        Self {
            child,
            input,
            output,
        }
    }

    fn ask(&mut self, question: &str) {
        let input = self.input.as_mut().expect("it is open");
        writeln!(input, "{question}").expect("the peer is there");
        self.await_answer(question);
    }

    fn await_answer(&mut self, expected: &str) {
        let answer = self
            .output
            .next()
            .expect("the peer is there")
            .expect("it can be read");
        assert_eq!(answer, expected);
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.input.take());
        // It fails only where there is nothing left to wait for.
        let _ = self.child.wait();
    }
}

/// The role of a peer: contends or rests as it is told.
pub(crate) fn run_peer() {
    let variable = |name| std::env::var(name).expect("the parent says it");
    place::pin(variable(CORE).parse().expect("a number"));
    let directory = PathBuf::from(variable(DIRECTORY));
    let id = variable(ID).parse().expect("a number");
    let agent = open(&directory, id);
    let turns = Arc::new(Turns::open(&directory, id));
    let lock = agent.mutex(LOCK).expect("the name is one");
    println!("ready");

    let contend = Arc::new(AtomicBool::new(false));
    let mut contender = None;
    for question in std::io::stdin().lines() {
        let question = question.expect("the parent writes text");
        contend.store(question == CONTEND, Ordering::Relaxed);
        if question == CONTEND {
            let (lock, contend, turns) = (lock.clone(), contend.clone(), turns.clone());
            contender = Some(thread::spawn(move || {
                while contend.load(Ordering::Relaxed) {
                    turns.take(&lock);
                }
            }));
        } else if let Some(contender) = contender.take() {
            contender.join().expect("it does not panic");
        }
        println!("{question}");
    }
    contend.store(false, Ordering::Relaxed);
}

fn open(directory: &Path, id: u16) -> Agent {
    let config = Config::load(directory.join("distlock.toml")).expect("we wrote it");
    let node = config.node(id).expect("the member is in it");
    Agent::from_config(node.with_state_dir(directory)).expect("its address is free")
}

fn configure(directory: &Path, algorithm: Algorithm, transport: Transport, size: u16) {
    // All are bound at once, so that no two get the same port.
    let sockets: Vec<_> = (0..size)
        .map(|_| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port"))
        .collect();
    let mut text = format!("algorithm = \"{algorithm}\"\n[group]\nname = \"bench\"\n");
    for (socket, id) in sockets.iter().zip(1..) {
        let address = match transport {
            Transport::Udp => format!("udp:{}", socket.local_addr().expect("it is bound")),
            Transport::Unix => format!("unix:{}/{id}.sock", directory.display()),
        };
        text += &format!("[[member]]\nid = {id}\naddress = \"{address}\"\n");
    }
    fs::write(directory.join("distlock.toml"), text).expect("our own directory");
}
