//! Members on several hosts: UDP.

use std::io;
use std::net::{SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::OwnedFd;

use nix::sys::socket::getsockopt;
use nix::{getsockopt_impl, sockopt_impl};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::buffers::{ROOM, size_buffers};
use super::error::BindError;
use super::socket_owner;
use crate::runtime::net::address::Address;
use crate::runtime::os::descriptors;

/// A socket bound to `own`, and to nothing else: its datagrams have the very source address that
/// the other members know.
pub(super) fn bind(own: SocketAddr) -> Result<UdpSocket, BindError> {
    let address = Address::Udp(own).to_string();
    open(own).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse {
            address,
            pid: socket_owner::of_udp(own),
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
    let socket = unbound(own)?;
    size_buffers(&socket);
    socket.bind(&own.into())?;
    Ok(OwnedFd::from(socket).into())
}

fn unbound(own: SocketAddr) -> io::Result<Socket> {
    let kind = Type::DGRAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(own), kind, Some(Protocol::UDP))?;
    if own.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

/// A second socket at the address of `shared`, that gets what comes from `other`.
pub(super) fn bind_connected(shared: &UdpSocket, other: SocketAddr) -> io::Result<UdpSocket> {
    let own = shared.local_addr()?;
    let socket = unbound(own)?;
    if !descriptors::is_spare(&socket) {
        let few = "few descriptors are left to this process: raise its limit, ulimit -n";
        return Err(io::Error::other(few));
    }
    // A smaller one than asked for loses more.
    let _ = socket.set_recv_buffer_size(ROOM);
    // Two sockets have one address if both agree, and are of the same user: by SO_REUSEPORT, and not
    // SO_REUSEADDR, by which anybody's could be the second. The shared one agrees for this moment;
    // the queues stay as they are, so this user's processes that ask for it could have the address,
    // too. Until it is connected it gets what comes from anywhere, of which the transport finds out
    // whose it is.
    let shared = SockRef::from(shared);
    socket.set_reuse_port(true)?;
    shared.set_reuse_port(true)?;
    let bound = socket.bind(&own.into());
    shared.set_reuse_port(false)?;
    bound?;
    socket.connect(&other.into())?;
    Ok(OwnedFd::from(socket).into())
}

/// Before a socket of [`bind_connected`] is closed, so that what comes from there is the shared
/// one's again even if a process that was forked meanwhile keeps this one: nothing comes from an
/// address to itself.
pub(super) fn let_go(socket: &UdpSocket) -> io::Result<()> {
    let own = socket.local_addr()?;
    SockRef::from(socket).connect(&own.into())
}

/// How many datagrams the kernel dropped before `socket` could read them: by its filter, or because
/// its queue was full.
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
