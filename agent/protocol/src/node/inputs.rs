//! What a node does with each input.

use alloc::vec::Vec;
use core::time::Duration;

use super::peers::PeerEvent;
use super::{MAX_EARLY, Node, Stage, TRY_PARTS};
use crate::api::{Command, Event, Refusal, Wait};
use crate::election::ElectionOutput;
use crate::ids::{Epoch, NodeId, Ticket};
use crate::lock::{LockOutput, Mode, Release, Waiting};
use crate::membership::View;
use crate::membership::quorum::{Missing, QuorumOverview};
use crate::time::Time;
use crate::timers::Timer;
use crate::wire::Body;

impl Node {
    pub(super) fn command(&mut self, now: Time, command: &Command) {
        let mut out = LockOutput::at(now);
        match command {
            Command::Acquire {
                ticket,
                lock,
                spec,
                mode,
                wait,
            } => {
                let caller = Waiting {
                    ticket: *ticket,
                    wish: *spec,
                    mode: *mode,
                    wait: *wait,
                    since: now,
                    is_inside: false,
                };
                if *wait == Wait::Try {
                    self.try_later(now, *ticket);
                }
                self.locks.acquire(lock, caller, &mut out);
            }
            Command::Campaign {
                ticket,
                lock,
                spec,
                algorithm,
                wait,
            } => {
                let caller = Waiting {
                    ticket: *ticket,
                    wish: Some(*spec),
                    mode: Mode::Exclusive,
                    wait: *wait,
                    since: now,
                    is_inside: false,
                };
                return self.campaign(now, lock, caller, *algorithm);
            }
            Command::Borrow { ticket, lock, loan } => {
                self.locks.borrow(lock, *ticket, loan, &mut out);
            }
            Command::Return { lock, loan } => {
                self.locks.return_loan(lock, loan, &mut out);
            }
            Command::Find { lock } => self.locks.know_inside(lock, &mut out),
            // Who has not been told that it was let in has nothing to release.
            Command::Release { ticket, .. } if self.held_back.contains_key(ticket) => {}
            Command::Release { ticket, how } => {
                self.locks.release(*ticket, *how, &mut out);
                self.absorb(now, out);
                // Who waits to lead has been granted nothing, and goes on waiting.
                if self.elections.leads(*ticket) {
                    self.resign(now, *ticket);
                }
                return;
            }
            Command::Cancel { ticket } => {
                self.end_request(*ticket, Refusal::Cancelled, &mut out);
                self.absorb(now, out);
                return self.end_campaign(now, *ticket, Refusal::Cancelled);
            }
            Command::Note { to, bytes } if bytes.len() <= Command::MAX_NOTE => {
                self.peers.note(*to, bytes.clone());
            }
            Command::Note { .. } => {}
            Command::Change { change, until } => {
                let mut actions = Vec::new();
                if !self.views.change(now, change.clone(), *until, &mut actions) {
                    self.tell(Event::Unchangeable);
                }
                return self.act(now, actions);
            }
            Command::Leave => return self.leave(now),
        }
        self.absorb(now, out);
    }

    pub(super) fn receive(&mut self, now: Time, from: NodeId, bytes: &[u8]) {
        let (present, room) = (self.present_epoch(), self.early.len() < MAX_EARLY);
        let mut events = Vec::new();
        let accepts = |epoch: Epoch| room || epoch <= present;
        self.peers.receive(now, from, bytes, accepts, &mut events);
        self.peer_events(now, events);
    }

    pub(super) fn peer_events(&mut self, now: Time, events: Vec<PeerEvent>) {
        for event in events {
            if self.stage == Stage::Silent {
                return;
            }
            let mut actions = Vec::new();
            match event {
                PeerEvent::Up(peer, incarnation) => {
                    self.views.peer_up(now, peer, incarnation, &mut actions)
                }
                PeerEvent::Down(peer) => self.views.peer_down(now, peer, &mut actions),
                PeerEvent::Left(peer) => self.views.peer_left(now, peer, &mut actions),
                PeerEvent::Suspect(peer) => {
                    self.tell(Event::Suspect { peer });
                    self.views.peer_suspected(now, peer, &mut actions);
                }
                PeerEvent::Alive(peer) => {
                    self.tell(Event::Alive { peer });
                    self.views.peer_alive(now, peer, &mut actions);
                }
                PeerEvent::Disagrees {
                    peer,
                    difference,
                    in_view,
                } => {
                    self.tell(Event::Disagreement {
                        peer,
                        key: difference.key,
                        ours: difference.ours,
                        theirs: difference.theirs,
                        refused: in_view,
                    });
                    self.views.peer_refused(now, peer, &mut actions);
                }
                PeerEvent::KnewUs => self.remember(),
                PeerEvent::Superseded(by) => return self.superseded(by),
                PeerEvent::Body(from, epoch, body) => {
                    self.body(now, from, epoch, body);
                    continue;
                }
            }
            self.act(now, actions);
            self.note_missing(now);
            self.get_ready(now);
        }
    }

    pub(super) fn body(&mut self, now: Time, from: NodeId, epoch: Epoch, body: Body) {
        let mut actions = Vec::new();
        match body {
            Body::View(message) => {
                self.views.receive(now, from, message, &mut actions);
                self.act(now, actions);
                self.note_missing(now);
            }
            Body::Note { bytes } => self.tell(Event::Note { from, bytes }),
            Body::Bye => {}
            Body::Lock(_) | Body::Declare { .. } | Body::Declared { .. } | Body::Election(_) => {
                self.lock_body(now, from, epoch, body);
            }
        }
    }

    /// What concerns locks belongs to one epoch (guard G6): the past is dropped, the future waits.
    pub(super) fn lock_body(&mut self, now: Time, from: NodeId, epoch: Epoch, body: Body) {
        let present = self.present_epoch();
        if epoch > present {
            self.early.push((from, epoch, body));
            return;
        }
        if epoch < present || self.views.view().is_none() {
            self.peers.counters.past_view += 1;
            return;
        }
        let mut out = LockOutput::at(now);
        match body {
            Body::Lock(message) => {
                if !self.locks.receive(from, message, &mut out) {
                    self.peers.counters.misplaced += 1;
                }
            }
            Body::Declare { lock, wish } if self.declarer() == Some(self.me.node) => {
                let spec = self.locks.declare(&lock, wish, &mut out);
                self.peers
                    .send(&[from], present, &Body::Declared { lock, spec });
            }
            Body::Declared { lock, spec } if self.declarer() == Some(from) => {
                self.locks.declared(&lock, spec, &mut out);
            }
            Body::Election(message) if self.election_body(now, from, &message) => {}
            _ => self.peers.counters.misplaced += 1,
        }
        self.absorb(now, out);
    }

    pub(super) fn timeout(&mut self, now: Time) {
        while let Some(timer) = self.timers.pop_due(now) {
            let mut out = LockOutput::at(now);
            match timer {
                Timer::Link(peer) => {
                    let mut events = Vec::new();
                    self.peers.timeout(now, peer, &mut events);
                    // What is due again at once is sent first, so that this loop ends.
                    self.peers.flush(now, &mut self.timers, &mut self.outputs);
                    self.peer_events(now, events);
                }
                Timer::Hop(lock) => self.locks.hop_timeout(&lock, &mut out),
                Timer::Try(ticket) => match self.outcome_of_try(now, ticket) {
                    Some(refusal) => {
                        self.end_request(ticket, refusal.clone(), &mut out);
                        self.end_campaign(now, ticket, refusal);
                    }
                    None => self.try_later(now, ticket),
                },
                Timer::Election(name) => {
                    let mut out = ElectionOutput::default();
                    self.elections.timeout(&name, &mut out);
                    self.elect(now, out);
                }
                Timer::Views => {
                    let mut actions = Vec::new();
                    self.views.timeout(now, &mut actions);
                    self.act(now, actions);
                    self.note_missing(now);
                }
                Timer::Quorum => self.end_impatient(now, &mut out),
                Timer::Quarantine => self.end_quarantine(now),
                Timer::Leave => self.finish_leaving(now, true),
            }
            self.absorb(now, out);
        }
    }

    /// Looks at a request that does not wait when a part of its time is over.
    pub(super) fn try_later(&mut self, now: Time, ticket: Ticket) {
        // Rounded up, so that the last look is not before the time is over.
        let part = self.try_patience / TRY_PARTS + Duration::from_nanos(1);
        self.timers.set(Timer::Try(ticket), now + part);
    }

    /// How a request that does not wait ends now; `None` while it still may be granted. Silence
    /// alone does not tell that the lock is held: the members that have not answered since are asked
    /// whether they are there, and named if they are not.
    fn outcome_of_try(&mut self, now: Time, ticket: Ticket) -> Option<Refusal> {
        let locks = || self.locks.waiting_since(ticket);
        let since = self.elections.waiting_since(ticket).or_else(locks);
        let silent = self.silent_since(since.unwrap_or(now));
        let is_over = since.is_none_or(|since| since + self.try_patience <= now);
        if !is_over {
            self.peers.ask(now, &silent);
            return None;
        }
        let missing = self.lacking(now);
        if !missing.is_empty() {
            return Some(Refusal::NoQuorum { missing });
        }
        // Nobody knows yet whether the lock is free in a group that is just being formed. That is
        // waited for, for no longer than a lease.
        let patience = self.try_patience;
        let is_new = self.joined.is_none_or(|joined| now < joined + patience);
        if is_new && since.is_some_and(|since| now < since + self.lease) {
            return None;
        }
        // A grant that is held back until the lease is renewed means that no other member has the
        // lock.
        let is_held_back = self.held_back.contains_key(&ticket);
        Some(if silent.is_empty() && !is_held_back {
            Refusal::Busy
        } else {
            Refusal::NoAnswer { silent }
        })
    }

    /// The other members of the view of which nothing was heard since `since`.
    fn silent_since(&self, since: Time) -> Vec<NodeId> {
        let members = self.view().into_iter().flat_map(View::nodes);
        let others = members.filter(|&node| node != self.me.node);
        let is_silent = |&node: &NodeId| self.peers.last_heard(node).is_none_or(|at| at < since);
        others.filter(is_silent).collect()
    }

    /// Begins or ends the time for which members have been missing.
    pub(super) fn note_missing(&mut self, now: Time) {
        let absent = self.peers.missing();
        self.elections.note_silent(&absent);
        let quorum = self.views.overview(now, &absent);
        if quorum.suffices {
            self.incomplete_since = None;
            self.timers.clear(&Timer::Quorum);
            if quorum.is_ok() && self.told_missing.take().is_some() {
                self.tell(Event::Quorum(quorum));
            }
        } else if self.incomplete_since.is_none() {
            self.incomplete_since = Some(now);
            self.timers.set(Timer::Quorum, now + self.lease);
        }
    }

    /// Ends the callers that have waited for a lease while members were missing.
    pub(super) fn end_impatient(&mut self, now: Time, out: &mut LockOutput) {
        let Some(incomplete_since) = self.incomplete_since else {
            return;
        };
        let quorum = self.quorum(now);
        if quorum.suffices {
            return self.note_missing(now);
        }
        self.tell_missing(now, &quorum);
        let missing = quorum.lacking();
        let held_back = self.held_back.values();
        let held_back = held_back.filter_map(|grant| self.locks.impatience(grant.ticket()));
        let impatient: Vec<_> = self
            .locks
            .impatient()
            .into_iter()
            .chain(held_back)
            .collect();
        let lease = self.lease;
        let is_over = |since: Time| since.max(incomplete_since) + lease <= now;
        for (ticket, _) in impatient.into_iter().filter(|(_, since)| is_over(*since)) {
            let missing = missing.clone();
            self.end_request(ticket, Refusal::NoQuorum { missing }, out);
        }
        let campaigners = self.elections.impatient().into_iter();
        for (ticket, _) in campaigners.filter(|(_, since)| is_over(*since)) {
            let missing = missing.clone();
            self.end_campaign(now, ticket, Refusal::NoQuorum { missing });
        }
        self.timers.set(Timer::Quorum, now + self.lease / 16);
    }

    /// Tells the missing members if they are others than were told last, at most once a lease.
    fn tell_missing(&mut self, now: Time, quorum: &QuorumOverview) {
        let told = self.told_missing.as_ref();
        if told.is_none_or(|(at, told)| *told != quorum.missing && *at + self.lease <= now) {
            self.told_missing = Some((now, quorum.missing.clone()));
            self.tell(Event::Quorum(quorum.clone()));
        }
    }

    /// The members without which this one cannot go on; empty if it can. Voters that answer and have
    /// lost their states are among them.
    pub fn lacking(&self, now: Time) -> Vec<Missing> {
        self.quorum(now).lacking()
    }

    /// The members that this one needs to go on, and which of them are missing.
    pub fn quorum(&self, now: Time) -> QuorumOverview {
        self.views.overview(now, &self.peers.missing())
    }

    /// Ends a request whose caller has not been told that it was let in, if it was.
    pub(super) fn end_request(&mut self, ticket: Ticket, refusal: Refusal, out: &mut LockOutput) {
        if self.held_back.remove(&ticket).is_some() {
            self.locks.release(ticket, Release::Unused, out);
            out.events.push(Event::Ended { ticket, refusal });
        } else {
            self.locks.end(ticket, refusal, out);
        }
    }

    pub(super) fn persisted(&mut self, now: Time) {
        let written = self.storage.written(&mut self.outputs);
        match self.stage {
            Stage::Booting if written.member => {
                self.stage = Stage::Running;
                self.set_view_timer(now);
            }
            Stage::Closing => {
                if self.storage.is_idle() {
                    self.stage = Stage::Silent;
                    self.tell(Event::Left);
                }
                return;
            }
            Stage::Silent => return,
            _ => {}
        }
        let mut actions = Vec::new();
        if written.affiliation {
            self.views.affiliation_persisted(now, &mut actions);
        }
        if written.member {
            self.views.persisted(now, &mut actions);
        }
        if written.voter {
            self.views.voter_persisted(now, &mut actions);
        }
        self.act(now, actions);
    }

    /// The source of views is asked when it wants to be woken.
    pub(super) fn set_view_timer(&mut self, now: Time) {
        let at = self.views.next_timeout(now);
        self.timers.set_or_clear(Timer::Views, at);
    }
}
