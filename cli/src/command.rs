//! The command that runs while the lock is held: its start, its signals, its terminal, its end.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::Arc;

use distlock::Announcer;
use distlock_agent::protocol::Time;
use distlock_agent::runtime::{Alarm, ProcessGroup, clock};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, raise};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getppid};

use crate::cgroup::Cgroup;
use crate::descendants;
use crate::exit::{self, Failure, quoted};
use crate::guardian::Guardian;
use crate::lease_monitor::{LeaseMonitor, Leave};
use crate::refusal;
use crate::signals::{self, Signals};
use crate::spawn::{self, Program};
use crate::terminal::Terminal;

/// How often the rest of a process group is looked at that must end, in milliseconds: processes that
/// are not our children end without telling us.
const GROUP_POLL_MS: u8 = 5;
/// How many times it is looked whether descendants are left that were killed.
const DESCENDANT_POLLS: u32 = 400;

/// What to run.
#[derive(Debug)]
pub(crate) struct CommandSpec<'a> {
    /// The program, looked up in PATH.
    pub(crate) program: &'a OsStr,
    /// Its arguments.
    pub(crate) args: &'a [OsString],
    /// What to set in its environment, and with `None` to remove.
    pub(crate) env: &'a [(&'a str, Option<OsString>)],
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// Its status.
    pub(crate) status: Status,
    /// Whether its lock was lost or about to be, and it was told to end.
    pub(crate) evicted: bool,
    /// Whether it had the terminal's foreground until then.
    pub(crate) in_foreground: bool,
}

/// What a command left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// It ended by itself, with this code.
    Exited(u8),
    /// It died of the signal with this number.
    Signaled(i32),
}

/// A running command. It leads a process group of its own.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    /// The number of its process, and of its group as long as it has not been waited for.
    pid: Pid,
    /// Its group, whatever the number means by now; `None` where the system cannot tell.
    group: Option<ProcessGroup>,
    was_waited_for: bool,
    /// Where there is one, this process adopts what the command leaves behind.
    guardian: Option<&'a Guardian>,
    signals: &'a Signals,
    terminal: Option<Arc<Terminal>>,
    in_foreground: bool,
    eviction: Eviction,
    /// What it sleeps by: a lease goes on while the host is suspended.
    alarm: Alarm,
}

/// How far the ending of a command has come whose lock is lost or about to be. There is no way
/// back, also if the lease is renewed after all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Eviction {
    No,
    /// TERM was sent; KILL follows at that time.
    Asked {
        kill: Time,
    },
    Killed,
}

impl<'a> Job<'a> {
    /// Starts the command. To be called by the main thread: when the thread that called ends,
    /// however it ends, the kernel kills the command. The command's process says itself who it is,
    /// by `announcer` and to the guardian, before it becomes the command.
    ///
    /// # Errors
    /// 126 or 127 when it cannot be executed or is not there, 69 when the system has no room.
    pub(crate) fn start(
        spec: &CommandSpec<'_>,
        signals: &'a Signals,
        announcer: Option<Announcer>,
        guardian: Option<&'a Guardian>,
    ) -> Result<Self, Failure> {
        let alarm = Alarm::new().map_err(|error| refusal::system("open a timer", error))?;
        let terminal = Terminal::open().map(Arc::new);
        let foreground = terminal.clone().filter(|terminal| terminal.is_ours());
        let in_foreground = foreground.is_some();

        if guardian.is_some() {
            descendants::adopt();
        }
        let cgroup = guardian.and_then(Guardian::cgroup).map(Cgroup::directory);
        let (runner, inherited) = (Pid::this(), signals.inherited());
        let setup = || {
            prctl::set_pdeathsig(Signal::SIGKILL)?;
            if getppid() != runner {
                // The runner died before the kernel was told, and so it will not do it.
                raise(Signal::SIGKILL)?;
            }
            if let Some(announcer) = &announcer {
                // If the agent is gone, so is the lock, and this is ended in a moment.
                let _ = announcer.announce();
            }
            if let Some(guardian) = guardian {
                guardian.watch_caller()?;
            }
            if let Some(terminal) = &foreground {
                // Who is not in the foreground yet must not be stopped for taking it.
                SigSet::from(Signal::SIGTTOU).thread_block()?;
                terminal.give(Pid::this());
            }
            inherited.restore()
        };
        let program = Program::new(spec.program, spec.args, spec.env);
        match program.and_then(|program| program.start(cgroup, setup)) {
            Ok(pid) => Ok(Self {
                pid,
                group: ProcessGroup::of_child(pid.as_raw().cast_unsigned()).ok(),
                was_waited_for: false,
                guardian,
                signals,
                terminal,
                in_foreground,
                eviction: Eviction::No,
                alarm,
            }),
            Err(error) => {
                if let Some(terminal) = terminal.filter(|_| in_foreground) {
                    terminal.take_back(None);
                }
                Err(not_started(spec.program, &error))
            }
        }
    }

    /// The command's process.
    pub(crate) fn pid(&self) -> u32 {
        self.pid.as_raw().cast_unsigned()
    }

    /// Waits until the command has ended, and its lifeline if there is one, and does meanwhile what
    /// a good parent does.
    ///
    /// # Errors
    /// Only what cannot happen: the kernel refuses to wait. The command dies with this process.
    pub(crate) fn wait(mut self, lease: &LeaseMonitor<'_>) -> io::Result<End> {
        let mut ended = None;
        loop {
            // First of all: the host may have been suspended for longer than the lease.
            let next = self.enforce(lease);
            self.take_signals(&mut ended)?;
            if let Some(status) = ended
                && (self.eviction != Eviction::No || !lease.lifeline().is_some_and(is_alive))
            {
                return self.finish(status);
            }
            let bell = (self.eviction == Eviction::No).then(|| lease.bell());
            // Of use only once it may end: until then the command itself has it.
            let lifeline = ended.and_then(|_| lease.lifeline());
            self.alarm.set(next)?;
            self.sleep(bell, lifeline, PollTimeout::NONE)?;
        }
    }

    /// Has the command end when its lock is lost or about to be; when to be called again.
    fn enforce(&mut self, lease: &LeaseMonitor<'_>) -> Option<Time> {
        if self.eviction == Eviction::No {
            match lease.leave() {
                Leave::Granted { until } => return until,
                Leave::Ended { kill } if kill > clock::now() => self.ask_to_end(kill),
                Leave::Ended { .. } => self.kill(),
            }
        }
        self.kill_if_overdue()
    }

    /// Kills a command that was told to end and had its time; until when it still has some.
    fn kill_if_overdue(&mut self) -> Option<Time> {
        let Eviction::Asked { kill } = self.eviction else {
            return None;
        };
        if clock::now() < kill {
            return Some(kill);
        }
        self.kill();
        None
    }

    fn kill(&mut self) {
        self.signal(libc::SIGKILL);
        self.kill_descendants();
        self.eviction = Eviction::Killed;
    }

    /// Does what the signals say that have come. `ended`: the command's status, if it has ended.
    fn take_signals(&mut self, ended: &mut Option<Status>) -> io::Result<()> {
        while let Some(number) = self.signals.next()? {
            match number {
                libc::SIGCHLD if ended.is_none() => {
                    *ended = self.look_at_child()?;
                    self.reap();
                    if ended.is_some() {
                        self.take_terminal_back();
                    }
                }
                libc::SIGCHLD => self.reap(),
                libc::SIGCONT => self.resume(),
                other => {
                    // What left the group cannot be told. It keeps this member's place.
                    let is_left = ended.is_some() && !self.signal(0);
                    if is_left && signals::is_deadly(other) {
                        signals::die_of(other);
                    }
                    self.signal(other);
                }
            }
        }
        Ok(())
    }

    /// Sleeps until a signal or the bell comes, the lifeline ends, or the alarm goes off, at most
    /// for `timeout`.
    fn sleep(
        &self,
        bell: Option<BorrowedFd<'_>>,
        lifeline: Option<BorrowedFd<'_>>,
        timeout: PollTimeout,
    ) -> io::Result<()> {
        let mut fds = vec![
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.alarm.as_fd(), PollFlags::POLLIN),
        ];
        fds.extend(bell.map(|bell| PollFd::new(bell, PollFlags::POLLIN)));
        fds.extend(lifeline.map(|lifeline| PollFd::new(lifeline, PollFlags::empty())));
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sends a signal to the command's process group, and to nobody else; whether somebody is left
    /// in it. 0 looks only.
    fn signal(&self, number: i32) -> bool {
        match &self.group {
            Some(group) => {
                let sent = group.signal(number);
                !sent.is_err_and(|error| error.raw_os_error() == Some(libc::ESRCH))
            }
            // Afterwards the number may come to mean another group.
            None if !self.was_waited_for => {
                signals::send(self.pid, number);
                true
            }
            None => false,
        }
    }

    /// The lock is lost, or about to be. A stopped process takes note of TERM only when it is continued.
    fn ask_to_end(&mut self, kill: Time) {
        self.signal(libc::SIGTERM);
        self.signal(libc::SIGCONT);
        self.eviction = Eviction::Asked { kill };
    }

    /// Takes note of the end of those that this process has adopted.
    fn reap(&self) {
        if let Some(guardian) = self.guardian {
            guardian.reap_adopted(Some(self.pid));
        }
    }

    /// Kills what the command has started, also outside of its group; whether something is left.
    fn kill_descendants(&self) -> bool {
        self.guardian.is_some_and(Guardian::kill_descendants)
    }

    /// The command's status, if it has ended.
    fn look_at_child(&mut self) -> io::Result<Option<Status>> {
        if let Some(status) = spawn::try_wait(self.pid)? {
            self.was_waited_for = true;
            let signaled = || Status::Signaled(status.signal().unwrap_or_default());
            // The kernel keeps eight bits of the code.
            let code = status.code().map(|code| Status::Exited(code as u8));
            return Ok(Some(code.unwrap_or_else(signaled)));
        }
        let stops = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG;
        if let Ok(WaitStatus::Stopped(_, by)) = waitid(Id::Pid(self.pid), stops) {
            self.stopped(by);
        }
        Ok(None)
    }

    /// The command was stopped. When the terminal did that, this process stops too, so that the
    /// shell that started it sees its job stopped; SIGCONT resumes both.
    fn stopped(&mut self, by: Signal) {
        let Some(terminal) = &self.terminal else {
            return;
        };
        match by {
            // Brought to the foreground by a shell that knows only this process group.
            Signal::SIGTTIN | Signal::SIGTTOU if terminal.is_ours() => self.resume(),
            Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU => {
                terminal.take_back(Some(self.pid));
                self.in_foreground = false;
                signals::stop_own_group();
                // Without a shell that could continue it, the kernel did not stop this process
                // group. The suspend key has no meaning then, and the command goes on.
                if by == Signal::SIGTSTP && !signals::is_pending(Signal::SIGCONT) {
                    self.resume();
                }
            }
            _ => {}
        }
    }

    /// Continues the command, in the foreground if this process was put there.
    fn resume(&mut self) {
        if let Some(terminal) = self.terminal.as_ref().filter(|terminal| terminal.is_ours()) {
            terminal.give(self.pid);
            self.in_foreground = true;
        }
        self.signal(libc::SIGCONT);
    }

    /// The command has ended, and the terminal is its no more.
    fn take_terminal_back(&self) {
        if let Some(terminal) = self.terminal.as_ref().filter(|_| self.in_foreground) {
            terminal.take_back(Some(self.pid));
        }
    }

    /// The command has ended; of a lost lock's process group nothing may stay.
    fn finish(mut self, status: Status) -> io::Result<End> {
        // It may have gone off, and would keep waking us.
        self.alarm.set(None)?;
        while self.kill_if_overdue().is_some() && self.signal(0) {
            self.sleep(None, None, PollTimeout::from(GROUP_POLL_MS))?;
            // What comes now comes too late to be passed on, and would keep waking us.
            while self.signals.next()?.is_some() {}
        }
        let evicted = self.eviction != Eviction::No;
        // Also of what has left the group nothing may stay. What no signal ends stays anyway.
        let mut polls = 0;
        while evicted && polls < DESCENDANT_POLLS && self.kill_descendants() {
            std::thread::sleep(std::time::Duration::from_millis(GROUP_POLL_MS.into()));
            polls += 1;
        }
        Ok(End {
            status,
            evicted,
            in_foreground: self.in_foreground,
        })
    }
}

/// Whether somebody has the writing end of the pipe `lifeline`.
pub(crate) fn is_alive(lifeline: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(lifeline, PollFlags::empty())];
    let _ = poll(&mut fds, PollTimeout::ZERO);
    !fds[0].any().unwrap_or(true)
}

/// Why the command did not start, and its exit code.
fn not_started(program: &OsStr, error: &io::Error) -> Failure {
    let name = quoted(program);
    let has_slash = program.as_encoded_bytes().contains(&b'/');
    match error.raw_os_error() {
        Some(libc::ENOENT) if has_slash && Path::new(program).exists() => Failure::new(
            exit::NOT_EXECUTABLE,
            format_args!("cannot execute {name}: its interpreter does not exist; check line 1"),
        ),
        Some(libc::ENOENT | libc::ENOTDIR) => Failure::new(
            exit::NOT_FOUND,
            format_args!("cannot find the command {name}; check its name and PATH"),
        ),
        Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE) => Failure::new(
            exit::UNAVAILABLE,
            format_args!("cannot start {name}: {error}; see 'ulimit -a' and try again later"),
        ),
        Some(libc::EACCES) => Failure::new(
            exit::NOT_EXECUTABLE,
            format_args!(
                "cannot execute {name}: permission denied; is it a program, with mode +x?"
            ),
        ),
        _ => Failure::new(
            exit::NOT_EXECUTABLE,
            format_args!("cannot execute {name}: {error}"),
        ),
    }
}
