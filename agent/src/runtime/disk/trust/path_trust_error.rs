//! Why a path is not trusted, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

/// Why a path is not trusted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PathTrustError {
    /// Everybody may change what is in it.
    #[error("everybody can change what is in {} (mode {mode:04o})", path.display())]
    Open {
        /// The directory, or the file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// Whose it is, and so to change.
        owner: u32,
    },
    /// Where everybody may write, somebody was there first.
    #[error(
        "{} belongs to user {owner}, who can have planted it, as everybody may write beside it",
        path.display()
    )]
    Planted {
        /// What is there.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// Everybody may write to it, and it is another user's, who can replace what is in it.
    #[error(
        "user {owner} can replace what is in {}, which is that user's and everybody's to write to",
        path.display()
    )]
    Hosted {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// It is not there, and everybody can make it.
    #[error(
        "{} does not exist, and everybody may write to {} and make it (mode {mode:04o})",
        path.display(), above.display()
    )]
    Missing {
        /// What is not there.
        path: PathBuf,
        /// The directory it would be in.
        above: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It is another user's.
    #[error("{} belongs to user {owner}, neither this user nor root", path.display())]
    Stranger {
        /// What is there.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// Others may write to it.
    #[error("others may write to {} (mode {mode:04o})", path.display())]
    Writable {
        /// What is there.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// Whose it is, and so to change.
        owner: u32,
    },
    /// It is something else than it should be: a pipe, a symbolic link.
    #[error("{} is no {expected}", path.display())]
    OtherKind {
        /// What is there.
        path: PathBuf,
        /// What it should be.
        expected: &'static str,
    },
    /// Its symbolic links go in a circle, or are more than the kernel follows.
    #[error("too many symbolic links lead to {}", path.display())]
    Links {
        /// The path that has them.
        path: PathBuf,
    },
    /// The system does not let this process look.
    #[error("cannot look at {}: {source}", path.display())]
    Io {
        /// At what.
        path: PathBuf,
        /// What it says.
        r#source: io::Error,
    },
}

impl PathTrustError {
    /// What to do about it. What is not this user's to change, this does not say to.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Open { owner, .. } if may_change(*owner) => {
                "chmod o-w it, or choose a path elsewhere"
            }
            Self::Writable { owner, .. } if may_change(*owner) => {
                "chmod go-w it, or choose a path elsewhere"
            }
            Self::Open { owner: 0, .. } => {
                "ask root, whose it is, to chmod o-w it, or choose a path elsewhere"
            }
            Self::Writable { owner: 0, .. } => {
                "ask root, whose it is, to chmod go-w it, or choose a path below it or elsewhere"
            }
            Self::Open { .. } => {
                "ask the user whose it is to chmod o-w it, or choose a path elsewhere"
            }
            Self::Writable { .. } => {
                "ask the user whose it is to chmod go-w it, or choose a path elsewhere"
            }
            Self::Planted { .. } | Self::Hosted { .. } | Self::Stranger { .. } => {
                "choose a path in a directory of your own, or run as that user"
            }
            Self::Missing { .. } => "make it first, or choose a path elsewhere",
            Self::OtherKind { .. } => "remove it, or choose a path elsewhere",
            Self::Links { .. } => "name it without them, or choose a path elsewhere",
            Self::Io { .. } => "run as a user who may, or choose a path elsewhere",
        }
    }

    /// Whether there is nothing to look at.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    pub(super) fn io(path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io {
            path: path.to_owned(),
            source: source.into(),
        }
    }
}

/// Whether this process's user may change the mode of what is `owner`'s.
fn may_change(owner: u32) -> bool {
    let user = geteuid().as_raw();
    user == 0 || user == owner
}
