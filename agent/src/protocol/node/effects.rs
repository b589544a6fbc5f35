//! What follows inside a node from what its parts want: views, locks and peers know nothing of each
//! other, and meet here.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Node, WISH_PAUSE};
use crate::protocol::face::Event;
use crate::protocol::ids::{Epoch, LockName};
use crate::protocol::lock::{HopTimer, LockOutput, LockSpec, Summary};
use crate::protocol::membership::{Action, View, ViewSource};
use crate::protocol::time::Time;
use crate::protocol::timers::Timer;
use crate::protocol::wire::Body;

impl Node {
    /// The epoch whose messages are for now: that of the view in force. While a view is being
    /// formed there is none, and its messages wait for it.
    pub(super) fn present_epoch(&self) -> Epoch {
        self.views.view().map_or_else(
            // All epochs before the one that is awaited are over.
            || Epoch::new(self.views.epoch().as_u32().saturating_sub(1)).unwrap_or_default(),
            |view| view.epoch,
        )
    }

    /// Carries out what the source of views wants, and what follows from it.
    pub(super) fn act(&mut self, now: Time, actions: Vec<Action>) {
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            let mut more = Vec::new();
            match action {
                Action::Send(to, message) => {
                    self.peers.send(to, Epoch::ZERO, &Body::View(message));
                }
                Action::Freeze => {
                    let mut out = LockOutput::default();
                    self.locks.freeze(&mut out);
                    self.absorb(now, out);
                }
                Action::Persist(epoch) => {
                    self.storage.record.epoch = epoch;
                    self.storage.put(&mut self.outputs);
                }
                Action::Summarise(unclean) => {
                    let summary = self.locks.summary(&unclean);
                    self.views.summarised(summary, &mut more);
                }
                Action::Install(view, table) => self.install(now, view, &table),
            }
            actions.extend(more);
        }
    }

    pub(super) fn install(&mut self, now: Time, view: Arc<View>, table: &Summary) {
        self.peers.in_view = true;
        let (epoch, members) = (view.epoch, view.nodes().collect());
        self.tell(Event::View { epoch, members });
        // Nobody is ever removed.
        self.tell(Event::Lease { until: Time::MAX });
        let mut met = Vec::new();
        self.peers.meet(now, &view.members, &mut met);
        self.peer_events(now, met);
        let mut out = LockOutput::default();
        let coordinates = self.views.coordinator() == self.me.node;
        self.locks.install(view, table, coordinates, &mut out);
        self.absorb(now, out);
        let mut early = core::mem::take(&mut self.early);
        early.retain(|(_, of, _)| *of >= epoch);
        for (from, of, body) in early {
            self.lock_body(now, from, of, body);
        }
    }

    /// Sends, tells and arms what the table of locks wants.
    pub(super) fn absorb(&mut self, now: Time, out: LockOutput) {
        let LockOutput {
            sends,
            events,
            hops,
            declares,
            wants_view,
        } = out;
        let epoch = self.present_epoch();
        for (to, message) in sends {
            let kind = (message.body.algorithm(), message.body.kind());
            *self.peers.counters.engine_messages.entry(kind).or_default() += 1;
            self.peers.send(to, epoch, &Body::Lock(message));
        }
        for event in events {
            if let Event::Granted { ticket, .. } | Event::Ended { ticket, .. } = event {
                self.timers.clear(&Timer::Try(ticket));
            }
            self.tell(event);
        }
        for (lock, timer) in hops {
            let at = match timer {
                HopTimer::Set(stay) => Some(now + stay),
                HopTimer::Clear => None,
            };
            self.timers.set_or_clear(Timer::Hop(lock), at);
        }
        for (lock, wish) in declares {
            self.declare(now, lock, wish);
        }
        let pauses = |at: Time| now.since(at) < WISH_PAUSE;
        if wants_view && !self.wished_at.is_some_and(pauses) {
            self.wished_at = Some(now);
            let mut actions = Vec::new();
            self.views.want_view(&mut actions);
            self.act(now, actions);
        }
    }

    /// Keeps callers from adding to what waits for members that take nothing in.
    pub(super) fn note_congested(&mut self, now: Time) {
        let congested = self.peers.congested();
        if congested != *self.locks.congested() {
            let mut out = LockOutput::default();
            self.locks.note_congested(congested, &mut out);
            self.absorb(now, out);
        }
    }

    /// Asks the coordinator how a lock is served.
    pub(super) fn declare(&mut self, now: Time, lock: LockName, wish: Option<LockSpec>) {
        let coordinator = self.views.coordinator();
        if coordinator != self.me.node {
            let epoch = self.present_epoch();
            return self
                .peers
                .send(coordinator, epoch, &Body::Declare { lock, wish });
        }
        let mut out = LockOutput::default();
        let spec = self.locks.declare(&lock, wish, &mut out);
        if spec.is_none() {
            self.locks.declared(&lock, None, &mut out);
        }
        self.absorb(now, out);
    }
}
