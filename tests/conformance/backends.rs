//! The backends.

#[path = "backends/driven.rs"]
pub(crate) mod driven;
#[path = "backends/local.rs"]
pub(crate) mod local;
#[path = "backends/members.rs"]
pub(crate) mod members;
#[cfg(any(feature = "etcd", feature = "postgresql"))]
#[path = "backends/servers.rs"]
mod servers;
#[cfg(any(feature = "etcd", feature = "postgresql"))]
#[path = "backends/stores.rs"]
pub(crate) mod stores;
