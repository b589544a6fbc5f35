//! What follows from an input.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::message::{QuorumMessage, VoterRecord};
use crate::protocol::ids::{Epoch, NodeId};
use crate::protocol::lock::Summary;
use crate::protocol::membership::View;
use crate::protocol::time::Time;

/// What quorum views want done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// It may be lost: whatever matters is said again.
    Send(NodeId, QuorumMessage),
    /// Stop all engines.
    Freeze,
    /// Put on disk that this member takes part in that epoch, then call `persisted`.
    Persist(Epoch),
    /// Put on disk what the voter must remember, then call `voter_persisted`. One at a time.
    PersistVoter(Box<VoterRecord>),
    /// Call `summarised` with what this member knows of its locks, and of those who are gone and
    /// did not leave.
    Summarise(Vec<NodeId>),
    /// The view is in force.
    Install(Arc<View>, Summary),
    /// The lease runs until then.
    Lease(Time),
    /// The certified view of that epoch has gone on without this life, whose lease is void.
    Excluded(Epoch),
    /// The voters' log contradicts itself, and takes part in nothing any more.
    Broken(&'static str),
}

/// Collects actions, and keeps what this member says to itself.
#[derive(Debug)]
pub(super) struct Outbox {
    me: NodeId,
    actions: Vec<Action>,
    to_self: VecDeque<QuorumMessage>,
}

impl Outbox {
    pub(super) fn new(me: NodeId) -> Self {
        Self {
            me,
            actions: Vec::new(),
            to_self: VecDeque::new(),
        }
    }

    pub(super) fn me(&self) -> NodeId {
        self.me
    }

    pub(super) fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    pub(super) fn send(&mut self, to: NodeId, message: QuorumMessage) {
        if to == self.me {
            self.to_self.push_back(message);
        } else {
            self.actions.push(Action::Send(to, message));
        }
    }

    pub(super) fn next_to_self(&mut self) -> Option<QuorumMessage> {
        self.to_self.pop_front()
    }

    pub(super) fn take(&mut self) -> Vec<Action> {
        core::mem::take(&mut self.actions)
    }
}
