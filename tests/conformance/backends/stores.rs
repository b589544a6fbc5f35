//! Locks that a store has: each agent has a connection of its own, or they are clients of one that has.

use std::path::PathBuf;

use distlock::Agent;
use distlock::config::StoreConfig;
use tempfile::TempDir;

use super::servers::{self, Server};
use crate::bench::{Backend, Group};

/// Long enough that a machine with much to do does not miss a renewal.
const LEASE: &str = "5s";

#[cfg(feature = "etcd")]
pub(crate) const ETCD: Backend = Backend {
    name: "etcd",
    lacks: &[],
    open: || Some(Box::new(Stored::new(Place::etcd()?, open))),
};

#[cfg(feature = "etcd")]
pub(crate) const ETCD_DRIVEN: Backend = Backend {
    name: "etcd, driven",
    lacks: &[],
    open: || Some(Box::new(Stored::new(Place::etcd()?, open_driven))),
};

#[cfg(feature = "etcd")]
pub(crate) const ETCD_CLIENTS: Backend = Backend {
    name: "etcd, through an agent",
    lacks: &[],
    open: || Some(Box::new(Clients::new(Place::etcd()?))),
};

#[cfg(feature = "postgresql")]
pub(crate) const POSTGRESQL: Backend = Backend {
    name: "postgresql",
    lacks: &[],
    open: || Some(Box::new(Stored::new(Place::postgresql()?, open))),
};

#[cfg(feature = "postgresql")]
pub(crate) const POSTGRESQL_CLIENTS: Backend = Backend {
    name: "postgresql, through an agent",
    lacks: &[],
    open: || Some(Box::new(Clients::new(Place::postgresql()?))),
};

/// A store.
struct Place {
    at: String,
    state: TempDir,
    _server: Server,
}

impl Place {
    #[cfg(feature = "etcd")]
    fn etcd() -> Option<Self> {
        let server = servers::etcd()?;
        Some(Self::new("etcd://", "", server))
    }

    #[cfg(feature = "postgresql")]
    fn postgresql() -> Option<Self> {
        let server = servers::postgresql()?;
        let place = Self::new("postgresql://postgres@", "/postgres", server);
        let config = StoreConfig::at(&place.group("shop")).unwrap();
        // It listens a moment before it takes statements.
        crate::bench::await_that("the table is made", || {
            distlock::store::StoreAdmin::initialize(&config).is_ok()
        });
        Some(place)
    }

    fn new(scheme: &str, path: &str, server: Server) -> Self {
        Self {
            // By a name, which has to be looked up, and mostly is ::1 as well, where the server is not.
            at: format!("{scheme}localhost:{}{path}", server.port),
            state: tempfile::tempdir().unwrap(),
            _server: server,
        }
    }

    /// A group in it.
    fn group(&self, name: &str) -> String {
        format!("{}?group={name}&lease={LEASE}", self.at)
    }

    fn state(&self) -> PathBuf {
        self.state.path().to_owned()
    }
}

fn open(place: &str) -> Agent {
    Agent::open_at(place).unwrap()
}

#[cfg(feature = "etcd")]
fn open_driven(place: &str) -> Agent {
    let config = StoreConfig::at(place).unwrap();
    super::driven::drive(distlock::Driven::from_store(config).unwrap())
}

/// Agents with connections of their own.
struct Stored {
    agents: [Agent; 2],
    stranger: Agent,
    start: fn(&str) -> Agent,
    place: Place,
}

impl Stored {
    fn new(place: Place, start: fn(&str) -> Agent) -> Self {
        Self {
            agents: [(); 2].map(|()| start(&place.group("shop"))),
            stranger: start(&place.group("market")),
            start,
            place,
        }
    }
}

impl Group for Stored {
    fn agents(&self) -> [&Agent; 2] {
        self.agents.each_ref()
    }

    fn open(&self) -> Agent {
        (self.start)(&self.place.group("shop"))
    }

    fn stranger(&self) -> &Agent {
        &self.stranger
    }

    fn place(&self) -> (String, PathBuf) {
        (self.place.group("shop"), self.place.state())
    }
}

/// Clients of the host's agent, which has the connection.
struct Clients {
    agents: [Agent; 2],
    stranger: Agent,
    _host: Agent,
    socket: PathBuf,
    place: Place,
}

impl Clients {
    fn new(place: Place) -> Self {
        let socket = place.state().join("service");
        let config = StoreConfig::at(&place.group("shop")).unwrap();
        let config = config.with_socket(&socket).with_state_dir(place.state());
        let host = Agent::from_store(config).unwrap();
        Self {
            agents: [(); 2].map(|()| Agent::connect(&socket).unwrap()),
            stranger: open(&place.group("market")),
            _host: host,
            socket,
            place,
        }
    }
}

impl Group for Clients {
    fn agents(&self) -> [&Agent; 2] {
        self.agents.each_ref()
    }

    fn open(&self) -> Agent {
        Agent::connect(&self.socket).unwrap()
    }

    fn stranger(&self) -> &Agent {
        &self.stranger
    }

    fn place(&self) -> (String, PathBuf) {
        (
            format!("unix:{}", self.socket.display()),
            self.place.state(),
        )
    }
}
