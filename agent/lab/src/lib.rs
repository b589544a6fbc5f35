//! The simulator: the production core on a virtual network, under one seed.
//!
//! Time is virtual, and everything follows from one number: a run that failed is played again by its
//! seed. Every world is the same cluster (`hosts.rs`): hosts with clocks and disks of their own, a
//! process on each that crashes, stands still and comes back, and a network that does what it likes
//! ([`network`]). What must hold is judged from outside, by [`checkers`] that share no code with
//! what they judge. After a time of faults the network heals and everybody who waits must be served
//! within a bound.
//!
//! What runs on the hosts: whole nodes ([`cluster`]), which a [`campaign`] puts through a [`plan`]
//! of faults; the engines of one lock, bare ([`bare`]), for the [`explorer`] that lets messages
//! overtake each other, and for [`costs`], which counts messages and delays; the logs of the voters
//! alone ([`view_log`]), and so the library behind them; what stands beside the locks
//! ([`multicast`], [`networks`]). [`clock_sync`] has algorithms that nothing else has. [`model`] is
//! for a model checker: small worlds in which everything that can happen does.

extern crate alloc;

pub mod bare;
pub mod campaign;
pub mod checkers;
pub mod choices;
pub mod clock;
pub mod clock_sync;
pub mod cluster;
pub mod costs;
pub mod dissect;
pub mod explorer;
pub mod figures;
pub mod history;
mod hosts;
mod in_order;
pub mod ledger;
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
