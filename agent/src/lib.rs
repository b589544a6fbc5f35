//! The agent of distlock: the thread that runs the protocol ([`protocol`]) against real clocks, sockets and
//! files ([`runtime`]).
//!
//! Applications use the crate `distlock`.

#[doc(inline)]
pub use distlock_protocol as protocol;

pub mod runtime;
