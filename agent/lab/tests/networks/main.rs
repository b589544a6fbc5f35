//! Elections for particular networks: the lectures' examples and counts, and each rule by itself.
//! Runs in which links come and go and nodes crash are in `sim_networks.rs`.
mod best_capacity;
mod repelling;
mod super_peers;

use distlock_protocol::NodeId;

fn id(node: u16) -> NodeId {
    NodeId::new(node).expect("ids start at 1")
}
