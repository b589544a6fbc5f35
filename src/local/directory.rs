//! The local group's directory: where it is, and whether it is safe to use.
//!
//! Whoever may write in it could replace a lock's file and let two in, so it must be this user's
//! alone, and nobody else may replace it. The files in it are created with mode 0600.

use std::fs::{DirBuilder, File};
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use distlock_agent::runtime::environment;
use distlock_agent::runtime::trust::{self, PathTrustError};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, FlockArg, OFlag, openat};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat};
use nix::unistd::{Uid, UnlinkatFlags, geteuid, linkat, unlinkat};

use crate::error::{DirectoryFault, OpenError};

/// Where the local group of this user is, if `DISTLOCK_DIR` does not say so: a matter of the user id
/// alone, so that no two programs of a user can be of two minds. There is no second place for where
/// this one cannot be used, since what cannot be used now may be usable for the next program.
///
/// Not `/tmp` or `/var/tmp`: services with `PrivateTmp=` have their own, and cleaners remove what is
/// old. Not `/dev/shm`, nor `/run/user`, which are emptied when a user logs out, while programs
/// of his go on.
fn place_of(user: Uid) -> PathBuf {
    if user.is_root() {
        // Where nobody else can be first, or fill the file system, as in `/run/lock`.
        return "/run/distlock-local".into();
    }
    format!("/run/lock/distlock-{user}").into()
}

/// Where the local group of this user is.
pub(crate) fn default_path() -> PathBuf {
    match environment::variable("DISTLOCK_DIR") {
        Some(path) => path.into(),
        None => place_of(geteuid()),
    }
}

/// The open directory. Everything in it is reached through the descriptor, so that it stays the
/// one that was checked.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    fd: OwnedFd,
    boot: NonZeroU64,
}

/// How long a new file's content must last. A crash of the host may leave a file without content
/// where it lies on a disk.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Keep {
    /// Also over a crash of the host.
    Always,
    /// A crash of the host may spoil it.
    ThisBoot,
}

/// How files are opened in it.
const OPEN: OFlag = OFlag::O_RDWR
    .union(OFlag::O_CLOEXEC)
    .union(OFlag::O_NOFOLLOW);

impl Directory {
    /// Opens the directory at `path`, and makes it if there is none.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        let fault = |fault| OpenError::Directory {
            path: path.to_owned(),
            fault,
        };
        let fd = match open_directory(path) {
            Err(Errno::ENOENT) => {
                trust_way_to(path).map_err(fault)?;
                create(path)?;
                open_directory(path)
            }
            opened => opened,
        };
        let fd = fd.map_err(|errno| match errno {
            Errno::ELOOP => fault(DirectoryFault::Symlink),
            // With O_NOFOLLOW and O_DIRECTORY Linux says ENOTDIR for a symbolic link too.
            Errno::ENOTDIR if path.is_symlink() => fault(DirectoryFault::Symlink),
            Errno::ENOTDIR => fault(DirectoryFault::NotADirectory),
            errno => failed(path, errno.into()),
        })?;
        let directory = Self {
            path: path.to_owned(),
            fd,
            boot: boot().map_err(|error| failed(path, error))?,
        };
        directory.check()?;
        trust_way_to(path).map_err(fault)?;
        directory.keep();
        Ok(directory)
    }

    /// Has systemd-tmpfiles(8) leave what is in it, however old, as long as this is open: a
    /// directory of which somebody has such a lock it does not clean up. It is no loss where that
    /// fails, since somebody else has one then.
    fn keep(&self) {
        #[expect(deprecated, reason = "its successor unlocks in forked children too")]
        let _ = nix::fcntl::flock(self.fd.as_raw_fd(), FlockArg::LockSharedNonblock);
    }

    fn check(&self) -> Result<(), OpenError> {
        let fault = |fault| OpenError::Directory {
            path: self.path.clone(),
            fault,
        };
        let stat = fstat(&self.fd).map_err(|errno| failed(&self.path, errno.into()))?;
        let user = geteuid().as_raw();
        if stat.st_uid != user {
            return Err(fault(DirectoryFault::Stranger {
                owner: stat.st_uid,
                user,
            }));
        }
        let mode = stat.st_mode & 0o777;
        if mode & 0o022 != 0 {
            return Err(fault(DirectoryFault::Writable { mode }));
        }
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// This boot of the host, hashed.
    pub(crate) fn boot(&self) -> NonZeroU64 {
        self.boot
    }

    /// Opens the file `name`, if there is one.
    pub(crate) fn open_file(&self, name: &str) -> io::Result<Option<File>> {
        match openat(&self.fd, name, OPEN, Mode::empty()) {
            Ok(fd) => Ok(Some(fd.into())),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Opens the file `name`; if there is none, makes it appear with `content` in it, whole. A
    /// process that is killed or stopped meanwhile never leaves half a file under that name.
    pub(crate) fn open_or_create(
        &self,
        name: &str,
        content: &[u8],
        keep: Keep,
    ) -> io::Result<File> {
        // Between a link that finds a file there and the opening of that file it may be removed:
        // somebody else makes progress then, but not for ever.
        for _ in 0..100 {
            if let Some(file) = self.open_file(name)? {
                return Ok(file);
            }
            if let Some(file) = self.create_file(name, content, keep)? {
                return Ok(file);
            }
        }
        Err(io::Error::other("it is created and removed all the time"))
    }

    /// Makes the file `name`; `None` if somebody else was first.
    fn create_file(&self, name: &str, content: &[u8], keep: Keep) -> io::Result<Option<File>> {
        let (draft, file) = self.create_draft()?;
        let written = file.write_all_at(content, 0).and_then(|()| match keep {
            Keep::Always => file.sync_all(),
            Keep::ThisBoot => Ok(()),
        });
        let linked = written.and_then(|()| {
            match linkat(&self.fd, draft.as_str(), &self.fd, name, AtFlags::empty()) {
                Ok(()) => Ok(Some(file)),
                // ENOENT: somebody who cannot see this process took the draft for a dead one's.
                Err(Errno::EEXIST | Errno::ENOENT) => Ok(None),
                Err(errno) => Err(errno.into()),
            }
        });
        self.remove(&draft)?;
        linked
    }

    /// A new file whose name tells that it is not complete yet, and whose.
    fn create_draft(&self) -> io::Result<(String, File)> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        loop {
            // A dead process of the same number may have left some behind, but not without end.
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("{DRAFT}{}-{number}", std::process::id());
            let flags = OPEN | OFlag::O_CREAT | OFlag::O_EXCL;
            match openat(
                &self.fd,
                name.as_str(),
                flags,
                Mode::S_IRUSR | Mode::S_IWUSR,
            ) {
                Ok(fd) => return Ok((name, fd.into())),
                Err(Errno::EEXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Whether `name` still leads to the file whose inode is `inode`, which is open somewhere.
    pub(crate) fn leads_to(&self, name: &str, inode: u64) -> io::Result<bool> {
        Ok(self.look(name)?.is_some_and(|stat| stat.st_ino == inode))
    }

    /// What there is of that name.
    pub(crate) fn look(&self, name: &str) -> io::Result<Option<FileStat>> {
        match fstatat(&self.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Removes the file `name`. That it is gone already is no error.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.fd, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The names of the files in it, without drafts; drafts of dead processes are removed.
    pub(crate) fn list(&self) -> io::Result<Vec<String>> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut names = Vec::new();
        for entry in Dir::openat(self.fd.as_fd(), ".", flags, Mode::empty())?.iter() {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            match name.strip_prefix(DRAFT) {
                None => names.push(name.to_owned()),
                Some(rest) if is_dead(rest) => self.remove(name)?,
                Some(_) => {}
            }
        }
        Ok(names)
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// This boot of the host, hashed.
fn boot() -> io::Result<NonZeroU64> {
    let id = std::fs::read("/proc/sys/kernel/random/boot_id")?;
    Ok(NonZeroU64::new(hash64(&id)).unwrap_or(NonZeroU64::MIN))
}

/// What the name of a file begins with until its content is complete; the process's id follows.
const DRAFT: &str = ".new-";

/// Whether the process that a draft's name tells of is gone. A process that has got the number
/// since only makes it stay a while longer.
fn is_dead(rest: &str) -> bool {
    let pid = rest
        .split('-')
        .next()
        .and_then(|pid| pid.parse::<u32>().ok());
    pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
}

fn open_directory(path: &Path) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    nix::fcntl::open(path, flags, Mode::empty())
}

/// Who may rename the directory could have a second one made in its place, with locks of its own.
fn trust_way_to(path: &Path) -> Result<(), DirectoryFault> {
    let above = path.parent().unwrap_or(path);
    match trust::way_so_far(above) {
        // Where this process may not look, but may pass.
        Ok(()) | Err(PathTrustError::Io { .. }) => Ok(()),
        Err(why) => Err(DirectoryFault::Replaceable {
            why: why.to_string(),
        }),
    }
}

/// Makes the directory with mode 0700, and what is missing above it.
fn create(path: &Path) -> Result<(), OpenError> {
    match DirBuilder::new().mode(0o700).recursive(true).create(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(failed(path, error)),
    }
}

/// The first eight bytes of the hash of `bytes`.
pub(super) fn hash64(bytes: &[u8]) -> u64 {
    let hash = blake3::hash(bytes);
    u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
}

fn failed(path: &Path, source: io::Error) -> OpenError {
    let user = geteuid();
    let what = format!(
        "the local group's directory {} cannot be used",
        path.display()
    );
    let own = "set DISTLOCK_DIR to a directory of yours, the same for all that are to take turns";
    if user.is_root() || path != place_of(user) {
        return OpenError::io(what, source, own);
    }
    let path = path.display();
    let hint = format!("have root make it ('install -d -m 700 -o {user} {path}'), or {own}");
    OpenError::io(what, source, &hint)
}
