//! What one client is to be told and has not read yet, with the descriptors that go along with it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use mio::net::UnixStream;

use crate::runtime::clients::limits::UNREAD_LIMIT;
use crate::runtime::frames::{self, FromAgent, MAX_FROM_AGENT};
use crate::runtime::os::fd_passing;
use crate::runtime::os::fifo::Fifo;
use crate::runtime::request::lease_page::LeasePage;
use crate::runtime::request::loan_page::OwnLoanPage;

/// Messages as bytes, from the first that was not forgotten yet.
#[derive(Debug, Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    /// How many of `bytes` are sent.
    sent: usize,
    /// What goes along with some of `bytes`, in their order.
    attached: VecDeque<Attached>,
}

/// What goes along with the byte at `at`.
#[derive(Debug)]
struct Attached {
    at: usize,
    with: With,
}

/// Descriptors that go along with a message.
#[derive(Debug)]
pub(super) enum With {
    /// A lifeline's ends, and the page of its lease.
    Lifeline(Arc<OwnedFd>, Arc<Fifo>, Arc<LeasePage>),
    /// The memory in which clients enter by themselves.
    LoanPage(Arc<OwnLoanPage>),
}

impl With {
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Self::Lifeline(writer, reader, page) => {
                vec![writer.as_fd(), reader.as_fd(), page.as_fd()]
            }
            Self::LoanPage(page) => page.files().to_vec(),
        }
    }
}

impl Output {
    pub(super) fn put(&mut self, message: &FromAgent) {
        if let Err(error) = frames::put(&mut self.bytes, message, MAX_FROM_AGENT) {
            tracing::error!(
                event = "client-not-told",
                "a message to a client cannot be written: {error}"
            );
        }
    }

    /// Adds a status as [`frames::encode_status`] has written it down.
    pub(super) fn put_status(&mut self, id: u64, status: &[u8]) {
        if let Err(error) = frames::put_status(&mut self.bytes, id, status) {
            tracing::error!(
                event = "client-not-told",
                "a status for a client cannot be written: {error}"
            );
        }
    }

    /// Has these go along with the next message.
    pub(super) fn attach(&mut self, with: With) {
        let at = self.bytes.len();
        self.attached.push_back(Attached { at, with });
    }

    /// How much memory it takes: what is sent is not forgotten at once.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// How much is not sent.
    pub(super) fn unread(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Writes as much as the stream takes.
    pub(super) fn flush(&mut self, stream: &UnixStream) -> io::Result<()> {
        while self.unread() > 0 {
            match self.send(stream) {
                Ok(len) => self.sent += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // What is sent is dropped, though not at every byte, also of a client that never
                    // reads all that there is.
                    if self.sent >= self.bytes.len() / 2 {
                        self.bytes.drain(..self.sent);
                        for attached in &mut self.attached {
                            attached.at -= self.sent;
                        }
                        self.bytes.shrink_to(UNREAD_LIMIT);
                        self.sent = 0;
                    }
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        // A long answer is rare, and its room is not kept for the next.
        self.bytes.clear();
        self.bytes.shrink_to(UNREAD_LIMIT);
        self.sent = 0;
        Ok(())
    }

    /// Sends some of what is unread, and what goes along with it; how many bytes.
    fn send(&mut self, stream: &UnixStream) -> io::Result<usize> {
        let unread = &self.bytes[self.sent..];
        let ahead = |attached: &Attached| attached.at - self.sent;
        match self.attached.front().map(ahead) {
            None => fd_passing::send(stream.as_fd(), unread, &[]),
            Some(0) => {
                let end = self.attached.get(1).map_or(unread.len(), ahead);
                let fds = self.attached[0].with.descriptors();
                let len = fd_passing::send(stream.as_fd(), &unread[..end], &fds)?;
                self.attached.pop_front();
                Ok(len)
            }
            Some(ahead) => fd_passing::send(stream.as_fd(), &unread[..ahead], &[]),
        }
    }
}
