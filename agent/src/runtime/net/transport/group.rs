//! Multicast: a group's second socket, and what goes out together.

use std::collections::BTreeMap;
use std::io;
use std::iter;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_nametoindex;
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use super::buffers::{BUFFER, size_buffers};
use super::filter;
use super::reachability::MulticastReachability;
use crate::protocol::wire::GroupId;
use crate::protocol::wire::merged::{Mergeable, Merger};
use crate::protocol::{NodeId, Time};
use crate::runtime::net::address::MulticastAddress;

/// So many times in a row one socket is looked at before the other, and then the other before this.
const LOOKS: u32 = 32;

/// The group's address, and what goes there and comes from there.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) id: GroupId,
    pub(super) socket: UdpSocket,
    pub(super) address: MulticastAddress,
    pub(super) to: SockAddr,
    pub(super) reachability: MulticastReachability,
    /// What was said in this step, and is sent at its end.
    pub(super) said: Vec<(NodeId, Vec<u8>)>,
    pub(super) buffer: Box<[u8]>,
    looks: u32,
}

impl Group {
    /// Listens at `address`, on the interface that has the address of member `me`, which is that of
    /// `sender`; and has that send there.
    pub(super) fn join(
        id: GroupId,
        me: NodeId,
        address: MulticastAddress,
        sender: &UdpSocket,
        now: Time,
    ) -> io::Result<Self> {
        let own = sender.local_addr()?;
        let (socket, to) = match (address.socket_addr(), own.ip()) {
            (SocketAddr::V4(group), IpAddr::V4(own)) => {
                let socket = open(group.into())?;
                socket.join_multicast_v4(group.ip(), &own)?;
                socket.set_multicast_all_v4(false)?;
                let sender = SockRef::from(sender);
                sender.set_multicast_if_v4(&own)?;
                sender.set_multicast_loop_v4(true)?;
                sender.set_multicast_ttl_v4(1)?;
                (socket, group.into())
            }
            (SocketAddr::V6(mut group), IpAddr::V6(_)) => {
                let interface = interface(own)?;
                group.set_scope_id(interface);
                let socket = open(group.into())?;
                socket.join_multicast_v6(group.ip(), interface)?;
                socket.set_multicast_all_v6(false)?;
                let sender = SockRef::from(sender);
                sender.set_multicast_if_v6(interface)?;
                sender.set_multicast_loop_v6(true)?;
                sender.set_multicast_hops_v6(1)?;
                (socket, SockAddr::from(group))
            }
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        // Nobody, until it is known who the members are.
        // Whether that can be done is told when they are known.
        let _ = filter::attach((&socket).into(), iter::empty(), Some(me));
        Ok(Self {
            id,
            socket: OwnedFd::from(socket).into(),
            address,
            to,
            reachability: MulticastReachability::new(now),
            said: Vec::new(),
            buffer: vec![0; BUFFER].into_boxed_slice(),
            looks: 0,
        })
    }

    /// Whether this socket is to be looked at before the member's own: so each has its turn, even
    /// if the other is flooded.
    pub(super) fn is_first(&mut self) -> bool {
        self.looks = self.looks.wrapping_add(1);
        self.looks / LOOKS % 2 == 1
    }
}

/// Which of `said` go out together: those with the numbers beside it, at the place of the first of
/// them. What is in none goes alone. A datagram by multicast reaches, and wakes, the whole audience:
/// it is sent only where it is for more than half of `reachability`.
pub(super) fn runs(
    said: &[(NodeId, Vec<u8>)],
    reachability: usize,
) -> BTreeMap<usize, (Vec<usize>, Merger<'_>)> {
    let mut runs: BTreeMap<usize, (Vec<usize>, Merger<'_>)> = BTreeMap::new();
    // By what they must have alike, the run that was begun last.
    let mut open = BTreeMap::new();
    for (place, (_, bytes)) in said.iter().enumerate() {
        let Some(part) = Mergeable::new(bytes) else {
            continue;
        };
        let begun = open.get(&part.key()).and_then(|first| runs.get_mut(first));
        if let Some((places, merger)) = begun
            && merger.add(part)
        {
            places.push(place);
        } else {
            open.insert(part.key(), place);
            runs.insert(place, (vec![place], Merger::new(part)));
        }
    }
    runs.retain(|_, (_, merger)| merger.count() >= 2 && merger.count() * 2 > reachability);
    runs
}

/// A socket bound to the group's address: others on this host may be, too.
fn open(group: SocketAddr) -> io::Result<Socket> {
    let kind = Type::DGRAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(group), kind, Some(Protocol::UDP))?;
    if group.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    size_buffers(&socket);
    socket.bind(&group.into())?;
    Ok(socket)
}

/// The number of the interface that has the address `own`.
fn interface(own: SocketAddr) -> io::Result<u32> {
    if let SocketAddr::V6(own) = own
        && own.scope_id() != 0
    {
        return Ok(own.scope_id());
    }
    let of_own = getifaddrs()?.find(|interface| {
        let address = interface.address.as_ref();
        let ip = address
            .and_then(|address| address.as_sockaddr_in6())
            .map(|it| it.ip());
        ip.is_some_and(|ip| own.ip() == ip)
    });
    let interface = of_own.ok_or(io::ErrorKind::AddrNotAvailable)?;
    Ok(if_nametoindex(interface.interface_name.as_str())?)
}

#[cfg(test)]
mod tests;
