//! A control group of its own for the command, where one may be had: cgroups(7), version 2.
//!
//! All that the command starts is in it, whatever its credentials, its parent, its session and its
//! open descriptors, unless something with the right to do so moves it elsewhere. The kernel ends all
//! of it at one word (`cgroup.kill`, Linux 5.14), and says when nothing is left.
//!
//! It is made below the control group of `run`, so whoever manages that one manages this one too, and
//! it can be made only where this process may: by root, in a container with a control group of its
//! own, in a user's own service. Elsewhere the command is started in the control group of `run`.

use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::signal::kill;
use nix::sys::stat::Mode;
use nix::unistd::{Pid, UnlinkatFlags, mkdir, unlinkat, write};

/// Where the hierarchy is mounted: alone, and beside those of version 1.
const MOUNTED: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// How the control groups of commands begin; the number of `run`'s process follows.
const PREFIX: &str = "distlock-";
/// Longer than `cgroup.events`.
const MAX_EVENTS: usize = 256;

/// The command's control group. Dropping it removes it, if nothing is left in it.
///
/// A copy of it in another process uses the same one: nothing here allocates or takes a lock, but for
/// [`Cgroup::new`].
#[derive(Debug)]
pub(crate) struct Cgroup {
    parent: OwnedFd,
    name: CString,
    directory: OwnedFd,
    kill: OwnedFd,
    events: OwnedFd,
}

impl Cgroup {
    /// Makes one; `None` where none may be had.
    pub(crate) fn new() -> Option<Self> {
        let path = MOUNTED.iter().find_map(|mount| own_at(Path::new(mount)))?;
        remove_leftovers(&path);
        let parent = open_directory(&path).ok()?;
        let name = CString::new(format!("{PREFIX}{}", Pid::this())).ok()?;
        mkdir(
            &path.join(OsStr::from_bytes(name.as_bytes())),
            Mode::S_IRWXU,
        )
        .ok()?;
        let within = |file: &str, flags| {
            let path = path.join(OsStr::from_bytes(name.as_bytes())).join(file);
            open(&path, flags | OFlag::O_CLOEXEC, Mode::empty())
        };
        let opened = || {
            let directory = within("", OFlag::O_RDONLY | OFlag::O_DIRECTORY)?;
            let kill = within("cgroup.kill", OFlag::O_WRONLY)?;
            let events = within("cgroup.events", OFlag::O_RDONLY)?;
            Ok::<_, Errno>((directory, kill, events))
        };
        let Ok((directory, kill, events)) = opened() else {
            let _ = unlinkat(&parent, name.as_c_str(), UnlinkatFlags::RemoveDir);
            return None;
        };
        Some(Self {
            parent,
            name,
            directory,
            kill,
            events,
        })
    }

    /// The directory, for clone(2).
    pub(crate) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Becomes exceptional (`POLLPRI`) when [`Cgroup::is_populated`] changes, if that was asked before.
    pub(crate) fn events(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// The descriptors by which it works.
    pub(crate) fn descriptors(&self) -> [i32; 4] {
        [&self.parent, &self.directory, &self.kill, &self.events].map(AsRawFd::as_raw_fd)
    }

    /// Whether something is left in it.
    pub(crate) fn is_populated(&self) -> bool {
        let mut events = [0; MAX_EVENTS];
        let len = nix::sys::uio::pread(&self.events, &mut events, 0).unwrap_or(0);
        let mut lines = events[..len].split(|&byte| byte == b'\n');
        lines.any(|line| line == b"populated 1")
    }

    /// Ends all that is in it, and all that is just being started there.
    pub(crate) fn kill(&self) {
        let _ = write(&self.kill, b"1");
    }

    /// Removes it, if nothing is left in it.
    pub(crate) fn remove(&self) {
        let _ = unlinkat(&self.parent, self.name.as_c_str(), UnlinkatFlags::RemoveDir);
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        self.remove();
    }
}

/// This process's control group, if the hierarchy is mounted there. procfs would find that one line too,
/// and be a crate more.
fn own_at(mount: &Path) -> Option<PathBuf> {
    let file = mount.join("cgroup.procs");
    if !fs::exists(file).ok()? {
        return None;
    }
    let mut groups = String::new();
    File::open("/proc/self/cgroup")
        .ok()?
        .read_to_string(&mut groups)
        .ok()?;
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(mount.join(own))
}

/// Removes what processes that were killed have left, where nothing is in it any more.
fn remove_leftovers(path: &Path) {
    let Ok(entries) = fs::read_dir(path) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let pid = pid.and_then(|pid| pid.parse().ok()).map(Pid::from_raw);
        if pid.is_some_and(|pid| kill(pid, None) == Err(Errno::ESRCH)) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

fn open_directory(path: &Path) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    open(path, flags, Mode::empty())
}
