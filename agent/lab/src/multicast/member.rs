//! A member: its order, and its production links to the others.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use crate::checkers::Payload;
use crate::hosts::Actor;
use distlock_protocol::link::{Link, Timing};
use distlock_protocol::multicast::TotalOrder;
use distlock_protocol::wire::{Frame, Header, Kind, Route};
use distlock_protocol::{Epoch, Incarnation, NodeId, Time};

/// One datagram.
#[derive(Clone, Debug)]
pub(super) struct Datagram {
    header: Header,
    frames: Vec<Frame>,
}

/// What runs in the process of a member.
#[derive(Debug)]
pub(super) struct Member {
    me: NodeId,
    pub(super) order: TotalOrder<Payload>,
    links: BTreeMap<NodeId, Link>,
    /// Of whom it takes nothing more.
    closed: BTreeSet<NodeId>,
}

impl Actor for Member {
    type Message = Datagram;
    type Record = ();
}

impl Member {
    pub(super) const fn new(me: NodeId, window: usize) -> Self {
        Self {
            me,
            order: TotalOrder::new(me, window),
            links: BTreeMap::new(),
            closed: BTreeSet::new(),
        }
    }

    /// From now on it sends `peer` nothing and hears nothing of it.
    pub(super) fn close(&mut self, peer: NodeId) {
        self.links.remove(&peer);
        self.closed.insert(peer);
    }

    pub(super) fn send(&mut self, now: Time, to: NodeId, bytes: &[u8], prompt: bool) {
        if let Some(link) = self.link(now, to) {
            link.send(Epoch::ZERO, bytes.to_vec(), prompt);
        }
    }

    /// A datagram arrives: what has come in order with it.
    pub(super) fn receive(&mut self, now: Time, from: NodeId, datagram: Datagram) -> Vec<Vec<u8>> {
        let Some(link) = self.link(now, from) else {
            return Vec::new();
        };
        link.heard(now);
        let bodies = link.receive(now, &datagram.header, datagram.frames);
        bodies.into_iter().map(|(_, bytes)| bytes).collect()
    }

    pub(super) fn wake(&mut self, now: Time) {
        for link in self.links.values_mut() {
            if link.next_timeout() <= now {
                link.timeout(now);
            }
        }
    }

    /// When it wants to be woken.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.links.values().map(Link::next_timeout).min()
    }

    /// What its links want sent now.
    pub(super) fn transmit(&mut self, now: Time) -> Vec<(NodeId, Datagram)> {
        let mut out = Vec::new();
        for (&peer, link) in &mut self.links {
            while let Some(segment) = link.transmit(now) {
                let header = Header {
                    kind: Kind::Frames,
                    ping: segment.ping,
                    route: Route::Direct,
                    deaf: false,
                    from: self.me,
                    to: peer,
                    epoch: segment.epoch,
                    from_incarnation: Incarnation(1),
                    to_incarnation: Incarnation(1),
                    acknowledged: segment.acknowledged,
                    selective: segment.selective,
                    first: segment.first,
                };
                let frames = segment.frames().cloned().collect();
                out.push((peer, Datagram { header, frames }));
            }
        }
        out
    }

    fn link(&mut self, now: Time, peer: NodeId) -> Option<&mut Link> {
        if self.closed.contains(&peer) {
            return None;
        }
        let new = || {
            let timing = Timing {
                ping_after: Duration::from_secs(3600),
                suspect_after: Duration::from_secs(7200),
                is_asked: false,
            };
            Link::new(now, timing)
        };
        Some(self.links.entry(peer).or_insert_with(new))
    }
}
