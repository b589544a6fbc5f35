//! How a node's incarnation ends.

use super::{LEAVE_PATIENCE, Node, Stage};
use alloc::vec::Vec;

use crate::api::{Event, Output};
use crate::election::ElectionOutput;
use crate::ids::NodeId;
use crate::lock::{AbandonedMarks, LockOutput};
use crate::time::Time;
use crate::timers::Timer;
use crate::wire::Body;

impl Node {
    /// Somebody else lives under this member's id. It is over, and nothing of it is clean.
    pub(super) fn superseded(&mut self, by: NodeId) {
        self.stage = Stage::Silent;
        self.tell(Event::Superseded { by });
        let mut out = LockOutput::default();
        let unaware = core::mem::take(&mut self.held_back).into_keys().collect();
        self.locks.leave(&unaware, &mut out);
        let mut elections = ElectionOutput::default();
        self.elections.leave(&mut elections);
        let events = out.events.into_iter().chain(elections.events);
        self.outputs.extend(events.map(Output::Event));
    }

    pub(super) fn leave(&mut self, now: Time) {
        if !matches!(self.stage, Stage::Booting | Stage::Running) {
            return;
        }
        let mut out = LockOutput::at(now);
        let unaware = core::mem::take(&mut self.held_back).into_keys().collect();
        self.locks.leave(&unaware, &mut out);
        self.absorb(now, out);
        let mut out = ElectionOutput::default();
        self.elections.leave(&mut out);
        self.elect(now, out);
        if self.stage == Stage::Booting {
            // Nobody has heard of this incarnation.
            return self.close(now);
        }
        self.stage = Stage::Leaving;
        let mut actions = Vec::new();
        let marks = self.locks.marks();
        if marks != AbandonedMarks::None {
            self.views.leave_marks(now, marks, &mut actions);
            self.act(now, core::mem::take(&mut actions));
        }
        self.peers.send_to_all(&Body::Bye);
        self.views.leave(now, &mut actions);
        self.act(now, actions);
        self.timers.set(Timer::Leave, now + LEAVE_PATIENCE);
    }

    /// When the others know that this member leaves, or have had time to, it puts on disk that it
    /// ended well.
    pub(super) fn finish_leaving(&mut self, now: Time, time_is_up: bool) {
        if self.stage != Stage::Leaving {
            return;
        }
        // While a view is being formed the engines cannot be told: it is waited for.
        let is_done = self.peers.is_drained() && self.locks.is_settled();
        // Others are to go on without this member, if there are any.
        let nobody_waits = self.views.lease_ends() == Time::MAX || self.peers.is_alone();
        let is_let_go = self.is_let_go || nobody_waits;
        if is_done && is_let_go || time_is_up {
            self.close(now);
        }
    }

    pub(super) fn close(&mut self, now: Time) {
        self.stage = Stage::Closing;
        // Until a view has taken it in, the end of the incarnation before is still to be reckoned
        // with.
        let is_told = !self.views.is_unclean();
        let was_clean = self.quarantine.was_clean();
        self.storage.record.clean = (is_told || was_clean) && !self.quarantine.is_in_doubt();
        self.storage.record.marks = if is_told {
            self.locks.marks()
        } else {
            AbandonedMarks::Own
        };
        if let Some(record) = self.views.last_words(now) {
            self.storage.put_voter(*record, &mut self.outputs);
        }
        self.storage.put(&mut self.outputs);
    }
}
