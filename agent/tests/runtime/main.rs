//! The runtime: real agents with real sockets, in one process and in several.

mod clients;
mod counts;
mod driven;
mod leases;
mod legacies;
mod life;
mod multicast;
mod processes;
mod restart;
mod roles;
mod support;
mod threads;
