//! What was gathered: all that checks judge.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use distlock::status::{MemberState, MemberStatus, Status};
use distlock::{Address, Config, NodeConfig, NodeId};

use super::finding::Finding;

/// What was gathered. Whatever could not be looked at is `None`.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) file: File,
    pub(crate) node: Node,
    pub(crate) agent: Agent,
    /// The process that runs as this member.
    pub(crate) process: Option<Process>,
    pub(crate) keys: Keys,
    pub(crate) address: Option<AddressUse>,
    /// The ways to the other members that are on other hosts.
    pub(crate) routes: Vec<Route>,
    pub(crate) state: Option<StateDirectory>,
    pub(crate) host: Host,
    /// Whether the kernel takes this group's filter.
    pub(crate) filter: Option<Result<(), String>>,
}

/// The configuration.
#[derive(Debug, Default)]
pub(crate) enum File {
    #[default]
    Unknown,
    Refused(String),
    Read {
        path: PathBuf,
        config: Box<Config>,
        /// Why others than this user and root can change it, if they can, and what to do.
        writers: Option<(String, &'static str)>,
    },
}

/// This host's member, as the configuration has it.
#[derive(Debug, Default)]
pub(crate) enum Node {
    #[default]
    NoFile,
    NoId,
    /// The configuration has no such member.
    Refused(String),
    Known(Box<NodeConfig>),
}

/// This host's agent.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) socket: PathBuf,
    pub(crate) answer: Answer,
}

/// What came of asking it.
#[derive(Debug)]
pub(crate) enum Answer {
    /// There is no socket.
    Absent,
    /// There is one, and no process listens at it.
    Unserved,
    /// A process listens at it, and has not answered within this time.
    Silent(Duration),
    /// It may not be asked by this user.
    Forbidden(String),
    Refused(String),
    /// It is another member than the configuration's.
    Other {
        group: String,
        member: u16,
    },
    Status {
        status: Box<Status>,
        lease: Option<Duration>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// By SIGSTOP and its like.
    pub(crate) is_stopped: bool,
}

/// The keys in the file that the configuration names.
#[derive(Debug, Default)]
pub(crate) enum Keys {
    /// There is no configuration, or it names none.
    #[default]
    None,
    /// They are among a service's credentials, which it alone can read.
    Credential,
    /// The key file is another user's, and root uses no other user's key file.
    OfUser(u32),
    /// This user may not read them.
    Unreadable(String),
    Refused(String),
    Ids(Vec<String>),
}

/// The socket that has this member's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AddressUse {
    Free,
    /// A process has it, which is known by its number if this user may know it.
    Taken(Option<u32>),
    /// No socket of this host can have it.
    NotHere(String),
}

/// The way to a member on another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) member: NodeId,
    pub(crate) address: SocketAddr,
    pub(crate) path: Result<Path, String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    /// The interface that has the address that datagrams leave from, if one has.
    pub(crate) interface: Option<String>,
    /// How many bytes a packet may have, with its headers.
    pub(crate) mtu: u32,
}

/// Where this member's state is, or will be.
#[derive(Debug)]
pub(crate) struct StateDirectory {
    pub(crate) path: PathBuf,
    /// `None` if this user may not look.
    pub(crate) is_there: Option<bool>,
    pub(crate) is_in_memory: bool,
    /// Why an agent would refuse it, and what to do.
    pub(crate) refused: Option<(String, &'static str)>,
    /// How long each write took until it was on disk, or why that was not measured.
    pub(crate) writes: Result<Vec<Duration>, NotMeasured>,
}

/// Why no write was timed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotMeasured {
    /// The directory is made at the agent's first start.
    NotThere(PathBuf),
    /// This user may not write there.
    Forbidden(String),
    /// The system fails, as it would for an agent.
    Failed(String),
}

/// What does not depend on the group.
#[derive(Debug, Default)]
pub(crate) struct Host {
    pub(crate) clock_source: Option<String>,
    /// How many open files this member's process may have, or else one that is started from here.
    pub(crate) open_files: Option<u64>,
    /// `net.core.rmem_max`.
    pub(crate) rmem_max: Option<u64>,
    /// `net.core.optmem_max`.
    pub(crate) optmem_max: Option<u64>,
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            socket: PathBuf::new(),
            answer: Answer::Absent,
        }
    }
}

impl Facts {
    /// What this member's agent says.
    pub(crate) fn status(&self) -> Option<&Status> {
        match &self.agent.answer {
            Answer::Status { status, .. } => Some(status),
            _ => None,
        }
    }

    pub(crate) fn config(&self) -> Option<&Config> {
        match &self.file {
            File::Read { config, .. } => Some(config),
            File::Unknown | File::Refused(_) => None,
        }
    }

    pub(crate) fn node(&self) -> Option<&NodeConfig> {
        match &self.node {
            Node::Known(node) => Some(node),
            Node::NoFile | Node::NoId | Node::Refused(_) => None,
        }
    }

    /// The lease, by the configuration, or else as the agent has it.
    pub(crate) fn lease(&self) -> Option<Duration> {
        let told = match self.agent.answer {
            Answer::Status { lease, .. } => lease,
            _ => None,
        };
        self.config().map(|config| config.settings().lease).or(told)
    }

    /// This member's number, and all members, by the agent, or else by the configuration.
    pub(crate) fn members(&self) -> Option<(NodeId, BTreeMap<NodeId, Address>)> {
        if let Some(status) = self.status() {
            let member = |it: &MemberStatus| Some((NodeId::new(it.id)?, it.address.parse().ok()?));
            let members = status.members.iter().filter_map(member).collect();
            return Some((NodeId::new(status.member)?, members));
        }
        let node = self.node()?;
        Some((node.me(), node.members().clone()))
    }

    /// The check `id` needs an agent's word.
    pub(crate) fn without_agent(&self, id: &'static str) -> Finding {
        let advice = "see what is said of it above";
        Finding::skipped(id, "no agent of this member answers", advice)
    }

    /// The check `id` needs to know this host's member by its configuration.
    pub(crate) fn without_node(&self, id: &'static str) -> Finding {
        match &self.node {
            Node::NoId => Finding::skipped(
                id,
                "it is not known which member this host is",
                "say --id N, or set DISTLOCK_ID",
            ),
            _ => self.without_config(id),
        }
    }

    /// The check `id` needs the configuration.
    pub(crate) fn without_config(&self, id: &'static str) -> Finding {
        match &self.file {
            File::Unknown => {
                Finding::skipped(id, "no configuration", "name it with --config and --id")
            }
            File::Refused(_) | File::Read { .. } => Finding::skipped(
                id,
                "the configuration is refused",
                "see what is said of it above",
            ),
        }
    }
}

/// The members in `status` but the one that is asked.
pub(crate) fn others(status: &Status) -> impl Iterator<Item = &MemberStatus> {
    status
        .members
        .iter()
        .filter(|member| member.id != status.member)
}

/// The members in `status` that are not heard, or in no view with the one that is asked.
pub(crate) fn absent(status: &Status) -> impl Iterator<Item = &MemberStatus> {
    others(status).filter(|member| member.state != MemberState::Alive)
}
