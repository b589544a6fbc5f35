//! How far the clocks of the other members are ahead of this one's, and whether their rates differ
//! by more than leases allow for.
//!
//! One member is asked for its time every ten seconds, one after the other, by notes on the links
//! that there are: nothing is added to datagrams. No lock rests on the answers. They go into the
//! trace, where those of several hosts are compared, and if a rate is proven to be out of bounds
//! the agent warns of it.
//!
//! The clocks are those that leases are measured by (`CLOCK_BOOTTIME`): they go on while a host is
//! suspended, and nobody can set them.

mod questions;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::protocol::clock::{DriftWatch, OffsetFilter, Rate};
use crate::protocol::time::DRIFT;
use crate::protocol::{NodeId, Time};

/// How often some member is asked.
const EVERY: Duration = Duration::from_secs(10);
/// Up to when an answer counts.
const MAX_AGE: Duration = Duration::from_secs(3_600);
/// How much one clock may gain on another, in parts per million: what waiting for leases allows for.
const BOUND_PPM: u64 = 1_000_000 / DRIFT as u64;
/// Who loses this much has not counted at all for a while.
const STANDSTILL_PPM: u64 = 10_000_000;

/// What is known of the others' clocks.
#[derive(Debug, Default)]
pub(crate) struct PeerClocks {
    peers: BTreeMap<NodeId, PeerClock>,
    /// Who was asked last.
    last: Option<NodeId>,
    /// When the next one is; `None` before the first time.
    next: Option<Time>,
}

/// What is known of one member's clock.
#[derive(Debug)]
struct PeerClock {
    /// Of this incarnation of it: another one may have another clock.
    incarnation: u64,
    filter: OffsetFilter,
    watch: DriftWatch,
    /// What was told of its rate.
    told: Rate,
}

impl PeerClocks {
    /// When the next member is to be asked.
    pub(crate) const fn next_deadline(&self) -> Option<Time> {
        self.next
    }

    /// What is proven of the rates of the others' clocks.
    pub(crate) fn rates(&self) -> impl Iterator<Item = (NodeId, Rate)> {
        self.peers.iter().map(|(peer, known)| (*peer, known.told))
    }

    /// What `peer`'s clock does that it may not, in words.
    pub(crate) fn complaint(&self, peer: NodeId) -> Option<String> {
        self.peers.get(&peer).and_then(|known| in_words(known.told))
    }
}

impl PeerClock {
    const fn new(incarnation: u64) -> Self {
        Self {
            incarnation,
            filter: OffsetFilter::new(MAX_AGE),
            watch: DriftWatch::new(BOUND_PPM, MAX_AGE),
            told: Rate::Within,
        }
    }
}

fn in_words(rate: Rate) -> Option<String> {
    let (which, ppm, other) = match rate {
        Rate::Within => return None,
        Rate::Slow(ppm) if ppm >= STANDSTILL_PPM => {
            return Some("its clock stood still while this member's went on".to_owned());
        }
        Rate::Fast(ppm) => ("its clock", ppm, "this member's"),
        Rate::Slow(ppm) => ("this member's clock", ppm, "its"),
    };
    Some(format!(
        "{which} gains {}.{} % on {other}, and leases allow for {} %",
        ppm / 10_000,
        ppm / 1_000 % 10,
        BOUND_PPM / 10_000
    ))
}
