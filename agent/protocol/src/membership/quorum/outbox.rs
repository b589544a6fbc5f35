//! What follows from an input.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::hash::{Hash, Hasher};

use super::message::QuorumMessage;
use crate::ids::NodeId;
use crate::membership::{Action, ViewMessage};

/// Collects actions, and keeps what this member says to itself.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    me: NodeId,
    actions: Vec<Action>,
    to_self: VecDeque<QuorumMessage>,
}

/// All that is collected is taken out before an input is over.
impl Hash for Outbox {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        debug_assert!(self.actions.is_empty() && self.to_self.is_empty());
        self.me.hash(hasher);
    }
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
            let message = ViewMessage::Quorum(Box::new(message));
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
