//! What a process knows of its group, and of its own former incarnations, before it takes part.

use alloc::collections::BTreeSet;
use alloc::string::String;
use core::time::Duration;

use super::message::VoterRecord;
use super::view_config::Digest;
use crate::ids::{Epoch, NodeId};
use crate::membership::ClusterId;

/// What a process must know of its group to take part in quorum views.
#[derive(Clone, Debug, Hash)]
pub struct QuorumConfig {
    /// The group's name.
    pub group: String,
    pub lease: Duration,
    /// All members, and those who vote, by the configuration. Both count when a cluster is founded.
    pub members: BTreeSet<NodeId>,
    pub voters: BTreeSet<NodeId>,
    /// The cluster, if the configuration names it: then no other is founded or joined.
    pub cluster: Option<ClusterId>,
    /// What the wall clock showed when this process began.
    pub wall: Duration,
    /// After somebody was lost who may have been inside: for how much longer nobody is let in.
    pub lock_delay: Duration,
}

/// What is known of the incarnations before this one.
#[derive(Clone, Debug, Default)]
pub struct RecoveredState {
    /// The highest epoch that any took part in.
    pub epoch: Epoch,
    /// Whether the last one left, and there is nothing to tell of it.
    pub left: bool,
    /// Whether something is to be told of it: it did not leave, or knew of locks that were
    /// abandoned.
    pub unclean: bool,
    /// What was on disk of a voter here.
    pub voter: Option<VoterRecord>,
}

impl QuorumConfig {
    /// The epoch of a cluster that is founded when this process has been for `elapsed`: the seconds
    /// of the wall clock, so that fences rise though all states were lost.
    pub(super) fn first_epoch(&self, elapsed: Duration) -> Epoch {
        let seconds = self.wall.saturating_add(elapsed).as_secs();
        let epoch = u32::try_from(seconds).ok().and_then(Epoch::new);
        // A clock that shows a time after all epochs is wrong, and none must be used up by it.
        epoch
            .unwrap_or_default()
            .max(Epoch::ZERO.next().expect("the first"))
    }

    /// How many epochs `newest` is ahead of the wall clock.
    pub(super) fn ahead(&self, newest: Epoch) -> u32 {
        let seconds = u32::try_from(self.wall.as_secs()).unwrap_or(u32::MAX);
        newest.as_u32().saturating_sub(seconds)
    }

    /// Whether the configuration lets this member be in that cluster.
    pub(super) fn allows(&self, cluster: Digest) -> bool {
        self.cluster.is_none_or(|named| named == cluster.id())
    }
}
