//! Members on one host: Unix datagrams.

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, UnixAddr, recvmsg};
use nix::sys::stat::Mode;
use socket2::{Domain, Socket, Type};

use super::place::{self, SocketFile};
use super::{BindError, Taken, size_buffers};
use crate::protocol::NodeId;
use crate::runtime::address::Address;

/// A socket bound to `own`, and its file.
pub(super) fn bind(own: &Path) -> Result<(Socket, SocketFile), BindError> {
    let address = || Address::Unix(own.to_owned()).to_string();
    let socket = Socket::new(Domain::UNIX, Type::DGRAM.nonblocking().cloexec(), None)
        .map_err(|source| BindError::io(address(), source))?;
    size_buffers(&socket);
    // All members of such a group run as one user, or as root.
    let file = place::bind(&socket, own, Mode::S_IRUSR | Mode::S_IWUSR)
        .map_err(|error| BindError::place(address(), error))?;
    Ok((socket, file))
}

/// A sender without a path of its own is no member.
pub(super) fn receive(
    fd: RawFd,
    buffer: &mut [u8],
    flags: MsgFlags,
    sources: &BTreeMap<PathBuf, NodeId>,
) -> Result<Taken, Errno> {
    let mut parts = [IoSliceMut::new(buffer)];
    let message = recvmsg::<UnixAddr>(fd, &mut parts, None, flags)?;
    let from = message.address.as_ref().and_then(UnixAddr::path);
    Ok(Taken {
        from: from.and_then(|path| sources.get(path)).copied(),
        len: message.bytes,
        truncated: message.flags.contains(MsgFlags::MSG_TRUNC),
    })
}
