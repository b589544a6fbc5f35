//! Which way datagrams come and go: directly, or by others who pass them on.
//!
//! A peer that is not heard directly for a while is reached by way of another, which passes on what
//! is for it, so that one broken connection keeps nobody from anything.

use alloc::vec::Vec;
use core::time::Duration;

use super::Peers;
use super::peer::{Peer, Standing};
use crate::ids::NodeId;
use crate::time::Time;
use crate::wire::{Header, Route};

/// How many are asked to pass on one datagram. Which of them reach its receiver is not known: in a ring
/// of five one of two does, and what is asked of one at a time gets lost as often as not.
const RELAYS: usize = 2;

impl Peers {
    /// Whose word a datagram is that came from the address of `from`; `None` if it is not to be heard.
    /// A member passes on for others, and gets what others pass on, as far as it is in touch with
    /// them. It does so once: what was passed on goes no further.
    pub(super) fn origin(&self, from: NodeId, header: &Header) -> Option<NodeId> {
        let is_up = |node| self.peers.get(&node).is_some_and(Peer::is_up);
        let is_for_me = header.to == self.me.node;
        let is_right = match header.route {
            Route::Direct => is_for_me && header.from == from,
            Route::PassOn => {
                let knows_both = is_up(from) && self.peers.contains_key(&header.to);
                knows_both && !is_for_me && header.from == from && header.to != from
            }
            Route::Passed => is_for_me && is_up(from) && header.from != from,
        };
        is_right.then_some(header.from)
    }

    /// How long nothing may come from a peer directly before others are asked to pass on.
    pub(super) fn silence(&self) -> Duration {
        self.timing.ping_after * 2
    }

    /// Whether `peer` does not reach this member directly.
    pub(super) fn is_deaf_to(&self, now: Time, peer: &Peer) -> bool {
        peer.direct_at + self.silence() < now
    }

    /// Who is to pass on what goes to `node`, if it, or its answers, do not arrive by themselves: some
    /// of those that do, each in its turn.
    pub(super) fn relays_to(&mut self, now: Time, node: NodeId) -> [Option<NodeId>; RELAYS] {
        let mut chosen = [None; RELAYS];
        let Some(peer) = self.peers.get(&node) else {
            return chosen;
        };
        let is_heard = !self.is_deaf_to(now, peer);
        let hears = peer.deaf_until <= now;
        if peer.standing == Standing::Left || (is_heard && hears) {
            return chosen;
        }
        let reached = |(&id, peer): (&NodeId, &Peer)| {
            (id != node && peer.is_up() && !self.is_deaf_to(now, peer)).then_some(id)
        };
        let relays: Vec<NodeId> = self.peers.iter().filter_map(reached).collect();
        self.relays = self.relays.wrapping_add(1);
        let in_turn = relays
            .iter()
            .cycle()
            .skip(self.relays % relays.len().max(1));
        for (chosen, relay) in chosen.iter_mut().zip(in_turn.take(relays.len())) {
            *chosen = Some(*relay);
        }
        chosen
    }
}
