//! What can be known of a member's socket before it is there, for who looks for faults on a host
//! (`distlock doctor`). No address is bound for that, and nothing is sent.

use std::collections::BTreeMap;

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::{aead, buffers, filter, socket_owner};
use crate::protocol::{NodeId, wire};
use crate::runtime::net::address::Address;

/// The longest datagram that members send in the usual course, in bytes, without the headers of UDP and
/// IP.
pub const DATAGRAM: usize = wire::MAX_DATAGRAM + aead::OVERHEAD;
/// How much room a member asks for, for what arrives while it is busy, in bytes. The kernel may grant
/// less (`net.core.rmem_max`).
pub const RECEIVE_BUFFER: usize = buffers::SOCKET_BUFFER;

/// A socket that has an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketHolder {
    /// Its process, if this user may know it.
    pub pid: Option<u32>,
}

/// The socket that keeps members from binding `address`; `None` if none is known.
pub fn holder_of(address: &Address) -> Option<SocketHolder> {
    match address {
        Address::Udp(address) => socket_owner::at_udp(*address),
        Address::Unix(path) => socket_owner::at_path(path),
    }
}

/// Whether the kernel would drop for `me` what comes from none of `members`, as an agent asks it to;
/// which is tried with a socket that is bound to no address.
///
/// # Errors
/// Why it would not.
pub fn try_filter(
    me: NodeId,
    members: &BTreeMap<NodeId, Address>,
    by_multicast: bool,
) -> Result<(), String> {
    let others = members.iter().filter(|(id, _)| **id != me);
    let others: Vec<_> = others
        .filter_map(|(_, other)| match other {
            Address::Udp(other) => Some(*other),
            Address::Unix(_) => None,
        })
        .collect();
    let Some(Address::Udp(own)) = members.get(&me) else {
        return Ok(());
    };
    let socket = Socket::new(Domain::for_address(*own), Type::DGRAM, Some(Protocol::UDP));
    let socket = socket.map_err(|error| error.to_string())?;
    let me = by_multicast.then_some(me);
    filter::attach(SockRef::from(&socket), others.iter(), me)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn who_has_an_address_is_found() {
        let own = SocketHolder {
            pid: Some(std::process::id()),
        };
        for (bind, other) in [
            ("127.0.0.1:0", "127.0.0.2"),
            ("0.0.0.0:0", "127.0.0.1"),
            ("[::1]:0", "::1"),
            ("[::]:0", "127.0.0.1"),
        ] {
            let Ok(socket) = UdpSocket::bind(bind) else {
                crate::runtime::skipped::skipped("this host has no IPv6");
                continue;
            };
            let mut address = socket.local_addr().unwrap();
            if address.ip().is_unspecified() {
                address.set_ip(other.parse().unwrap());
            }
            let address = Address::udp(address).unwrap();
            assert_eq!(holder_of(&address), Some(own), "{bind}");
            drop(socket);
            assert_eq!(holder_of(&address), None, "{bind}");
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("1.sock");
        let address = Address::unix(&path).unwrap();
        assert_eq!(holder_of(&address), None);
        let socket = UnixDatagram::bind(&path).unwrap();
        assert_eq!(holder_of(&address), Some(own));
        drop(socket);
        assert_eq!(holder_of(&address), None, "the file alone has nobody");
    }

    #[test]
    fn a_filter_is_tried_and_nothing_is_bound() {
        let members: BTreeMap<_, _> = (1..=3)
            .map(|id: u16| {
                let address = format!("udp:127.0.0.1:{}", 7400 + id).parse().unwrap();
                (NodeId::new(id).unwrap(), address)
            })
            .collect();
        let me = NodeId::new(1).unwrap();
        assert_eq!(try_filter(me, &members, false), Ok(()));
        assert_eq!(try_filter(me, &members, true), Ok(()));
    }
}
