//! Messages of the agent, as they come off the stream.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use crate::protocol::Time;
use crate::runtime::frames;
use crate::runtime::frames::{FromAgent, MAX_FROM_AGENT};
use crate::runtime::os::fd_passing::Received;
use crate::runtime::os::{clock, fd_passing};

/// Takes whole messages off the stream.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) stream: UnixStream,
    pub(super) input: Vec<u8>,
    /// What came with the bytes, each together with one message, in their order. None of these if
    /// this process may not have that many more.
    pub(super) fds: VecDeque<Vec<OwnedFd>>,
}

impl Reader {
    /// The next message, if it comes by `end`; `None` at the end of the stream.
    pub(super) fn next_by(&mut self, end: Time) -> io::Result<Option<FromAgent>> {
        loop {
            let left = end.since(clock::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            // For each part of it, as there may be several.
            self.stream.set_read_timeout(Some(left))?;
            match self.next() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }

    /// The next message; `None` at the end of the stream.
    pub(super) fn next(&mut self) -> io::Result<Option<FromAgent>> {
        let mut chunk = [0; 16 * 1024];
        loop {
            if let Some((message, len)) = frames::take(&self.input, MAX_FROM_AGENT)? {
                self.input.drain(..len);
                return Ok(Some(message));
            }
            match fd_passing::receive(&self.stream, &mut chunk) {
                Ok(Received { len: 0, .. }) => return Ok(None),
                Ok(Received { len, fds, is_cut }) => {
                    self.input.extend_from_slice(&chunk[..len]);
                    if is_cut {
                        self.fds.push_back(Vec::new());
                    } else if !fds.is_empty() {
                        self.fds.push_back(fds);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
