//! When a node tells its source of views that it may be in one: after its quarantine.

use alloc::vec::Vec;

use super::Node;
use super::quarantine::Stage;
use crate::time::Time;
use crate::timers::Timer;

impl Node {
    /// The quarantine's time has passed.
    pub(super) fn end_quarantine(&mut self, now: Time) {
        if self.quarantine.stage == Stage::Waiting {
            self.quarantine.stage = Stage::Over;
            self.get_ready(now);
        }
    }

    /// Tells the source of views that this member may be in one, once that is so.
    pub(super) fn get_ready(&mut self, now: Time) {
        let waits_for_all = self.quarantine.waits_for_all;
        let may_be_known = self.quarantine.is_new && self.peers.may_still_tell(waits_for_all);
        if self.quarantine.stage == Stage::Over && !may_be_known {
            self.quarantine.stage = Stage::Told;
            let mut actions = Vec::new();
            self.views.ready(now, &mut actions);
            self.act(now, actions);
        }
    }

    /// Another member knew an incarnation of this one that did not leave: the record was lost.
    pub(super) fn remember(&mut self) {
        let waits_itself = self.quarantine.stage != Stage::Elsewhere;
        if waits_itself && self.quarantine.is_in_doubt() {
            self.quarantine.stage = Stage::Waiting;
            self.quarantine.note_unclean();
            self.views.remember_unclean();
            self.timers.set(Timer::Quarantine, self.quarantine.ends());
        }
    }
}
