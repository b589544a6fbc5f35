//! Another member under presumption.

use alloc::collections::BTreeSet;

use super::PresumedStatus;
use crate::ids::{Incarnation, NodeId};

/// Another member, as this one sees it.
#[derive(Debug, Default)]
pub(super) struct Peer {
    /// The incarnation with which it is up.
    pub(super) incarnation: Option<Incarnation>,
    /// Whether it does not answer.
    pub(super) suspected: bool,
    /// Whether its settings differ.
    pub(super) refused: bool,
    /// The incarnation of which it said that it leaves.
    pub(super) left: Option<Incarnation>,
    /// How it stands; `None` before it may be in a view.
    pub(super) status: Option<PresumedStatus>,
    /// Members whom it does not know.
    pub(super) unlisted: BTreeSet<NodeId>,
}

impl Peer {
    /// Whether it is reckoned with: it is not presumed gone.
    pub(super) fn is_there(&self) -> bool {
        !self.suspected && !self.refused
    }

    /// How it stands, if it is there.
    pub(super) fn status(&self) -> Option<&PresumedStatus> {
        self.status.as_ref().filter(|_| self.is_there())
    }
}
