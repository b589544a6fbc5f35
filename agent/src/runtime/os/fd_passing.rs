//! Descriptors that travel with the bytes of a Unix stream.
//!
//! Sent by nix, and received by libc: nix leaves descriptors open that came with a message that was
//! cut.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

/// How many descriptors are taken at once.
pub(crate) const MOST: usize = 3;
/// Room for one control message with [`MOST`] descriptors. The kernel closes those that do not fit.
const ROOM: usize = size_of::<libc::cmsghdr>() + MOST * size_of::<RawFd>();

/// Sends the first of `bytes`, with `fds`, as far as there is room at once; how many bytes. No signal
/// if the peer is gone.
pub(crate) fn send(
    stream: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    let fds: Vec<_> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let with = [ControlMessage::ScmRights(&fds)];
    let with = if fds.is_empty() { &[][..] } else { &with[..] };
    let bytes = [IoSlice::new(bytes)];
    let sent = sendmsg::<()>(
        stream.as_raw_fd(),
        &bytes,
        with,
        MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT,
        None,
    )?;
    Ok(sent)
}

/// What was received.
pub struct Received {
    /// How many bytes.
    pub len: usize,
    /// What came with them.
    pub fds: Vec<OwnedFd>,
    /// Whether there were more than are taken, or the process may not have another: then they are
    /// closed.
    pub is_cut: bool,
}

/// Receives bytes into `buffer`, and the descriptors that come with them, at most `MOST`.
pub fn receive(stream: &impl AsRawFd, buffer: &mut [u8]) -> io::Result<Received> {
    #[repr(C, align(8))]
    struct Room([u8; ROOM.next_multiple_of(8)]);
    let mut room = Room([0; ROOM.next_multiple_of(8)]);
    let mut bytes = [IoSliceMut::new(buffer)];
    #[expect(
        unsafe_code,
        reason = "nix drops the descriptors of what is cut, and leaves them open"
    )]
    // SAFETY: zeros are an empty header, as the C interface has it; the pointers are to what lives
    // until the calls are over, with their lengths (an `IoSliceMut` is an iovec). The macros stay
    // within the room as far as the kernel says that it is filled, and so do the reads, which are of
    // whole descriptors only. Each descriptor is open, and nobody else knows it.
    unsafe {
        let mut header: libc::msghdr = mem::zeroed();
        header.msg_iov = bytes.as_mut_ptr().cast();
        header.msg_iovlen = 1;
        header.msg_control = room.0.as_mut_ptr().cast();
        header.msg_controllen = ROOM as _;
        let flags = libc::MSG_CMSG_CLOEXEC;
        let len = Errno::result(libc::recvmsg(stream.as_raw_fd(), &mut header, flags))?;
        let first = libc::CMSG_FIRSTHDR(&header);
        let mut fds = Vec::new();
        if !first.is_null()
            && (*first).cmsg_level == libc::SOL_SOCKET
            && (*first).cmsg_type == libc::SCM_RIGHTS
        {
            let data = libc::CMSG_DATA(first).cast::<RawFd>();
            let filled = ((*first).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
            for index in 0..(filled / size_of::<RawFd>()).min(MOST) {
                fds.push(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
            }
        }
        Ok(Received {
            len: len as usize,
            fds,
            is_cut: header.msg_flags & libc::MSG_CTRUNC != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, pipe};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn receive_one(stream: &UnixStream) -> Received {
        receive(stream, &mut [0; 8]).unwrap()
    }

    #[test]
    fn descriptors_come_with_their_bytes() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut reader, writer) = pipe().unwrap();
        send(theirs.as_fd(), b"one", &[writer.as_fd(); MOST]).unwrap();
        send(theirs.as_fd(), b"two", &[]).unwrap();
        drop(writer);
        let [one, two] = [(); 2].map(|()| receive_one(&ours));
        assert_eq!((one.len, one.fds.len(), one.is_cut), (3, MOST, false));
        assert_eq!((two.len, two.fds.len(), two.is_cut), (3, 0, false));
        drop(one);
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "one is open still");
        drop(theirs);
        assert_eq!(receive_one(&ours).len, 0);
    }

    /// Those that fitted in, and were not handed on, stayed open while the agent runs.
    #[test]
    fn of_too_many_descriptors_none_is_left_open() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut reader, writer) = pipe().unwrap();
        let fds = [writer.as_raw_fd(); MOST + 5];
        let with = [ControlMessage::ScmRights(&fds)];
        let bytes = [IoSlice::new(b"many")];
        sendmsg::<()>(theirs.as_raw_fd(), &bytes, &with, MsgFlags::empty(), None).unwrap();
        drop(writer);
        let received = receive_one(&ours);
        assert!(received.is_cut && received.len == 4);
        drop(received);
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "one is open still");
    }
}
