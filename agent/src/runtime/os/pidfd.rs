//! Processes by descriptor: a number may come to mean another process, a descriptor never does.
//!
//! nix has no calls for such descriptors, and rustix or procfs would be one more crate for every
//! program with the library.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::Pid;

use crate::runtime::os::capability::WithoutKill;

/// A process that was there once.
#[derive(Debug)]
pub(crate) struct Process {
    fd: OwnedFd,
}

impl Process {
    /// The process that connected `stream`, which has the number `pid`. An error also if it has
    /// ended.
    pub(crate) fn of_peer(stream: impl AsFd, pid: u32) -> io::Result<Self> {
        match getsockopt(&stream, sockopt::PeerPidfd) {
            Ok(fd) => Ok(Self { fd }),
            // Before Linux 6.5 only the number is known, which the peer keeps while it lives.
            Err(Errno::ENOPROTOOPT) => Self::open(pid),
            Err(errno) => Err(errno.into()),
        }
    }

    fn open(pid: u32) -> io::Result<Self> {
        let pid = libc::pid_t::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?;
        #[expect(unsafe_code, reason = "nix has no wrapper for pidfd_open")]
        // SAFETY: the call takes numbers, and returns a new descriptor or -1.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        let fd = RawFd::try_from(Errno::result(fd)?).map_err(io::Error::other)?;
        #[expect(unsafe_code, reason = "the descriptor is new")]
        // SAFETY: nobody else knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd })
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        has_event(self.fd.as_fd(), PollFlags::POLLIN)
    }

    /// Sends the signal with this number to what `flags` says; 0 sends none, and looks only.
    fn signal(&self, number: i32, flags: libc::c_uint) -> Result<(), Errno> {
        #[expect(unsafe_code, reason = "nix has no wrapper for pidfd_send_signal")]
        // SAFETY: the descriptor is open, and no further information is given.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.fd.as_raw_fd(),
                number,
                std::ptr::null::<libc::siginfo_t>(),
                flags,
            )
        };
        Errno::result(sent).map(drop)
    }
}

/// A process group, known by the descriptor of the process that leads it or has led it: its number
/// alone may come to mean another group, once nobody of this one is left.
#[derive(Debug)]
pub struct ProcessGroup {
    leader: Process,
    number: Pid,
}

impl ProcessGroup {
    /// The group that the process `pid` leads: this process, or a child of it that has not been
    /// waited for. Does not allocate.
    ///
    /// # Errors
    /// If no descriptor is left, or the system gives none for processes.
    pub fn of_child(pid: u32) -> io::Result<Self> {
        Self::open(pid)
    }

    /// The group that the process `pid` leads, if that is a child of `parent` that has not been waited for.
    /// Also when the leader started, in the kernel's ticks.
    pub(crate) fn of_client(pid: u32, parent: u32) -> io::Result<(Self, u64)> {
        // A client in another pid namespace has no number here, and says what its command has there:
        // who has parent 0 here is the first process, and in its group may be anybody.
        if parent == 0 {
            return Err(io::Error::other("the client is in another pid namespace"));
        }
        let group = Self::open(pid)?;
        // The number is the client's word, and may mean somebody else. Read after the descriptor was
        // opened, of a process that is still there: so it is the same one.
        let stat = Stat::read(pid)?;
        // One that has ended, and was not waited for, has its number still.
        let is_gone = group.leader.signal(0, 0) == Err(Errno::ESRCH);
        if stat.parent != parent || stat.group != pid || is_gone {
            return Err(io::Error::other("it leads no group of the client's"));
        }
        Ok((group, stat.start))
    }

    /// The group that the process `pid` leads, if it is the one that started then, and has not ended.
    pub(crate) fn of_former(pid: u32, start: u64) -> io::Result<Self> {
        let group = Self::open(pid)?;
        let stat = Stat::read(pid)?;
        if stat.start != start || stat.group != pid || group.leader.has_ended() {
            return Err(io::Error::other("it is another process"));
        }
        Ok(group)
    }

    /// The group that the process leads of which this is a descriptor, and whose number it is.
    ///
    /// # Errors
    /// If it is no process's number.
    pub fn of_descriptor(fd: OwnedFd, pid: u32) -> io::Result<Self> {
        let number = i32::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(Self {
            leader: Process { fd },
            number: Pid::from_raw(number),
        })
    }

    fn open(pid: u32) -> io::Result<Self> {
        let leader = Process::open(pid)?;
        let number = i32::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?;
        let number = Pid::from_raw(number);
        Ok(Self { leader, number })
    }

    /// The number of the group and of its leader.
    pub fn number(&self) -> u32 {
        self.number.as_raw().cast_unsigned()
    }

    /// Whether the leader has ended; others of the group may be there.
    pub fn has_leader_ended(&self) -> bool {
        self.leader.has_ended()
    }

    /// Sends the signal with this number to everybody in the group; 0 looks only whether somebody
    /// is there. Never to anybody else, whatever the number has come to mean.
    ///
    /// # Errors
    /// `ESRCH` if nobody is left, or none can be told from strangers; `EPERM` if this process may
    /// signal none of them.
    pub fn signal(&self, number: i32) -> io::Result<()> {
        Ok(self.try_signal(number)?)
    }

    /// The same, for a client of `user`'s: only whom that user may signal, whatever this process may.
    pub(crate) fn signal_for(&self, user: u32, number: i32) -> io::Result<()> {
        let is_root = user == 0;
        let _without = (!is_root).then(WithoutKill::new).transpose()?;
        self.signal(number)
    }

    fn try_signal(&self, number: i32) -> Result<(), Errno> {
        match self.leader.signal(number, libc::PIDFD_SIGNAL_PROCESS_GROUP) {
            // Before Linux 6.9 only the group's number can be used. It is this group's for certain
            // as long as the leader has not been waited for.
            Err(Errno::EINVAL) => {
                self.leader.signal(0, 0)?;
                signal_by_number(self.number, number)
            }
            sent => sent,
        }
    }
}

/// What the kernel says of a process.
pub(crate) struct Stat {
    /// It has ended, and was not waited for.
    pub(crate) has_ended: bool,
    parent: u32,
    group: u32,
    /// When it started, in the kernel's ticks.
    pub(crate) start: u64,
}

impl Stat {
    pub(crate) fn read(pid: u32) -> io::Result<Self> {
        let stat = fs::read(format!("/proc/{pid}/stat"))?;
        // The program's name, in brackets, may be anything.
        let words = stat.rsplit(|&byte| byte == b')').next().unwrap_or_default();
        let words: Vec<_> = str::from_utf8(words)
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        let word = |field: usize| words.get(field - 3).copied().unwrap_or_default();
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        // Their numbers as proc_pid_stat(5) has them.
        Ok(Self {
            has_ended: matches!(word(3), "Z" | "X"),
            parent: word(4).parse().map_err(invalid)?,
            group: word(5).parse().map_err(invalid)?,
            start: word(22).parse().map_err(invalid)?,
        })
    }
}

impl AsFd for ProcessGroup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.leader.fd.as_fd()
    }
}

impl AsRawFd for ProcessGroup {
    fn as_raw_fd(&self) -> RawFd {
        self.leader.as_raw_fd()
    }
}

/// Sends signal number `number`, real-time signals included, to the group with that number.
fn signal_by_number(group: Pid, number: i32) -> Result<(), Errno> {
    #[expect(unsafe_code, reason = "nix knows no real-time signals")]
    // SAFETY: killpg takes two numbers and touches no memory of ours.
    let sent = unsafe { libc::killpg(group.as_raw(), number) };
    Errno::result(sent).map(drop)
}

impl AsRawFd for Process {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Whether one of `events` is on `fd` now.
pub(crate) fn has_event(fd: BorrowedFd<'_>, events: PollFlags) -> bool {
    let mut fds = [PollFd::new(fd, events)];
    // Without waiting nothing interrupts it, and there is nothing else that could fail.
    let _ = poll(&mut fds, PollTimeout::ZERO);
    fds[0]
        .revents()
        .is_some_and(|found| found.intersects(events))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::Command;

    use super::*;
    use crate::runtime::skipped::skipped;

    #[test]
    fn a_group_is_known_by_its_leaders_parent_and_is_signalled() {
        let mut other = Command::new("sleep").arg("600").spawn().unwrap();
        let mut command = Command::new("sleep");
        let mut leader = command.arg("600").process_group(0).spawn().unwrap();
        let me = std::process::id();
        let is_refused = |pid, parent| ProcessGroup::of_client(pid, parent).is_err();
        assert!(is_refused(other.id(), me), "no leader");
        assert!(is_refused(leader.id(), me + 1), "another's");
        let foreign = ProcessGroup::of_client(leader.id(), 0).unwrap_err();
        assert!(foreign.to_string().contains("namespace"), "{foreign}");
        let group = ProcessGroup::of_client(leader.id(), me).unwrap().0;
        assert!(!group.has_leader_ended());
        assert_eq!(group.try_signal(0), Ok(()));
        group.signal(libc::SIGTERM).unwrap();
        while !group.has_leader_ended() {
            std::thread::yield_now();
        }
        assert!(!is_refused(leader.id(), me), "it was not waited for");
        assert_eq!(leader.wait().unwrap().signal(), Some(libc::SIGTERM));
        assert!(group.has_leader_ended());
        assert_eq!(group.try_signal(libc::SIGTERM), Err(Errno::ESRCH));
        assert!(is_refused(leader.id(), me), "ended");
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }

    /// The number of a leader that was waited for is in use as long as its group has others.
    #[test]
    fn what_a_leader_leaves_behind_is_signalled_when_the_leader_is_gone() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & echo $!"]).process_group(0);
        let (mut said, stdout) = io::pipe().unwrap();
        let mut leader = command.stdout(stdout).spawn().unwrap();
        drop(command);
        let group = ProcessGroup::of_child(leader.id()).unwrap();
        leader.wait().unwrap();
        if group.try_signal(0) == Err(Errno::ESRCH) {
            return skipped("only Linux from 6.9 on signals the group of a process that is gone");
        }
        // The pipe ends with the last of the group.
        group.signal(libc::SIGKILL).unwrap();
        io::read_to_string(&mut said).unwrap();
    }

    #[test]
    fn a_program_may_have_any_name() {
        nix::sys::prctl::set_name(c"\xff) Z 1 (").unwrap();
        // The name is this thread's.
        let thread = nix::unistd::gettid().as_raw().cast_unsigned();
        let own = Stat::read(thread).unwrap();
        assert_eq!(own.parent, std::os::unix::process::parent_id());
        assert!(!own.has_ended);
    }

    #[test]
    fn a_peer_is_known_by_its_stream() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let peer = Process::of_peer(&ours, std::process::id()).unwrap();
        assert!(!peer.has_ended());
    }
}
