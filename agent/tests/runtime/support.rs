//! What the suites share: groups of agents on this host, in this process and in others.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use distlock_agent::protocol::{Algorithm, Failure, LockName, NodeId, Settings};
use distlock_agent::runtime::{
    AcquireError, Address, Agent, Caller, Client, Faults, Grant, GroupKey, MulticastAddress,
    Options, Patience, StartError, clock,
};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use tempfile::TempDir;

/// No test waits longer for anything; one that does has failed.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(100);
/// The lease of the groups here: as short as it can be without a busy host tripping over it.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Udp,
    Unix,
}

/// The addresses and the settings of a group, and its directory.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) directory: PathBuf,
    pub(crate) members: BTreeMap<NodeId, Address>,
    pub(crate) settings: Settings,
    pub(crate) faults: Option<Faults>,
    pub(crate) multicast: Option<MulticastAddress>,
    /// The file with the group's key, if it has one.
    pub(crate) key_file: Option<PathBuf>,
    /// Removes the directory at the end, in the process that made it.
    _owned: Option<TempDir>,
}

/// A group as other processes are told of it: its directory and algorithm, whether a majority decides
/// on views, faults with their seed, the multicast address, the key file, and members' addresses.
type Text = (
    PathBuf,
    String,
    bool,
    Option<(u64, [u16; 3])>,
    Option<String>,
    Option<PathBuf>,
    Vec<(u16, String)>,
);

impl Group {
    /// With the default algorithm, as most users have it.
    pub(crate) fn new(kind: Kind, size: u16) -> Self {
        Self::by(Settings::new("test").algorithm, kind, size)
    }

    pub(crate) fn by(algorithm: Algorithm, kind: Kind, size: u16) -> Self {
        let owned = tempfile::Builder::new().prefix("dl").tempdir().unwrap();
        let directory = owned.path().to_owned();
        let members = match kind {
            Kind::Udp => udp_addresses(size),
            Kind::Unix => (1..=size)
                .map(|id| {
                    (
                        node(id),
                        Address::unix(directory.join(format!("{id}.sock"))).unwrap(),
                    )
                })
                .collect(),
        };
        let settings = settings(algorithm);
        Self {
            directory,
            members,
            settings,
            faults: None,
            multicast: None,
            key_file: None,
            _owned: Some(owned),
        }
    }

    pub(crate) fn options(&self, id: u16) -> Options {
        let (members, settings) = (self.members.clone(), self.settings.clone());
        let state = self.directory.join(format!("state-{id}"));
        Options {
            voters: self.members.keys().copied().collect(),
            multicast: self.multicast,
            key_file: self.key_file.clone(),
            faults: self.faults.map(|faults| Faults {
                seed: faults.seed + u64::from(id),
                ..faults
            }),
            ..Options::new(node(id), members, settings, state)
        }
    }

    /// Where the service for local programs of member `id` would be.
    pub(crate) fn socket(&self, id: u16) -> PathBuf {
        self.directory.join(format!("service-{id}"))
    }

    /// With a service for clients.
    pub(crate) fn serving(&self, id: u16) -> Options {
        Options {
            socket: Some(self.socket(id).into()),
            ..self.options(id)
        }
    }

    /// Starts member `id` with a service for clients.
    pub(crate) fn serve(&self, id: u16) -> Agent {
        Agent::start(self.serving(id)).unwrap()
    }

    pub(crate) fn start(&self, id: u16) -> Result<Agent, StartError> {
        Agent::start(self.options(id))
    }

    pub(crate) fn start_all(&self) -> Vec<Agent> {
        self.members
            .keys()
            .map(|id| self.start(id.as_u16()).unwrap())
            .collect()
    }

    /// Starts member `id` in a process of its own, as `role`; see [`crate::roles`].
    pub(crate) fn spawn(&self, role: &str, id: u16, rounds: usize) -> Process {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "roles::run", "--nocapture", "--test-threads=1"])
            .env("DISTLOCK_TEST_ROLE", format!("{role} {id} {rounds}"))
            .env("DISTLOCK_TEST_GROUP", self.to_text())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Process {
            child,
            stdin,
            stdout,
        }
    }

    fn to_text(&self) -> String {
        let faults = self.faults.map(|f| {
            let shares = [f.drop_per_mille, f.duplicate_per_mille, f.corrupt_per_mille];
            (f.seed, shares)
        });
        let members = self.members.iter();
        let text: Text = (
            self.directory.clone(),
            self.settings.algorithm.to_string(),
            self.settings.failure == Failure::Quorum,
            faults,
            self.multicast.map(|address| address.to_string()),
            self.key_file.clone(),
            members
                .map(|(id, at)| (id.as_u16(), at.to_string()))
                .collect(),
        );
        serde_json::to_string(&text).unwrap()
    }

    /// The group that the spawning process has.
    pub(crate) fn from_env() -> Self {
        let text = env::var("DISTLOCK_TEST_GROUP").unwrap();
        let text: Text = serde_json::from_str(&text).unwrap();
        let (directory, algorithm, has_quorum, faults, multicast, key_file, members) = text;
        let members = members.into_iter();
        let group = Self {
            directory,
            members: members
                .map(|(id, at)| (node(id), at.parse().unwrap()))
                .collect(),
            settings: settings(algorithm.parse().unwrap()),
            faults: faults.map(|(seed, [drop, duplicate, corrupt])| Faults {
                seed,
                drop_per_mille: drop,
                duplicate_per_mille: duplicate,
                corrupt_per_mille: corrupt,
            }),
            multicast: multicast.map(|text| text.parse().unwrap()),
            key_file,
            _owned: None,
        };
        if has_quorum {
            group.with_quorum()
        } else {
            group
        }
    }

    /// The same with a multicast address that no other test has, nor another process of them.
    pub(crate) fn with_multicast(mut self) -> Self {
        self.multicast = Some(multicast_address());
        self
    }

    /// The same with a key of its own.
    pub(crate) fn with_key(mut self) -> Self {
        let path = self.directory.join("group.key");
        GroupKey::generate().unwrap().write(&path).unwrap();
        self.key_file = Some(path);
        self
    }

    /// The same with views of a majority, and so with leases.
    pub(crate) fn with_quorum(mut self) -> Self {
        self.settings.failure = Failure::Quorum;
        self
    }
}

/// A member in a process of its own. What it prints are lines of words; it ends when its standard
/// input does.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Process {
    /// Waits for the line that starts with `word`; what follows it.
    pub(crate) fn expect(&mut self, word: &str) -> String {
        let mut seen = String::new();
        loop {
            let start = seen.len();
            let len = self.stdout.read_line(&mut seen).unwrap();
            assert_ne!(len, 0, "the process ended without {word:?}: {seen}");
            // The test harness may have begun the line.
            if let Some((_, rest)) = seen[start..].split_once(&format!("role: {word}")) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Sends it one byte, for which it waits.
    pub(crate) fn go_on(&mut self) {
        self.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    }

    /// Lets it end in order.
    pub(crate) fn finish(mut self) {
        drop(self.stdin.take());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Has it stand still, or go on.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

/// A test that fails leaves no process behind.
impl Drop for Process {
    fn drop(&mut self) {
        // It has ended already, unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn settings(algorithm: Algorithm) -> Settings {
    Settings {
        lease: LEASE,
        failure: Failure::Unanimity,
        algorithm,
        ..Settings::new("test")
    }
}

pub(crate) fn node(id: u16) -> NodeId {
    NodeId::new(id).unwrap()
}

pub(crate) fn lock(name: &str) -> LockName {
    LockName::new(name).unwrap()
}

/// Enters, however long it takes. A process that waited for a processor for longer than its lease asks
/// again.
pub(crate) fn enter(agent: &Agent, name: &LockName) -> Grant {
    let acquire = || agent.acquire(name, None, Patience::For(TIMEOUT), Caller::current());
    for _ in 0..MOST_VOIDED {
        match acquire() {
            Err(AcquireError::Voided) => {}
            outcome => return outcome.unwrap(),
        }
    }
    acquire().unwrap()
}

/// How often in a row a process asks again for a lock that it lost before it was inside.
pub(crate) const MOST_VOIDED: u32 = 3;

pub(crate) fn enter_through(client: &Client, name: &str) -> Grant {
    let (name, patience) = (lock(name), Patience::For(TIMEOUT));
    let grant = client.acquire(&name, None, patience, Caller::current());
    grant.unwrap()
}

/// The same, if nobody is inside.
pub(crate) fn try_enter(agent: &Agent, name: &str) -> Result<Grant, AcquireError> {
    agent.acquire(&lock(name), None, Patience::Try, Caller::current())
}

/// A forked child of the test, which must not return.
pub(crate) struct Forked(());

impl Forked {
    /// With `code` 0 if it has found all as it should be.
    pub(crate) fn exit(self, code: i32) -> ! {
        #[expect(unsafe_code, reason = "no destructor of the test may run in the child")]
        // SAFETY: it does not return.
        unsafe {
            libc::_exit(code)
        }
    }
}

/// Forks. In the child something; in its parent, when the child has ended well, nothing.
pub(crate) fn forked() -> Option<Forked> {
    #[expect(unsafe_code, reason = "fork is what is tested")]
    // SAFETY: the child uses the allocator, which glibc keeps usable, and none of the locks of
    // this process's other threads; it ends by `_exit`.
    match unsafe { fork() }.unwrap() {
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
            None
        }
        ForkResult::Child => Some(Forked(())),
    }
}

/// Calls `done` until it is true, for things that no event tells.
pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = clock::now() + TIMEOUT;
    while !done() {
        assert!(clock::now() < deadline, "{what} did not come about");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A test does not run here; it fails where all tests were demanded.
#[track_caller]
pub(crate) fn skipped(why: &str) {
    println!("SKIPPED: {why}");
    assert_ne!(env::var("DISTLOCK_TESTS").as_deref(), Ok("all"), "{why}");
}

/// `default`, or what the environment variable `name` says.
pub(crate) fn count(name: &str, default: usize) -> usize {
    env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// The address of a member of a group over UDP.
pub(crate) fn udp(address: &Address) -> SocketAddr {
    match address {
        Address::Udp(address) => *address,
        Address::Unix(_) => unreachable!(),
    }
}

/// Free ports, on loopback addresses that other test processes hardly use.
fn udp_addresses(size: u16) -> BTreeMap<NodeId, Address> {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let ip = Ipv4Addr::new(127, high.max(1), low, NEXT.fetch_add(1, Ordering::Relaxed));
    // All are bound at once, so that they differ.
    let sockets: Vec<_> = (0..size)
        .map(|_| UdpSocket::bind((ip, 0)).unwrap())
        .collect();
    let address = |socket: &UdpSocket| Address::udp(socket.local_addr().unwrap()).unwrap();
    sockets
        .iter()
        .zip(1..)
        .map(|(socket, id)| (node(id), address(socket)))
        .collect()
}

pub(crate) fn multicast_address() -> MulticastAddress {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let ip = Ipv4Addr::new(239, high, low, NEXT.fetch_add(1, Ordering::Relaxed));
    MulticastAddress::new((ip, 7400).into()).unwrap()
}

/// What a counter file says.
pub(crate) fn read_counter(path: &Path) -> usize {
    fs::read_to_string(path).unwrap().trim().parse().unwrap()
}

/// Reads, adds one, writes: without a lock around it, increments are lost.
pub(crate) fn increment(path: &Path) {
    let next = read_counter(path) + 1;
    fs::write(path, next.to_string()).unwrap();
}
