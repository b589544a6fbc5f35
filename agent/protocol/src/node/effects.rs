//! What follows inside a node from what its parts want: views, locks and peers know nothing of each
//! other, and meet here.

use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{HeldBack, Node, Stage, WISH_PAUSE};
use crate::api::Event;
use crate::election::ElectionOutput;
use crate::ids::{Epoch, Incarnation, LockName, NodeId};
use crate::lock::{HopTimer, LockOutput, LockSpec, Summary};
use crate::membership::{Action, View};
use crate::time::Time;
use crate::timers::Timer;
use crate::wire::Body;

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
                Action::Send(to, message) if message.may_be_lost() => {
                    self.peers.say(to, &Body::View(message));
                }
                Action::Send(to, message) => {
                    self.peers.send(&[to], Epoch::ZERO, &Body::View(message));
                }
                Action::Freeze => {
                    self.elections.freeze();
                    let mut out = LockOutput::at(now);
                    self.locks.freeze(&mut out);
                    self.absorb(now, out);
                }
                Action::Persist(epoch) => {
                    let known = self.storage.record.epoch;
                    self.storage.record.epoch = epoch.max(known);
                    self.storage.put(&mut self.outputs);
                }
                Action::Summarise(next) => {
                    let summary = self.locks.summary(&next);
                    self.views.summarised(now, summary, &mut more);
                }
                Action::PersistAffiliation(affiliation) => {
                    let outputs = &mut self.outputs;
                    self.storage.put_affiliation(*affiliation, outputs);
                }
                Action::PersistVoter(record) => {
                    self.storage.put_voter(*record, &mut self.outputs);
                }
                Action::Install(view, table) => self.install(now, view, &table),
                Action::Lift => self.lift(now),
                Action::Members(overrides) => {
                    self.peers.read(now, &overrides);
                    self.tell(Event::Members { overrides });
                }
                Action::Lease(_) => self.extend(now),
                Action::Excluded(epoch) => self.exclude(now, epoch),
                Action::Stranger { peer, ours, theirs } => self.tell(Event::Disagreement {
                    peer,
                    key: "voters".to_string(),
                    ours: in_words(&ours),
                    theirs: in_words(&theirs),
                    refused: false,
                }),
                Action::Unlisted(members) => self.tell(Event::Unlisted { members }),
                Action::Broken(why) => self.tell(Event::VoterBroken { why }),
            }
            actions.extend(more);
        }
        self.set_view_timer(now);
    }

    /// Tells the holders and the caller that the lease was renewed: a caller that was let in while
    /// the lease was over learns of its grant only now. Does nothing if the datagram that renewed the
    /// lease has also shown that a view goes on without this incarnation: the lease is over then.
    fn extend(&mut self, now: Time) {
        self.tell_lease();
        if now < self.views.lease_ends() {
            for (_, grant) in core::mem::take(&mut self.held_back) {
                self.timers.clear(&Timer::Try(grant.ticket()));
                self.tell(grant.event());
                self.follow(now, &grant.event());
            }
        }
    }

    /// Says until when what is granted is valid, if that has moved.
    fn tell_lease(&mut self) {
        let until = self.views.lease_ends();
        if until > self.told_until {
            self.told_until = until;
            self.tell(Event::Lease { until });
        }
    }

    /// A view has gone on without this incarnation. One that leaves has waited for that; any other
    /// begins anew.
    fn exclude(&mut self, now: Time, epoch: Epoch) {
        if self.stage != Stage::Running {
            self.is_let_go = true;
            return;
        }
        self.me.incarnation = Incarnation(self.me.incarnation.0 + 1);
        self.elections.freeze();
        let unaware = core::mem::take(&mut self.held_back).into_keys().collect();
        let mut out = LockOutput::at(now);
        self.locks
            .begin_anew(self.me.incarnation, &unaware, &mut out);
        self.absorb(now, out);
        self.tell(Event::Excluded { epoch });
        self.told_until = Time::ZERO;
        self.peers.counters.past_view += self.early.len() as u64;
        self.early.clear();
        self.joined = None;
        self.quarantine.note_unclean();
        self.peers.begin_anew(now, self.me);
        self.views.begin_anew(now, self.me);
        // Nothing is said before the new incarnation is on disk.
        self.stage = Stage::Booting;
        self.storage.record.incarnation = self.me.incarnation;
        self.storage.born = false;
        self.storage.put(&mut self.outputs);
    }

    pub(super) fn install(&mut self, now: Time, view: Arc<View>, table: &Summary) {
        self.peers.in_view = true;
        self.joined.get_or_insert(now);
        if !table.quarantines() {
            self.quarantine.note_view();
        }
        let (epoch, members) = (view.epoch, view.nodes().collect());
        self.tell(Event::View { epoch, members });
        // Who is let in now must know it first.
        self.tell_lease();
        let mut met = Vec::new();
        self.peers.meet(now, &view.members, &mut met);
        self.peer_events(now, met);
        let mut out = LockOutput::at(now);
        let coordinates = self.declarer() == Some(self.me.node);
        let installed = Arc::clone(&view);
        self.locks.install(view, table, coordinates, &mut out);
        self.absorb(now, out);
        let mut out = ElectionOutput::default();
        self.elections.install(installed, &mut out);
        self.elect(now, out);
        for (from, of, body) in core::mem::take(&mut self.early) {
            self.lock_body(now, from, of, body);
        }
    }

    /// The leases of those whom the view lost are over.
    fn lift(&mut self, now: Time) {
        self.quarantine.note_view();
        // A caller that is granted the lock now must know the lease first.
        self.tell_lease();
        let mut out = LockOutput::at(now);
        self.locks.lift(&mut out);
        self.absorb(now, out);
    }

    /// Sends, tells and arms what the table of locks wants.
    pub(super) fn absorb(&mut self, now: Time, out: LockOutput) {
        let LockOutput {
            now: _,
            sends,
            events,
            hops,
            declares,
            wants_view,
        } = out;
        let epoch = self.present_epoch();
        for (to, message) in sends {
            let kind = (message.body.algorithm(), message.body.kind());
            let count = self.peers.counters.engine_messages.entry(kind);
            *count.or_default() += to.len() as u64;
            self.peers.send(&to, epoch, &Body::Lock(message));
        }
        for event in events {
            if let Event::Granted {
                ticket,
                fence,
                previous,
            } = event
                && self.views.lease_ends() <= now
            {
                let grant = HeldBack {
                    ticket,
                    fence,
                    previous,
                };
                self.held_back.insert(ticket, grant);
                continue;
            }
            if let Event::Granted { ticket, .. } | Event::Ended { ticket, .. } = event {
                self.timers.clear(&Timer::Try(ticket));
            }
            self.tell(event.clone());
            self.follow(now, &event);
        }
        for (lock, timer) in hops {
            let at = match timer {
                HopTimer::Set(stay) => Some(now + stay),
                HopTimer::Within(longest) => Some(now + self.chance.below(longest)),
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
            self.views.want_view(now, &mut actions);
            self.act(now, actions);
        }
    }

    /// Keeps callers from adding to what waits for members that take nothing in.
    pub(super) fn note_congested(&mut self, now: Time) {
        let congested = self.peers.congested();
        if congested != *self.locks.congested() {
            let mut out = LockOutput::at(now);
            self.locks.note_congested(congested, &mut out);
            self.absorb(now, out);
        }
    }

    /// Where new locks are declared: at the lowest member of the view in force.
    pub(super) fn declarer(&self) -> Option<NodeId> {
        self.views.view()?.nodes().next()
    }

    /// Asks the coordinator how a lock is served.
    pub(super) fn declare(&mut self, now: Time, lock: LockName, wish: Option<LockSpec>) {
        let Some(coordinator) = self.declarer() else {
            return;
        };
        if coordinator != self.me.node {
            let epoch = self.present_epoch();
            return self
                .peers
                .send(&[coordinator], epoch, &Body::Declare { lock, wish });
        }
        let mut out = LockOutput::at(now);
        let spec = self.locks.declare(&lock, wish, &mut out);
        if spec.is_none() {
            self.locks.declared(&lock, None, &mut out);
        }
        self.absorb(now, out);
    }
}

fn in_words(ids: &[NodeId]) -> String {
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    ids.join(" ")
}
