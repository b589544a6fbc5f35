//! Groups of agents with threads of their own, all in this process, over this host's loopback.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::time::Duration;

use distlock_agent::protocol::{LockName, NodeId, Settings};
use distlock_agent::runtime::{Address, Agent, Caller, Options, Patience};
use tempfile::TempDir;

/// No entry takes longer.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Agents of one group, by ricart-agrawala, and the place for what they keep.
pub(crate) struct Agents {
    pub(crate) all: Vec<Agent>,
    lock: LockName,
    _directory: TempDir,
}

impl Agents {
    /// So many members, which are started with what `change` makes of their options.
    pub(crate) fn start(size: u16, change: impl Fn(&mut Options)) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        // All are bound at once, so that their ports differ.
        let sockets: Vec<_> = (0..size)
            .map(|_| UdpSocket::bind("127.0.0.1:0").expect("a port"))
            .collect();
        let addresses = sockets
            .iter()
            .map(|socket| socket.local_addr().expect("bound"));
        let addresses = addresses.map(|address| Address::udp(address).expect("one of a host"));
        let ids = (1..=size).filter_map(NodeId::new);
        let members: BTreeMap<_, _> = ids.zip(addresses).collect();
        drop(sockets);
        let start = |&me: &NodeId| {
            let state = directory.path().join(me.to_string());
            let mut options = Options::new(me, members.clone(), Settings::new("cost"), state);
            change(&mut options);
            Agent::start(options).expect("it starts")
        };
        Self {
            all: members.keys().map(start).collect(),
            lock: LockName::new("printer").expect("a name"),
            _directory: directory,
        }
    }

    /// One of them enters and leaves.
    pub(crate) fn enter(&self, index: usize) {
        let patience = Patience::For(TIMEOUT);
        let grant = self.all[index].acquire(&self.lock, None, patience, Caller::current());
        grant.expect("it is free").release().expect("it is held");
    }
}
