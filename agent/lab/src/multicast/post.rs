//! Production links between the members, over the network.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use super::super::network::{Network, NetworkStats};
use distlock_protocol::link::{Link, Timing};
use distlock_protocol::wire::{Frame, Header, Kind, Route};
use distlock_protocol::{Epoch, Incarnation, NodeId, Time};

/// One datagram.
#[derive(Clone, Debug)]
pub(super) struct Datagram {
    header: Header,
    frames: Vec<Frame>,
}

impl Datagram {
    pub(super) const fn to(&self) -> NodeId {
        self.header.to
    }
}

/// What a link wants planned.
#[derive(Debug)]
pub(super) enum Planned {
    Arrival(Datagram),
    /// The link of the first to the second wants to be woken.
    Wake(NodeId, NodeId),
}

/// What has arrived in order.
#[derive(Debug)]
pub(super) struct Letter {
    pub(super) from: NodeId,
    pub(super) to: NodeId,
    pub(super) bytes: Vec<u8>,
}

/// All links, each end by itself.
#[derive(Debug)]
pub(super) struct Post {
    network: Network,
    ends: BTreeMap<(NodeId, NodeId), End>,
    /// Who takes nothing more from whom.
    closed: BTreeSet<(NodeId, NodeId)>,
}

#[derive(Debug)]
struct End {
    link: Link,
    /// For when it is to be woken already.
    wake: Option<Time>,
}

impl Post {
    pub(super) const fn new(network: Network) -> Self {
        Self {
            network,
            ends: BTreeMap::new(),
            closed: BTreeSet::new(),
        }
    }

    pub(super) const fn network_stats(&self) -> NetworkStats {
        self.network.network_stats()
    }

    pub(super) fn heal(&mut self) {
        self.network.heal();
    }

    /// From now on `me` sends `peer` nothing and hears nothing of it.
    pub(super) fn close(&mut self, me: NodeId, peer: NodeId) {
        self.ends.remove(&(me, peer));
        self.closed.insert((me, peer));
    }

    pub(super) fn send(
        &mut self,
        now: Time,
        (from, to): (NodeId, NodeId),
        bytes: &[u8],
        prompt: bool,
    ) -> Vec<(Time, Planned)> {
        if let Some(end) = self.end(now, from, to) {
            end.link.send(Epoch::ZERO, bytes, prompt);
        }
        self.transmit(now, from, to)
    }

    /// A datagram arrives: what comes of it, and what is to be planned.
    pub(super) fn receive(
        &mut self,
        now: Time,
        datagram: Datagram,
    ) -> (Vec<Letter>, Vec<(Time, Planned)>) {
        let Datagram { header, frames } = datagram;
        let (from, to) = (header.from, header.to);
        let Some(end) = self.end(now, to, from) else {
            return (Vec::new(), Vec::new());
        };
        end.link.heard(now);
        let bodies = end.link.receive(now, &header, frames);
        let letters = bodies
            .into_iter()
            .map(|(_, bytes)| Letter { from, to, bytes })
            .collect();
        (letters, self.transmit(now, to, from))
    }

    pub(super) fn wake(&mut self, now: Time, me: NodeId, peer: NodeId) -> Vec<(Time, Planned)> {
        let Some(end) = self.ends.get_mut(&(me, peer)) else {
            return Vec::new();
        };
        if end.wake == Some(now) {
            end.wake = None;
        }
        if end.link.next_timeout() <= now {
            end.link.timeout(now);
        }
        self.transmit(now, me, peer)
    }

    fn end(&mut self, now: Time, me: NodeId, peer: NodeId) -> Option<&mut End> {
        if self.closed.contains(&(me, peer)) {
            return None;
        }
        let new = || End {
            link: Link::new(
                now,
                Timing {
                    ping_after: Duration::from_secs(3600),
                    suspect_after: Duration::from_secs(7200),
                },
            ),
            wake: None,
        };
        Some(self.ends.entry((me, peer)).or_insert_with(new))
    }

    fn transmit(&mut self, now: Time, me: NodeId, peer: NodeId) -> Vec<(Time, Planned)> {
        let mut planned = Vec::new();
        let Some(end) = self.ends.get_mut(&(me, peer)) else {
            return planned;
        };
        while let Some(segment) = end.link.transmit(now) {
            let header = Header {
                kind: Kind::Frames,
                ping: segment.ping,
                route: Route::Direct,
                deaf: false,
                from: me,
                to: peer,
                epoch: segment.epoch,
                from_incarnation: Incarnation(1),
                to_incarnation: Incarnation(1),
                acknowledged: segment.acknowledged,
                selective: segment.selective,
                first: segment.first,
            };
            let frames: Vec<Frame> = segment.frames().cloned().collect();
            for arrival in self.network.send(now, me, peer) {
                let frames = frames.clone();
                planned.push((arrival.at, Planned::Arrival(Datagram { header, frames })));
            }
        }
        let next = end.link.next_timeout().max(now);
        if end.wake.is_none_or(|wake| next < wake || wake < now) {
            end.wake = Some(next);
            planned.push((next, Planned::Wake(me, peer)));
        }
        planned
    }
}
