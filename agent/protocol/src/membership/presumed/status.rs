//! How a member stands, as it tells others.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, NodeId};
use crate::membership::Member;

/// What a member says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PresumedStatus {
    /// The highest epoch it knows.
    pub(super) epoch: Epoch,
    pub(super) restart: UncleanRestart,
    /// Whether a limit is exceeded that only a new epoch lifts.
    pub(super) wants_view: bool,
    /// Who shall form its view.
    pub(super) under: NodeId,
    /// The other members of its last views that have not left: told to the member that shall form its
    /// view.
    pub(super) last: Vec<Member>,
}

/// What a member's last incarnation left behind, until it has been in a view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UncleanRestart {
    /// It did not leave.
    pub(crate) unclean: bool,
    /// It left, and was alone in knowing of locks that were abandoned; which, nobody knows any more.
    pub(crate) marked: bool,
}
