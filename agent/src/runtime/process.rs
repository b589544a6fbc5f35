//! Processes by descriptor: a number may come to mean another process, a descriptor never does.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::Pid;

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

    /// The leader of the process group `pid`, if that is a child of `parent`.
    pub(crate) fn open_leader(pid: u32, parent: u32) -> io::Result<Self> {
        let process = Self::open(pid)?;
        // Of a client in another pid namespace the number means somebody else here. Read after
        // the descriptor was opened, of a process that is still there: so it is the same one.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let rest = stat.rsplit(')').next().unwrap_or_default();
        let mut words = rest.split_whitespace().skip(1).map(str::parse);
        let (is_parent, is_group) = (words.next(), words.next());
        if is_parent != Some(Ok(parent)) || is_group != Some(Ok(pid)) || process.has_ended() {
            return Err(io::Error::other("it leads no group of the client's"));
        }
        Ok(process)
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        has_event(self.fd.as_fd(), PollFlags::POLLIN)
    }

    /// Sends `signal` to the process group `group` that this process leads or has led.
    pub(crate) fn signal_group(&self, group: u32, signal: Signal) {
        #[expect(unsafe_code, reason = "nix has no wrapper for pidfd_send_signal")]
        // SAFETY: the descriptor is open, and no further information is given.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.fd.as_raw_fd(),
                signal as libc::c_int,
                std::ptr::null::<libc::siginfo_t>(),
                libc::PIDFD_SIGNAL_PROCESS_GROUP,
            )
        };
        // Before Linux 6.9 only the number can be used, which is the group's while it has members.
        if let Err(Errno::EINVAL | Errno::ENOSYS) = Errno::result(sent)
            && let Ok(group) = i32::try_from(group)
        {
            let _ = killpg(Pid::from_raw(group), signal);
        }
    }
}

impl AsRawFd for Process {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Whether one of `events` is on `fd` now.
pub(super) fn has_event(fd: BorrowedFd<'_>, events: PollFlags) -> bool {
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

    #[test]
    fn a_leader_is_known_by_its_parent_and_its_group_is_signalled() {
        let mut other = Command::new("sleep").arg("600").spawn().unwrap();
        let mut command = Command::new("sleep");
        let mut leader = command.arg("600").process_group(0).spawn().unwrap();
        let me = std::process::id();
        assert!(Process::open_leader(other.id(), me).is_err(), "no leader");
        assert!(
            Process::open_leader(leader.id(), me + 1).is_err(),
            "another's"
        );
        let process = Process::open_leader(leader.id(), me).unwrap();
        assert!(!process.has_ended());
        process.signal_group(leader.id(), Signal::SIGTERM);
        assert_eq!(leader.wait().unwrap().signal(), Some(libc::SIGTERM));
        assert!(process.has_ended());
        assert!(Process::open_leader(leader.id(), me).is_err(), "ended");
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn a_peer_is_known_by_its_stream() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let peer = Process::of_peer(&ours, std::process::id()).unwrap();
        assert!(!peer.has_ended());
    }
}
