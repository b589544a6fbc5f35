//! The locks that are compared, each as one process uses it.

mod etcd;
mod local;
mod services;
mod stored;
mod zookeeper;

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use distlock::{Agent, Algorithm, Config, DistMutex, Guard, Mutex};

use self::stored::Store;
use crate::shared::{LOCKS, now};

/// A key for this benchmark alone, as `distlock keygen` writes them.
const KEY: &str = "2532abf4 64JPJoNWAGqDRXMlp86NJOn4Pm79z/RFgXWNuF0ROFw=\n";

/// How many agents the hosts have of which one serves the clients.
const HOSTS: usize = 3;

/// Locks by number, of which one at most is held at a time.
pub(crate) trait Locks {
    /// Waits until this process is inside. Returns the fence, where there are fences.
    fn enter(&mut self, lock: usize) -> Option<u64>;

    /// Releases, and waits for the answer, where there is one.
    fn leave(&mut self, lock: usize);
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum System {
    /// So many members of a group, each in a process.
    Members(Algorithm, usize),
    /// Three members by `manager`, whose datagrams are encrypted.
    Sealed,
    /// Programs that use the agent of their host, which is one of three members.
    Clients,
    /// The local group.
    Local,
    Flock,
    Semaphore,
    SetNx,
    Blpop,
    Postgres,
    Etcd,
    /// Three nodes.
    EtcdThree,
    ZooKeeper,
    /// Locks in a store, of processes that have an agent each.
    Stored(Store),
    /// The same, of programs that use one agent.
    StoredClients(Store),
}

impl System {
    pub(crate) const ALL: [Self; 22] = [
        Self::Members(Algorithm::Manager, 2),
        Self::Members(Algorithm::Manager, 3),
        Self::Members(Algorithm::Manager, 8),
        Self::Sealed,
        Self::Members(Algorithm::RicartAgrawala, 2),
        Self::Members(Algorithm::RicartAgrawala, 3),
        Self::Members(Algorithm::RicartAgrawala, 8),
        Self::Clients,
        Self::Local,
        Self::Flock,
        Self::Semaphore,
        Self::SetNx,
        Self::Blpop,
        Self::Postgres,
        Self::Stored(Store::Postgres),
        Self::StoredClients(Store::Postgres),
        Self::Etcd,
        Self::Stored(Store::Etcd),
        Self::StoredClients(Store::Etcd),
        Self::EtcdThree,
        Self::Stored(Store::EtcdThree),
        Self::ZooKeeper,
    ];

    pub(crate) fn name(self) -> String {
        let name = match self {
            Self::Members(algorithm, size) => return format!("`{algorithm}`, {size} members"),
            Self::Stored(store) => return format!("distlock in {}", store.name()),
            Self::StoredClients(store) => return format!("distlock in {}, 1 agent", store.name()),
            Self::Sealed => "`manager`, 3 members, encrypted",
            Self::Clients => "clients of a host's agent, 3 members",
            Self::Local => "local group",
            Self::Flock => "flock(2)",
            Self::Semaphore => "POSIX semaphore",
            Self::SetNx => "Redis SET NX PX",
            Self::Blpop => "Redis BLPOP",
            Self::Postgres => "PostgreSQL advisory lock",
            Self::Etcd => "etcd, 1 node",
            Self::EtcdThree => "etcd, 3 nodes",
            Self::ZooKeeper => "ZooKeeper, 1 node",
        };
        name.to_owned()
    }

    /// How many processes use it.
    pub(crate) fn workers(self) -> usize {
        match self {
            Self::Members(_, size) => size,
            Self::Sealed => HOSTS,
            _ => 8,
        }
    }

    /// How many agents run in processes of their own.
    pub(crate) fn agents(self) -> usize {
        match self {
            Self::Clients => HOSTS,
            Self::StoredClients(_) => 1,
            _ => 0,
        }
    }

    /// The server that it needs, as `--server` names it.
    pub(crate) fn server(self) -> Option<&'static str> {
        match self {
            Self::SetNx | Self::Blpop => Some("redis"),
            Self::Postgres => Some("postgres"),
            Self::Etcd => Some("etcd"),
            Self::EtcdThree => Some("etcd3"),
            Self::ZooKeeper => Some("zookeeper"),
            Self::Stored(store) | Self::StoredClients(store) => Some(store.server()),
            _ => None,
        }
    }

    /// Makes what its processes share, before any of them starts.
    /// `addresses` are those of its servers.
    pub(crate) fn prepare(self, directory: &Path, addresses: &[String]) {
        match self {
            Self::Members(algorithm, size) => configure(directory, algorithm, size, None),
            Self::Sealed => configure(directory, Algorithm::Manager, HOSTS, Some(KEY)),
            Self::Clients => configure(directory, Algorithm::Manager, HOSTS, None),
            Self::Stored(store) | Self::StoredClients(store) => store.prepare(own(1, addresses)),
            _ => {}
        }
    }

    /// Removes what need not be there any more once all its processes run.
    pub(crate) fn started(self, directory: &Path) {
        if self == Self::Semaphore {
            local::unlink_semaphores(directory);
        }
    }

    /// The agent of a host, with a socket for its clients.
    pub(crate) fn agent(self, id: u16, directory: &Path, addresses: &[String]) -> Agent {
        match self {
            Self::StoredClients(store) => {
                store.serve(own(id, addresses), directory, &socket(directory, id))
            }
            _ => member(directory, id, true),
        }
    }

    /// The locks, as the process `id` of 1 and up uses them; the first one makes what all need.
    pub(crate) fn open(self, id: u16, directory: &Path, addresses: &[String]) -> Box<dyn Locks> {
        let own = || own(id, addresses);
        match self {
            Self::Members(..) | Self::Sealed => {
                Box::new(Distlock::new(&member(directory, id, false)))
            }
            Self::Clients | Self::StoredClients(_) => {
                let path = socket(directory, 1);
                let agent = patiently(|| Agent::connect(&path));
                Box::new(Distlock::new(&agent))
            }
            Self::Local => {
                let agent = Agent::local_in(directory.join("local")).expect("our own directory");
                Box::new(Distlock::new(&agent))
            }
            Self::Flock => Box::new(local::Flock::open(directory)),
            Self::Semaphore => Box::new(local::Semaphores::open(directory)),
            Self::SetNx => Box::new(services::SetNx::open(own(), id)),
            Self::Blpop => Box::new(services::Blpop::open(own(), id)),
            Self::Postgres => Box::new(services::Advisory::open(own())),
            Self::Etcd | Self::EtcdThree => Box::new(etcd::Etcd::open(own())),
            Self::ZooKeeper => Box::new(zookeeper::ZooKeeper::open(own())),
            Self::Stored(store) => Box::new(Distlock::new(&store.open(own()))),
        }
    }
}

/// The node that the process `id` uses: they take them in turn.
fn own(id: u16, addresses: &[String]) -> &str {
    let nodes = addresses.len().max(1);
    let address = addresses.get((usize::from(id) - 1) % nodes);
    address.expect("the server is named")
}

/// Where the host's agent serves its clients.
fn socket(directory: &Path, id: u16) -> PathBuf {
    directory.join(format!("{id}.sock"))
}

/// Locks of a group.
struct Distlock {
    locks: Vec<Mutex>,
    guard: Option<Guard>,
}

impl Distlock {
    fn new(agent: &Agent) -> Self {
        let mutex = |lock| {
            agent
                .mutex(format!("lock-{lock}"))
                .expect("the name is one")
        };
        Self {
            locks: (0..LOCKS).map(mutex).collect(),
            guard: None,
        }
    }
}

impl Locks for Distlock {
    fn enter(&mut self, lock: usize) -> Option<u64> {
        let guard = self.locks[lock]
            .lock()
            .expect("all members, or the store, are there");
        let guard = self.guard.insert(guard);
        Some(guard.fence().expect("these groups have fences").as_u64())
    }

    fn leave(&mut self, _: usize) {
        let guard = self.guard.take().expect("it was entered");
        guard.unlock().expect("it is held");
    }
}

fn member(directory: &Path, id: u16, clients: bool) -> Agent {
    let config = Config::load(directory.join("distlock.toml")).expect("we wrote it");
    let node = config.node(id).expect("the member is in it");
    let mut node = node.with_state_dir(directory);
    if clients {
        node = node.with_socket(socket(directory, id));
    }
    Agent::from_config(node).expect("its address is free")
}

fn configure(directory: &Path, algorithm: Algorithm, size: usize, key: Option<&str>) {
    // All are bound at once, so that no two get the same port.
    let sockets: Vec<_> = (0..size)
        .map(|_| std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port"))
        .collect();
    let mut text = format!("algorithm = \"{algorithm}\"\n");
    if let Some(key) = key {
        let path = directory.join("key");
        let mut file = File::options();
        file.write(true).create_new(true).mode(0o600);
        let written = file
            .open(&path)
            .and_then(|mut file| file.write_all(key.as_bytes()));
        written.expect("our own directory");
        text += &format!("key_file = \"{}\"\n", path.display());
    }
    text += "[group]\nname = \"compare\"\n";
    for (socket, id) in sockets.iter().zip(1..) {
        let address = socket.local_addr().expect("it is bound");
        text += &format!("[[member]]\nid = {id}\naddress = \"udp:{address}\"\n");
    }
    std::fs::write(directory.join("distlock.toml"), text).expect("our own directory");
}

/// Tries until it works: a server may just have been started.
fn patiently<T, E: std::fmt::Display>(mut open: impl FnMut() -> Result<T, E>) -> T {
    let end = now() + 20_000_000_000;
    loop {
        match open() {
            Ok(opened) => return opened,
            Err(error) => assert!(now() < end, "the server: {error}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
