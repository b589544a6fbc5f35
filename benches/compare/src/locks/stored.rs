//! Locks that distlock keeps in a store, in place of a group of members.

use std::path::Path;

use distlock::Agent;
use distlock::config::StoreConfig;
use distlock::store::StoreAdmin;

use super::patiently;

/// Where they are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Etcd,
    /// Three nodes.
    EtcdThree,
    Postgres,
}

impl Store {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd, 1 node",
            Self::EtcdThree => "etcd, 3 nodes",
            Self::Postgres => "PostgreSQL",
        }
    }

    /// The server, as `--server` names it.
    pub(super) fn server(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::EtcdThree => "etcd3",
            Self::Postgres => "postgres",
        }
    }

    /// Waits for the server, and makes in it what agents need.
    pub(super) fn prepare(self, address: &str) {
        let config = self.config(address);
        drop(patiently(|| StoreAdmin::initialize(&config)));
    }

    /// An agent with a connection of its own.
    pub(super) fn open(self, address: &str) -> Agent {
        Agent::from_store(self.config(address)).expect("the place is one")
    }

    /// The same, with a socket for the programs of its host.
    pub(super) fn serve(self, address: &str, directory: &Path, socket: &Path) -> Agent {
        let config = self.config(address).with_state_dir(directory);
        Agent::from_store(config.with_socket(socket)).expect("our own directory")
    }

    /// As an application has it that says nothing but the place.
    fn config(self, address: &str) -> StoreConfig {
        let place = match self {
            Self::Etcd | Self::EtcdThree => format!("etcd://{address}?group=compare"),
            Self::Postgres => format!("postgresql://postgres@{address}/postgres?group=compare"),
        };
        StoreConfig::at(&place).expect("it is a place")
    }
}
