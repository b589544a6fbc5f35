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
//!
//! It runs between fork and exec, so to speak: other threads may have held any mutex at the fork, the
//! allocator's too. So nothing here allocates, takes a lock or panics once it is a child.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use distlock::LeaseWatch;
use distlock_agent::protocol::Time;
use distlock_agent::runtime::{ProcessGroup, clock};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, setsid};

use crate::cgroup::Cgroup;
use crate::descendants::signal_children;

/// After what time those are killed again that are left; each time twice that, but no more than the
/// second. What has ended and was not waited for counts as left.
const AGAIN: Duration = Duration::from_millis(20);
const AGAIN_MOST: Duration = Duration::from_secs(5);
/// How long its first word is waited for. It has little to do before that.
const READY_MS: u16 = 2_000;
/// The child that becomes the command says its number, and its descriptor goes along.
const COMMAND: u32 = 1;
/// This process ends in order, and something that the command started is left.
const LEAVE: u32 = 2;
/// What is said to it: one of the above, and a number.
type Word = [u32; 2];
const WORD: usize = size_of::<Word>();

/// The guardian as its parent sees it. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Guardian {
    pid: Pid,
    line: UnixStream,
    /// Rung when the command has ended.
    bell: EventFd,
    cgroup: Option<Cgroup>,
    is_needed: bool,
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
        // SAFETY: the child makes system calls and looks at its own memory only, see above.
        match unsafe { fork() }? {
            ForkResult::Parent { child } => Ok(Self {
                pid: child,
                line,
                bell,
                cgroup,
                is_needed: false,
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
        #[expect(unsafe_code, reason = "nix has no wrapper for pidfd_open")]
        // SAFETY: the call takes numbers, and returns a new descriptor or -1.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let fd = RawFd::try_from(Errno::result(fd)?).map_err(|_| Errno::EBADF)?;
        #[expect(unsafe_code, reason = "the descriptor is new")]
        // SAFETY: nobody else knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        send(self.line.as_fd(), [COMMAND, pid], Some(fd.as_fd()))
    }

    /// The command's control group.
    pub(crate) fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
    }

    /// The command has ended. Waits until the guardian has closed what the command kept the lock by,
    /// and all else that it inherited.
    pub(crate) fn settle(&self) {
        let _ = self.bell.write(1);
        let mut line = [PollFd::new(self.line.as_fd(), PollFlags::POLLIN)];
        // One that does not come to it is ended, which closes all.
        let _ = poll(&mut line, PollTimeout::from(READY_MS));
        if line[0].any() != Some(true) {
            let _ = kill(self.pid, Signal::SIGKILL);
            let _ = poll(&mut line, PollTimeout::from(READY_MS));
        }
    }

    /// The guardian's process.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Ends it. That is waited for when this is dropped.
    pub(crate) fn dismiss(&self) {
        // It is a child that nobody has waited for, so the number is its own.
        let _ = kill(self.pid, Signal::SIGKILL);
    }

    /// Lets it go on without this process, as long as something is left of the command.
    pub(crate) fn leave(mut self) {
        let word: Word = [LEAVE, 0];
        self.is_needed = send(self.line.as_fd(), word, None).is_ok();
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        if self.is_needed {
            return;
        }
        self.dismiss();
        while waitpid(self.pid, None) == Err(Errno::EINTR) {}
    }
}

/// What the guardian knows of its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runner {
    There,
    /// It has said so, and is about to be gone, or is.
    Leaves,
    /// It is gone without a word.
    Dead,
}

/// The guardian as it sees itself.
struct Watcher<'a> {
    parent: Pid,
    line: BorrowedFd<'a>,
    lifeline: BorrowedFd<'a>,
    /// A writing end of it, until the lock may go.
    keeps: Option<OwnedFd>,
    bell: &'a EventFd,
    cgroup: Option<&'a Cgroup>,
    timer: &'a TimerFd,
    watch: &'a LeaseWatch,
    /// How long before the end of the lease the command is killed.
    margin: Duration,
    command: Option<ProcessGroup>,
    runner: Runner,
    /// Whether the lease was seen to be over, or nearly so. There is no way back.
    is_over: bool,
    /// After what time to kill those again that are left.
    again: Duration,
}

impl Watcher<'_> {
    fn run(mut self) -> ! {
        // It fails for who leads a group, which a child does not.
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
            // Also what has left its group. What a dead parent had adopted is nobody's any more, and is
            // found by its control group alone.
            if self.runner == Runner::There {
                found |= signal_children(self.parent, Pid::this(), Signal::SIGKILL);
            }
            if let Some(cgroup) = self.cgroup.filter(|cgroup| cgroup.is_populated()) {
                cgroup.kill();
                found = true;
            }
            // If none is found, nobody is left whom it may end; or it is not known yet, and is heard of.
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
        // Interrupted or not, it is looked again. Who is gone would wake it for ever, and while the
        // parent is there it has the lifeline open itself.
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

/// Wipes this process's copy of the environment: nobody is to find there what is meant for the command,
/// nor to take this process for a part of it.
fn forget_environment() {
    #[expect(unsafe_code, reason = "the environment as the C library has it")]
    // SAFETY: POSIX has it so.
    unsafe extern "C" {
        static environ: *const *mut libc::c_char;
    }
    #[expect(unsafe_code, reason = "its strings are written over")]
    // SAFETY: this process has one thread, and uses no variable any more. The array and its strings end
    // with zeros, and are memory of this process's own, to which the kernel has written them.
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

/// Room for one descriptor that goes along.
#[repr(C, align(8))]
struct Room([u8; 32]);

/// Sends a word, and perhaps a descriptor with it, without waiting and without a signal.
fn send(line: BorrowedFd<'_>, mut word: Word, fd: Option<BorrowedFd<'_>>) -> nix::Result<()> {
    let mut bytes = libc::iovec {
        iov_base: word.as_mut_ptr().cast(),
        iov_len: WORD,
    };
    let mut room = Room([0; 32]);
    #[expect(unsafe_code, reason = "nix allocates where a descriptor goes along")]
    // SAFETY: zeros are an empty header; the pointers are to what lives until the call is over, with
    // their lengths. There is room for one header with one descriptor.
    let sent = unsafe {
        let mut header: libc::msghdr = mem::zeroed();
        header.msg_iov = &raw mut bytes;
        header.msg_iovlen = 1;
        if let Some(fd) = fd {
            header.msg_control = room.0.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
            let control = libc::CMSG_FIRSTHDR(&header);
            (*control).cmsg_level = libc::SOL_SOCKET;
            (*control).cmsg_type = libc::SCM_RIGHTS;
            (*control).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
            libc::CMSG_DATA(control)
                .cast::<RawFd>()
                .write_unaligned(fd.as_raw_fd());
        }
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        libc::sendmsg(line.as_raw_fd(), &header, flags)
    };
    match Errno::result(sent)? {
        len if len as usize == WORD => Ok(()),
        _ => Err(Errno::EMSGSIZE),
    }
}

/// The next word, and what came along; `None` at the end.
fn receive(line: BorrowedFd<'_>) -> Result<Option<(Word, Option<OwnedFd>)>, Errno> {
    let mut word: Word = [0; 2];
    let mut bytes = libc::iovec {
        iov_base: word.as_mut_ptr().cast(),
        iov_len: WORD,
    };
    let mut room = Room([0; 32]);
    #[expect(unsafe_code, reason = "nix allocates where a descriptor comes along")]
    // SAFETY: as above; what came along is open, and nobody else knows it.
    let (len, fd) = unsafe {
        let mut header: libc::msghdr = mem::zeroed();
        header.msg_iov = &raw mut bytes;
        header.msg_iovlen = 1;
        header.msg_control = room.0.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
        let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
        let len = Errno::result(libc::recvmsg(line.as_raw_fd(), &mut header, flags))?;
        let control = libc::CMSG_FIRSTHDR(&header);
        let has_fd = !control.is_null()
            && (*control).cmsg_level == libc::SOL_SOCKET
            && (*control).cmsg_type == libc::SCM_RIGHTS
            && (*control).cmsg_len as usize >= libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize;
        let fd = has_fd.then(|| {
            let fd = libc::CMSG_DATA(control).cast::<RawFd>().read_unaligned();
            OwnedFd::from_raw_fd(fd)
        });
        (len as usize, fd)
    };
    Ok((len == WORD).then_some((word, fd)))
}
