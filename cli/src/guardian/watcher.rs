//! The guardian as it sees itself: what it does in its process.
//!
//! It runs between fork and exec, so to speak: other threads may have held any mutex at the fork, the
//! allocator's too. So nothing here allocates, takes a lock or panics.

use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use distlock::LeaseWatch;
use distlock_agent::protocol::Time;
use distlock_agent::runtime::{ProcessGroup, clock};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::Signal;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{Expiration, TimerFd, TimerSetTimeFlags};
use nix::unistd::{Pid, setsid};

use super::line::{COMMAND, LEAVE, receive, send};
use crate::cgroup::Cgroup;
use crate::descendants::signal_children;

/// After what time those are killed again that are left; each time twice that, but no more than the
/// second. What has ended and was not waited for counts as left.
pub(super) const AGAIN: Duration = Duration::from_millis(20);
const AGAIN_MOST: Duration = Duration::from_secs(5);

/// What the guardian knows of its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runner {
    There,
    /// It has said so, and is about to be gone, or is.
    Leaves,
    /// It is gone without a word.
    Dead,
}

/// The guardian in its own process.
pub(super) struct Watcher<'a> {
    pub(super) parent: Pid,
    pub(super) line: BorrowedFd<'a>,
    pub(super) lifeline: BorrowedFd<'a>,
    /// A writing end of it, until the lock may go.
    pub(super) keeps: Option<OwnedFd>,
    pub(super) bell: &'a EventFd,
    pub(super) cgroup: Option<&'a Cgroup>,
    pub(super) timer: &'a TimerFd,
    pub(super) watch: &'a LeaseWatch,
    /// How long before the end of the lease the command is killed.
    pub(super) margin: Duration,
    pub(super) command: Option<ProcessGroup>,
    pub(super) runner: Runner,
    /// Whether the lease was seen to be over, or nearly so. There is no way back.
    pub(super) is_over: bool,
    /// After what time to kill those again that are left.
    pub(super) again: Duration,
}

impl Watcher<'_> {
    /// Watches until there is nothing to watch any more, and ends the process.
    pub(super) fn run(mut self) -> ! {
        // It fails for the leader of a process group, which a child does not.
        let _ = setsid();
        let _ = prctl::set_name(c"distlock-guard");
        let _ = nix::unistd::chdir(c"/");
        forget_environment();
        self.close_others();
        while self.is_needed() {
            self.settle();
            self.end_command();
            self.sleep();
        }
        if let Some(cgroup) = self.cgroup {
            cgroup.remove();
        }
        #[expect(
            unsafe_code,
            reason = "what the parent arranged for its end is not for a copy"
        )]
        // SAFETY: it ends the process at once.
        unsafe {
            libc::_exit(0)
        }
    }

    /// Hears what there is to hear; whether there is still something to watch.
    fn is_needed(&mut self) -> bool {
        while self.runner == Runner::There {
            match receive(self.line) {
                Ok(Some(([COMMAND, pid], Some(fd)))) => {
                    self.command = ProcessGroup::of_descriptor(fd, pid).ok();
                }
                Ok(Some(([LEAVE, _], _))) => self.runner = Runner::Leaves,
                Ok(Some(_)) => {}
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => {}
                Ok(None) | Err(_) => self.runner = Runner::Dead,
            }
        }
        let leader = self.command.as_ref();
        let has_ended = leader.is_none_or(ProcessGroup::has_leader_ended);
        let is_free = has_ended
            && match self.runner {
                // It settles itself, unless it stands still and the lease is over.
                Runner::There => self.is_over && !self.is_populated(),
                Runner::Dead => !self.is_populated(),
                Runner::Leaves => true,
            };
        if is_free {
            self.keeps = None;
        }
        self.runner == Runner::There || !is_free || !has_hung_up(self.lifeline)
    }

    fn is_populated(&self) -> bool {
        self.cgroup.is_some_and(Cgroup::is_populated)
    }

    /// Lets the lock go and says so, if the bell has rung: the command has ended.
    fn settle(&mut self) {
        if self.bell.read().is_ok() {
            self.keeps = None;
            // The parent may be gone already.
            let _ = send(self.line, [0, 0], None);
        }
    }

    /// Kills the command if it is time, and sets the timer for the next look.
    fn end_command(&mut self) {
        let now = clock::now();
        let limit = self.watch.limit();
        let kill_at = (limit != Time::MAX).then(|| limit - self.margin);
        self.is_over |= kill_at.is_some_and(|at| at <= now);
        let mut next = kill_at;
        if self.is_over || self.runner == Runner::Dead {
            let command = self.command.as_ref();
            let mut found = command.is_some_and(|command| command.signal(libc::SIGKILL).is_ok());
            // Also what has left its group. What a dead parent had adopted is nobody's any more,
            // and is found by its control group alone.
            if self.runner == Runner::There {
                found |= signal_children(self.parent, Pid::this(), Signal::SIGKILL);
            }
            if let Some(cgroup) = self.cgroup.filter(|cgroup| cgroup.is_populated()) {
                cgroup.kill();
                found = true;
            }
            // If none is found, nobody is left whom it may end; or it is not known yet, and is
            // heard of.
            next = found.then(|| {
                let again = self.again;
                self.again = (again * 2).min(AGAIN_MOST);
                now + again
            });
        }
        let expiration = match next {
            Some(at) => {
                let at = Duration::from_nanos(at.as_nanos().max(1));
                Expiration::OneShot(TimeSpec::from(at))
            }
            None => {
                let _ = self.timer.unset();
                return;
            }
        };
        let _ = self
            .timer
            .set(expiration, TimerSetTimeFlags::TFD_TIMER_ABSTIME);
    }

    fn sleep(&self) {
        let timer = PollFd::new(self.timer.as_fd(), PollFlags::POLLIN);
        // Interrupted or not, it is looked again. A process that is gone would wake it for ever, and
        // while the parent is there it has the lifeline open itself.
        let _ = match (&self.command, self.runner) {
            (_, Runner::There) => {
                // Its end only: what is said there is heard in time when it is needed.
                let line = PollFd::new(self.line, PollFlags::empty());
                let bell = PollFd::new(self.bell.as_fd(), PollFlags::POLLIN);
                poll(&mut [timer, line, bell], PollTimeout::NONE)
            }
            (Some(command), _) if !command.has_leader_ended() => {
                let leader = PollFd::new(command.as_fd(), PollFlags::POLLIN);
                poll(&mut [timer, leader], PollTimeout::NONE)
            }
            (_, Runner::Dead) if self.is_populated() => {
                let events = self.cgroup.map_or(self.timer.as_fd(), Cgroup::events);
                let cgroup = PollFd::new(events, PollFlags::POLLPRI);
                poll(&mut [timer, cgroup], PollTimeout::NONE)
            }
            _ => {
                let lifeline = PollFd::new(self.lifeline, PollFlags::empty());
                poll(&mut [timer, lifeline], PollTimeout::NONE)
            }
        };
    }

    /// Closes all that the parent had open, and is not the guardian's.
    fn close_others(&self) {
        if let Ok(null) = nix::fcntl::open(
            c"/dev/null",
            nix::fcntl::OFlag::O_RDWR | nix::fcntl::OFlag::O_CLOEXEC,
            nix::sys::stat::Mode::empty(),
        ) {
            let _ = nix::unistd::dup2_stdin(&null);
            let _ = nix::unistd::dup2_stdout(&null);
            let _ = nix::unistd::dup2_stderr(&null);
            mem::forget(null);
        }
        let none = -1;
        let keeps = self.keeps.as_ref().map_or(none, AsRawFd::as_raw_fd);
        let [parent, directory, kill, events] = self.cgroup.map_or([none; 4], Cgroup::descriptors);
        let [line, lifeline, timer, bell] = [
            self.line,
            self.lifeline,
            self.timer.as_fd(),
            self.bell.as_fd(),
        ]
        .map(|fd| fd.as_raw_fd());
        let mut own = [
            line, lifeline, timer, bell, keeps, parent, directory, kill, events,
        ];
        own.sort_unstable();
        let mut first = 3;
        for fd in own.into_iter().filter(|fd| *fd >= 3) {
            close_range(first, fd - 1);
            first = fd + 1;
        }
        close_range(first, RawFd::MAX);
    }
}

/// Wipes this process's copy of the environment: nobody is to find there what is meant for the
/// command, nor to take this process for a part of it.
fn forget_environment() {
    #[expect(unsafe_code, reason = "the environment as the C library has it")]
    // SAFETY: POSIX has it so.
    unsafe extern "C" {
        static environ: *const *mut libc::c_char;
    }
    #[expect(unsafe_code, reason = "its strings are written over")]
    // SAFETY: this process has one thread, and uses no variable any more. The array and its strings
    // end with zeros, and are memory of this process's own, to which the kernel has written them.
    unsafe {
        let mut variable = environ;
        while !variable.is_null() && !(*variable).is_null() {
            let len = libc::strlen(*variable);
            std::ptr::write_bytes(*variable, 0, len);
            variable = variable.add(1);
        }
    }
}

/// Whether nobody has the other end any more.
fn has_hung_up(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::empty())];
    let _ = poll(&mut fds, PollTimeout::ZERO);
    fds[0].any().unwrap_or(false)
}

/// Closes the descriptors from `first` to `last`.
fn close_range(first: RawFd, last: RawFd) {
    if first > last {
        return;
    }
    #[expect(unsafe_code, reason = "nix has no wrapper for close_range")]
    // SAFETY: this process is a copy which uses none of them any more, and never drops their owners.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if closed == 0 {
        return;
    }
    // Before Linux 5.9.
    let most = getrlimit(Resource::RLIMIT_NOFILE).map_or(1 << 10, |(limit, _)| limit);
    let most = RawFd::try_from(most).unwrap_or(RawFd::MAX).min(1 << 20);
    for fd in first..=last.min(most) {
        #[expect(unsafe_code, reason = "a descriptor by its number")]
        // SAFETY: as above.
        unsafe {
            libc::close(fd);
        }
    }
}
