//! What decides on views: what it is told, and what it wants done.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use super::overrides::{Change, MembershipOverrides};
use super::presumed::PresumedStatus;
use super::quorum::{Affiliation, QuorumMessage, QuorumOverview, VoterRecord};
use super::view::{Member, View};
use crate::ids::{Epoch, Incarnation, NodeId};
use crate::lock::{AbandonedMarks, Summary};
use crate::time::Time;

/// What members say to each other about views.
///
/// The order is that of the wire format: append only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ViewMessage {
    /// To the coordinator: I am ready for a new view, and know of epochs up to this one.
    /// `unclean`: my last incarnation did not leave, or knew of locks that were abandoned, and I have
    /// had no view since. `wants_view`: a bound is reached that only a new epoch lifts.
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
    /// Of views by quorum.
    Quorum(Box<QuorumMessage>),
    /// Of views by presumption: where I stand.
    PresumedStatus(PresumedStatus),
    /// Of views by presumption, to the coordinator: I do not know these.
    Unlisted { nodes: Vec<NodeId> },
}

impl ViewMessage {
    /// Whether it may get lost: what matters of it is said again by itself.
    pub(crate) const fn may_be_lost(&self) -> bool {
        matches!(self, Self::Quorum(_))
    }
}

/// What a source of views wants done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Send(NodeId, ViewMessage),
    /// Stop all engines.
    Freeze,
    /// Put the epoch on disk, then call [`ViewSource::persisted`].
    Persist(Epoch),
    /// Put on disk what a voter must remember, then call [`ViewSource::voter_persisted`]. One at a
    /// time.
    PersistVoter(Box<VoterRecord>),
    /// Put on disk what this member remembers of its cluster, then call
    /// [`ViewSource::affiliation_persisted`].
    PersistAffiliation(Box<Affiliation>),
    /// Call [`ViewSource::summarised`] with what this member knows, for that view.
    Summarise(View),
    /// The view is in force. Locks that the summary says to be in quarantine wait for
    /// [`Action::Lift`].
    Install(Arc<View>, Summary),
    /// The leases of the lost are over: no lock is in quarantine any more.
    Lift,
    /// The lease runs until then.
    Lease(Time),
    /// The certified view of that epoch has gone on without this incarnation, whose lease is void.
    Excluded(Epoch),
    /// This is who may be a member, besides what files say.
    Members(MembershipOverrides),
    /// That member is in another cluster of the same name, where `theirs` vote; here it is `ours`.
    Stranger {
        peer: NodeId,
        ours: Vec<NodeId>,
        theirs: Vec<NodeId>,
    },
    /// These belong to the group, and this member does not know them.
    Unlisted(Vec<NodeId>),
    /// The voters' log contradicts itself, and takes part in nothing any more.
    Broken(&'static str),
}

/// What decides on views. Everything that follows from an input is appended to `out`.
pub trait ViewSource: fmt::Debug + Send {
    /// A peer can be talked to, in this incarnation; all that was agreed with another incarnation is
    /// void.
    fn peer_up(&mut self, now: Time, peer: NodeId, incarnation: Incarnation, out: &mut Vec<Action>);

    /// A peer cannot be talked to: its incarnation ended, and the next is not known yet.
    fn peer_down(&mut self, now: Time, peer: NodeId, out: &mut Vec<Action>);

    /// A peer said that its incarnation ends, in order.
    fn peer_left(&mut self, now: Time, peer: NodeId, out: &mut Vec<Action>) {
        self.peer_down(now, peer, out);
    }

    /// A peer's settings differ: it cannot be in a view with this member.
    fn peer_refused(&mut self, _now: Time, _peer: NodeId, _out: &mut Vec<Action>) {}

    /// Nothing is heard of a peer that was up, though it was asked.
    fn peer_suspected(&mut self, _now: Time, _peer: NodeId, _out: &mut Vec<Action>) {}

    /// A suspected peer is heard again.
    fn peer_alive(&mut self, _now: Time, _peer: NodeId, _out: &mut Vec<Action>) {}

    /// This member may be in a view: its predecessor's lease is over. Not called where a source
    /// sees to that itself.
    fn ready(&mut self, _now: Time, _out: &mut Vec<Action>) {}

    /// A message from a peer that is up.
    fn receive(&mut self, now: Time, from: NodeId, message: ViewMessage, out: &mut Vec<Action>);

    /// The time that [`ViewSource::next_timeout`] named has come; earlier does no harm.
    fn timeout(&mut self, _now: Time, _out: &mut Vec<Action>) {}

    /// When something is due though nothing comes in.
    fn next_timeout(&self, _now: Time) -> Option<Time> {
        None
    }

    /// The last [`Action::Persist`] is on disk.
    fn persisted(&mut self, now: Time, out: &mut Vec<Action>);

    /// The last [`Action::PersistAffiliation`] is on disk.
    fn affiliation_persisted(&mut self, _now: Time, _out: &mut Vec<Action>) {}

    /// The last [`Action::PersistVoter`] is on disk.
    fn voter_persisted(&mut self, _now: Time, _out: &mut Vec<Action>) {}

    /// The answer to [`Action::Summarise`].
    fn summarised(&mut self, now: Time, summary: Summary, out: &mut Vec<Action>);

    /// This member needs a new view: a limit is exceeded that only a new epoch lifts.
    fn want_view(&mut self, now: Time, out: &mut Vec<Action>);

    /// This member is about to leave, and knows of locks that were abandoned.
    fn leave_marks(&mut self, _now: Time, _marks: AbandonedMarks, _out: &mut Vec<Action>) {}

    /// An operator wants this changed, until then at the latest. Returns whether that can be.
    fn change(
        &mut self,
        _now: Time,
        _change: Change,
        _until: Time,
        _out: &mut Vec<Action>,
    ) -> bool {
        false
    }

    /// This member holds nothing, and never again will in this incarnation.
    fn leave(&mut self, _now: Time, _out: &mut Vec<Action>) {}

    /// What the record on disk is to say of a voter whose incarnation ends now, in order.
    fn last_words(&self, _now: Time) -> Option<Box<VoterRecord>> {
        None
    }

    /// After [`Action::Excluded`]: this member lives anew.
    fn begin_anew(&mut self, _now: Time, _me: Member) {}

    /// The view in force; `None` before the first, and while the next one is being formed.
    fn view(&self) -> Option<&Arc<View>>;

    /// The highest epoch that this incarnation has taken part in, or the one before it.
    fn epoch(&self) -> Epoch;

    /// Until when this member may act.
    fn lease_ends(&self) -> Time {
        Time::MAX
    }

    /// The members that this one needs to go on, and which of them are missing. `absent`: the members
    /// that are not up.
    fn overview(&self, now: Time, absent: &[NodeId]) -> QuorumOverview;

    /// Those who are to vote, and whether each does, as far as is known; empty where nobody votes,
    /// and before there is a view for the first time.
    fn voters(&self, _now: Time) -> BTreeMap<NodeId, bool> {
        BTreeMap::new()
    }

    /// Whether that member is in another cluster of the same name.
    fn is_stranger(&self, _peer: NodeId) -> bool {
        false
    }

    /// Whether the last incarnation did not leave, or knew of locks that were abandoned, and no
    /// view has been told so yet, or the one that has waits for its lease.
    fn is_unclean(&self) -> bool;

    /// An incarnation before did not leave, though this one has no record of it.
    fn remember_unclean(&mut self) {}
}
