//! How a process that is about to become a command tells of itself.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::sys::socket::{MsgFlags, send};
use nix::unistd::Pid;

use crate::runtime::frames::{self, MAX_COMMAND_PID};
use crate::runtime::os::clock;
use crate::runtime::os::pidfd::Stat;

/// Tells of the process that works under a lock, from that process itself, before it does anything
/// else. So it is known whatever becomes of the one that started it, at whatever moment: to the
/// agent, which can end it, or in the local group to whoever takes the lock next.
#[derive(Debug)]
pub struct Announcer {
    to: Destination,
}

#[derive(Debug)]
enum Destination {
    /// The agent.
    Agent {
        /// A copy of the client's stream.
        stream: OwnedFd,
        /// The client's number of the request.
        id: u64,
    },
    /// A record in a file.
    Record { file: File, at: u64 },
}

/// A process, by its number and a time at which it was there already: that tells it from those that
/// are given the number later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// The process's number.
    pub pid: u32,
    /// The time, in hundredths of a second of `CLOCK_BOOTTIME`, as the kernel gives the start of
    /// processes.
    pub by: u64,
}

impl Sighting {
    /// How many bytes it has in a record.
    pub const LEN: usize = 12;

    /// Of the process `pid`, which is there now.
    pub fn now(pid: u32) -> Self {
        let by = clock::now().as_nanos() / 10_000_000;
        Self { pid, by }
    }

    /// Whether that process is there, and has not ended. Also if this user may not look at the process
    /// of that number: it may be the one.
    pub fn may_be_there(self) -> bool {
        if kill(Pid::from_raw(self.pid.cast_signed()), None) == Err(Errno::ESRCH) {
            return false;
        }
        Stat::read(self.pid).map_or(true, |stat| !stat.has_ended && stat.start <= self.by)
    }

    /// As it stands in a record.
    pub fn encode(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let (by, pid) = bytes.split_at_mut(8);
        by.copy_from_slice(&self.by.to_le_bytes());
        pid.copy_from_slice(&self.pid.to_le_bytes());
        bytes
    }

    /// The counterpart of [`Sighting::encode`].
    pub fn decode(bytes: &[u8; Self::LEN]) -> Self {
        let (by, pid) = bytes.split_first_chunk().expect("it is longer");
        Self {
            pid: u32::from_le_bytes(*pid.first_chunk().expect("four are left")),
            by: u64::from_le_bytes(*by),
        }
    }
}

impl Announcer {
    pub(crate) fn new(stream: OwnedFd, id: u64) -> Self {
        let to = Destination::Agent { stream, id };
        Self { to }
    }

    /// Announces by writing a [`Sighting`] into `file`, `at` bytes from the file's beginning.
    pub fn in_record(file: File, at: u64) -> Self {
        let to = Destination::Record { file, at };
        Self { to }
    }

    /// Tells of the calling process, which must lead a process group and be a child of the
    /// client's. Async-signal-safe: for the time between fork and exec, while no other thread of
    /// the parent uses the client.
    ///
    /// # Errors
    /// If the agent is gone, or has stood still for long; or what the system says.
    pub fn announce(&self) -> io::Result<()> {
        let (stream, id) = match &self.to {
            Destination::Agent { stream, id } => (stream, *id),
            Destination::Record { file, at } => {
                return file.write_all_at(&Sighting::now(std::process::id()).encode(), *at);
            }
        };
        let mut room = [0; MAX_COMMAND_PID];
        let Some(frame) = frames::command_pid(id, std::process::id(), &mut room) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        match send(stream.as_raw_fd(), frame, flags) {
            Ok(len) if len == frame.len() => Ok(()),
            Ok(_) => Err(io::ErrorKind::WriteZero.into()),
            Err(errno) => Err(io::Error::from_raw_os_error(errno as i32)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::process::Command;

    use super::*;
    use crate::runtime::frames::{MAX_TO_AGENT, ToAgent};

    #[test]
    fn writes_of_itself_into_a_record() {
        let file = tempfile::tempfile().unwrap();
        let announcer = Announcer::in_record(file.try_clone().unwrap(), 7);
        announcer.announce().unwrap();
        let mut bytes = [0; Sighting::LEN];
        file.read_exact_at(&mut bytes, 7).unwrap();
        let seen = Sighting::decode(&bytes);
        assert_eq!(seen.pid, std::process::id());
        assert!(seen.by <= Sighting::now(1).by && seen.by > 0);
    }

    #[test]
    fn says_what_the_client_would_say() {
        for id in [0, 1, u64::MAX] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            Announcer::new(ours.into(), id).announce().unwrap();
            let mut said = Vec::new();
            theirs.read_to_end(&mut said).unwrap();
            let taken = frames::take::<ToAgent>(&said, MAX_TO_AGENT).unwrap();
            let (message, len) = taken.unwrap();
            assert_eq!(len, said.len());
            let pid = std::process::id();
            assert_eq!(message, ToAgent::CommandPid { id, pid });
        }
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let gone = Announcer::new(ours.into(), 1).announce().unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(Errno::EPIPE as i32));
    }

    #[test]
    fn a_process_is_known_by_its_number_and_its_start() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let seen = Sighting::now(child.id());
        assert!(seen.may_be_there());
        let start = Stat::read(child.id()).unwrap().start;
        assert!(start <= seen.by && seen.by - start < 1000, "{start}");
        // One that had the number before it.
        let by = start - 1;
        assert!(!Sighting { by, ..seen }.may_be_there());
        child.kill().unwrap();
        while seen.may_be_there() {
            std::thread::yield_now();
        }
        assert!(Stat::read(child.id()).unwrap().has_ended, "not waited for");
        child.wait().unwrap();
        assert!(!seen.may_be_there());
    }
}
