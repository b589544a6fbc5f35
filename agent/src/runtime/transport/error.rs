//! Why sockets cannot be had.

use std::io;

use super::place::PlaceError;
use crate::runtime::address::{Address, MulticastAddress};
use crate::runtime::durable::advice;

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
    /// The system forbids it.
    #[error("{address} is forbidden ({source}): {advice}")]
    Permission {
        /// The address.
        address: String,
        /// What the system says.
        source: io::Error,
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
    /// Others may put sockets into the directory of a member's address.
    #[error(
        "others can put sockets of theirs beside {address}, and be taken for members: the directory \
         has mode {mode:04o}; chmod go-w it, or choose a path in one of your own"
    )]
    OpenDirectory {
        /// The address.
        address: String,
        /// The directory's mode.
        mode: u32,
    },
    /// Another user owns the directory of a member's address.
    #[error(
        "the directory of {address} belongs to user {uid}, who can be taken for members: choose a \
         path in one of your own"
    )]
    TheirDirectory {
        /// The address.
        address: String,
        /// The user.
        uid: u32,
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
        source: io::Error,
    },
    /// The system refused for another reason.
    #[error("cannot open {address}: {source}{}", advice(source))]
    Io {
        /// The address.
        address: String,
        /// What the system says.
        source: io::Error,
    },
}

impl BindError {
    pub(in crate::runtime) fn io(address: impl ToString, source: io::Error) -> Self {
        Self::Io {
            address: address.to_string(),
            source,
        }
    }

    /// What went wrong with the Unix socket called `address`.
    pub(in crate::runtime) fn place(address: String, error: PlaceError) -> Self {
        match error {
            PlaceError::InUse { pid } => Self::InUse { address, pid },
            PlaceError::NotASocket => Self::NotASocket { address },
            PlaceError::NotOurs { uid } => Self::NotOurs { address, uid },
            PlaceError::OpenDirectory { mode } => Self::OpenDirectory { address, mode },
            PlaceError::TheirDirectory { uid } => Self::TheirDirectory { address, uid },
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
