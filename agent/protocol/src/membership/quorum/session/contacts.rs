//! The members that this one can talk to, and what each was told of the cluster.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

use super::super::affiliation::Membership;
use super::super::message::{ClusterNotice, QuorumMessage};
use super::super::outbox::Outbox;
use super::super::view_config::ViewConfig;
use crate::ids::NodeId;
use crate::time::Time;

/// Members in no view with this one are told which cluster this is: files that name different voters
/// found different clusters, which would not hear of each other otherwise.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Contacts {
    met: BTreeMap<NodeId, Contact>,
    /// Those of them that are in another cluster.
    strangers: BTreeSet<NodeId>,
}

#[derive(Clone, Debug, Default, Hash)]
struct Contact {
    /// When it was last told which cluster this is.
    told: Option<Time>,
    /// Whether it has said since that it is in no view: it may be in this member's view, and have
    /// lost its state.
    asks: bool,
}

impl Contacts {
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.met.keys().copied()
    }

    pub(super) fn meet(&mut self, peer: NodeId) {
        self.met.insert(peer, Contact::default());
        self.strangers.remove(&peer);
    }

    pub(super) fn part(&mut self, peer: NodeId) {
        self.met.remove(&peer);
        self.strangers.remove(&peer);
    }

    /// That member is in another cluster; whether this is news.
    pub(super) fn note_stranger(&mut self, peer: NodeId) -> bool {
        self.strangers.insert(peer)
    }

    /// That member is in this cluster, or in one that this member may join.
    pub(super) fn note_kin(&mut self, peer: NodeId) {
        self.strangers.remove(&peer);
    }

    pub(super) fn is_stranger(&self, peer: NodeId) -> bool {
        self.strangers.contains(&peer)
    }

    /// A member that is in no view asks: the next [`Contacts::introduce`] tells it, at most once in
    /// `pause`.
    pub(super) fn asked_by(&mut self, now: Time, pause: Duration, peer: NodeId) {
        if let Some(contact) = self.met.get_mut(&peer) {
            contact.asks = true;
            contact.told.take_if(|at| *at + pause <= now);
        }
    }

    /// Tells the members which may not know it which cluster this is, each once in a lease.
    pub(super) fn introduce(
        &mut self,
        now: Time,
        lease: Duration,
        view_config: &ViewConfig,
        out: &mut Outbox,
    ) {
        for (peer, contact) in &mut self.met {
            let lately = contact.told.is_some_and(|at| now < at + lease);
            let is_known = view_config.incarnation_of(*peer).is_some() && !contact.asks;
            if lately || is_known {
                continue;
            }
            (contact.told, contact.asks) = (Some(now), false);
            let notice = ClusterNotice {
                membership: Membership::of(view_config),
                abandons: view_config.abandons.clone(),
            };
            out.send(*peer, QuorumMessage::Cluster(Box::new(notice)));
        }
    }
}
