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

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::geteuid;

/// As many symbolic links as the kernel follows.
const MAX_LINKS: u32 = 40;
const EVERYBODY: u32 = 0o002;
const OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Why a path is not trusted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Distrust {
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
        source: io::Error,
    },
}

impl Distrust {
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

    fn io(path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io {
            path: path.to_owned(),
            source: source.into(),
        }
    }
}

/// Looks at everything on the way to `path`, and at what is there, which it returns. Symbolic links
/// are followed.
///
/// # Errors
/// If somebody else can have decided what is there, or there is nothing.
pub fn way(path: &Path) -> Result<Metadata, Distrust> {
    let Way {
        metadata, missing, ..
    } = look(path)?;
    missing.map_or(Ok(metadata), Err)
}

/// Looks at what there is of the way to `path`, before what is missing is made there.
///
/// # Errors
/// If somebody else can have decided where that would be.
pub fn way_so_far(path: &Path) -> Result<(), Distrust> {
    look(path).map(drop)
}

/// Checks `path` as a directory in which nobody but root and this user can put or remove anything.
///
/// # Errors
/// If others can, or could replace it, or it is no directory.
pub fn directory(path: &Path) -> Result<(), Distrust> {
    let metadata = own_directory(path)?;
    alone(path, &metadata)
}

/// Checks `path` as [`directory`] does, if it is there; if not, that not everybody can make it.
///
/// # Errors
/// If others can decide what is in it, or will be, or it is no directory.
pub(crate) fn directory_to_be(path: &Path) -> Result<(), Distrust> {
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
    Err(Distrust::Missing {
        path: path.to_owned(),
        above,
        mode: metadata.mode() & 0o7777,
    })
}

/// Checks `path` as [`directory`] does, but it may be another user's alone, whom it returns then.
///
/// # Errors
/// If others than its owner and root can put or remove anything, or it is no directory.
pub(crate) fn directory_of_one(path: &Path) -> Result<Option<u32>, Distrust> {
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
pub fn own_directory(path: &Path) -> Result<Metadata, Distrust> {
    let metadata = any_directory(path)?;
    owned(path, &metadata)?;
    Ok(metadata)
}

/// Whether `user` can be believed to be the one who serves a socket in the directory `path`, of
/// which root asks. Root may use what is another user's, but not what anybody can have put there.
///
/// # Errors
/// If others than root and `user` can.
pub(crate) fn directory_of(user: u32, path: &Path) -> Result<(), Distrust> {
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
pub fn open(options: &mut OpenOptions, path: &Path) -> Result<(File, Metadata), Distrust> {
    let opened = options
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path);
    match opened.and_then(|file| Ok((file.metadata()?, file))) {
        Ok((metadata, file)) => Ok((file, metadata)),
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => Err(Distrust::OtherKind {
            path: path.to_owned(),
            expected: "regular file",
        }),
        Err(error) => Err(Distrust::io(path, error)),
    }
}

/// Checks what was opened as `path` as a file that only root and this user can have written.
///
/// # Errors
/// If others can have.
pub fn file(path: &Path, metadata: &Metadata) -> Result<(), Distrust> {
    regular(path, metadata)?;
    owned(path, metadata)?;
    alone(path, metadata)
}

/// Checks what was opened as `path` as a regular file that not everybody can write to. Whose it is,
/// and of which group, does not matter.
///
/// # Errors
/// If it is something else, or everybody can.
pub fn shared_file(path: &Path, metadata: &Metadata) -> Result<(), Distrust> {
    regular(path, metadata)?;
    if metadata.mode() & EVERYBODY == 0 {
        return Ok(());
    }
    Err(Distrust::Open {
        path: path.to_owned(),
        mode: metadata.mode() & 0o7777,
        owner: metadata.uid(),
    })
}

/// Tells in the log if others than root and this user could have written the configuration that
/// was opened as `path`. A group may: who shares a file so means to.
pub fn tell_of_writers(path: &Path, metadata: &Metadata) {
    if !metadata.is_file() {
        // What a shell pipes into it is the shell's.
        return;
    }
    let checked = owned(path, metadata)
        .and_then(|()| shared_file(path, metadata))
        .and_then(|()| way(path).map(drop));
    match checked {
        Ok(()) | Err(Distrust::Io { .. }) => {}
        Err(why) => tracing::warn!(
            "others can change the configuration, and so whom this member believes: {why}; {}",
            why.advice()
        ),
    }
}

/// Checks whose it is that was found at `path`.
///
/// # Errors
/// If it is neither root's nor this user's.
pub fn owned(path: &Path, metadata: &Metadata) -> Result<(), Distrust> {
    if is_trusted(metadata.uid()) {
        return Ok(());
    }
    Err(Distrust::Stranger {
        path: path.to_owned(),
        owner: metadata.uid(),
    })
}

/// Whether `user` is this process's or root.
pub fn is_trusted(user: u32) -> bool {
    user == 0 || user == geteuid().as_raw()
}

/// Whether this process's user may change the mode of what is `owner`'s.
fn may_change(owner: u32) -> bool {
    let user = geteuid().as_raw();
    user == 0 || user == owner
}

fn regular(path: &Path, metadata: &Metadata) -> Result<(), Distrust> {
    if metadata.is_file() {
        return Ok(());
    }
    Err(Distrust::OtherKind {
        path: path.to_owned(),
        expected: "regular file",
    })
}

fn any_directory(path: &Path) -> Result<Metadata, Distrust> {
    let metadata = way(path)?;
    if metadata.is_dir() {
        return Ok(metadata);
    }
    Err(Distrust::io(path, Errno::ENOTDIR))
}

fn alone(path: &Path, metadata: &Metadata) -> Result<(), Distrust> {
    if metadata.mode() & OTHERS == 0 {
        return Ok(());
    }
    Err(Distrust::Writable {
        path: path.to_owned(),
        mode: metadata.mode() & 0o7777,
        owner: metadata.uid(),
    })
}

/// How far a path leads.
struct Way {
    /// What is there: the whole path, or the directory in which the next step is missing. There are
    /// no links in its name.
    path: PathBuf,
    metadata: Metadata,
    /// What the system says of that step.
    missing: Option<Distrust>,
}

/// Takes one step after the other, and never one of them twice: symbolic links put the steps to
/// where they lead before those that are left.
fn look(path: &Path) -> Result<Way, Distrust> {
    let whole = std::path::absolute(path).map_err(|source| Distrust::io(path, source))?;
    let root = Path::new("/");
    let mut at = root.to_owned();
    let mut metadata = see(root)?;
    let mut ahead: Vec<OsString> = steps(&whole).collect();
    let mut links = 0;
    while let Some(step) = ahead.pop() {
        passable(&at, &metadata)?;
        if step == ".." {
            at.pop();
            metadata = see(&at)?;
            continue;
        }
        at.push(step);
        let next = match see(&at) {
            Err(missing) if missing.is_missing() => {
                at.pop();
                return Ok(Way {
                    path: at,
                    metadata,
                    missing: Some(missing),
                });
            }
            seen => seen?,
        };
        if metadata.mode() & EVERYBODY != 0 && !is_trusted(next.uid()) {
            return Err(Distrust::Planted {
                path: at,
                owner: next.uid(),
            });
        }
        if !next.is_symlink() {
            metadata = next;
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(Distrust::Links {
                path: path.to_owned(),
            });
        }
        let target = fs::read_link(&at).map_err(|source| Distrust::io(&at, source))?;
        at.pop();
        if target.is_absolute() {
            at = root.to_owned();
            metadata = see(root)?;
        }
        ahead.extend(steps(&target));
    }
    if metadata.is_dir() {
        passable(&at, &metadata)?;
    }
    Ok(Way {
        path: at,
        metadata,
        missing: None,
    })
}

/// The names in `path`, the last one first.
fn steps(path: &Path) -> impl Iterator<Item = OsString> + '_ {
    let names = path.components().rev();
    names
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| part.as_os_str().to_owned())
}

fn see(path: &Path) -> Result<Metadata, Distrust> {
    fs::symlink_metadata(path).map_err(|source| Distrust::io(path, source))
}

/// Checks the directory `path` as one in which what is a trusted user's stays what it is.
fn passable(path: &Path, metadata: &Metadata) -> Result<(), Distrust> {
    if !metadata.is_dir() {
        return Err(Distrust::io(path, Errno::ENOTDIR));
    }
    if metadata.mode() & EVERYBODY == 0 {
        return Ok(());
    }
    if metadata.mode() & STICKY == 0 {
        return Err(Distrust::Open {
            path: path.to_owned(),
            mode: metadata.mode() & 0o7777,
            owner: metadata.uid(),
        });
    }
    let owner = metadata.uid();
    if is_trusted(owner) || is_unnamed(owner) {
        return Ok(());
    }
    Err(Distrust::Hosted {
        path: path.to_owned(),
        owner,
    })
}

/// Whether `owner` stands for all users that have no number in this user namespace, as sandboxes have
/// one. Outside root has `/tmp` and `/run/lock`, and in there it is nobody's.
fn is_unnamed(owner: u32) -> bool {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let unnamed = read("/proc/sys/kernel/overflowuid");
    let all_are_named = ["0", "0", "4294967295"];
    unnamed.trim().parse() == Ok(owner)
        && !read("/proc/self/uid_map")
            .split_whitespace()
            .eq(all_are_named)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_directory_that_everybody_may_write_to_must_be_sticky() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("inner");
        fs::create_dir(&inner).unwrap();
        for (mode, is_fine) in [
            (0o700, true),
            (0o755, true),
            (0o775, true),
            (0o777, false),
            (0o702, false),
            (0o1777, true),
        ] {
            chmod(root.path(), mode);
            for looked in [way(&inner).map(drop), directory(&inner)] {
                assert_eq!(looked.is_ok(), is_fine, "{mode:o}: {looked:?}");
            }
            let missing = way_so_far(&root.path().join("a/b"));
            assert_eq!(missing.is_ok(), is_fine, "{mode:o}: {missing:?}");
        }
    }

    #[test]
    fn in_the_directory_itself_nobody_else_may_write() {
        let root = tempfile::tempdir().unwrap();
        for mode in [0o770, 0o702, 0o1777] {
            chmod(root.path(), mode);
            let refused = directory(root.path()).unwrap_err();
            let is_told = refused.to_string().contains(&format!("{mode:04o}"));
            assert!(is_told, "{refused}");
        }
        chmod(root.path(), 0o755);
        directory(root.path()).unwrap();
    }

    #[test]
    fn what_is_missing_is_made_by_no_stranger() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::create_dir(path("there")).unwrap();
        chmod(&path("there"), 0o755);
        symlink("tmp/a", path("link")).unwrap();
        fs::create_dir(path("tmp")).unwrap();
        chmod(&path("tmp"), 0o1777);
        for name in ["there", "there/a", "a/b"] {
            directory_to_be(&path(name)).unwrap();
        }
        for name in ["tmp/a", "tmp/a/b", "link", "link/b"] {
            let refused = directory_to_be(&path(name)).unwrap_err();
            let Distrust::Missing { above, .. } = &refused else {
                panic!("{name}: {refused}");
            };
            assert!(above.ends_with("tmp"), "{refused}");
        }
        chmod(&path("there"), 0o770);
        directory_to_be(&path("there")).unwrap_err();
    }

    #[test]
    fn links_are_followed_to_where_they_lead() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::create_dir_all(path("open/inner")).unwrap();
        symlink("open/../open/inner", path("link")).unwrap();
        directory(&path("link")).unwrap();
        chmod(&path("open"), 0o777);
        let refused = directory(&path("link")).unwrap_err();
        assert!(
            matches!(&refused, Distrust::Open { path, mode: 0o777, .. } if path.ends_with("open"))
        );
        symlink("loop", path("loop")).unwrap();
        // Not `Io`, after which the callers go on.
        for looped in [way(&path("loop")).map(drop), way_so_far(&path("loop/a"))] {
            assert!(matches!(looped, Err(Distrust::Links { .. })), "{looped:?}");
        }
        symlink("nowhere", path("broken")).unwrap();
        assert!(way(&path("broken")).unwrap_err().is_missing());
        way_so_far(&path("broken")).unwrap();
    }

    /// As many as the kernel follows, whether a link is in what another leads to, or leads by way of
    /// another.
    #[test]
    fn links_are_counted_as_the_kernel_counts_them() {
        let root = tempfile::tempdir().unwrap();
        let path = |number: u32| root.path().join(number.to_string());
        fs::create_dir(path(0)).unwrap();
        symlink("../0", path(0).join("back")).unwrap();
        for number in 1..=MAX_LINKS + 1 {
            symlink(format!("{}/../0", number - 1), path(number)).unwrap();
        }
        let back = |times| (0..times).fold(path(0), |path, _| path.join("back"));
        for number in [6, MAX_LINKS] {
            for fine in [back(number), path(number)] {
                fs::metadata(&fine).unwrap();
                directory(&fine).unwrap();
            }
        }
        for too_many in [back(MAX_LINKS + 1), path(MAX_LINKS + 1)] {
            let told = fs::metadata(&too_many).unwrap_err().raw_os_error();
            assert_eq!(told, Some(libc::ELOOP));
            let refused = way(&too_many).unwrap_err();
            assert!(matches!(refused, Distrust::Links { .. }), "{refused}");
        }
    }

    #[test]
    fn steps_are_taken_as_the_kernel_takes_them() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::create_dir_all(path("a/b")).unwrap();
        fs::write(path("file"), "").unwrap();
        symlink(path("a/b"), path("link")).unwrap();
        let inode = |name: &str| way(&path(name)).unwrap().ino();
        for name in ["link/..", "link/../b/..", "a/./b/../../link/.."] {
            assert_eq!(
                inode(name),
                fs::metadata(path(name)).unwrap().ino(),
                "{name}"
            );
        }
        for name in ["file/..", "file/x", "missing/..", "link/x"] {
            let seen = fs::metadata(path(name)).unwrap_err();
            let Err(Distrust::Io { source, .. }) = way(&path(name)) else {
                panic!("{name}");
            };
            assert_eq!(source.raw_os_error(), seen.raw_os_error(), "{name}");
        }
        assert_eq!(
            way(Path::new("/../..")).unwrap().ino(),
            fs::metadata("/").unwrap().ino()
        );
    }

    /// What others can have made where everybody may write. It takes root to make it here.
    #[test]
    fn what_is_planted_is_found_out() {
        if !geteuid().is_root() {
            let all = std::env::var("DISTLOCK_TESTS");
            assert_ne!(all.as_deref(), Ok("all"), "this test needs root");
            eprintln!("SKIPPED: this test needs root");
            return;
        }
        const STRANGER: u32 = 12_345;
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        fs::create_dir_all(path("theirs/below")).unwrap();
        fs::create_dir(path("ours")).unwrap();
        symlink("ours", path("link")).unwrap();
        for name in ["theirs", "link"] {
            std::os::unix::fs::lchown(path(name), Some(STRANGER), None).unwrap();
        }
        // Where root alone may write, root has let them.
        way(&path("theirs/below")).unwrap();
        way(&path("link")).unwrap();
        chmod(root.path(), 0o1777);
        for name in ["theirs/below", "theirs/missing", "link", "link/missing"] {
            let refused = way_so_far(&path(name)).unwrap_err();
            let is_told = matches!(
                refused,
                Distrust::Planted {
                    owner: STRANGER,
                    ..
                }
            );
            assert!(is_told, "{name}: {refused}");
        }
        way(&path("ours")).unwrap();
        chmod(root.path(), 0o755);
        // Sticky or not, its owner can replace what is in it.
        fs::create_dir_all(path("tmp/ours")).unwrap();
        chmod(&path("tmp"), 0o1777);
        way(&path("tmp/ours")).unwrap();
        chown(path("tmp"), Some(STRANGER), None).unwrap();
        for name in ["tmp", "tmp/ours", "tmp/missing"] {
            let refused = way_so_far(&path(name)).unwrap_err();
            let owner = STRANGER;
            let is_told = matches!(refused, Distrust::Hosted { owner: told, .. } if told == owner);
            assert!(is_told, "{refused}");
        }
        let refused = directory(&path("theirs")).unwrap_err();
        let is_told = matches!(
            refused,
            Distrust::Stranger {
                owner: STRANGER,
                ..
            }
        );
        assert!(is_told, "{refused}");
        // It may be theirs, but then theirs alone.
        assert_eq!(directory_of_one(&path("theirs")).unwrap(), Some(STRANGER));
        assert_eq!(directory_of_one(&path("ours")).unwrap(), None);
        for mode in [0o770, 0o1777] {
            chmod(&path("theirs"), mode);
            directory_of_one(&path("theirs")).unwrap_err();
        }
        chmod(&path("theirs"), 0o755);
        // Of root's and of theirs they may be believed to serve what is there, not of others'.
        directory_of(STRANGER, &path("theirs")).unwrap();
        directory_of(STRANGER, &path("ours")).unwrap();
        chown(path("theirs"), Some(STRANGER + 1), None).unwrap();
        directory_of(STRANGER, &path("theirs")).unwrap_err();
        chmod(&path("ours"), 0o1777);
        directory_of(STRANGER, &path("ours")).unwrap_err();
    }
}
