//! What tasks have to say though another thread writes: that their time is over.

use super::gate::Entered;
use super::link::Link;
use crate::runtime::api::error::SessionEnd;
use crate::runtime::frames::{self, MAX_TO_AGENT, ToAgent};
use crate::runtime::os::clock;

impl Link {
    /// Cancels a request without waiting for anybody: by the thread that writes at this moment, if one does.
    pub(super) fn cancel_soon(&self, id: u64) {
        self.writing.leave_cancel(id);
        self.say_cancels();
    }

    /// Says what was left to be said, unless another thread writes, which will.
    pub(super) fn say_cancels(&self) {
        while self.writing.has_cancels() {
            let Some(turn) = self.writing.enter(clock::now()) else {
                return;
            };
            if !self.say_left(&turn) {
                drop(turn);
                return self.end(SessionEnd::Disconnected);
            }
        }
    }

    /// Whether the connection is good for more.
    fn say_left(&self, turn: &Entered<'_>) -> bool {
        self.writing.take_cancels().into_iter().all(|id| {
            let mut frame = Vec::new();
            let put = frames::put(&mut frame, &ToAgent::Cancel { id }, MAX_TO_AGENT);
            // An agent that has no room for it stands still, and would not answer either.
            put.and_then(|()| self.write(turn, &frame, clock::now()))
                .is_ok()
        })
    }
}
