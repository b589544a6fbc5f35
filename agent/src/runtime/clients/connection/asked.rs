//! A request of a client.

use crate::protocol::{Release, Ticket};
use crate::runtime::clients::lifeline::Lifeline;

/// A request of a client.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) ticket: Ticket,
    pub(super) lifeline: Option<Lifeline>,
    /// Whether it was told that it is inside.
    pub(super) is_granted: bool,
    /// Whether its client entered by itself, and may see in memory, and not by what it was told, that the
    /// grant is valid.
    pub(super) by_loan: bool,
}

impl Asked {
    /// How a grant ends that its client did not release.
    pub(super) fn end(&self) -> Release {
        if self.is_granted {
            Release::Abandoned
        } else {
            Release::Unused
        }
    }
}
