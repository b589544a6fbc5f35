//! What there is to know before exclusion is judged among members that presume the silent gone.

use alloc::collections::BTreeMap;

use distlock_protocol::NodeId;

/// What is known where the silent are presumed gone. From the moment in which one is that runs, two
/// sides may go on without each other, and both may let somebody in; until all that run are in one
/// view, and each holder that must not go on has been told of its loss.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Presumption {
    /// Which incarnations run.
    pub(super) running: BTreeMap<NodeId, u32>,
    /// Whether there may be two sides.
    pub(super) is_split: bool,
    /// How often there may have been.
    pub splits: u64,
    /// How often all were in one view again.
    pub merges: u64,
    /// Grants while there was one side.
    pub judged: u64,
    /// Grants that were lost to the other side.
    pub lost: u64,
}
