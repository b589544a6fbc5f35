//! Why a configuration is refused.

use std::io;
use std::path::PathBuf;

use distlock_agent::protocol::NodeId;

/// What is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error(
        "the configuration {path} cannot be read: {source}; {}", reading(source),
        path = path.display()
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        r#source: io::Error,
    },
    /// The text says what it may not.
    #[error("{source_name}:{line}: {reason}")]
    Invalid {
        /// The file.
        source_name: String,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong, why, and what to do.
        reason: String,
    },
    /// The locks are kept in a store, and nobody is a member.
    #[error(
        "{source_name} keeps the locks in a store, and has no members; leave out which member this \
         is (--id, DISTLOCK_ID)"
    )]
    NoMembers {
        /// The file.
        source_name: String,
    },
    /// There is no such member.
    #[error(
        "{source_name} has no member {id}; choose one of {}, or add a [[member]]",
        list(members)
    )]
    NoSuchMember {
        /// The file.
        source_name: String,
        /// The member that was asked for.
        id: u16,
        /// Those that there are.
        members: Vec<NodeId>,
    },
}

/// What to do about a file that cannot be read.
fn reading(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            "correct its name, or write it: distlock.toml(5)"
        }
        io::ErrorKind::PermissionDenied => "run as a user who may read it, or let this one",
        io::ErrorKind::IsADirectory => "name the file in it",
        io::ErrorKind::InvalidInput => "name the file itself",
        _ => "see to it that it is a file that can be read",
    }
}

fn list(ids: &[NodeId]) -> String {
    ids.iter()
        .map(NodeId::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}
