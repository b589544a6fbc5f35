//! What the tests of the library share: groups of their own, each in a directory that goes with it.
#![allow(dead_code, reason = "each test file uses its part of it")]
#![allow(
    clippy::allow_attributes,
    reason = "expect would fail where all of it is used"
)]

use std::path::Path;

use distlock::{Agent, Config, NodeConfig, TryLockError};
use tempfile::TempDir;

/// A local group.
pub(crate) fn local() -> (TempDir, Agent) {
    let directory = tempfile::tempdir().unwrap();
    let agent = Agent::local_in(directory.path()).unwrap();
    (directory, agent)
}

/// The same with two agents, each with an open file of its own: as good as two processes.
pub(crate) fn two_local() -> (TempDir, Agent, Agent) {
    let (directory, agent) = local();
    let other = Agent::local_in(directory.path()).unwrap();
    (directory, agent, other)
}

/// What is in the directory of a local group besides the shared page.
pub(crate) fn files(directory: &TempDir) -> Vec<String> {
    let entries = std::fs::read_dir(directory.path()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name != "group").collect()
}

/// Whether another holds what was tried.
pub(crate) fn is_busy<T>(tried: Result<T, TryLockError>) -> bool {
    matches!(tried, Err(TryLockError::WouldBlock))
}

/// A configured group over Unix datagrams.
pub(crate) struct Group {
    directory: TempDir,
    pub(crate) config: Config,
}

impl Group {
    /// Members 1 to `size`. The configuration starts with `head`.
    pub(crate) fn new(size: u16, head: &str) -> Self {
        // Short enough for addresses of Unix sockets.
        let directory = tempfile::Builder::new().prefix("dl").tempdir().unwrap();
        let path = directory.path().display();
        let mut text = format!("{head}\n[group]\nname = \"shop\"\n");
        for id in 1..=size {
            text += &format!("[[member]]\nid = {id}\naddress = \"unix:{path}/{id}\"\n");
        }
        let config = Config::parse(&text).unwrap();
        Self { directory, config }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn node(&self, id: u16) -> NodeConfig {
        let state = self.path().join(format!("state-{id}"));
        self.config.node(id).unwrap().with_state_dir(state)
    }

    pub(crate) fn member(&self, id: u16) -> Agent {
        Agent::from_config(self.node(id)).unwrap()
    }

    /// Member 1 with a socket for local programs, and a client of it.
    pub(crate) fn with_client(&self) -> (Agent, Agent) {
        let socket = self.path().join("service");
        let agent = Agent::from_config(self.node(1).with_socket(&socket)).unwrap();
        (agent, Agent::connect(&socket).unwrap())
    }
}
