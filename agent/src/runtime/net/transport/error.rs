//! Why sockets cannot be had.

use std::io;

use super::socket_file::PlaceError;
use crate::runtime::disk::state_dir::advice;
use crate::runtime::disk::trust::PathTrustError;
use crate::runtime::net::address::{Address, AddressError, MulticastAddress};

/// Why a member cannot have its address, or an agent its socket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Another process has it.
    #[error(
        "{address} is in use by {}: end that process, or choose another address",
        process(*pid)
    )]
    InUse {
        /// The address.
        address: String,
        /// The process, where it could be found.
        pid: Option<u32>,
    },
    /// Another agent serves programs at that path.
    #[error(
        "{path} is served by {}: use that agent, end it, or serve at another path",
        process(*pid)
    )]
    SocketInUse {
        /// The path.
        path: String,
        /// The process, where it could be found.
        pid: Option<u32>,
    },
    /// The system forbids it.
    #[error("{address} is forbidden ({source}): {advice}")]
    Permission {
        /// The address.
        address: String,
        /// What the system says.
        r#source: io::Error,
        /// What to do.
        advice: &'static str,
    },
    /// No interface of this host has the address.
    #[error(
        "this host does not have the address {address}: give the id of this host's member, or \
         correct the member's address"
    )]
    NotHere {
        /// The address.
        address: String,
    },
    /// The directory of a Unix socket is missing.
    #[error("the directory of {address} does not exist: create it, or choose another path")]
    NoDirectory {
        /// The address.
        address: String,
    },
    /// There is a file that is no socket.
    #[error("{address} is a file, and no socket: remove it, or choose another path")]
    NotASocket {
        /// The address.
        address: String,
    },
    /// A dead process of another user left a socket there.
    #[error("{address} belongs to user {uid}: let that user remove it, or choose another path")]
    NotOurs {
        /// The address.
        address: String,
        /// The user.
        uid: u32,
    },
    /// Others can put sockets where an agent or a member serves, and be taken for it.
    #[error(
        "{address} is refused, as others could put a socket of theirs there, and be believed: \
         {why}; {}", why.advice()
    )]
    Unsafe {
        /// The address.
        address: String,
        /// What lets them.
        why: PathTrustError,
    },
    /// No socket can have the path.
    #[error("there can be no socket at {address:?}: {source}")]
    Name {
        /// The path.
        address: String,
        /// Why not.
        source: AddressError,
    },
    /// Members whose addresses are of two kinds cannot reach each other.
    #[error(
        "{own} cannot send to {other}: give all members addresses of one kind (UDP over IPv4, UDP \
         over IPv6, or Unix)"
    )]
    Mixed {
        /// This member's address.
        own: Address,
        /// Another member's.
        other: Address,
    },
    /// The multicast address cannot be used from this member's own.
    #[error(
        "{own} cannot send to the multicast address {address}: give it the kind of the members' \
         addresses (UDP over IPv4, or UDP over IPv6), or none"
    )]
    MulticastKind {
        /// This member's address.
        own: Address,
        /// The multicast address.
        address: MulticastAddress,
    },
    /// The system refuses to join the multicast group.
    #[error(
        "cannot join the multicast group {address}: {source}; see that the interface of this \
         member's address can multicast, or remove the key multicast"
    )]
    Multicast {
        /// The multicast address.
        address: MulticastAddress,
        /// What the system says.
        r#source: io::Error,
    },
    /// The system refused for another reason.
    #[error("cannot open {address}: {source}{}", advice(source))]
    Io {
        /// The address.
        address: String,
        /// What the system says.
        r#source: io::Error,
    },
}

impl BindError {
    pub(crate) fn io(address: impl ToString, source: io::Error) -> Self {
        Self::Io {
            address: address.to_string(),
            source,
        }
    }

    /// What went wrong with the Unix socket called `address`.
    pub(crate) fn place(address: String, error: PlaceError) -> Self {
        match error {
            PlaceError::InUse { pid } => Self::InUse { address, pid },
            PlaceError::NotASocket => Self::NotASocket { address },
            PlaceError::NotOurs { uid } => Self::NotOurs { address, uid },
            PlaceError::Unsafe(why) => Self::Unsafe { address, why },
            PlaceError::Name(source) => Self::Name { address, source },
            PlaceError::Io(source) => match source.kind() {
                io::ErrorKind::NotFound => Self::NoDirectory { address },
                io::ErrorKind::PermissionDenied => Self::Permission {
                    address,
                    source,
                    advice: "run as the user who owns the directory, or choose another path",
                },
                _ => Self::Io { address, source },
            },
        }
    }
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(
        || "another process".to_owned(),
        |pid| format!("process {pid}"),
    )
}
