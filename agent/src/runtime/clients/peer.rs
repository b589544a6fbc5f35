//! The process at the other end of a stream.

use std::io;

use mio::net::UnixStream;
use nix::sys::socket::{getsockopt, sockopt};
use socket2::SockRef;

use crate::runtime::frames::{self, FromAgent, MAX_FROM_AGENT};

/// Who is at the other end, as the kernel says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) pid: u32,
    pub(super) uid: u32,
}

impl Peer {
    pub(super) fn of(stream: &UnixStream) -> io::Result<Self> {
        let credentials = getsockopt(stream, sockopt::PeerCredentials)?;
        let pid = u32::try_from(credentials.pid()).unwrap_or(0);
        Ok(Self {
            pid,
            uid: credentials.uid(),
        })
    }
}

/// Tells somebody who is no client, and does not become one.
pub(super) fn tell_only(stream: &UnixStream, message: &FromAgent) -> io::Result<()> {
    let mut bytes = Vec::new();
    frames::put(&mut bytes, message, MAX_FROM_AGENT)?;
    SockRef::from(stream).send_with_flags(&bytes, libc::MSG_NOSIGNAL)?;
    Ok(())
}
