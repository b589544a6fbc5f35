//! Why no agent could be opened.

use std::io;
use std::path::PathBuf;

use distlock_agent::protocol::NodeId;

use super::advice::{advice, is_file_limit};
use crate::config::ConfigError;

/// Why no [`Agent`](crate::Agent) could be opened.
///
/// ```
/// use distlock::{Agent, DirectoryFault, OpenError};
///
/// let refused = Agent::connect("/nonexistent/distlock.sock").unwrap_err();
/// assert!(matches!(refused, OpenError::Unreachable { .. }));
/// // A directory that another user could replace.
/// let refused = Agent::local_in("/tmp").unwrap_err();
/// assert!(matches!(
///     refused,
///     OpenError::Directory { fault: DirectoryFault::Writable { .. } | DirectoryFault::Stranger { .. }, .. }
/// ));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The configuration is refused.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The local group's directory is not safe to use.
    #[error(
        "the local group's directory {path} is refused: {fault}; {}", fault.advice(),
        path = path.display()
    )]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        fault: DirectoryFault,
    },
    /// The system refuses this process something.
    #[error("{what}: {source}; {hint}")]
    Permission {
        /// What was tried, with the path or address.
        what: String,
        /// What the system says.
        r#source: io::Error,
        /// What to do.
        hint: String,
    },
    /// Another socket has the member's address.
    #[error(
        "the address {address} is in use: {source}; end that process, or, if it is this host's \
         agent, use it (Agent::open), or be another member, with an address of its own"
    )]
    AddressInUse {
        /// The address, as in the configuration.
        address: String,
        /// What the system says.
        r#source: io::Error,
    },
    /// Another agent serves the programs of this host at the socket.
    #[error(
        "another agent serves at {socket}{}; use that agent, end it, or serve at another socket",
        pid.map(|pid| format!(" (process {pid})")).unwrap_or_default(), socket = socket.display()
    )]
    SocketInUse {
        /// The socket's path.
        socket: PathBuf,
        /// The process that serves there, where it could be found.
        pid: Option<u32>,
    },
    /// The members' addresses are not those of a group with this member on this host.
    #[error("{reason}")]
    Address {
        /// What is wrong, why, and what to do.
        reason: String,
    },
    /// The group's keys are refused.
    #[error("{reason}")]
    Keys {
        /// What is wrong, why, and what to do.
        reason: String,
    },
    /// Others could have put, or could replace, what this process was to use.
    #[error("{reason}")]
    Unsafe {
        /// What is wrong, why, and what to do.
        reason: String,
    },
    /// A process already runs as this member.
    #[error(
        "member {id} already runs on this host (its state is in {state}); use its socket, or end \
         it first", state = state.display()
    )]
    AlreadyRunning {
        /// The member.
        id: NodeId,
        /// The member's state directory.
        state: PathBuf,
    },
    /// An agent of the same store and group already serves the programs of this host.
    #[error(
        "an agent of this store and group already runs on this host (its state is in {state}); use its \
         socket, or end it first", state = state.display()
    )]
    AgentRunning {
        /// The agent's state directory.
        state: PathBuf,
    },
    /// No agent answers at the socket.
    #[error(
        "no agent answers at {socket}: {source}; start `distlock agent`, or name another socket",
        socket = socket.display()
    )]
    Unreachable {
        /// The socket's path.
        socket: PathBuf,
        /// What the system says.
        r#source: io::Error,
    },
    /// What answers at the socket speaks another version of the agents' protocol.
    #[error(
        "what answers at {socket} is no agent of this build of distlock: after an upgrade restart \
         the agent; or name another socket", socket = socket.display()
    )]
    OtherBuild {
        /// The socket's path.
        socket: PathBuf,
    },
    /// This host is in a configured group, and nobody serves the socket of its agent. The local
    /// group is not used in its place, where it would exclude nobody in the configured one.
    #[error(
        "no agent answers at {socket}: {source}, and this host is in a configured group, as {0} \
         shows; start the agent; or, if the host has left that group, remove {0}; or ask for the \
         local group (--local, Agent::local, DISTLOCK_LOCAL)",
        paths(evidence), socket = socket.display()
    )]
    HostGroup {
        /// Where the agent of this host is looked for.
        socket: PathBuf,
        /// What the system says.
        r#source: io::Error,
        /// The paths that show that this host is in a configured group.
        evidence: Vec<PathBuf>,
    },
    /// What was asked for, or what the environment says, names no group, or two.
    #[error("{reason}")]
    Options {
        /// What is wrong, why, and what to do.
        reason: String,
    },
    /// A store does not answer, or refuses.
    #[error("the store {store}: {reason}; see that it runs and that this user may use it")]
    Store {
        /// Where it is.
        store: String,
        /// What it says, or that it says nothing.
        reason: String,
    },
    /// The agent has as many clients as it can have, in all or of this process, or has too few
    /// descriptors for another.
    #[error(
        "the agent at {socket} has too many clients; close some if this process has 1024, end some \
         or try later if there are 4096, or else raise the limit of open files of the agent \
         (ulimit -n)",
        socket = socket.display()
    )]
    TooManyClients {
        /// The socket's path.
        socket: PathBuf,
    },
    /// A file of the group, or of the member's state, is not what it should be.
    #[error("{path} cannot be used: {reason}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A [`Driven`](crate::Driven) agent was to serve the programs of its host.
    #[error(
        "an agent that its application drives serves no other programs; leave its socket out, or \
         let it have a thread (Agent::from_config)"
    )]
    NoService,
    /// This process, or the system, has too many open files.
    #[error("{what}: {source}; close some, or raise the limit (ulimit -n)")]
    TooManyFiles {
        /// What was tried.
        what: String,
        /// What the system says.
        r#source: io::Error,
    },
    /// The system failed otherwise.
    #[error("{what}: {source}; {}", advice(source))]
    Io {
        /// What was tried, with the path or address.
        what: String,
        /// What the system says.
        r#source: io::Error,
    },
}

impl OpenError {
    /// Sorts `source` into the fitting variant; `hint` says what to do where access is refused.
    pub(crate) fn io(what: impl Into<String>, source: io::Error, hint: &str) -> Self {
        let what = what.into();
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::Permission {
                    what,
                    source,
                    hint: hint.to_owned(),
                }
            }
            _ if is_file_limit(&source) => Self::TooManyFiles { what, source },
            _ => Self::Io { what, source },
        }
    }
}

/// As a list for a message.
fn paths(paths: &[PathBuf]) -> String {
    let paths: Vec<_> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    paths.join(" and ")
}

/// For conversions into a configuration that cannot fail.
impl From<std::convert::Infallible> for OpenError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

/// What is wrong with the local group's directory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryFault {
    /// It is a symbolic link, which may lead elsewhere tomorrow.
    #[error("it is a symbolic link")]
    Symlink,
    /// There is something else of that name.
    #[error("it is not a directory")]
    NotADirectory,
    /// Somebody else could replace the locks in it.
    #[error("it belongs to user {owner}, and this process is user {user}")]
    Stranger {
        /// Whose it is.
        owner: u32,
        /// Whose this process is.
        user: u32,
    },
    /// Others may write in it.
    #[error("others may write in it (mode {mode:03o}, at most 755 is allowed)")]
    Writable {
        /// Its mode.
        mode: u32,
    },
    /// Others may replace it, or a directory above it.
    #[error("{why}")]
    Replaceable {
        /// What lets them.
        why: String,
    },
}

impl DirectoryFault {
    /// What to do. What is not this user's to remove or change, this does not say to.
    fn advice(&self) -> &'static str {
        match self {
            Self::Symlink => "remove the link, or set DISTLOCK_DIR to a directory of yours",
            Self::Stranger { .. } => {
                "have its owner or root remove it, or set DISTLOCK_DIR to a directory of yours"
            }
            Self::NotADirectory | Self::Replaceable { .. } => {
                "set DISTLOCK_DIR to a directory of yours"
            }
            Self::Writable { .. } => {
                "set DISTLOCK_DIR to a directory of yours alone, or, if this is one, chmod go-w it"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advises_nobody_to_remove_a_directory_of_others() {
        let text = OpenError::Directory {
            path: "/tmp".into(),
            fault: DirectoryFault::Writable { mode: 0o777 },
        }
        .to_string();
        assert!(!text.contains("remove"), "{text}");
        assert!(text.contains("set DISTLOCK_DIR"), "{text}");
    }
}
