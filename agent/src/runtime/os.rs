//! What the system gives: clocks, timers, threads, descriptors, signals.

pub(crate) mod alarm;
pub(crate) mod capability;
pub mod clock;
pub(crate) mod descriptors;
pub mod environment;
pub mod fd_passing;
pub mod fifo;
pub(crate) mod fork;
pub mod futex;
pub(crate) mod pidfd;
pub mod queue;
pub(crate) mod shared_memory;
pub(crate) mod sigio;
pub(crate) mod socket_set;
pub(crate) mod spin;
pub mod sync;
pub mod thread;
