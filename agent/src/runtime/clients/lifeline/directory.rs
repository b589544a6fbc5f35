//! Where lifelines lie: FIFOs in the agent's state directory, so that the agent's next incarnation
//! sees whether the commands are left that the last one let in.
//!
//! A FIFO has a number for its name. Once its command is known, it is renamed to tell who that is,
//! for a command that closes what it inherits. It is removed when all is over; one that nobody has
//! open any more, as after a crash of the agent or a reboot, is removed by the next incarnation.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{self, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::fcntl::renameat;
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::runtime::os::clock;
use crate::runtime::os::fifo::Fifo;

/// The directory of an agent's lifelines.
#[derive(Debug)]
pub(crate) struct LifelineDir {
    pub(super) path: PathBuf,
    pub(super) handle: OwnedFd,
    pub(super) next: AtomicU64,
    /// Where the numbers of processes mean what they mean to this agent.
    pub(super) space: Space,
}

/// A boot of the host, and a namespace of its processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Space {
    boot: String,
    namespace: u64,
}

impl Space {
    pub(super) fn of_this_process() -> io::Result<Self> {
        Ok(Self {
            boot: clock::boot()?,
            namespace: fs::metadata("/proc/self/ns/pid")?.ino(),
        })
    }
}

/// A command, so that it is known again.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) pid: u32,
    /// When it started, in the kernel's ticks since the boot.
    pub(super) start: u64,
    /// The user of the client that started it.
    pub(super) user: u32,
    pub(super) space: Space,
}

impl Command {
    fn name(&self, number: u64) -> String {
        let Self {
            pid,
            start,
            user,
            space: Space { boot, namespace },
        } = self;
        format!("{number}.{pid}.{start}.{user}.{namespace}.{boot}")
    }

    pub(super) fn parse(name: &str) -> Option<Self> {
        let mut words = name.split('.').skip(1);
        Some(Self {
            pid: words.next()?.parse().ok()?,
            start: words.next()?.parse().ok()?,
            user: words.next()?.parse().ok()?,
            space: Space {
                namespace: words.next()?.parse().ok()?,
                boot: words.next()?.to_owned(),
            },
        })
    }
}

impl LifelineDir {
    /// A new lifeline, and its writing end.
    pub(super) fn make(self: &Arc<Self>) -> io::Result<(Fifo, OwnedFd, Entry)> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let name = number.to_string();
        let fifo = Fifo::create(&self.handle, &name)?;
        let entry = Entry {
            directory: Arc::clone(self),
            number,
            name,
        };
        match fifo.writer(&self.handle, &entry.name) {
            Ok(writer) => Ok((fifo, writer, entry)),
            Err(error) => {
                entry.remove();
                Err(error)
            }
        }
    }
}

/// A FIFO's name.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) directory: Arc<LifelineDir>,
    pub(super) number: u64,
    pub(super) name: String,
}

impl Entry {
    /// The directory that it is in, as an operator finds it from everywhere.
    pub(super) fn directory(&self) -> PathBuf {
        let path = &self.directory.path;
        path::absolute(path).unwrap_or_else(|_| path.clone())
    }

    /// Notes whose lifeline it is, for the agent's next incarnation.
    pub(super) fn set_command(&mut self, pid: u32, start: u64, user: u32) {
        let space = self.directory.space.clone();
        let command = Command {
            pid,
            start,
            user,
            space,
        };
        let name = command.name(self.number);
        let handle = self.directory.handle.as_fd();
        match renameat(handle, &*self.name, handle, &*name) {
            Ok(()) => self.name = name,
            // The next incarnation sees it all the same, as long as it has what it inherited.
            Err(errno) => tracing::debug!("a lifeline cannot be renamed: {errno}"),
        }
    }

    /// Nobody has it open any more.
    pub(super) fn remove(&self) {
        let handle = self.directory.handle.as_fd();
        if let Err(errno) = unlinkat(handle, &*self.name, UnlinkatFlags::NoRemoveDir) {
            tracing::debug!("a lifeline cannot be removed: {errno}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process;

    use nix::unistd::geteuid;

    use super::*;
    use crate::runtime::os::pidfd::ProcessGroup;

    #[test]
    fn a_command_is_known_again_by_the_name_of_its_lifeline() {
        let command = Command {
            pid: 7,
            start: 1_234,
            user: 1_000,
            space: Space::of_this_process().unwrap(),
        };
        assert_eq!(Command::parse(&command.name(300)), Some(command));
        for name in ["", "300", "300.7", "300.7.x.0.1.b"] {
            assert_eq!(Command::parse(name), None, "{name}");
        }
    }

    /// By a writer that is left, also when nobody knows the command; and by the command, also when it
    /// has closed all it had. What is over is removed.
    #[test]
    fn the_next_incarnation_sees_what_the_last_one_left_behind() {
        let place = tempfile::tempdir().unwrap();
        let open = || LifelineDir::open(place.path()).unwrap();
        let files = || {
            fs::read_dir(place.path().join("lifelines"))
                .unwrap()
                .count()
        };
        let (directory, left) = open();
        assert!(left.is_empty());
        let (_, writer, _) = directory.make().unwrap();
        let (_, closed, mut entry) = directory.make().unwrap();
        drop(closed);
        let mut command = process::Command::new("sleep");
        let mut child = command.arg("600").process_group(0).spawn().unwrap();
        let start = ProcessGroup::of_client(child.id(), process::id())
            .unwrap()
            .1;
        entry.set_command(child.id(), start, geteuid().as_raw());
        let (_, over, _) = directory.make().unwrap();
        drop(over);
        assert_eq!(files(), 3);
        drop(directory);

        let (directory, left) = open();
        assert_eq!((left.len(), files()), (2, 2));
        let (_, _, new) = directory.make().unwrap();
        assert_eq!(new.number, 3, "the name of none that was there");
        new.remove();
        drop(left);
        assert_eq!(files(), 2, "they are not over");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(open().1.len(), 1);
        drop(writer);
        assert_eq!(open().1.len(), 0);
        assert_eq!(files(), 0);
    }

    /// Its number has come to mean another process.
    #[test]
    fn another_process_of_that_number_is_not_the_command() {
        let place = tempfile::tempdir().unwrap();
        let (directory, _) = LifelineDir::open(place.path()).unwrap();
        let mut command = process::Command::new("sleep");
        let mut child = command.arg("600").process_group(0).spawn().unwrap();
        let start = ProcessGroup::of_client(child.id(), process::id())
            .unwrap()
            .1;
        let (_, writer, mut entry) = directory.make().unwrap();
        drop(writer);
        entry.set_command(child.id(), start - 1, geteuid().as_raw());
        assert!(LifelineDir::open(place.path()).unwrap().1.is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn what_is_no_lifeline_is_refused() {
        let place = tempfile::tempdir().unwrap();
        LifelineDir::open(place.path()).unwrap();
        fs::write(place.path().join("lifelines/7"), "").unwrap();
        let refused = LifelineDir::open(place.path()).unwrap_err().to_string();
        assert!(refused.contains("lifelines/7"), "{refused}");
    }
}
