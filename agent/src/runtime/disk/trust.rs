//! Whom a path is trusted to: whether others than root and this process's user decide what is found
//! there.
//!
//! Who may write to a directory may replace what is in it, and so everything below. A path is
//! therefore looked at from the root on, and each step is taken in a directory that was found
//! passable before. What only trusted users can change by then stays what was seen, and may be used
//! by its name. What else there is of the way may change between the look and the use, by the hand of
//! those whom its directories let in, and is trusted to them:
//!
//! - A directory that everybody may write to is let through only if it is sticky and root's or this
//!   user's, as `/tmp` is, and then what is looked up in it must be root's or this user's: others
//!   cannot replace that, but they may have made theirs first. It may be a directory, a symbolic
//!   link, a socket, a file.
//! - Else the directories on the way may be another user's, or a group's to write to, and those can
//!   then replace what is below, the directory itself that is asked for included. Nobody led this
//!   process there but who named the path, and who names one below another user's directory trusts
//!   that user and whom he lets in. Root in a user's checkout does; private groups (umask 002),
//!   Debian's `staff` and the volumes of containers are common, and whether a group has one member
//!   no mode tells. To refuse them would only teach people to run with less checks.
//! - The directory itself that has state, locks or members' sockets in it must be root's or this
//!   user's, and nobody else may write to it, no group either ([`directory`]).

mod path_trust_error;
#[cfg(test)]
mod tests;
mod users;
mod walk;

use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::errno::Errno;

pub use path_trust_error::PathTrustError;
pub use users::is_trusted;
use users::{EVERYBODY, OTHERS};
use walk::{Way, look};

/// Looks at everything on the way to `path`, and at what is there, which it returns. Symbolic links
/// are followed.
///
/// # Errors
/// If somebody else can have decided what is there, or there is nothing.
pub fn way(path: &Path) -> Result<Metadata, PathTrustError> {
    let Way {
        metadata, missing, ..
    } = look(path)?;
    missing.map_or(Ok(metadata), Err)
}

/// Looks at what there is of the way to `path`, before what is missing is made there.
///
/// # Errors
/// If somebody else can have decided where that would be.
pub fn way_so_far(path: &Path) -> Result<(), PathTrustError> {
    look(path).map(drop)
}

/// Checks `path` as a directory in which nobody but root and this user can put or remove anything.
///
/// # Errors
/// If others can, or could replace it, or it is no directory.
pub fn directory(path: &Path) -> Result<(), PathTrustError> {
    let metadata = own_directory(path)?;
    alone(path, &metadata)
}

/// Checks `path` as [`directory`] does, if it is there; if not, that not everybody can make it.
///
/// # Errors
/// If others can decide what is in it, or will be, or it is no directory.
pub(crate) fn directory_to_be(path: &Path) -> Result<(), PathTrustError> {
    let Way {
        path: above,
        metadata,
        missing,
    } = look(path)?;
    if missing.is_none() {
        return directory(path);
    }
    if metadata.mode() & EVERYBODY == 0 {
        return Ok(());
    }
    Err(PathTrustError::Missing {
        path: path.to_owned(),
        above,
        mode: metadata.mode() & 0o7777,
    })
}

/// Checks `path` as [`directory`] does, but it may be another user's alone, whom it returns then.
///
/// # Errors
/// If others than its owner and root can put or remove anything, or it is no directory.
pub(crate) fn directory_of_one(path: &Path) -> Result<Option<u32>, PathTrustError> {
    let metadata = any_directory(path)?;
    alone(path, &metadata)?;
    let owner = metadata.uid();
    Ok((!is_trusted(owner)).then_some(owner))
}

/// Checks `path` as a directory of root's or of this user's, from which others cannot remove what
/// this user has put there. They may be able to put things of theirs beside it.
///
/// # Errors
/// If others can, or could replace it, or it is no directory.
pub fn own_directory(path: &Path) -> Result<Metadata, PathTrustError> {
    let metadata = any_directory(path)?;
    owned(path, &metadata)?;
    Ok(metadata)
}

/// Whether `user` can be believed to be the one who serves a socket in the directory `path`, of
/// which root asks. Root may use what is another user's, but not what anybody can have put there.
///
/// # Errors
/// If others than root and `user` can.
pub(crate) fn directory_of(user: u32, path: &Path) -> Result<(), PathTrustError> {
    let metadata = way(path)?;
    if metadata.uid() != user {
        owned(path, &metadata)?;
    }
    alone(path, &metadata)
}

/// Opens the file itself, no link to another, and without waiting should it be a pipe.
///
/// # Errors
/// If it is a link, or the system refuses.
pub fn open(options: &mut OpenOptions, path: &Path) -> Result<(File, Metadata), PathTrustError> {
    let opened = options
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path);
    match opened.and_then(|file| Ok((file.metadata()?, file))) {
        Ok((metadata, file)) => Ok((file, metadata)),
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => Err(PathTrustError::OtherKind {
            path: path.to_owned(),
            expected: "regular file",
        }),
        Err(error) => Err(PathTrustError::io(path, error)),
    }
}

/// Checks what was opened as `path` as a file that only root and this user can have written.
///
/// # Errors
/// If others can have.
pub fn file(path: &Path, metadata: &Metadata) -> Result<(), PathTrustError> {
    regular(path, metadata)?;
    owned(path, metadata)?;
    alone(path, metadata)
}

/// Checks what was opened as `path` as a regular file that not everybody can write to. Whose it is,
/// and of which group, does not matter.
///
/// # Errors
/// If it is something else, or everybody can.
pub fn shared_file(path: &Path, metadata: &Metadata) -> Result<(), PathTrustError> {
    regular(path, metadata)?;
    if metadata.mode() & EVERYBODY == 0 {
        return Ok(());
    }
    Err(PathTrustError::Open {
        path: path.to_owned(),
        mode: metadata.mode() & 0o7777,
        owner: metadata.uid(),
    })
}

/// Tells in the log if others than root and this user could have written the configuration that
/// was opened as `path`. A group may: who shares a file so means to.
pub fn tell_of_writers(path: &Path, metadata: &Metadata) {
    let checked = owned(path, metadata)
        .and_then(|()| shared_file(path, metadata))
        .and_then(|()| way(path).map(drop));
    match checked {
        Ok(()) | Err(PathTrustError::Io { .. }) => {}
        Err(why) => tracing::warn!(
            event = "configuration-writable",
            "others can change the configuration, and so whom this member believes: {why}; {}",
            why.advice()
        ),
    }
}

/// Checks whose it is that was found at `path`.
///
/// # Errors
/// If it is neither root's nor this user's.
pub fn owned(path: &Path, metadata: &Metadata) -> Result<(), PathTrustError> {
    if is_trusted(metadata.uid()) {
        return Ok(());
    }
    Err(PathTrustError::Stranger {
        path: path.to_owned(),
        owner: metadata.uid(),
    })
}

fn regular(path: &Path, metadata: &Metadata) -> Result<(), PathTrustError> {
    if metadata.is_file() {
        return Ok(());
    }
    Err(PathTrustError::OtherKind {
        path: path.to_owned(),
        expected: "regular file",
    })
}

fn any_directory(path: &Path) -> Result<Metadata, PathTrustError> {
    let metadata = way(path)?;
    if metadata.is_dir() {
        return Ok(metadata);
    }
    Err(PathTrustError::io(path, Errno::ENOTDIR))
}

fn alone(path: &Path, metadata: &Metadata) -> Result<(), PathTrustError> {
    if metadata.mode() & OTHERS == 0 {
        return Ok(());
    }
    Err(PathTrustError::Writable {
        path: path.to_owned(),
        mode: metadata.mode() & 0o7777,
        owner: metadata.uid(),
    })
}
