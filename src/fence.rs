//! The resource's side of a lock: a file that remembers the highest fence.
//!
//! One line of text, replaced as a whole under another file's lock: written under a name of its
//! own, synced, renamed, and the directory synced. So a crash at any moment leaves the old line or
//! the new one, and a checker that has said yes has its fence on the disk. The lock is on a file
//! beside it that stays: the file itself is another one after each rename.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use distlock_agent::protocol::Fence;
use distlock_agent::runtime::clock;
use distlock_agent::runtime::trust::{self, PathTrustError};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// What the line begins with; the number is the format's.
const MAGIC: &str = "distlock-fence 1";
/// How often one that waits looks whether it is its turn.
const LOOK: Duration = Duration::from_millis(2);
/// No such file is longer: more is not read into memory.
const MAX_LEN: u64 = 128;

/// Refuses fences that are lower than one it has seen, over restarts and among processes.
///
/// A lock alone keeps out processes that ask for it in time. A holder that was held up until its
/// lease had expired still writes, unless the resource looks: a holder hands the resource its
/// [`Guard::fence`](crate::Guard::fence), and the resource does what it is asked only if
/// [`check`](FenceChecker::check) lets it.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use distlock::{Fence, FenceChecker, FenceError};
///
/// let directory = tempfile::tempdir()?;
/// let checker = FenceChecker::new(directory.path().join("printer.fence"));
/// let (old, new) = (Fence::new(7).unwrap(), Fence::new(8).unwrap());
/// checker.check(new)?;
/// checker.check(new)?;
/// assert!(matches!(checker.check(old), Err(FenceError::Refused { highest, .. }) if highest == new));
/// # Ok(())
/// # }
/// ```
///
/// The file is one of its own for each resource, on a file system of one host: an NFS client's
/// locks are not counted on. A group may share it, but what everybody can change is refused. Beside
/// it are `FILE.lock`, which stays, and for a moment `FILE.new`.
/// Checking what was checked and doing it are two steps: where a slower holder may come between
/// them, the resource does both under a lock of its own, or checks once more at the end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FenceChecker {
    file: PathBuf,
}

/// Why a fence was not let through. In doubt it is not.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// It is lower than one that was seen: its holder has lost the lock.
    #[error(
        "fence {fence} is refused: {} has seen {highest}, so that another was inside since; take \
         the lock anew", file.display()
    )]
    Refused {
        /// The fence.
        fence: Fence,
        /// The highest that was seen.
        highest: Fence,
        /// Where that is kept.
        file: PathBuf,
    },
    /// The file does not hold what was written to it. It is never taken for empty: a lower fence
    /// could come through.
    #[error(
        "{} is no file of fences: {why}; restore it, or remove it if no holder of before can be left",
        file.display()
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        why: &'static str,
    },
    /// Others could make it forget what it has seen.
    #[error("the file of fences is refused: {why}; {}", why.advice())]
    Unsafe {
        /// What lets them.
        why: PathTrustError,
    },
    /// Another has had the lock beside the file for too long: it checks for as long, stands still,
    /// or only keeps it.
    #[error(
        "cannot check against {}: another process has had {} locked for {} s; find it with fuser(1), \
         and end it", file.display(), lock.display(), FenceChecker::PATIENCE.as_secs()
    )]
    Busy {
        /// The file of fences.
        file: PathBuf,
        /// The one that is locked.
        lock: PathBuf,
    },
    /// The system refuses.
    #[error("cannot {doing} {}: {source}; see that it can be written, and its directory", file.display())]
    Io {
        /// What it was asked for.
        doing: &'static str,
        /// Which file.
        file: PathBuf,
        /// What it says.
        r#source: io::Error,
    },
}

impl From<PathTrustError> for FenceError {
    fn from(why: PathTrustError) -> Self {
        match why {
            PathTrustError::Io { path, source } => Self::Io {
                doing: "find",
                file: path,
                source,
            },
            why => Self::Unsafe { why },
        }
    }
}

impl FenceChecker {
    /// How long a check waits for others that check.
    pub const PATIENCE: Duration = Duration::from_secs(10);

    /// Keeps the highest fence in `file`, which is made by the first check. Its directory must be
    /// there. Does nothing yet.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into() }
    }

    /// Lets `fence` through if it is not lower than any that was let through before, by whatever
    /// process; then it is on the disk. Waits for others that check at the same moment, for
    /// [`FenceChecker::PATIENCE`] at most.
    ///
    /// # Errors
    /// If it is lower, or that cannot be known (in time), or it cannot be kept.
    pub fn check(&self, fence: Fence) -> Result<(), FenceError> {
        let place = Place::of(&self.file)?;
        let _lock = place.lock()?;
        match place.read()? {
            Some((highest, _)) if fence < highest => Err(FenceError::Refused {
                fence,
                highest,
                file: place.file,
            }),
            // Who wrote it may have crashed before it was on the disk.
            Some((highest, file)) if fence == highest => place.sync(&file),
            Some((_, file)) => place.write(fence, Some(&file)),
            None => place.write(fence, None),
        }
    }

    /// The highest fence that was let through; `None` if there was none.
    ///
    /// # Errors
    /// If that cannot be known.
    pub fn highest(&self) -> Result<Option<Fence>, FenceError> {
        let place = Place::of(&self.file)?;
        Ok(place.read()?.map(|(highest, _)| highest))
    }
}

/// Where the file is, whatever name it was called by.
struct Place {
    file: PathBuf,
    directory: PathBuf,
}

impl Place {
    /// Follows symbolic links: all who mean one file must lock the same, and a link must not be
    /// replaced by a file of its own.
    fn of(file: &Path) -> Result<Self, FenceError> {
        let failed = |source| FenceError::Io {
            doing: "find",
            file: file.to_owned(),
            source,
        };
        let damaged = |why| FenceError::Damaged {
            file: file.to_owned(),
            why,
        };
        let name = file
            .file_name()
            .ok_or_else(|| damaged("it names a directory"))?;
        trust::way_so_far(file)?;
        let file = match fs::canonicalize(file) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if fs::symlink_metadata(file).is_ok() {
                    return Err(damaged("it is a symbolic link to nothing"));
                }
                let parent = file
                    .parent()
                    .filter(|parent| !parent.as_os_str().is_empty());
                let parent = parent.unwrap_or(Path::new("."));
                fs::canonicalize(parent).map_err(failed)?.join(name)
            }
            Err(error) => return Err(failed(error)),
        };
        let directory = file
            .parent()
            .ok_or_else(|| damaged("it names a directory"))?;
        Ok(Self {
            directory: directory.to_owned(),
            file,
        })
    }

    fn failed(&self, doing: &'static str) -> impl Fn(io::Error) -> FenceError {
        let file = self.file.clone();
        move |source| FenceError::Io {
            doing,
            file: file.clone(),
            source,
        }
    }

    /// The name with something added.
    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.file.clone().into_os_string();
        name.push(suffix);
        name.into()
    }

    /// One checker at a time. Freed when it is dropped, and by the kernel if the process dies.
    fn lock(&self) -> Result<Flock<OwnedFd>, FenceError> {
        let path = self.beside(".lock");
        let failed = |source| FenceError::Io {
            doing: "lock",
            file: path.clone(),
            source,
        };
        let mut options = OpenOptions::new();
        // Who may read it could keep it locked.
        options.read(true).write(true).create(true).mode(0o660);
        let file = options
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(&path)
            .map_err(failed)?;
        trust::way(&path)?;
        trust::shared_file(&path, &file.metadata().map_err(failed)?)?;
        let mut fd = OwnedFd::from(file);
        let deadline = clock::now() + FenceChecker::PATIENCE;
        loop {
            // Who waits in the kernel cannot be told when the time is over.
            match Flock::lock(fd, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Ok(lock),
                Err((back, Errno::EWOULDBLOCK | Errno::EINTR)) => fd = back,
                Err((_, errno)) => return Err(failed(errno.into())),
            }
            if clock::now() >= deadline {
                let file = self.file.clone();
                return Err(FenceError::Busy { file, lock: path });
            }
            clock::sleep(LOOK);
        }
    }

    /// The highest fence, and the file it is in; `None` if there is no file.
    fn read(&self) -> Result<Option<(Fence, File)>, FenceError> {
        let damaged = |why| FenceError::Damaged {
            file: self.file.clone(),
            why,
        };
        let mut options = OpenOptions::new();
        // Without waiting for what is no file, a pipe for example.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let mut file = match options.read(true).custom_flags(flags).open(&self.file) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed("open")(error)),
        };
        let metadata = file.metadata().map_err(self.failed("look at"))?;
        if !metadata.is_file() {
            return Err(damaged("it is not a regular file"));
        }
        if metadata.nlink() > 1 {
            return Err(damaged(
                "it has several names, of which only one would be kept up",
            ));
        }
        trust::shared_file(&self.file, &metadata)?;
        let mut text = String::new();
        let read = (&mut file).take(MAX_LEN + 1).read_to_string(&mut text);
        match read {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(damaged("it is no text"));
            }
            Err(error) => return Err(self.failed("read")(error)),
        }
        let fence = decode(&text).ok_or_else(|| {
            damaged(if text.is_empty() {
                "it is empty"
            } else {
                "it does not hold one whole line of ours"
            })
        })?;
        Ok(Some((fence, file)))
    }

    /// Puts `fence` in the place of what there is. The new file has the owner of the old one.
    fn write(&self, fence: Fence, old: Option<&File>) -> Result<(), FenceError> {
        let new = self.beside(".new");
        let written = self.write_new(&new, fence, old);
        if written.is_err() {
            // What a full disk left half written is of no use to anybody.
            let _ = fs::remove_file(&new);
        }
        written.map_err(|source| FenceError::Io {
            doing: "write",
            file: new,
            source,
        })
    }

    fn write_new(&self, new: &Path, fence: Fence, old: Option<&File>) -> io::Result<()> {
        match fs::remove_file(new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o664).open(new)?;
        if let Some(old) = old {
            let (was, is) = (old.metadata()?, file.metadata()?);
            if (was.uid(), was.gid()) != (is.uid(), is.gid()) {
                fchown(file.as_fd(), Some(was.uid()), Some(was.gid()))?;
            }
            file.set_permissions(fs::Permissions::from_mode(was.mode() & 0o7777))?;
        }
        file.write_all(encode(fence).as_bytes())?;
        file.sync_all()?;
        fs::rename(new, &self.file)?;
        File::open(&self.directory)?.sync_all()
    }

    fn sync(&self, file: &File) -> Result<(), FenceError> {
        let directory = || File::open(&self.directory)?.sync_all();
        file.sync_all()
            .and_then(|()| directory())
            .map_err(self.failed("sync"))
    }
}

fn checksum(fence: &str) -> String {
    let hash = blake3::hash(format!("{MAGIC} {fence}").as_bytes());
    hash.to_hex()[..16].to_owned()
}

fn encode(fence: Fence) -> String {
    let fence = fence.to_string();
    format!("{MAGIC} {fence} {}\n", checksum(&fence))
}

fn decode(text: &str) -> Option<Fence> {
    let line = text.strip_prefix(MAGIC)?.strip_prefix(' ')?;
    let (fence, check) = line.strip_suffix('\n')?.split_once(' ')?;
    let right = check == checksum(fence);
    fence.parse().ok().filter(|_| right)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fence(value: u64) -> Fence {
        Fence::new(value).unwrap()
    }

    /// Byte for byte: what is on disks must stay readable.
    #[test]
    fn the_line_is_golden() {
        let line = encode(fence(4_294_967_297));
        assert_eq!(line, GOLDEN);
        assert_eq!(decode(&line), Some(fence(4_294_967_297)));
    }
    const GOLDEN: &str = "distlock-fence 1 4294967297 49aca9dc53ad9629\n";

    #[test]
    fn every_change_and_every_cut_is_noticed() {
        let good = encode(fence(4_294_967_297));
        for at in 0..good.len() {
            for bit in 0..7 {
                let mut bad = good.clone().into_bytes();
                bad[at] ^= 1 << bit;
                assert_eq!(decode(str::from_utf8(&bad).unwrap()), None, "{at}, {bit}");
            }
            assert_eq!(decode(&good[..at]), None, "{at}");
        }
        assert_eq!(decode(&(good.clone() + "\n")), None);
        assert_eq!(decode(&(good.clone() + &good)), None);
    }
}
