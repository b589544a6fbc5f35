//! How a process that is about to become a command tells the agent of itself.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::{MsgFlags, send};

use super::frames::{self, MAX_COMMAND_PID};

/// Tells the agent of the process that works under a lock, from that process itself, before it
/// does anything else. So the agent can end it whatever becomes of the one that started it, at
/// whatever moment.
#[derive(Debug)]
pub struct Announcer {
    /// A copy of the client's stream.
    stream: OwnedFd,
    /// The client's number of the request.
    id: u64,
}

impl Announcer {
    pub(super) fn new(stream: OwnedFd, id: u64) -> Self {
        Self { stream, id }
    }

    /// Tells of the calling process, which must lead a process group and be a child of the
    /// client's. Async-signal-safe: for the time between fork and exec, while no other thread of
    /// the parent uses the client.
    ///
    /// # Errors
    /// If the agent is gone, or has stood still for long.
    pub fn announce(&self) -> io::Result<()> {
        let mut room = [0; MAX_COMMAND_PID];
        let Some(frame) = frames::command_pid(self.id, std::process::id(), &mut room) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        match send(self.stream.as_raw_fd(), frame, flags) {
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

    use nix::errno::Errno;

    use super::super::frames::{MAX_TO_AGENT, ToAgent};
    use super::*;

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
}
