//! What a member can tell of the lost: whether it was in their last view.

use crate::ids::Epoch;

/// What a member can say of those that were in its last view and are not there any more.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Witness {
    /// The last view that was in force here.
    pub(super) epoch: Epoch,
    /// Whether it was in force until now. A view that this member froze for, and never saw, may
    /// have been in force elsewhere, and whoever was in it may have been let in.
    pub(super) is_fresh: bool,
    /// Whether locks were declared here: then all of them are known here.
    pub(super) coordinated: bool,
}

impl Witness {
    pub(super) fn saw(&mut self, epoch: Epoch) {
        (self.epoch, self.is_fresh) = (epoch, true);
    }

    pub(super) fn missed_a_view(&mut self) {
        self.is_fresh = false;
    }

    /// Whether this member's engines tell who was inside.
    pub(super) fn vouches(&self) -> bool {
        self.is_fresh
    }
}
