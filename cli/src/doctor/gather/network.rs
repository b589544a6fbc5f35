//! This member's address, and the ways to the others. Nothing is sent: connect(2) on a UDP socket only
//! looks up the route.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use distlock::{Address, NodeId};
use distlock_agent::runtime::holder_of;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{SockaddrStorage, getsockopt, sockopt};
use nix::{getsockopt_impl, sockopt_impl};

use crate::doctor::facts::{AddressUse, Path, Route};

/// The socket that has this member's address.
pub(super) fn address_use(own: &Address) -> AddressUse {
    if let Some(holder) = holder_of(own) {
        return AddressUse::Taken(holder.pid);
    }
    match own {
        // At another port, which the system chooses: the member's may be wanted at this moment.
        Address::Udp(own) => match UdpSocket::bind(at_any_port(*own)) {
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                AddressUse::NotHere(format!("no interface of this host has {}", own.ip()))
            }
            _ => AddressUse::Free,
        },
        Address::Unix(path) => match path.parent() {
            Some(directory) if !directory.is_dir() => {
                AddressUse::NotHere(format!("{} is no directory", directory.display()))
            }
            _ => AddressUse::Free,
        },
    }
}

fn at_any_port(mut address: SocketAddr) -> SocketAddr {
    address.set_port(0);
    address
}

/// The ways from member `me` to those on other hosts.
pub(super) fn routes(me: NodeId, members: &BTreeMap<NodeId, Address>) -> Vec<Route> {
    let Some(Address::Udp(own)) = members.get(&me) else {
        return Vec::new();
    };
    let others = members.iter().filter(|(id, _)| **id != me);
    let others = others.filter(|(_, other)| !other.is_loopback());
    let route = |(&member, other): (&NodeId, &Address)| {
        let Address::Udp(address) = *other else {
            return None;
        };
        let path = path(*own, address).map_err(|error| error.to_string());
        Some(Route {
            member,
            address,
            path,
        })
    };
    others.filter_map(route).collect()
}

fn path(own: SocketAddr, other: SocketAddr) -> io::Result<Path> {
    let socket = UdpSocket::bind(at_any_port(own))?;
    socket.connect(other)?;
    let mtu = match other {
        SocketAddr::V4(_) => getsockopt(&socket, sockopt::IpMtu),
        SocketAddr::V6(_) => getsockopt(&socket, Ipv6Mtu),
    }?;
    Ok(Path {
        interface: interface(socket.local_addr()?.ip()),
        mtu: mtu.try_into().unwrap_or_default(),
    })
}

sockopt_impl!(
    /// As IP_MTU is of IPv4: the MTU of the route of a connected socket.
    Ipv6Mtu,
    GetOnly,
    libc::IPPROTO_IPV6,
    libc::IPV6_MTU,
    libc::c_int
);

/// The interface with the address `own`.
fn interface(own: IpAddr) -> Option<String> {
    let ip = |address: &SockaddrStorage| -> Option<IpAddr> {
        let v4 = address.as_sockaddr_in().map(|it| it.ip().into());
        v4.or_else(|| address.as_sockaddr_in6().map(|it| it.ip().into()))
    };
    let mut interfaces = getifaddrs().ok()?;
    let found = interfaces.find(|it| it.address.as_ref().and_then(ip) == Some(own));
    found.map(|it| it.interface_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_route_has_an_interface_and_an_mtu() {
        let own = SocketAddr::from(([127, 0, 0, 1], 7400));
        let path = path(own, own).unwrap();
        assert_eq!(path.interface.as_deref(), Some("lo"));
        assert!(path.mtu >= 1_400, "{path:?}");
    }

    #[test]
    fn only_members_on_other_hosts_have_routes() {
        let id = |id| NodeId::new(id).unwrap();
        let members = |own: &str, other: &str| {
            let members = [(id(1), own), (id(2), other)];
            members.map(|(id, text)| (id, text.parse().unwrap())).into()
        };
        let alone = members("udp:127.0.0.1:1", "udp:127.0.0.1:2");
        assert_eq!(routes(id(1), &alone), []);
        let unix = members("unix:/run/1", "unix:/run/2");
        assert_eq!(routes(id(1), &unix), []);
        // An address of nobody's, for documents: there is no such address here to send from.
        let far = routes(id(1), &members("udp:192.0.2.1:1", "udp:192.0.2.2:2"));
        assert_eq!(far.len(), 1);
        assert!(far[0].path.is_err(), "{far:?}");
        assert_eq!(routes(id(3), &alone), []);
    }

    #[test]
    fn an_address_is_free_taken_or_not_here() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address: Address = Address::udp(socket.local_addr().unwrap()).unwrap();
        let own = AddressUse::Taken(Some(std::process::id()));
        assert_eq!(address_use(&address), own);
        drop(socket);
        assert_eq!(address_use(&address), AddressUse::Free);
        let elsewhere = address_use(&"udp:192.0.2.1:7400".parse().unwrap());
        assert!(matches!(elsewhere, AddressUse::NotHere(_)), "{elsewhere:?}");
        let nowhere = address_use(&"unix:/nonexistent/1.sock".parse().unwrap());
        assert!(matches!(nowhere, AddressUse::NotHere(_)), "{nowhere:?}");
    }
}
