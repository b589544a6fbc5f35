//! Descriptors that travel with the bytes of a Unix stream.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

/// Sends the first of `bytes`, with `fd` if there is one, as far as there is room at once; how many. No
/// signal if the peer is gone.
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
        MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT,
        None,
    )?;
    Ok(sent)
}

/// What was received.
pub(super) struct Received {
    /// How many bytes.
    pub(super) len: usize,
    /// What came with them.
    pub(super) fd: Option<OwnedFd>,
    /// Whether there was more than one descriptor, or the process may not have another: then it is
    /// closed.
    pub(super) is_cut: bool,
}

/// Receives bytes into `buffer`, and the descriptor that comes with them.
pub(super) fn receive(stream: &impl AsRawFd, buffer: &mut [u8]) -> io::Result<Received> {
    /// A header and one descriptor. The kernel closes what does not fit.
    #[repr(C, align(8))]
    struct Room([u8; 24]);
    let mut room = Room([0; 24]);
    let mut bytes = [IoSliceMut::new(buffer)];
    #[expect(
        unsafe_code,
        reason = "nix drops the descriptors of what is cut, and leaves them open"
    )]
    // SAFETY: zeros are an empty header, as the C interface has it; the pointers are to what lives
    // until the calls are over, with their lengths (an `IoSliceMut` is an iovec). The macros stay
    // within the room as far as the kernel says that it is filled. Each descriptor is open, and
    // nobody else knows it; where there is one it is whole, as no more than one fits.
    unsafe {
        let mut header: libc::msghdr = mem::zeroed();
        header.msg_iov = bytes.as_mut_ptr().cast();
        header.msg_iovlen = 1;
        header.msg_control = room.0.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
        let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
        let len = Errno::result(libc::recvmsg(stream.as_raw_fd(), &mut header, flags))?;
        let first = libc::CMSG_FIRSTHDR(&header);
        let has_fd = !first.is_null()
            && (*first).cmsg_level == libc::SOL_SOCKET
            && (*first).cmsg_type == libc::SCM_RIGHTS
            && (*first).cmsg_len as usize >= libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize;
        let fd = has_fd.then(|| {
            let fd = libc::CMSG_DATA(first).cast::<RawFd>().read_unaligned();
            OwnedFd::from_raw_fd(fd)
        });
        Ok(Received {
            len: len as usize,
            fd,
            is_cut: header.msg_flags & libc::MSG_CTRUNC != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, pipe};
    use std::os::fd::AsFd;

    use super::*;

    fn receive_one(stream: &UnixStream) -> Received {
        receive(stream, &mut [0; 8]).unwrap()
    }

    #[test]
    fn one_descriptor_comes_with_its_bytes() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut reader, writer) = pipe().unwrap();
        send(&theirs, b"one", Some(writer.as_fd())).unwrap();
        send(&theirs, b"two", None).unwrap();
        drop(writer);
        let [one, two] = [(); 2].map(|()| receive_one(&ours));
        assert_eq!((one.len, one.fd.is_some(), one.is_cut), (3, true, false));
        assert_eq!((two.len, two.fd.is_some(), two.is_cut), (3, false, false));
        drop(one);
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "it is open still");
        drop(theirs);
        assert_eq!(receive_one(&ours).len, 0);
    }

    /// Those that fitted in, and were not handed on, stayed open for the life of the agent.
    #[test]
    fn of_more_descriptors_than_one_none_is_left_open() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut reader, writer) = pipe().unwrap();
        let fds = [writer.as_raw_fd(); 5];
        let with = [ControlMessage::ScmRights(&fds)];
        let bytes = [IoSlice::new(b"five")];
        sendmsg::<()>(theirs.as_raw_fd(), &bytes, &with, MsgFlags::empty(), None).unwrap();
        drop(writer);
        let received = receive_one(&ours);
        assert!(received.is_cut && received.len == 4);
        drop(received);
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "one is open still");
    }
}
