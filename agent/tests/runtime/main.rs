//! The runtime: real agents with real sockets, in one process and in several.

mod abandonment;
mod clients;
mod counts;
mod crowds;
mod driven;
mod flood;
mod incarnation;
mod leases;
mod multicast;
mod processes;
mod restart;
mod roles;
mod sealed;
mod support;
mod threads;
