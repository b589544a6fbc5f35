//! Members on one host: Unix datagrams.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use nix::sys::stat::Mode;
use socket2::{Domain, Socket, Type};

use super::place::{self, SocketFile};
use super::{BindError, size_buffers};
use crate::runtime::address::Address;

/// A socket bound to `own`, and its file.
pub(super) fn bind(own: &Path) -> Result<(UnixDatagram, SocketFile), BindError> {
    let address = || Address::Unix(own.to_owned()).to_string();
    place::check_directory(own).map_err(|error| BindError::place(address(), error))?;
    let socket = Socket::new(Domain::UNIX, Type::DGRAM.nonblocking().cloexec(), None)
        .map_err(|source| BindError::io(address(), source))?;
    size_buffers(&socket);
    // All members of such a group run as one user, or as root.
    let file = place::bind(&socket, own, Mode::S_IRUSR | Mode::S_IWUSR)
        .map_err(|error| BindError::place(address(), error))?;
    Ok((OwnedFd::from(socket).into(), file))
}
