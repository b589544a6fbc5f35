//! The languages of the stores that distlock keeps locks in: clients of etcd and PostgreSQL that have no
//! socket, no thread and no clock of their own.
//!
//! Each is a [`Store`]: it is told what arrived and what the time is, and says what to send. The agent has
//! the sockets, and the ledger ([`distlock_protocol::ledger`]) decides about locks.
//!
//! Applications use the crate `distlock`.

#![cfg_attr(
    not(any(feature = "etcd", feature = "postgresql")),
    expect(dead_code, reason = "what every store needs, where there is none")
)]

#[cfg(test)]
#[path = "../tests/common/certificates.rs"]
mod certificates;
mod hosts;
mod options;
mod tls;
mod url;

#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(feature = "postgresql")]
pub mod postgresql;

pub use distlock_protocol::ledger::Store;
pub use options::StoreOptions;
pub use tls::{Tls, TlsError};
pub use url::{Kind, StoreUrl, UrlError};

/// A client of a store of that kind.
///
/// # Errors
/// If this was built without the feature for that kind, or no host is named.
pub fn open(kind: Kind, options: StoreOptions) -> Result<Box<dyn Store>, String> {
    client(kind, options, false)
}

/// The same, and when it is connected it first makes in the store what has to be there.
///
/// # Errors
/// As for [`open`].
pub fn open_to_initialize(kind: Kind, options: StoreOptions) -> Result<Box<dyn Store>, String> {
    client(kind, options, true)
}

/// The statements that make in such a store what has to be there; `None` if nothing has to.
pub const fn schema(kind: Kind) -> Option<&'static str> {
    match kind {
        #[cfg(feature = "postgresql")]
        Kind::Postgresql => Some(postgresql::SCHEMA),
        _ => None,
    }
}

fn client(
    kind: Kind,
    options: StoreOptions,
    is_to_initialize: bool,
) -> Result<Box<dyn Store>, String> {
    if options.hosts.is_empty() {
        return Err("a store has at least one host, and none is named".to_owned());
    }
    match kind {
        #[cfg(feature = "etcd")]
        Kind::Etcd => Ok(Box::new(etcd::Etcd::new(options))),
        #[cfg(not(feature = "etcd"))]
        Kind::Etcd => Err("this was built without etcd: build it with the feature etcd".to_owned()),
        #[cfg(feature = "postgresql")]
        Kind::Postgresql if is_to_initialize => {
            Ok(Box::new(postgresql::Postgresql::initializing(options)))
        }
        #[cfg(feature = "postgresql")]
        Kind::Postgresql => Ok(Box::new(postgresql::Postgresql::new(options))),
        #[cfg(not(feature = "postgresql"))]
        Kind::Postgresql => {
            let _ = is_to_initialize;
            let why = "this was built without PostgreSQL: build it with the feature postgresql";
            Err(why.to_owned())
        }
    }
}
