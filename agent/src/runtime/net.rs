//! What members say to each other, below the protocol: addresses, sockets, sealed datagrams.

pub mod address;
pub mod aead;
pub(crate) mod transport;
