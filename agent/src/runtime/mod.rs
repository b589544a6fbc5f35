//! The thread that runs the core: the only place with a clock, sockets, files and threads.

pub mod status;
