//! What the last incarnation of this agent left behind: commands that still run under locks that were
//! lost with it. Nobody is let in by this incarnation before they have ended.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::geteuid;

use super::directory::{Command, Entry, LifelineDir, Space};
use super::{LOOK, Lifeline};
use crate::protocol::Time;
use crate::runtime::os::clock;
use crate::runtime::os::fifo::Fifo;
use crate::runtime::os::pidfd::ProcessGroup;

/// How often the log tells of them.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Commands of the last incarnation that have not ended.
#[derive(Debug)]
pub(crate) struct Former {
    left: Vec<Lifeline>,
    /// When to tell them to end, and when to kill them: what their runners do unless they stand
    /// still.
    ask: Time,
    kill: Time,
    was_asked: bool,
    look: Time,
    tell: Time,
}

impl Former {
    /// `None` if nothing is left.
    pub(crate) fn new(left: Vec<Lifeline>, lease: Duration) -> Option<Self> {
        let now = clock::now();
        (!left.is_empty()).then(|| Self {
            left,
            ask: now + lease / 4,
            kill: now + lease / 2,
            was_asked: false,
            look: now,
            tell: now,
        })
    }

    /// When it wants to be called.
    pub(crate) fn next(&self) -> Time {
        self.look
    }

    /// Looks, and ends whom it may; whether all have ended.
    pub(crate) fn work(&mut self) -> bool {
        let now = clock::now();
        if now < self.look {
            return false;
        }
        self.look = now + LOOK;
        self.left.retain_mut(|lifeline| !lifeline.has_ended());
        if self.left.is_empty() {
            tracing::info!(
                event = "former-commands-ended",
                "the commands of this agent's last incarnation have ended"
            );
            return true;
        }
        if now >= self.kill {
            // Those that it had started meanwhile are gone the next time.
            self.left.iter_mut().for_each(Lifeline::kill);
        } else if now >= self.ask && !self.was_asked {
            self.was_asked = true;
            self.left.iter_mut().for_each(Lifeline::ask);
        }
        if now >= self.tell {
            self.tell = now + TELL_EVERY;
            let known: Vec<_> = self.left.iter().filter_map(Lifeline::command).collect();
            let known: Vec<_> = known.iter().map(ToString::to_string).collect();
            tracing::warn!(
                event = "former-commands",
                "{} of the commands that this agent's last incarnation let in have not ended: nobody \
                 is let in here before; end them (process groups known: {}), and as root what has a \
                 FIFO in {} open for writing ('F' in 'fuser -v')",
                self.left.len(),
                if known.is_empty() {
                    "none".to_owned()
                } else {
                    known.join(", ")
                },
                self.left[0].entry.directory().display()
            );
        }
        false
    }
}

impl LifelineDir {
    /// Opens the directory of lifelines in the state directory, which this process has locked.
    /// Returns it, and the lifelines in it whose commands still run: the agent's last incarnation
    /// left them.
    ///
    /// # Errors
    /// If it cannot be made or read, or has something in it that is no FIFO of this user's.
    pub(crate) fn open(state: &Path) -> io::Result<(Arc<Self>, Vec<Lifeline>)> {
        let path = state.join("lifelines");
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let handle = open(&path, flags, Mode::empty())?;
        let mut directory = Self {
            path,
            handle,
            next: AtomicU64::new(0),
            space: Space::of_this_process()?,
        };
        let mut names = Vec::new();
        for entry in fs::read_dir(&directory.path)? {
            let name = entry?.file_name();
            let name = name.into_string().map_err(|name| {
                let path = directory.path.join(name);
                io::Error::other(format!("{} is no lifeline: remove it", path.display()))
            })?;
            let number = name.split('.').next().and_then(|word| word.parse().ok());
            let next = directory.next.get_mut();
            *next = (*next).max(number.map_or(0, |number: u64| number.saturating_add(1)));
            names.push(name);
        }
        let directory = Arc::new(directory);
        let mut left = Vec::new();
        for name in names {
            let mut former = directory.former(name)?;
            // What is over is removed as it is dropped.
            if !former.has_ended() {
                left.push(former);
            }
        }
        Ok((directory, left))
    }

    /// What another incarnation has left behind under `name`.
    fn former(self: &Arc<Self>, name: String) -> io::Result<Lifeline> {
        let told = |error: io::Error| {
            let path = self.path.join(&name);
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        };
        let fifo = Fifo::open(&self.handle, &name).map_err(told)?;
        let fifo = fifo.ok_or_else(|| told(io::ErrorKind::NotFound.into()))?;
        let command = Command::parse(&name);
        let group = command.as_ref().and_then(|command| {
            // In another boot it has ended. In another namespace nobody can tell, and the FIFO alone
            // says whether somebody is there.
            let is_known = command.space == self.space;
            is_known.then(|| ProcessGroup::of_former(command.pid, command.start).ok())?
        });
        let user = command.map_or(geteuid().as_raw(), |command| command.user);
        let entry = Entry {
            directory: Arc::clone(self),
            number: 0,
            name,
        };
        let mut lifeline = Lifeline::new(fifo, entry, user);
        lifeline.group = group;
        Ok(lifeline)
    }
}
