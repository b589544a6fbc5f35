//! What is on its way.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use super::Network;
use crate::model::pool::Shared;
use distlock_protocol::lock::LockMessage;
use distlock_protocol::{Epoch, NodeId};

/// A message, and the epoch that it belongs to.
#[derive(Clone, Debug, Hash)]
pub(in crate::model) struct Letter {
    pub(in crate::model) epoch: Epoch,
    pub(in crate::model) message: LockMessage,
}

/// The messages from each member to each other one.
#[derive(Clone, Debug, Default, Hash)]
pub(in crate::model) struct Post(BTreeMap<(NodeId, NodeId), Vec<Shared<Letter>>>);

impl Post {
    pub(in crate::model) fn push(
        &mut self,
        from: NodeId,
        to: NodeId,
        letter: Shared<Letter>,
        network: Network,
    ) {
        let way = self.0.entry((from, to)).or_default();
        way.push(letter);
        if network == Network::Datagrams {
            // Their order means nothing.
            way.sort_by_key(Shared::print);
        }
    }

    pub(in crate::model) fn remove(&mut self, from: NodeId, to: NodeId, at: usize) {
        if let Some(way) = self.0.get_mut(&(from, to)) {
            way.remove(at);
            if way.is_empty() {
                self.0.remove(&(from, to));
            }
        }
    }

    pub(in crate::model) fn retain(
        &mut self,
        mut keep: impl FnMut(NodeId, NodeId, &Letter) -> bool,
    ) {
        self.0.retain(|(from, to), way| {
            way.retain(|letter| keep(*from, *to, letter));
            !way.is_empty()
        });
    }

    pub(in crate::model) fn ways(&self) -> impl Iterator<Item = (NodeId, NodeId)> + '_ {
        self.0.keys().copied()
    }

    /// Those on a way that may arrive next.
    pub(in crate::model) fn next(
        &self,
        from: NodeId,
        to: NodeId,
        network: Network,
    ) -> impl Iterator<Item = usize> + '_ {
        let way = &self.0[&(from, to)];
        let all: Range<usize> = match network {
            Network::Links => 0..1,
            Network::Datagrams => 0..way.len(),
        };
        // Of two that are the same, either may as well be the first.
        all.filter(|&at| at == 0 || way[at] != way[at - 1])
    }

    pub(in crate::model) fn letter(&self, from: NodeId, to: NodeId, at: usize) -> &Letter {
        &self.0[&(from, to)][at]
    }

    /// All on their way to `node`.
    pub(in crate::model) fn to(&self, node: NodeId) -> impl Iterator<Item = &Letter> + '_ {
        let ways = self.0.iter().filter(move |((_, to), _)| *to == node);
        ways.flat_map(|(_, way)| way.iter().map(|letter| &**letter))
    }
}
