//! The guardian: a child of `run` that ends the command when its lock is over, also if this process
//! stands still and the agent is dead.
//!
//! It is forked and executes nothing: so it is there in no time, and has the caller's credentials.
//! It is in a session of its own, so that what stops or ends this process's group and its terminal
//! does not reach it; it has nothing open but its own, and holds no lock. It sees by a page of shared
//! memory until when nobody else is let in ([`LeaseWatch`]), and by its line to this process that
//! this process is gone. It kills the command's process group
//!
//! - a tenth of a lease before its end, when this process should have done so;
//! - at once, when this process died without a word.
//!
//! All descendants of the command are killed with it, by their control group where there is one, and
//! otherwise as long as this process has not died.
//!
//! It keeps the lock as the command does, by a writing end of the lifeline: if this process died, until
//! the command has ended and its control group is empty. So what has closed what it inherited, and
//! what may not be killed, keeps the lock too.
//!
//! What the command has left behind when this process ends in order keeps the lock; then the guardian
//! stays as long, and kills that only with the lease.

mod line;
mod watcher;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use distlock::LeaseWatch;
use distlock_agent::runtime::ProcessGroup;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{Signal, kill};
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};

use crate::cgroup::Cgroup;
use crate::descendants;
use line::{COMMAND, LEAVE, Word, send};
use watcher::{AGAIN, Runner, Watcher};

/// How long its first word is waited for. It has little to do before that.
const READY_MS: u16 = 2_000;

/// The guardian as its parent sees it. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Guardian {
    pid: Pid,
    line: UnixStream,
    /// Rung when the command has ended.
    bell: EventFd,
    cgroup: Option<Cgroup>,
    /// Whether it is to go on without this process.
    is_needed: AtomicBool,
}

impl Guardian {
    /// Starts one. `lifeline` ends with the last process that the command has started, `keeps` is a
    /// writing end of it, and `lease` is how long a lease lasts. The command is started in `cgroup`.
    ///
    /// # Errors
    /// If the system has no room for another process, or no descriptor.
    pub(crate) fn start(
        watch: &LeaseWatch,
        lifeline: BorrowedFd<'_>,
        keeps: Option<OwnedFd>,
        cgroup: Option<Cgroup>,
        lease: Duration,
    ) -> io::Result<Self> {
        let (line, theirs) = UnixStream::pair()?;
        theirs.set_nonblocking(true)?;
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, flags)?;
        let parent = Pid::this();
        #[expect(unsafe_code, reason = "a process without another program")]
        // SAFETY: the child makes system calls and looks at its own memory only, see watcher.rs.
        match unsafe { fork() }? {
            ForkResult::Parent { child } => Ok(Self {
                pid: child,
                line,
                bell,
                cgroup,
                is_needed: AtomicBool::new(false),
            }),
            ForkResult::Child => Watcher {
                parent,
                line: theirs.as_fd(),
                lifeline,
                keeps,
                bell: &bell,
                cgroup: cgroup.as_ref(),
                timer: &timer,
                watch,
                margin: lease / 10,
                command: None,
                runner: Runner::There,
                is_over: false,
                again: AGAIN,
            }
            .run(),
        }
    }

    /// Tells it of the calling process, which leads a process group and becomes the command.
    /// Async-signal-safe: for the time between fork and exec.
    ///
    /// # Errors
    /// If there is no guardian any more, or no descriptor is left.
    pub(crate) fn watch_caller(&self) -> nix::Result<()> {
        let pid = std::process::id();
        let group = ProcessGroup::of_child(pid)
            .map_err(|error| Errno::try_from(error).unwrap_or(Errno::EBADF))?;
        send(self.line.as_fd(), [COMMAND, pid], Some(group.as_fd()))
    }

    /// The command's control group.
    pub(crate) fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
    }

    /// Kills what the command has started, also outside of its group; whether something is left. For the
    /// guardian's parent.
    pub(crate) fn kill_descendants(&self) -> bool {
        let cgroup = self.cgroup.as_ref().filter(|cgroup| cgroup.is_populated());
        cgroup.inspect(|cgroup| cgroup.kill());
        let found = descendants::signal_children(Pid::this(), self.pid, Signal::SIGKILL);
        found || cgroup.is_some()
    }

    /// Takes note of the end of those that this process has adopted: all its children but the guardian and
    /// those in `own`.
    pub(crate) fn reap_adopted(&self, own: Option<Pid>) {
        descendants::reap(&[self.pid, own.unwrap_or(self.pid)]);
    }

    /// The command has ended. Waits until the guardian has closed what the command kept the lock by,
    /// and all else that it inherited. One that does not come to that for two seconds is ended, which
    /// closes all; whether it is there.
    pub(crate) fn settle(&self) -> bool {
        let _ = self.bell.write(1);
        let is_there = self.has_spoken();
        if !is_there {
            self.dismiss();
            self.has_spoken();
        }
        is_there
    }

    fn has_spoken(&self) -> bool {
        let mut line = [PollFd::new(self.line.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut line, PollTimeout::from(READY_MS));
        line[0]
            .revents()
            .is_some_and(|events| events == PollFlags::POLLIN)
    }

    /// Ends it. That is waited for when this is dropped.
    pub(crate) fn dismiss(&self) {
        // It is a child that nobody has waited for, so the number is its own.
        let _ = kill(self.pid, Signal::SIGKILL);
    }

    /// Has it go on without this process, as long as something is left of the command. Whether it is there
    /// and will.
    pub(crate) fn leave(&self) -> bool {
        let word: Word = [LEAVE, 0];
        let is_there = send(self.line.as_fd(), word, None).is_ok();
        self.is_needed.store(is_there, Ordering::Relaxed);
        is_there
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        if self.is_needed.load(Ordering::Relaxed) {
            return;
        }
        self.dismiss();
        while waitpid(self.pid, None) == Err(Errno::EINTR) {}
    }
}
