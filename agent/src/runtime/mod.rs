//! The thread that runs the core: the only place with a clock, sockets, files and threads.

pub mod address;
pub mod clock;
pub mod status;

pub use address::{Address, AddressError};
