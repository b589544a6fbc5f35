//! What datagrams tell of the other members: which of them are up, each one's incarnation and its
//! settings.
//!
//! A peer is *up* when each side knows the other's present incarnation and both files agree. Until
//! then only greetings go there. A new incarnation of the peer ends all that was agreed with the
//! old one.

mod event;
mod peer;
mod ways;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

pub(super) use self::event::PeerEvent;
pub use self::peer::PeerState;
use self::peer::{GREET_FIRST, GREET_LAST, Peer, Standing, with_role};
use super::counters::Counters;
use crate::api::{NodeConfig, Output};
use crate::ids::{Epoch, Incarnation, NodeId};
use crate::link::{Link, Suspicion, Timing};
use crate::membership::greeting::{Agreement, Difference, Greeting};
use crate::membership::{Member, MembershipOverrides};
use crate::time::Time;
use crate::timers::{Timer, Timers};
use crate::wire::{
    Body, Drop, FRAMES_ROOM, GroupId, Header, Kind, Route, decode, decode_all, decode_frames,
    encode_body, encode_frames, encode_greeting, encode_notice, reroute, sender,
};

#[derive(Debug)]
pub(super) struct Peers {
    me: Member,
    group: GroupId,
    group_name: String,
    agreement: Agreement,
    timing: Timing,
    peers: BTreeMap<NodeId, Peer>,
    /// Whether this member is in a view, to be told in greetings.
    pub(super) in_view: bool,
    pub(super) counters: Counters,
    /// What is to be passed on for other members.
    passing: Vec<(NodeId, Vec<u8>)>,
    /// Whose turn it is to pass on what does not arrive by itself.
    relays: usize,
    /// Peers whose links may have something to send, or whose timers may have moved.
    /// Some stand there more than once.
    touched: Vec<NodeId>,
}

impl Peers {
    pub(super) fn new(now: Time, me: Member, config: &NodeConfig) -> Self {
        let lease = config.settings.lease;
        let timing = Timing {
            ping_after: (lease / 5).min(Duration::from_secs(1)),
            suspect_after: lease / 2,
            is_asked: false,
        };
        let others = config.members.iter().filter(|&&node| node != me.node);
        let peer = |&node: &NodeId| (node, Peer::new(now, with_role(timing, me.node, node)));
        let peers: BTreeMap<_, _> = others.map(peer).collect();
        Self {
            me,
            group: GroupId::of(&config.settings.group),
            group_name: config.settings.group.clone(),
            agreement: Agreement::new(&config.settings, &config.members),
            timing,
            touched: peers.keys().copied().collect(),
            peers,
            in_view: false,
            counters: Counters::default(),
            passing: Vec::new(),
            relays: 0,
        }
    }

    /// What a view says of who may be a member; files say the rest. A removed member is answered, so
    /// that it hears of its removal, and is not sought any more.
    pub(super) fn read(&mut self, now: Time, overrides: &MembershipOverrides) {
        for &node in overrides.added.keys().filter(|node| **node != self.me.node) {
            let timing = with_role(self.timing, self.me.node, node);
            self.peers
                .entry(node)
                .or_insert_with(|| Peer::new(now, timing));
            self.touched.push(node);
        }
        for (node, peer) in &mut self.peers {
            peer.is_removed = overrides.removed.contains(node);
        }
    }

    pub(super) fn state(&self, node: NodeId) -> PeerState {
        self.peers.get(&node).map_or(PeerState::Up, Peer::state)
    }

    /// The incarnation of another member that is talked to.
    pub(super) fn incarnation(&self, node: NodeId) -> Option<Incarnation> {
        self.peers.get(&node).and_then(|peer| peer.incarnation)
    }

    /// When something last came from another member; `None` if nothing did.
    pub(super) fn last_heard(&self, node: NodeId) -> Option<Time> {
        let peer = self
            .peers
            .get(&node)
            .filter(|peer| peer.incarnation.is_some());
        peer.map(|peer| peer.link.last_heard())
    }

    /// The members that cannot be counted on at present.
    pub(super) fn missing(&self) -> Vec<NodeId> {
        let is_missing = |peer: &Peer| !peer.is_removed && peer.state() != PeerState::Up;
        let missing = self.peers.iter().filter(|(_, peer)| is_missing(peer));
        missing.map(|(&node, _)| node).collect()
    }

    /// Whether one that is not up yet may know of an incarnation of this member that left no record.
    /// `silent`: whether who is silent, or cannot be in a view with this member, counts.
    pub(super) fn may_still_tell(&self, silent: bool) -> bool {
        let may_tell = |&node: &NodeId| match self.state(node) {
            PeerState::Up => false,
            PeerState::Unknown => true,
            PeerState::Suspect | PeerState::Left | PeerState::Disagrees => silent,
        };
        self.peers.keys().any(may_tell)
    }

    /// The members to whom so much waits to be sent that nothing should be added.
    pub(super) fn congested(&self) -> BTreeSet<NodeId> {
        let congested = self
            .peers
            .iter()
            .filter(|(_, peer)| peer.link.is_congested());
        congested.map(|(&node, _)| node).collect()
    }

    /// Whether no other member is there.
    pub(super) fn is_alone(&self) -> bool {
        let mut peers = self.peers.values();
        !peers.any(|peer| peer.standing == Standing::Up)
    }

    /// Whether everything sent to members that are there has arrived.
    pub(super) fn is_drained(&self) -> bool {
        let mut up = self
            .peers
            .values()
            .filter(|peer| peer.standing == Standing::Up);
        up.all(|peer| peer.link.is_drained())
    }

    /// Sends to those of `to` that are up: what the others must know, they are told by views.
    pub(super) fn send(&mut self, to: &[NodeId], epoch: Epoch, body: &Body) {
        let Some((last, others)) = to.split_last() else {
            return;
        };
        let bytes = encode_body(body);
        let prompt = match body {
            Body::Lock(message) => message.body.is_request(),
            _ => true,
        };
        for node in others {
            if let Some(link) = self.link_to(*node) {
                link.send(epoch, bytes.clone(), prompt);
            }
        }
        if let Some(link) = self.link_to(*last) {
            link.send(epoch, bytes, prompt);
        }
    }

    /// The link to a member that is up, which has something to send then.
    fn link_to(&mut self, node: NodeId) -> Option<&mut Link> {
        let peer = self.peers.get_mut(&node);
        let peer = peer.filter(|peer| peer.standing == Standing::Up)?;
        self.touched.push(node);
        Some(&mut peer.link)
    }

    /// Sends what is not the protocol's, unless so much waits to be sent that locks would wait for
    /// it: links deliver in order.
    pub(super) fn note(&mut self, to: NodeId, bytes: Vec<u8>) {
        let peer = self.peers.get(&to);
        if peer.is_some_and(|peer| peer.link.is_congested()) {
            self.counters.notes_lost += 1;
        } else {
            self.send(&[to], Epoch::ZERO, &Body::Note { bytes });
        }
    }

    /// Says something to one member that need not arrive. What does not fit one datagram goes with
    /// what is repeated, unless too much of that waits already, or the same is on its way yet: long
    /// tables take longer than the pause after which they are said again.
    pub(super) fn say(&mut self, to: NodeId, body: &Body) {
        let Some(peer) = self.peers.get_mut(&to) else {
            return;
        };
        // Who leaves may be needed for the view that goes on without it.
        if !matches!(peer.standing, Standing::Up | Standing::Left) {
            return;
        }
        let bytes = encode_body(body);
        if bytes.len() <= FRAMES_ROOM {
            peer.notices.push(bytes);
        } else if !peer.is_on_its_way(&bytes) {
            if peer.link.is_congested() {
                self.counters.notices_unsent += 1;
            } else {
                peer.link.send(Epoch::ZERO, bytes, true);
            }
        }
        self.touched.push(to);
    }

    pub(super) fn send_to_all(&mut self, body: &Body) {
        let peers: Vec<_> = self.peers.keys().copied().collect();
        self.send(&peers, Epoch::ZERO, body);
    }

    /// This member lives anew: all that was agreed with its incarnation before is void.
    pub(super) fn begin_anew(&mut self, now: Time, me: Member) {
        self.me = me;
        self.in_view = false;
        for (&node, peer) in &mut self.peers {
            peer.link = Link::new(now, with_role(self.timing, me.node, node));
            peer.notices.clear();
            if matches!(peer.standing, Standing::Up) {
                peer.standing = Standing::Stranger { agrees: true };
            }
            peer.restart_greeting(now);
            self.touched.push(node);
        }
    }

    /// A view is in force, whose coordinator is in touch with all of `members`: so is this member
    /// from now on. What it says to one that has not greeted it yet waits in the link.
    pub(super) fn meet(&mut self, now: Time, members: &[Member], out: &mut Vec<PeerEvent>) {
        for &Member { node, incarnation } in members {
            let Some(peer) = self.peers.get_mut(&node) else {
                continue;
            };
            // A later incarnation is known: the next view will be with that one.
            if peer.incarnation > Some(incarnation) {
                continue;
            }
            self.touched.push(node);
            if peer.incarnation != Some(incarnation) {
                let timing = with_role(self.timing, self.me.node, node);
                peer.begin_incarnation(now, node, incarnation, timing, out);
            }
            // What its incarnation before left behind was reckoned with in this view.
            peer.had_unclean_incarnation = false;
            if matches!(peer.standing, Standing::Stranger { .. }) {
                peer.standing = Standing::Up;
                out.push(PeerEvent::Up(node, incarnation));
            }
        }
    }

    /// Takes a datagram in. `accepts`: whether frames of that epoch can be taken now.
    pub(super) fn receive(
        &mut self,
        now: Time,
        from: NodeId,
        bytes: &[u8],
        accepts: impl Fn(Epoch) -> bool,
        out: &mut Vec<PeerEvent>,
    ) {
        match self.try_receive(now, from, bytes, accepts, out) {
            Ok(()) => self.counters.datagrams_received += 1,
            Err(reason) => self.counters.drop(reason),
        }
    }

    /// At a member's address is that member of another group: the files differ in the group's name.
    fn meet_another_group(&mut self, from: NodeId, bytes: &[u8], out: &mut Vec<PeerEvent>) {
        let Some(peer) = self.peers.get_mut(&from) else {
            return;
        };
        let is_new = matches!(peer.standing, Standing::Stranger { .. });
        if sender(bytes) == Some(from) && is_new {
            let difference = Difference {
                key: "group.name".to_string(),
                ours: self.group_name.clone(),
                theirs: "another name".to_string(),
            };
            peer.standing = Standing::Disagrees {
                key: Some(difference.clone()),
            };
            out.push(PeerEvent::Disagrees {
                peer: from,
                difference,
                in_view: false,
            });
        }
    }

    fn try_receive(
        &mut self,
        now: Time,
        from: NodeId,
        bytes: &[u8],
        accepts: impl Fn(Epoch) -> bool,
        out: &mut Vec<PeerEvent>,
    ) -> Result<(), Drop> {
        let (header, payload) = match decode(self.group, bytes) {
            Err(Drop::Group) => {
                self.meet_another_group(from, bytes, out);
                return Err(Drop::Group);
            }
            decoded => decoded?,
        };
        let from = self.origin(from, &header).ok_or(Drop::Address)?;
        if header.to != self.me.node {
            let passed = reroute(bytes, Route::Passed);
            self.passing.push((header.to, passed));
            return Ok(());
        }
        let timing = with_role(self.timing, self.me.node, from);
        let silence = self.silence();
        let peer = self.peers.get_mut(&from).ok_or(Drop::Address)?;
        self.touched.push(from);
        if header.route == Route::Direct {
            peer.direct_at = now;
        }
        if header.deaf {
            peer.deaf_until = now + silence;
        }
        // Decoded before anything is changed by it.
        let greeting: Option<Greeting> = match header.kind {
            Kind::Greeting => Some(decode_all(payload)?),
            Kind::Frames | Kind::Notice => None,
        };
        if peer
            .incarnation
            .is_some_and(|incarnation| header.from_incarnation < incarnation)
        {
            // A process with an old state, or a datagram that took long. The first must know.
            peer.answer_greeting(now, &header);
            return Err(Drop::Stale);
        }
        if greeting.as_ref().is_some_and(|greeting| greeting.knew_you) {
            // First of all that follows from it: whoever is up may make this member ready.
            out.push(PeerEvent::KnewUs);
        }
        if peer.incarnation != Some(header.from_incarnation) {
            peer.begin_incarnation(now, from, header.from_incarnation, timing, out);
        } else if peer.link.heard(now) {
            out.push(PeerEvent::Alive(from));
        }
        if header.to_incarnation > self.me.incarnation {
            out.push(PeerEvent::Superseded(from));
            return Err(Drop::Stale);
        }
        let knows_us = header.to_incarnation == self.me.incarnation;
        match greeting {
            Some(greeting) => {
                peer.greeted(now, &self.agreement, &greeting, &header, out);
                if knows_us {
                    peer.come_up(&header, out);
                } else if peer.standing == Standing::Up {
                    peer.answer_greeting(now, &header);
                }
                Ok(())
            }
            None if !knows_us => {
                peer.answer_greeting(now, &header);
                Err(Drop::Stale)
            }
            None => {
                peer.come_up(&header, out);
                if !matches!(peer.standing, Standing::Up | Standing::Left) {
                    if peer.is_removed {
                        // It takes both for up, and this member does not seek it.
                        peer.answer_greeting(now, &header);
                    }
                    return Err(Drop::Stranger);
                }
                if !accepts(header.epoch) {
                    return Err(Drop::Early);
                }
                if header.kind == Kind::Notice {
                    let body = decode_all(payload)?;
                    if !matches!(&body, Body::View(message) if message.may_be_lost()) {
                        return Err(Drop::Malformed);
                    }
                    out.push(PeerEvent::Body(from, header.epoch, body));
                    return Ok(());
                }
                let frames = decode_frames(payload)?;
                for (epoch, bytes) in peer.link.receive(now, &header, frames) {
                    match decode_all(&bytes) {
                        Ok(Body::Bye) => {
                            peer.standing = Standing::Left;
                            peer.link.give_up_sending();
                            out.push(PeerEvent::Left(from));
                        }
                        Ok(body) => out.push(PeerEvent::Body(from, epoch, body)),
                        Err(reason) => self.counters.drop(reason),
                    }
                }
                Ok(())
            }
        }
    }

    /// Asks members whether they are there.
    pub(super) fn ask(&mut self, now: Time, members: &[NodeId]) {
        for node in members {
            if let Some(peer) = self.peers.get_mut(node) {
                peer.link.ask(now);
                self.touched.push(*node);
            }
        }
    }

    /// A peer's timer: silence, a repetition, an acknowledgement, a greeting.
    pub(super) fn timeout(&mut self, now: Time, node: NodeId, out: &mut Vec<PeerEvent>) {
        let Some(peer) = self.peers.get_mut(&node) else {
            return;
        };
        self.touched.push(node);
        if peer.link.timeout(now) == Suspicion::Began {
            out.push(PeerEvent::Suspect(node));
        }
    }

    /// Sends what links have to say, and sets their timers.
    pub(super) fn flush(&mut self, now: Time, timers: &mut Timers, out: &mut VecDeque<Output>) {
        // Often enough that a member that only greets is not taken for silent.
        let slowest = self.timing.ping_after.clamp(GREET_FIRST, GREET_LAST);
        for (to, bytes) in core::mem::take(&mut self.passing) {
            self.counters.datagrams_sent += 1;
            out.push_back(Output::Transmit { to, bytes });
        }
        let mut touched = core::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        for node in touched.drain(..) {
            let relays = self.relays_to(now, node);
            let silence = self.silence();
            let Some(peer) = self.peers.get_mut(&node) else {
                continue;
            };
            let sent = &mut self.counters.datagrams_sent;
            let mut transmit = |bytes: Vec<u8>| {
                for to in relays.into_iter().flatten() {
                    *sent += 1;
                    let bytes = reroute(&bytes, Route::PassOn);
                    out.push_back(Output::Transmit { to, bytes });
                }
                *sent += 1;
                out.push_back(Output::Transmit { to: node, bytes });
            };
            let mut header = Header {
                kind: Kind::Greeting,
                ping: false,
                route: Route::Direct,
                deaf: peer.direct_at + silence < now,
                from: self.me.node,
                to: node,
                epoch: Epoch::ZERO,
                from_incarnation: self.me.incarnation,
                to_incarnation: peer.incarnation.unwrap_or_default(),
                acknowledged: 0,
                selective: 0,
                first: 0,
            };
            if peer.wants_greeting(now, slowest) {
                let is_up = peer.standing == Standing::Up;
                let greeting =
                    self.agreement
                        .greet(is_up, self.in_view, peer.had_unclean_incarnation);
                transmit(encode_greeting(self.group, &header, &greeting));
            }
            let mut wake = peer.link.next_timeout();
            if matches!(peer.standing, Standing::Up | Standing::Left) {
                header.kind = Kind::Notice;
                for body in peer.notices.drain(..) {
                    transmit(encode_notice(self.group, &header, &body));
                }
                header.kind = Kind::Frames;
                while let Some(segment) = peer.link.transmit(now) {
                    header.ping = segment.ping;
                    header.epoch = segment.epoch;
                    header.acknowledged = segment.acknowledged;
                    header.selective = segment.selective;
                    header.first = segment.first;
                    transmit(encode_frames(self.group, &header, segment.frames()));
                }
                wake = peer.link.next_timeout();
            }
            if peer.greets() {
                wake = wake.min(peer.greet_at);
            }
            timers.set(Timer::Link(node), wake);
        }
        // The same memory for the next step.
        self.touched = touched;
    }
}

#[cfg(test)]
mod tests;
