//! Members on several hosts: UDP.

use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::RawFd;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockaddrLike, SockaddrStorage, recvmsg};
use socket2::{Domain, Protocol, Socket, Type};

use super::{BindError, Taken, size_buffers, who};
use crate::protocol::NodeId;
use crate::runtime::address::Address;

/// A socket bound to `own`, and to nothing else: its datagrams have the very source address that
/// the other members know.
pub(super) fn bind(own: SocketAddr) -> Result<Socket, BindError> {
    let address = Address::Udp(own).to_string();
    open(own).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse {
            address,
            pid: who::has_udp_port(own.port()),
        },
        io::ErrorKind::AddrNotAvailable => BindError::NotHere { address },
        io::ErrorKind::PermissionDenied => BindError::Permission {
            address,
            source,
            advice: "choose a port above 1023, or grant CAP_NET_BIND_SERVICE",
        },
        _ => BindError::Io { address, source },
    })
}

fn open(own: SocketAddr) -> io::Result<Socket> {
    let kind = Type::DGRAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(own), kind, Some(Protocol::UDP))?;
    if own.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    size_buffers(&socket);
    socket.bind(&own.into())?;
    Ok(socket)
}

pub(super) fn receive(
    fd: RawFd,
    buffer: &mut [u8],
    flags: MsgFlags,
    sources: &BTreeMap<SocketAddr, NodeId>,
) -> Result<Taken, Errno> {
    let mut parts = [IoSliceMut::new(buffer)];
    let message = recvmsg::<SockaddrStorage>(fd, &mut parts, None, flags)?;
    let from = message
        .address
        .as_ref()
        .and_then(source)
        .and_then(|from| sources.get(&from));
    Ok(Taken {
        from: from.copied(),
        len: message.bytes,
        truncated: message.flags.contains(MsgFlags::MSG_TRUNC),
    })
}

/// The address in the spelling of [`Address::udp`].
fn source(from: &SockaddrStorage) -> Option<SocketAddr> {
    match from.family()? {
        AddressFamily::Inet => from
            .as_sockaddr_in()
            .map(|v4| SocketAddrV4::new(v4.ip(), v4.port()).into()),
        AddressFamily::Inet6 => from
            .as_sockaddr_in6()
            .map(|v6| SocketAddrV6::new(v6.ip(), v6.port(), 0, v6.scope_id()).into()),
        _ => None,
    }
}
