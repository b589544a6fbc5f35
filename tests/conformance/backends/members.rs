//! Groups of members over Unix datagrams, and clients of a member.

use std::fs;
use std::path::PathBuf;

use distlock::{Agent, Config, Driven, NodeConfig};
use tempfile::TempDir;

use super::driven::drive;
use crate::bench::{Backend, Group, await_begun};

/// Two that stay and vote, one that comes and goes, and one that is killed.
const PAIR: u16 = 4;
/// The one that comes and goes.
const SPARE: u16 = 3;

pub(crate) const MEMBERS: Backend = Backend {
    name: "members",
    lacks: &[],
    open: || Some(Box::new(Members::begin(start))),
};

pub(crate) const DRIVEN: Backend = Backend {
    name: "driven members",
    lacks: &[],
    open: || Some(Box::new(Members::begin(start_driven))),
};

pub(crate) const CLIENTS: Backend = Backend {
    name: "clients",
    lacks: &[],
    open: || {
        let group = Files::new(1);
        let socket = group.directory.path().join("service");
        let host = start(group.node(1).with_socket(&socket));
        let elsewhere = Files::new(1);
        Some(Box::new(Clients {
            agents: [(); 2].map(|()| Agent::connect(&socket).unwrap()),
            stranger: start(elsewhere.node(1)),
            socket,
            _host: host,
            group,
            _elsewhere: elsewhere,
        }))
    },
};

fn start(node: NodeConfig) -> Agent {
    Agent::from_config(node).unwrap()
}

fn start_driven(node: NodeConfig) -> Agent {
    drive(Driven::from_config(node).unwrap())
}

/// What is on disk of a group.
struct Files {
    directory: TempDir,
    config: Config,
}

impl Files {
    /// Members 1 to `size`, of whom the first two vote.
    fn new(size: u16) -> Self {
        // Short enough for addresses of Unix sockets.
        let directory = tempfile::Builder::new().prefix("dl").tempdir().unwrap();
        let path = directory.path().display();
        let voters = if size > 1 { "1, 2" } else { "1" };
        let mut text = format!("lease = \"3s\"\nvoters = [{voters}]\n[group]\nname = \"shop\"\n");
        for id in 1..=size {
            text += &format!("[[member]]\nid = {id}\naddress = \"unix:{path}/{id}\"\n");
        }
        fs::write(directory.path().join("shop.toml"), &text).unwrap();
        let config = Config::parse(&text).unwrap();
        Self { directory, config }
    }

    fn node(&self, id: u16) -> NodeConfig {
        self.config.node(id).unwrap().with_state_dir(self.state())
    }

    fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }
}

struct Members {
    agents: [Agent; 2],
    stranger: Agent,
    start: fn(NodeConfig) -> Agent,
    files: Files,
    _elsewhere: Files,
}

impl Members {
    fn begin(start: fn(NodeConfig) -> Agent) -> Self {
        let (files, elsewhere) = (Files::new(PAIR), Files::new(1));
        let [one, two, others @ ..] = [1, 2, SPARE, PAIR].map(|id| start(files.node(id)));
        let stranger = start(elsewhere.node(1));
        // All that are listed have to be there when the group begins; after that they may go.
        await_begun(&one);
        for other in others {
            other.close();
        }
        Self {
            agents: [one, two],
            stranger,
            start,
            files,
            _elsewhere: elsewhere,
        }
    }
}

impl Group for Members {
    fn agents(&self) -> [&Agent; 2] {
        self.agents.each_ref()
    }

    fn open(&self) -> Agent {
        (self.start)(self.files.node(SPARE))
    }

    fn stranger(&self) -> &Agent {
        &self.stranger
    }

    fn place(&self) -> (String, PathBuf) {
        let file = self.files.directory.path().join("shop.toml");
        (
            format!("file:{}#{PAIR}", file.display()),
            self.files.state(),
        )
    }
}

struct Clients {
    agents: [Agent; 2],
    stranger: Agent,
    socket: PathBuf,
    _host: Agent,
    group: Files,
    _elsewhere: Files,
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
        let place = format!("unix:{}", self.socket.display());
        (place, self.group.state())
    }
}
