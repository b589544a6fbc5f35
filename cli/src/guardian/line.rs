//! The line from `run` to its guardian: words over a Unix stream, and a descriptor that goes along.
//!
//! By libc and not by nix, which allocates room for the descriptor: the command's process sends between
//! fork and exec, and the guardian receives in a forked child.

use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;

/// The child that becomes the command says its number, and its descriptor goes along.
pub(super) const COMMAND: u32 = 1;
/// `run` ends in order, and something that the command started is left.
pub(super) const LEAVE: u32 = 2;
/// What is said: one of the above, and a number.
pub(super) type Word = [u32; 2];
const WORD: usize = size_of::<Word>();

/// Room for one descriptor that goes along.
#[repr(C, align(8))]
struct Room([u8; 32]);

/// Sends a word, and perhaps a descriptor with it, without waiting and without a signal.
pub(super) fn send(
    line: BorrowedFd<'_>,
    mut word: Word,
    fd: Option<BorrowedFd<'_>>,
) -> nix::Result<()> {
    let mut bytes = libc::iovec {
        iov_base: word.as_mut_ptr().cast(),
        iov_len: WORD,
    };
    let mut room = Room([0; 32]);
    #[expect(unsafe_code, reason = "nix allocates")]
    // SAFETY: zeros are an empty header; the pointers are to what lives until the call is over, with
    // their lengths. There is room for one header with one descriptor.
    let sent = unsafe {
        let mut header: libc::msghdr = mem::zeroed();
        header.msg_iov = &raw mut bytes;
        header.msg_iovlen = 1;
        if let Some(fd) = fd {
            header.msg_control = room.0.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
            let control = libc::CMSG_FIRSTHDR(&header);
            (*control).cmsg_level = libc::SOL_SOCKET;
            (*control).cmsg_type = libc::SCM_RIGHTS;
            (*control).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
            libc::CMSG_DATA(control)
                .cast::<RawFd>()
                .write_unaligned(fd.as_raw_fd());
        }
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        libc::sendmsg(line.as_raw_fd(), &header, flags)
    };
    match Errno::result(sent)? {
        len if len as usize == WORD => Ok(()),
        _ => Err(Errno::EMSGSIZE),
    }
}

/// The next word, and what came along; `None` at the end.
pub(super) fn receive(line: BorrowedFd<'_>) -> Result<Option<(Word, Option<OwnedFd>)>, Errno> {
    let mut word: Word = [0; 2];
    let mut bytes = libc::iovec {
        iov_base: word.as_mut_ptr().cast(),
        iov_len: WORD,
    };
    let mut room = Room([0; 32]);
    #[expect(unsafe_code, reason = "nix allocates")]
    // SAFETY: as above; what came along is open, and nobody else knows it.
    let (len, fd) = unsafe {
        let mut header: libc::msghdr = mem::zeroed();
        header.msg_iov = &raw mut bytes;
        header.msg_iovlen = 1;
        header.msg_control = room.0.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
        let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
        let len = Errno::result(libc::recvmsg(line.as_raw_fd(), &mut header, flags))?;
        let control = libc::CMSG_FIRSTHDR(&header);
        let has_fd = !control.is_null()
            && (*control).cmsg_level == libc::SOL_SOCKET
            && (*control).cmsg_type == libc::SCM_RIGHTS
            && (*control).cmsg_len as usize >= libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize;
        let fd = has_fd.then(|| {
            let fd = libc::CMSG_DATA(control).cast::<RawFd>().read_unaligned();
            OwnedFd::from_raw_fd(fd)
        });
        (len as usize, fd)
    };
    Ok((len == WORD).then_some((word, fd)))
}
