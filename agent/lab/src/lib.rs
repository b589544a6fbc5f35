//! The simulator: the production core on a virtual network, under one seed.
//!
//! Time is virtual, the network does what it likes ([`network`]), processes start, crash, leave
//! and come back ([`cluster`]), and everything follows from one number: a run that failed is
//! played again by its seed ([`campaign`]). What must hold is judged from outside, by [`checkers`]
//! that share no code with what they judge. After a time of faults the network heals and everybody
//! who waits must be served within a bound.
//!
//! Below the nodes, [`explorer`] runs bare engines ([`bare`]) over a network that reorders and
//! duplicates, and [`costs`] counts messages and delays. [`view_log`] is for what orders the views:
//! the logs of the voters alone, and so the library behind them. [`multicast`] and [`networks`] are
//! for what stands beside the locks, [`clock_sync`] for algorithms that nothing else has. [`model`]
//! is for a model checker: small worlds in which everything that can happen does.

extern crate alloc;

pub mod bare;
pub mod campaign;
pub mod checkers;
pub mod choices;
pub mod clock;
pub mod clock_sync;
pub mod cluster;
pub mod costs;
mod dissect;
pub mod explorer;
pub mod figures;
pub mod history;
mod hosts;
mod in_order;
pub mod model;
pub mod multicast;
pub mod network;
pub mod networks;
pub mod plan;
mod queue;
pub mod reference;
mod report;
pub mod trace;
pub mod view_log;
