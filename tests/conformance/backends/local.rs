//! The processes of one user on one host. Agents of one directory have open files of their own, and so
//! exclude each other as two processes do.

use std::path::PathBuf;

use distlock::Agent;
use tempfile::TempDir;

use crate::bench::{Backend, Group, Need};
use crate::killed::LOCAL;

pub(crate) const BACKEND: Backend = Backend {
    name: "local",
    lacks: &[
        (
            Need::Order,
            "who of two processes is next is the kernel's choice",
        ),
        (
            Need::NoOvertaking,
            "the kernel lets a reader in beside another whoever waits",
        ),
        (
            Need::News,
            "there is no agent that could tell: Election::observe is at its end at once",
        ),
    ],
    open: || {
        let [directory, elsewhere] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let open = |directory: &TempDir| Agent::local_in(directory.path()).unwrap();
        Some(Box::new(Local {
            agents: [open(&directory), open(&directory)],
            stranger: open(&elsewhere),
            directory,
            _elsewhere: elsewhere,
        }))
    },
};

struct Local {
    agents: [Agent; 2],
    stranger: Agent,
    directory: TempDir,
    _elsewhere: TempDir,
}

impl Group for Local {
    fn agents(&self) -> [&Agent; 2] {
        self.agents.each_ref()
    }

    fn open(&self) -> Agent {
        Agent::local_in(self.directory.path()).unwrap()
    }

    fn stranger(&self) -> &Agent {
        &self.stranger
    }

    fn place(&self) -> (String, PathBuf) {
        let path = self.directory.path();
        (format!("{LOCAL}{}", path.display()), path.to_owned())
    }
}
