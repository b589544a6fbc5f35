//! Members on one host: Unix datagrams.
//!
//! The mode of each socket lets its user and root send there, and no one else; and the kernel says
//! of each datagram whose process sent it, should somebody have widened that mode.

use std::io::{self, IoSliceMut};
use std::mem::offset_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use nix::cmsg_space;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrLike, UnixAddr, UnixCredentials, recvmsg, setsockopt,
    sockopt,
};
use nix::sys::stat::Mode;
use nix::unistd::geteuid;
use socket2::{Domain, Socket, Type};

use super::buffers::size_buffers;
use super::error::BindError;
use super::socket_file::{self, SocketFile};
use crate::runtime::net::address::Address;

/// A bound socket, and what it takes to hear who sends there.
#[derive(Debug)]
pub(super) struct Mailbox {
    pub(super) socket: UnixDatagram,
    /// Whose datagrams are taken, besides root's.
    user: u32,
    /// For what the kernel says of the sender, and no more: descriptors that somebody sends along
    /// are not installed.
    room: Vec<u8>,
}

/// A socket bound to `own`, and its file. What is sent to `others` must reach nobody else.
pub(super) fn bind<'a>(
    own: &Path,
    others: impl Iterator<Item = &'a Path>,
) -> Result<(Mailbox, SocketFile), BindError> {
    let refused =
        |path: &Path, error| BindError::place(Address::Unix(path.to_owned()).to_string(), error);
    let address = || Address::Unix(own.to_owned()).to_string();
    let failed = |source| BindError::io(address(), source);
    socket_file::check_directory(own).map_err(|error| refused(own, error))?;
    for other in others {
        socket_file::check_other_directory(other).map_err(|why| refused(other, why.into()))?;
    }
    let kind = Type::DGRAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::UNIX, kind, None).map_err(failed)?;
    size_buffers(&socket);
    // Before it has an address: so none can come without.
    setsockopt(&socket, sockopt::PassCred, &true).map_err(|errno| failed(errno.into()))?;
    // All members of such a group run as one user, or as root.
    let file = socket_file::bind(&socket, own, Mode::S_IRUSR | Mode::S_IWUSR)
        .map_err(|error| refused(own, error))?;
    let mailbox = Mailbox {
        socket: OwnedFd::from(socket).into(),
        user: geteuid().as_raw(),
        room: cmsg_space!(UnixCredentials),
    };
    Ok((mailbox, file))
}

/// Receives a datagram into `buffer`: how long it is, and the address of its sender if that is a
/// process of this user or of root.
pub(super) fn receive(
    mailbox: &mut Mailbox,
    buffer: &mut [u8],
) -> io::Result<(usize, Option<UnixAddr>)> {
    let Mailbox { socket, user, room } = mailbox;
    let mut bytes = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let received = recvmsg::<UnixAddr>(socket.as_raw_fd(), &mut bytes, Some(room), flags)?;
    let is_trusted = received.cmsgs().is_ok_and(|mut messages| {
        messages.any(|message| match message {
            ControlMessageOwned::ScmCredentials(sender) => {
                sender.uid() == 0 || sender.uid() == *user
            }
            _ => false,
        })
    });
    // Of one that has none the kernel gives no byte, and nix would stumble over that.
    let is_whole = |address: &UnixAddr| {
        let len = address.len() as usize;
        offset_of!(libc::sockaddr_un, sun_path) < len && len <= size_of::<libc::sockaddr_un>()
    };
    let address = received.address.filter(is_whole);
    Ok((received.bytes, address.filter(|_| is_trusted)))
}
