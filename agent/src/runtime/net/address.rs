//! Where a member is reached: `udp:10.0.0.1:7400` or `unix:/run/distlock/1.sock`.
//!
//! Names of hosts are not accepted: the source address of a datagram tells which member sent it,
//! so every member must know the very address the others send from.

use std::ffi::OsStr;
use std::fmt;
use std::net::{AddrParseError, IpAddr, SocketAddr, SocketAddrV6};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A member's address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// `udp:IP:PORT`; IPv6 as `udp:[IP]:PORT`.
    Udp(SocketAddr),
    /// `unix:/PATH`: a Unix datagram socket, for members on one host.
    Unix(PathBuf),
}

impl Address {
    /// The longest path of a Unix socket, in bytes (`sockaddr_un` without its final NUL).
    pub const MAX_PATH: usize = 107;

    /// Whether only this host can send to it and hear from it.
    pub fn is_loopback(&self) -> bool {
        match self {
            Self::Udp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }

    /// The path of a Unix socket.
    pub fn as_path(&self) -> Option<&Path> {
        match self {
            Self::Udp(_) => None,
            Self::Unix(path) => Some(path),
        }
    }

    /// Checks `path` as the place of a Unix socket.
    ///
    /// # Errors
    /// If it is relative, too long for a socket, or has a NUL byte.
    pub fn unix(path: impl Into<PathBuf>) -> Result<Self, AddressError> {
        let path = path.into();
        check_socket_path(&path)?;
        Ok(Self::Unix(path))
    }

    /// Checks `address` as one that a member can be reached by and send from.
    ///
    /// # Errors
    /// If it stands for many hosts, for none, or for a port the system chooses.
    pub fn udp(address: SocketAddr) -> Result<Self, AddressError> {
        // One spelling for each address, so that sources can be compared: IPv4 is IPv4 even when
        // written as IPv6, and the flow label is no part of an address.
        let address = match address.ip().to_canonical() {
            IpAddr::V4(ip) => SocketAddr::new(ip.into(), address.port()),
            IpAddr::V6(ip) => {
                let scope = if let SocketAddr::V6(v6) = address {
                    v6.scope_id()
                } else {
                    0
                };
                SocketAddrV6::new(ip, address.port(), 0, scope).into()
            }
        };
        let ip = address.ip();
        let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
        if address.port() == 0 {
            return Err(AddressError::NoPort);
        }
        if ip.is_unspecified() || ip.is_multicast() || broadcast {
            return Err(AddressError::NotOneHost { ip });
        }
        let link_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        if link_local && matches!(address, SocketAddr::V6(v6) if v6.scope_id() == 0) {
            return Err(AddressError::NoInterface { ip });
        }
        Ok(Self::Udp(address))
    }
}

/// As it stands in the configuration.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(address) => write!(f, "udp:{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if let Some(address) = text.strip_prefix("udp:") {
            let parsed = address.parse().map_err(|source| AddressError::NotAnIp {
                text: address.to_owned(),
                source,
            })?;
            Self::udp(parsed)
        } else if let Some(path) = text.strip_prefix("unix:") {
            Self::unix(OsStr::from_bytes(path.as_bytes()))
        } else {
            Err(AddressError::UnknownKind)
        }
    }
}

/// A group's multicast address, `udp:IP:PORT`: what is sent there reaches all who listen there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MulticastAddress(SocketAddr);

impl MulticastAddress {
    /// Checks `address` as one that many hosts can listen at.
    ///
    /// # Errors
    /// If it is none, is kept for other uses, has a port the system chooses, or names an interface.
    pub fn new(address: SocketAddr) -> Result<Self, AddressError> {
        let ip = address.ip();
        if !ip.is_multicast() {
            return Err(AddressError::NotMulticast { ip });
        }
        if matches!(ip, IpAddr::V4(ip) if ip.octets()[..3] == [224, 0, 0]) {
            return Err(AddressError::ReservedMulticast { ip });
        }
        if matches!(address, SocketAddr::V6(v6) if v6.scope_id() != 0) {
            return Err(AddressError::MulticastInterface { ip });
        }
        if address.port() == 0 {
            return Err(AddressError::NoPort);
        }
        Ok(Self(address))
    }

    /// As the system knows it.
    pub fn socket_addr(self) -> SocketAddr {
        self.0
    }

    /// Whether a member with the address `own` can send there: both are IPv4, or both IPv6.
    pub fn is_of_the_kind_of(self, own: SocketAddr) -> bool {
        self.0.is_ipv4() == own.is_ipv4()
    }
}

/// As it stands in the configuration.
impl fmt::Display for MulticastAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "udp:{}", self.0)
    }
}

impl FromStr for MulticastAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let address = text.strip_prefix("udp:").ok_or(AddressError::NotUdp)?;
        let parsed = address.parse().map_err(|source| AddressError::NotAnIp {
            text: address.to_owned(),
            source,
        })?;
        Self::new(parsed)
    }
}

/// Why a text is no [`Address`], or no [`MulticastAddress`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// It starts with neither `udp:` nor `unix:`.
    #[error("an address starts with udp: or unix:, as in udp:10.0.0.1:7400 or unix:/run/x.sock")]
    UnknownKind,
    /// What follows `udp:` is no IP address with a port.
    #[error(
        "\"{text}\" is not IP:PORT (write the IP address itself, as in 10.0.0.1:7400 or \
         [fd00::1]:7400; names of hosts are not looked up)"
    )]
    NotAnIp {
        /// What was there instead.
        text: String,
        /// What the parser says.
        source: AddrParseError,
    },
    /// The port is 0.
    #[error("port 0 stands for no port in particular: choose one, as in udp:10.0.0.1:7400")]
    NoPort,
    /// The address does not name exactly one host.
    #[error("{ip} does not name one host: write the address that the other members send to")]
    NotOneHost {
        /// The address.
        ip: IpAddr,
    },
    /// A link-local address without its interface.
    #[error("{ip} is link-local: write its interface's number too, as in [{ip}%2]:7400")]
    NoInterface {
        /// The address.
        ip: IpAddr,
    },
    /// A multicast address of another kind than UDP.
    #[error("a multicast address starts with udp:, as in udp:239.255.77.1:7400")]
    NotUdp,
    /// The address is not one of many hosts.
    #[error(
        "{ip} is no multicast address: choose one that nobody else uses, as in 239.255.77.1 or \
         ff05::4d01"
    )]
    NotMulticast {
        /// The address.
        ip: IpAddr,
    },
    /// The address is kept for routers and the like.
    #[error("{ip} is kept for routing protocols: choose another, as in 239.255.77.1")]
    ReservedMulticast {
        /// The address.
        ip: IpAddr,
    },
    /// The address names an interface.
    #[error(
        "{ip} is followed by an interface: leave that out, each host uses the one that has its \
         member's address"
    )]
    MulticastInterface {
        /// The address.
        ip: IpAddr,
    },
    /// The path of a Unix socket is relative.
    #[error("the path of a socket must be absolute, as in unix:/run/distlock/1.sock")]
    RelativePath,
    /// The path of a Unix socket is too long.
    #[error("the path of a socket may have at most 107 bytes, this one has {len}: shorten it")]
    LongPath {
        /// Its length in bytes.
        len: usize,
    },
    /// The path of a Unix socket has a NUL byte.
    #[error("the path of a socket may not contain a NUL byte")]
    NulInPath,
}

/// Checks that a Unix socket can be at `path`.
pub(crate) fn check_socket_path(path: &Path) -> Result<(), AddressError> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.contains(&0) {
        Err(AddressError::NulInPath)
    } else if !path.is_absolute() || path.file_name().is_none() {
        Err(AddressError::RelativePath)
    } else if bytes.len() > Address::MAX_PATH {
        Err(AddressError::LongPath { len: bytes.len() })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        for text in [
            "udp:10.0.0.1:7400",
            "udp:[fd00::1]:7400",
            "udp:[fe80::1%3]:1",
            "unix:/run/d/1.sock",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn one_spelling_for_one_address() {
        let mapped: Address = "udp:[::ffff:127.0.0.1]:7400".parse().unwrap();
        assert_eq!(mapped, "udp:127.0.0.1:7400".parse().unwrap());
        assert!(mapped.is_loopback());
    }

    #[test]
    fn multicast_addresses_are_read_and_others_refused() {
        for text in [
            "udp:239.255.77.1:7400",
            "udp:[ff05::4d01]:7400",
            "udp:[ff02::4d]:1",
        ] {
            assert_eq!(text.parse::<MulticastAddress>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "239.255.77.1:7400",
            "unix:/run/x",
            "udp:host:7400",
            "udp:239.255.77.1",
            "udp:239.255.77.1:0",
            "udp:10.0.0.1:7400",
            "udp:255.255.255.255:7400",
            "udp:224.0.0.1:7400",
            "udp:[fd00::1]:7400",
            "udp:[ff02::4d%2]:7400",
        ] {
            let refused = text.parse::<MulticastAddress>();
            assert!(refused.is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn knows_loopback() {
        let loopback = |text: &str| text.parse::<Address>().unwrap().is_loopback();
        assert!(loopback("udp:127.9.9.9:1"));
        assert!(loopback("udp:[::1]:1"));
        assert!(loopback("unix:/run/x"));
        assert!(!loopback("udp:10.0.0.1:1"));
        assert!(!loopback("udp:[fd00::1]:1"));
    }

    #[test]
    fn refuses_the_rest() {
        let long = format!("unix:/{}", "x".repeat(Address::MAX_PATH));
        for text in [
            "",
            "10.0.0.1:7400",
            "tcp:10.0.0.1:7400",
            "udp:",
            "udp:host:7400",
            "udp:10.0.0.1",
            "udp:10.0.0.1:0",
            "udp:0.0.0.0:7400",
            "udp:[::]:7400",
            "udp:224.0.0.1:7400",
            "udp:255.255.255.255:7400",
            "udp:[fe80::1]:7400",
            "unix:",
            "unix:x.sock",
            "unix:/",
            "unix:/a\0b",
            "unix:@abstract",
            "unix:\0abstract",
            &long,
        ] {
            assert!(text.parse::<Address>().is_err(), "{text:?} was accepted");
        }
        let longest = format!("unix:/{}", "x".repeat(Address::MAX_PATH - 1));
        assert!(longest.parse::<Address>().is_ok());
    }
}
