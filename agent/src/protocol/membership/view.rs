//! A view, and the face of what decides on views.

use alloc::sync::Arc;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::protocol::ids::{Epoch, Incarnation, NodeId};
use crate::protocol::lock::Summary;

/// The members of one epoch, each in one life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// Its number.
    pub epoch: Epoch,
    /// The members, by id.
    pub members: Vec<Member>,
    /// Members whose last lives ended without leaving, and are in no view any more: they may have
    /// died inside of any lock.
    pub unclean: Vec<NodeId>,
}

/// A member in one life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Member {
    /// Which.
    pub node: NodeId,
    /// Which life.
    pub incarnation: Incarnation,
}

impl View {
    /// The members' ids.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.members.iter().map(|member| member.node)
    }
}

/// What members say to each other about views.
///
/// The order is that of the wire format: append only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ViewMessage {
    /// To the coordinator: I am ready for a new view, and know of epochs up to this one.
    /// `unclean`: my last life did not leave, or knew of locks that were abandoned, and I have had
    /// no view since. `wants_view`: a bound
    /// is reached that only a new epoch lifts.
    Ready {
        epoch: Epoch,
        unclean: bool,
        wants_view: bool,
    },
    /// From the coordinator: stop granting, and tell me who is inside and who waits.
    Freeze { view: View },
    /// To the coordinator: that epoch is not new; I know of this one.
    Reject { epoch: Epoch },
    /// To the coordinator: what I know. I grant nothing until an install.
    Summary { epoch: Epoch, summary: Summary },
    /// From the coordinator: the view is in force, and begins with this table.
    Install { view: View, table: Summary },
}

/// What a source of views wants done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Send(NodeId, ViewMessage),
    /// Stop all engines.
    Freeze,
    /// Put the epoch on disk, then call [`ViewSource::persisted`].
    Persist(Epoch),
    /// Call [`ViewSource::summarised`] with what this member knows, also of the former lives of
    /// these.
    Summarise(Vec<NodeId>),
    /// The view is in force.
    Install(Arc<View>, Summary),
}

/// What decides on views. Everything that follows from an input is appended to `out`.
pub(crate) trait ViewSource {
    /// A peer can be talked to, in this life; all that was agreed with another life is void.
    fn peer_up(&mut self, peer: NodeId, incarnation: Incarnation, out: &mut Vec<Action>);

    /// A peer cannot be talked to: its life ended, and the next is not known yet.
    fn peer_down(&mut self, peer: NodeId);

    /// This member may be in a view: its predecessor's lease is over.
    fn ready(&mut self, out: &mut Vec<Action>);

    /// A message from a peer that is up.
    fn receive(&mut self, from: NodeId, message: ViewMessage, out: &mut Vec<Action>);

    /// The last [`Action::Persist`] is on disk.
    fn persisted(&mut self, out: &mut Vec<Action>);

    /// The answer to [`Action::Summarise`].
    fn summarised(&mut self, summary: Summary, out: &mut Vec<Action>);

    /// This member needs a new view: a bound is reached that only a new epoch lifts.
    fn want_view(&mut self, out: &mut Vec<Action>);

    /// The view in force; `None` before the first, and while the next one is being formed.
    fn view(&self) -> Option<&Arc<View>>;

    /// The highest epoch that this member has taken part in.
    fn epoch(&self) -> Epoch;

    /// Who coordinates: new locks are declared there.
    fn coordinator(&self) -> NodeId;
}
