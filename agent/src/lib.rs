//! The agent of distlock: a pure protocol core ([`protocol`]), and the thread that runs it
//! against real sockets (`runtime`, feature `std`) or a virtual network (`sim`, feature `sim`).
//!
//! Applications use the crate `distlock`; this one is its engine room.
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

#[cfg(any(feature = "std", feature = "sim"))]
mod dissect;
#[cfg(fuzzing)]
pub mod fuzz;
pub mod protocol;
#[cfg(feature = "std")]
pub mod runtime;
#[cfg(feature = "sim")]
pub mod sim;
