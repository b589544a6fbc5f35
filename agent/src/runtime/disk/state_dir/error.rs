//! Why a state directory cannot be used, and what to do about it.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;

use super::record::VERSION;
use crate::protocol::{ClusterId, NodeId};
use crate::runtime::disk::trust::PathTrustError;

/// Why a state directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// Another process has it.
    #[error(
        "the state directory {} is in use by {}: this member already runs; end that process, or \
         give each member a state directory of its own", path.display(), process(*pid)
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The process, if it left its number.
        pid: Option<u32>,
    },
    /// The state file cannot be trusted.
    #[error(
        "the state file {} is damaged ({why}): remove it once every lock taken through this member \
         has been free for a lease, and the member begins as a new one; never put back an old copy, \
         and of several voters' files remove one at a time", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The state file is another member's.
    #[error(
        "the state file {} belongs to member {node} of group \"{group}\": give each member a \
         state directory of its own", path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its group.
        group: String,
        /// Its member.
        node: NodeId,
    },
    /// The state was copied from another machine, or this one was given another identity.
    #[error(
        "the state file {} was written on another machine (/etc/machine-id differs): a copied state \
         could vote twice; move it away, and the member joins as one that has lost its state",
        path.display()
    )]
    OtherMachine {
        /// The file.
        path: PathBuf,
    },
    /// The group has another name in the file than this member's state says.
    #[error(
        "this member was in group \"{before}\" ({}), and its configuration now says \"{now}\": the \
         other members may go on under the old name, and hold the same locks; put the name back, or, \
         when the group is renamed on every host and all its agents are stopped, remove that directory",
        path.display()
    )]
    Renamed {
        /// The state directory of the old name.
        path: PathBuf,
        /// The name there.
        before: String,
        /// The name in the configuration.
        now: String,
    },
    /// The configuration says that the silent are presumed gone, and the state that a majority
    /// decides.
    #[error(
        "the configuration says failure = \"presume-failed\", and this member is in cluster {cluster}, \
         in which a majority decides: two could hold a lock at once; put failure = \"quorum\" back, \
         or, when it is changed on every host and all agents are stopped, remove {}", path.display()
    )]
    HasQuorum {
        /// The state directory.
        path: PathBuf,
        /// The cluster.
        cluster: ClusterId,
    },
    /// The member remembers no cluster that could be abandoned.
    #[error(
        "this member remembers no cluster: name the one that is abandoned with --cluster, as \
         `distlock status` shows it on a member that remembers it; where none remembers one, there \
         is nothing to recover, and starting the agents founds the group"
    )]
    Unnamed {
        /// The state directory.
        path: PathBuf,
    },
    /// The state file was written by another version.
    #[error(
        "the state file {} {}", path.display(), Self::of_version(*version)
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u8,
    },
    /// Others could change the state, or have put something else in its place.
    #[error("the state directory is refused: {why}; {}", why.advice())]
    Unsafe {
        /// What lets them.
        why: PathTrustError,
    },
    /// The system refused.
    #[error("cannot {doing} {}: {source}{}", path.display(), advice(source))]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the system says.
        r#source: io::Error,
    },
}

impl From<PathTrustError> for StateError {
    fn from(why: PathTrustError) -> Self {
        match why {
            PathTrustError::Io { path, source } => Self::Io {
                doing: "look at",
                path,
                source,
            },
            why => Self::Unsafe { why },
        }
    }
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(
        || "another process".to_owned(),
        |pid| format!("process {pid}"),
    )
}

/// What to do about `error`, as the end of a message; empty if there is no advice.
pub(crate) fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EACCES | Errno::EPERM) => {
            "; run as the user who owns it, or choose another place"
        }
        Some(Errno::EROFS) => "; choose a place that can be written to",
        Some(Errno::ENOSPC | Errno::EDQUOT) => "; make room there, or choose another place",
        Some(Errno::ENOTDIR | Errno::EEXIST) => "; a file is in the way: choose another place",
        Some(Errno::EMFILE) => "; raise this process's limit of open files (ulimit -n)",
        Some(Errno::ENFILE) => "; the system's table of open files is full",
        _ => "",
    }
}
impl StateError {
    /// Why a state of another version is not read, and what to do.
    #[must_use]
    pub fn of_version(version: u8) -> String {
        let advice = if version > VERSION {
            "run the version that wrote it, or a later one"
        } else {
            "an earlier build wrote it: move it away, and the member joins the others as one that has lost \
             its state; only if all members have states of that build, end all agents, move all states \
             away, and start them together"
        };
        format!("has version {version}, and this program reads version {VERSION}: {advice}")
    }
}
