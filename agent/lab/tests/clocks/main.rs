//! Clocks: the lectures' examples, and what must hold in any run.
mod averaging;
mod broadcast;
mod drift;
mod logical;
mod offset;

use std::time::Duration;

use distlock_protocol::{NodeId, Time};

fn id(node: u16) -> NodeId {
    NodeId::new(node).expect("ids start at 1")
}

fn at(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}
