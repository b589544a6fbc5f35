//! The thread that runs the core: the only place with a clock, sockets, files and threads.

pub mod address;
pub mod clock;
mod durable;
mod fork;
pub mod status;
mod transport;

pub use address::{Address, AddressError};
pub use durable::StateError;
pub use fork::ForkStamp;
pub use transport::{BindError, Faults, TransportCounters};
