//! What members say to each other, below the protocol: addresses, sockets, sealed datagrams.

pub mod address;
pub mod aead;
#[cfg(feature = "store")]
pub(crate) mod console;
#[cfg(feature = "store")]
pub(crate) mod streams;
pub(crate) mod transport;
