//! The files of a state directory: which are opened, how new ones are made, and the lock.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};

use super::error::StateError;
use crate::runtime::disk::trust::{self, PathTrustError};

/// The file `lock` has a number of a process in it, and nothing more.
const MAX_LOCK_LEN: u64 = 32;

pub(super) fn create_dir(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    // From the top: each new name must survive a crash of the host as what will be inside does.
    let parent = path.parent().filter(|path| !path.as_os_str().is_empty());
    parent.map_or(Ok(()), create_dir)?;
    match DirBuilder::new().mode(0o700).create(path) {
        // Another process was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        made => made?,
    }
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// The lock is on a file of its own, which is never replaced, as `state` is each time.
/// It holds the number of the process, for the message that the next one prints.
pub(super) fn lock_dir(path: &Path, keeper: Option<u32>) -> Result<Flock<File>, StateError> {
    let lock_path = path.join("lock");
    let failed = |source| StateError::Io {
        doing: "lock",
        path: lock_path.clone(),
        source,
    };
    let file = open_or_make(&lock_path, keeper).map_err(|why| refused(why, failed))?;
    if file.metadata().map_err(failed)?.len() > MAX_LOCK_LEN {
        // It would be lost: it is something else that was put here.
        let why = PathTrustError::OtherKind {
            path: lock_path,
            expected: "lock of a state directory",
        };
        return Err(why.into());
    }
    let mut lock =
        Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(file, errno)| {
            if errno == Errno::EWOULDBLOCK {
                StateError::InUse {
                    path: path.to_owned(),
                    pid: read_pid(file),
                }
            } else {
                failed(errno.into())
            }
        })?;
    lock.set_len(0)
        .and_then(|()| writeln!(lock, "{}", std::process::id()))
        .map_err(failed)?;
    Ok(lock)
}

/// Opens the file that is there, or makes one, `keeper`'s if there is a keeper. What was there stays
/// whose it is.
fn open_or_make(path: &Path, keeper: Option<u32>) -> Result<File, PathTrustError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    match open_file(&mut options, path, keeper) {
        Err(missing) if missing.is_missing() => {}
        opened => return opened,
    }
    let made = options.clone().create_new(true).mode(0o600).open(path);
    match made.and_then(|file| give(&file, keeper).map(|()| file)) {
        // Another process was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            open_file(&mut options, path, keeper)
        }
        made => made.map_err(|source| PathTrustError::Io {
            path: path.to_owned(),
            source,
        }),
    }
}

/// Opens a file of the state directory, which must be root's, this user's or `keeper`'s, nobody
/// else's to write to, and under this name only: of another one somebody else may have the use, and
/// a keeper can have linked root's here.
pub(super) fn open_file(
    options: &mut OpenOptions,
    path: &Path,
    keeper: Option<u32>,
) -> Result<File, PathTrustError> {
    let (file, metadata) = trust::open(options, path)?;
    match trust::file(path, &metadata) {
        Err(PathTrustError::Stranger { owner, .. }) if Some(owner) == keeper => {}
        checked => checked?,
    }
    if metadata.nlink() != 1 {
        return Err(PathTrustError::OtherKind {
            path: path.to_owned(),
            expected: "regular file with one name",
        });
    }
    Ok(file)
}

/// Leaves `file` to `keeper`, if there is one. Not asked for in vain: services may be forbidden to.
pub(super) fn give(file: &File, keeper: Option<u32>) -> io::Result<()> {
    keeper.map_or(Ok(()), |keeper| fchown(file, Some(keeper), None))
}

/// What the system refuses is told as `failed` has it.
pub(super) fn refused(
    why: PathTrustError,
    failed: impl FnOnce(io::Error) -> StateError,
) -> StateError {
    match why {
        PathTrustError::Io { source, .. } => failed(source),
        why => why.into(),
    }
}

fn read_pid(mut file: File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(MAX_LOCK_LEN).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Whether what is written there is lost at a reboot. If the system does not say, it is not.
pub(super) fn is_forgetful(path: &Path) -> bool {
    statfs(path).is_ok_and(|fs| fs.filesystem_type() == TMPFS_MAGIC)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    /// Agents that are started at the same time each find no file, and one of them makes it.
    #[test]
    fn a_file_that_several_make_at_once_is_opened_by_all() {
        let place = tempfile::tempdir().unwrap();
        let begin = Barrier::new(4);
        for round in 0..100 {
            let path = place.path().join(round.to_string());
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        begin.wait();
                        open_or_make(&path, None).unwrap();
                    });
                }
            });
        }
    }
}
