//! Why a key file cannot be read or written, and what to do about it.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;

use crate::runtime::disk::state_dir;
use crate::runtime::disk::trust::PathTrustError;

/// Why a group's keys cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFileError {
    /// The system refused.
    #[error(
        "cannot read the key file {path}: {source}{}", advice(source), path = path.display()
    )]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        r#source: io::Error,
    },
    /// It is one of a service's credentials, and this process has none.
    #[error(
        "the key file {path} is one that systemd hands to a service, and CREDENTIALS_DIRECTORY is \
         not set: let the service have LoadCredential=, or give the path of a file",
        path = path.display()
    )]
    NoCredentials {
        /// As in the configuration.
        path: PathBuf,
    },
    /// It is a directory, a pipe or something else.
    #[error(
        "the key file {path} is no file: give the path of one that distlock keygen wrote",
        path = path.display()
    )]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// Nothing that keygen ever wrote is like it.
    #[error(
        "the key file {path} {what}: copy it again, or give the path of one that distlock keygen wrote",
        path = path.display()
    )]
    NotKeys {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Others may read or write it.
    #[error(
        "the key file {path} has mode {mode:04o}, so that others can read or change the key: chmod 600 it, \
         and replace the key if they might have",
        path = path.display()
    )]
    Loose {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It is another user's.
    #[error(
        "the key file {path} belongs to user {owner}, and this is user {user}: give it to the user \
         that runs the agent",
        path = path.display()
    )]
    Stranger {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who wants to read it.
        user: u32,
    },
    /// Others can put another file, or a link to one, in its place.
    #[error(
        "the key file {path} is refused: {why}; {}", why.advice(),
        path = path.display()
    )]
    Unsafe {
        /// The file.
        path: PathBuf,
        /// What lets them.
        why: PathTrustError,
    },
    /// There is something in it that is no key.
    #[error(
        "the key file {path}, line {line}: {why}",
        path = path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// There is no key in it.
    #[error(
        "the key file {path} has no key: distlock keygen writes a file with one",
        path = path.display()
    )]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// Why a new key cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyWriteError {
    /// There is something of that name.
    #[error(
        "{} is there already, and a key in it may be in use: choose another name, or remove it",
        path.display()
    )]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Others decide where it would be, or can put another one in its place.
    #[error("the key file {} is refused: {why}; {}", path.display(), why.advice())]
    Unsafe {
        /// The file.
        path: PathBuf,
        /// What lets them.
        why: PathTrustError,
    },
    /// The system refused.
    #[error("cannot write the key file {}: {source}{}", path.display(), advice_to_write(source))]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        r#source: io::Error,
    },
}

fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT) => "; distlock keygen writes one",
        Some(Errno::EACCES | Errno::EPERM) => {
            "; give it to the user that runs the agent, or have systemd hand it to the service \
             (LoadCredential=)"
        }
        Some(Errno::ENOTDIR | Errno::ELOOP | Errno::ENAMETOOLONG) => {
            "; give the path of one that distlock keygen wrote"
        }
        _ => match state_dir::advice(error) {
            "" => "; see what the system's log says about it, or copy the file again",
            told => told,
        },
    }
}

fn advice_to_write(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; make its directory first",
        io::ErrorKind::PermissionDenied => "; choose a directory of yours",
        _ => match state_dir::advice(error) {
            "" => "; choose another name, or another place",
            told => told,
        },
    }
}
