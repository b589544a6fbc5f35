//! Members on several hosts: UDP.

use std::io;
use std::net::{SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::OwnedFd;

use nix::sys::socket::getsockopt;
use nix::{getsockopt_impl, sockopt_impl};
use socket2::{Domain, Protocol, Socket, Type};

use super::{BindError, size_buffers, who};
use crate::runtime::address::Address;

/// A socket bound to `own`, and to nothing else: its datagrams have the very source address that
/// the other members know.
pub(super) fn bind(own: SocketAddr) -> Result<UdpSocket, BindError> {
    let address = Address::Udp(own).to_string();
    open(own).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse {
            address,
            pid: who::has_udp(own),
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

fn open(own: SocketAddr) -> io::Result<UdpSocket> {
    let kind = Type::DGRAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(own), kind, Some(Protocol::UDP))?;
    if own.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    size_buffers(&socket);
    socket.bind(&own.into())?;
    Ok(OwnedFd::from(socket).into())
}

/// How many datagrams the kernel dropped before `socket` could read them: by its filter, or because its
/// queue was full.
pub(super) fn dropped_by_kernel(socket: &UdpSocket) -> u64 {
    let memory = getsockopt(socket, MemoryInfo).unwrap_or_default();
    memory[libc::SK_MEMINFO_DROPS as usize].into()
}

sockopt_impl!(
    /// What `SK_MEMINFO_*` name (linux/sock_diag.h).
    MemoryInfo,
    GetOnly,
    libc::SOL_SOCKET,
    libc::SO_MEMINFO,
    [u32; libc::SK_MEMINFO_DROPS as usize + 1]
);

/// An address in the spelling of [`Address::udp`]: without the flow label of IPv6.
pub(super) fn spelled(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => address,
        SocketAddr::V6(v6) => SocketAddrV6::new(*v6.ip(), v6.port(), 0, v6.scope_id()).into(),
    }
}
