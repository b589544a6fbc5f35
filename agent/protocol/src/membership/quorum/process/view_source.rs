//! Quorum views as a node's source of views.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::super::log::MakeLog;
use super::super::message::VoterRecord;
use super::super::overview::QuorumOverview;
use super::Quorum;
use crate::ids::{Epoch, Incarnation, NodeId};
use crate::lock::{AbandonedMarks, Summary};
use crate::membership::{Action, Change, Member, View, ViewMessage, ViewSource};
use crate::time::Time;

/// It hears of members by their renewal requests, and of voters by what they say. That one can be
/// talked to is a reason to say something at once, and nothing else.
impl<M> ViewSource for Quorum<M>
where
    M: MakeLog + Clone + Send,
    M::Log: Send,
{
    fn peer_up(
        &mut self,
        now: Time,
        peer: NodeId,
        _incarnation: Incarnation,
        out: &mut Vec<Action>,
    ) {
        out.extend(self.meet(now, peer));
    }

    fn peer_down(&mut self, _now: Time, peer: NodeId, _out: &mut Vec<Action>) {
        self.part(peer);
    }

    fn receive(&mut self, now: Time, from: NodeId, message: ViewMessage, out: &mut Vec<Action>) {
        if let ViewMessage::Quorum(message) = message {
            out.extend(self.receive(now, from, *message));
        }
    }

    fn timeout(&mut self, now: Time, out: &mut Vec<Action>) {
        out.extend(self.timeout(now));
    }

    fn next_timeout(&self, now: Time) -> Option<Time> {
        self.next_timeout(now)
    }

    fn persisted(&mut self, now: Time, out: &mut Vec<Action>) {
        out.extend(self.persisted(now));
    }

    fn affiliation_persisted(&mut self, now: Time, out: &mut Vec<Action>) {
        out.extend(self.affiliation_persisted(now));
    }

    fn voter_persisted(&mut self, now: Time, out: &mut Vec<Action>) {
        out.extend(self.voter_persisted(now));
    }

    fn summarised(&mut self, now: Time, summary: Summary, out: &mut Vec<Action>) {
        out.extend(self.summarised(now, summary));
    }

    fn want_view(&mut self, now: Time, out: &mut Vec<Action>) {
        out.extend(self.want_view(now));
    }

    fn change(&mut self, now: Time, change: Change, until: Time, out: &mut Vec<Action>) -> bool {
        out.extend(self.change(now, change, until));
        true
    }

    fn leave_marks(&mut self, _now: Time, marks: AbandonedMarks, _out: &mut Vec<Action>) {
        self.leave_marks(marks);
    }

    fn leave(&mut self, now: Time, out: &mut Vec<Action>) {
        out.extend(self.leave(now));
    }

    fn last_words(&self, now: Time) -> Option<Box<VoterRecord>> {
        self.last_words(now)
    }

    fn begin_anew(&mut self, now: Time, me: Member) {
        self.begin_anew(now, me);
    }

    fn view(&self) -> Option<&Arc<View>> {
        self.view()
    }

    fn epoch(&self) -> Epoch {
        self.epoch()
    }

    fn lease_ends(&self) -> Time {
        self.lease_ends()
    }

    fn overview(&self, now: Time, absent: &[NodeId]) -> QuorumOverview {
        self.overview(now, absent)
    }

    fn voters(&self, now: Time) -> BTreeMap<NodeId, bool> {
        self.voters(now)
    }

    fn is_stranger(&self, peer: NodeId) -> bool {
        self.is_stranger(peer)
    }

    fn is_unclean(&self) -> bool {
        self.is_unclean()
    }
}
