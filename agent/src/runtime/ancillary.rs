//! Descriptors that travel with the bytes of a Unix stream.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use nix::cmsg_space;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

/// The most descriptors that the kernel lets one message have.
const MAX_FDS: usize = 253;

/// Sends the first of `bytes`, with `fd` if there is one; how many. No signal if the peer is gone.
pub(super) fn send(
    stream: &UnixStream,
    bytes: &[u8],
    fd: Option<BorrowedFd<'_>>,
) -> io::Result<usize> {
    let fds: Vec<_> = fd.iter().map(AsRawFd::as_raw_fd).collect();
    let with = [ControlMessage::ScmRights(&fds)];
    let with = if fds.is_empty() { &[][..] } else { &with[..] };
    let bytes = [IoSlice::new(bytes)];
    let sent = sendmsg::<()>(
        stream.as_raw_fd(),
        &bytes,
        with,
        MsgFlags::MSG_NOSIGNAL,
        None,
    )?;
    Ok(sent)
}

/// Receives bytes into `buffer`, and descriptors to the end of `fds`; how many bytes.
pub(super) fn receive(
    stream: &impl AsRawFd,
    buffer: &mut [u8],
    fds: &mut impl Extend<OwnedFd>,
) -> io::Result<usize> {
    let mut bytes = [IoSliceMut::new(buffer)];
    let mut room = cmsg_space!([RawFd; MAX_FDS]);
    let received = recvmsg::<()>(
        stream.as_raw_fd(),
        &mut bytes,
        Some(&mut room),
        MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT,
    )?;
    for message in received.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = message {
            #[expect(unsafe_code, reason = "the kernel has just made them for us")]
            // SAFETY: each is open, and nobody else knows it.
            fds.extend(
                raw.into_iter()
                    .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }),
            );
        }
    }
    Ok(received.bytes)
}
