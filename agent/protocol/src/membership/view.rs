//! A view: the members of one epoch.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, Incarnation, NodeId};

/// The members of one epoch, each in one incarnation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct View {
    /// Its number.
    pub epoch: Epoch,
    /// The members, by id.
    pub members: Vec<Member>,
    /// Members whose last incarnations ended without leaving, and are in no view any more: they may
    /// have died inside of any lock.
    pub unclean: Vec<NodeId>,
}

/// A member in one incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Member {
    /// Which.
    pub node: NodeId,
    /// Which incarnation.
    pub incarnation: Incarnation,
}

impl View {
    /// The members' ids.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.members.iter().map(|member| member.node)
    }
}
