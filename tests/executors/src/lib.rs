//! What the tests of futures share: agents in one process, each with a lock of the others.

use distlock::{Agent, Config, Mutex};
use tempfile::TempDir;

/// An agent, and what it needs.
pub struct Place {
    pub agent: Agent,
    /// Another way to its locks, as if by another process.
    pub other: Agent,
    _directory: TempDir,
}

/// Two of a local group.
pub fn local() -> Place {
    let directory = tempfile::tempdir().unwrap();
    Place {
        agent: Agent::local_in(directory.path()).unwrap(),
        other: Agent::local_in(directory.path()).unwrap(),
        _directory: directory,
    }
}

/// Two members over Unix datagrams.
pub fn group() -> Place {
    let directory = tempfile::Builder::new().prefix("dl").tempdir().unwrap();
    let path = directory.path().display();
    let mut text = "[group]\nname = \"shop\"\n".to_owned();
    for id in 1..=2 {
        text += &format!("[[member]]\nid = {id}\naddress = \"unix:{path}/{id}\"\n");
    }
    let config = Config::parse(&text).unwrap();
    let member = |id| {
        let state = directory.path().join(format!("state-{id}"));
        Agent::from_config(config.node(id).unwrap().with_state_dir(state)).unwrap()
    };
    Place {
        agent: member(1),
        other: member(2),
        _directory: directory,
    }
}

/// One of two ways to the lock `x`.
pub fn way(place: &Place, number: usize) -> Mutex {
    let agent = [&place.agent, &place.other][number % 2];
    agent.mutex("x").unwrap()
}
