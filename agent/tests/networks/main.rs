//! Elections for particular networks: the lectures' examples and counts, and each rule by itself.
//! Runs in which links come and go and nodes crash are in `sim_networks.rs`.
#![cfg(feature = "sim")]

mod best_capacity;
mod repelling;
mod super_peers;

use distlock_agent::protocol::NodeId;

fn id(node: u16) -> NodeId {
    NodeId::new(node).expect("ids start at 1")
}
