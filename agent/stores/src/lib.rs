//! The languages of the stores that distlock keeps locks in: clients of etcd and PostgreSQL that have no
//! socket, no thread and no clock of their own.
//!
//! Each is a [`Store`]: it is told what arrived and what the time is, and says what to send. The agent has
//! the sockets, and the ledger ([`distlock_protocol::ledger`]) decides about locks.
//!
//! Applications use the crate `distlock`.

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
