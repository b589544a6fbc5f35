//! What peers have to tell the node.

use crate::ids::{Epoch, Incarnation, NodeId};
use crate::membership::greeting::Difference;
use crate::wire::Body;

/// What came of a datagram or of silence.
#[derive(Debug)]
pub(crate) enum PeerEvent {
    Up(NodeId, Incarnation),
    /// Its incarnation has ended.
    Down(NodeId),
    Suspect(NodeId),
    Alive(NodeId),
    /// It said that it leaves.
    Left(NodeId),
    Disagrees {
        peer: NodeId,
        difference: Difference,
        in_view: bool,
    },
    /// Somebody knows a later incarnation of this member.
    Superseded(NodeId),
    /// Somebody knew an earlier incarnation of this member, which did not leave.
    KnewUs,
    Body(NodeId, Epoch, Body),
}
