//! Views by unanimity: a group of configured members, all of whom must be there.
//!
//! The simplest sound source of views. Nobody is ever removed, so the question who may act for
//! whom does not arise: a silent member is waited for. When a member comes back in a new incarnation,
//! the group forms anew in the next epoch:
//!
//! 1. Each member tells the coordinator, the lowest id, that it is *ready* (after its
//!    predecessor's lease), and the highest epoch it knows.
//! 2. With all ready, the coordinator sends `Freeze` with a higher epoch and everybody's incarnation.
//! 3. A member stops granting, puts the epoch on disk, and answers with a `Summary`: which of its
//!    own requests are inside or wait. From then on messages of older epochs are nothing to it.
//! 4. With all summaries, the coordinator sends `Install` with their union.
//!
//! Invariant: one install an epoch. A coordinator proposes an epoch once in an incarnation; a member
//! freezes only for epochs higher than the one on its disk; a view needs all of them. Whom an
//! install does not reach before the next round stays frozen until then, and tells the same again;
//! as each member tells only of itself, the union is right wherever the last round ended.
//!
//! Rejected: letting those that are there go on without a silent one. They cannot tell dead from
//! slow or cut off, and both sides of a cut would enter. That takes quorums and leases.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::quorum::QuorumOverview;
use super::view::{Member, View};
use super::view_source::{Action, ViewMessage, ViewSource};
use crate::ids::{Epoch, Incarnation, NodeId};
use crate::lock::Summary;
use crate::time::Time;

#[derive(Debug)]
pub(crate) struct Fixed {
    me: NodeId,
    members: BTreeSet<NodeId>,
    coordinator: NodeId,
    /// The incarnations of the members that are up, this one included.
    incarnations: BTreeMap<NodeId, Incarnation>,
    /// The highest epoch this member has taken part in, as on disk or on its way there.
    epoch: Epoch,
    /// Whether this member may be in a view.
    ready: bool,
    /// Whether this member's last incarnation did not leave, or knew of locks that were abandoned,
    /// and it has had no view since.
    unclean: bool,
    phase: Phase,
    /// What the coordinator knows of the members; empty elsewhere.
    readiness: BTreeMap<NodeId, Readiness>,
    /// The coordinator's round; `None` elsewhere and between rounds.
    round: Option<Round>,
}

#[derive(Debug)]
enum Phase {
    /// No view has been in force in this incarnation.
    Outside,
    /// The view's epoch is on its way to the disk.
    Persisting(View),
    /// The summary is told; this view is to come.
    Frozen(View),
    Installed(Arc<View>),
}

/// What a member said in its `Ready`.
#[derive(Clone, Copy, Debug)]
struct Readiness {
    epoch: Epoch,
    unclean: bool,
}

/// One attempt of the coordinator to form a view.
#[derive(Debug)]
struct Round {
    view: View,
    missing: BTreeSet<NodeId>,
    table: Summary,
}

impl Fixed {
    /// `epoch`: the highest on disk. `unclean`: the last incarnation did not leave, or knew of locks
    /// that were abandoned.
    pub(crate) fn new(me: Member, members: BTreeSet<NodeId>, epoch: Epoch, unclean: bool) -> Self {
        let coordinator = *members.first().expect("a group has members");
        Self {
            me: me.node,
            members,
            coordinator,
            incarnations: BTreeMap::from([(me.node, me.incarnation)]),
            epoch,
            ready: false,
            unclean,
            phase: Phase::Outside,
            readiness: BTreeMap::new(),
            round: None,
        }
    }

    /// Tells the coordinator how this member stands.
    fn say_ready(&mut self, wants_view: bool, out: &mut Vec<Action>) {
        if !self.ready {
            return;
        }
        let Self { epoch, unclean, .. } = *self;
        if self.coordinator == self.me {
            self.on_ready(self.me, Readiness { epoch, unclean }, wants_view, out);
        } else if self.incarnations.contains_key(&self.coordinator) {
            let ready = ViewMessage::Ready {
                epoch,
                unclean,
                wants_view,
            };
            out.push(Action::Send(self.coordinator, ready));
        }
    }

    fn on_ready(
        &mut self,
        from: NodeId,
        readiness: Readiness,
        wants_view: bool,
        out: &mut Vec<Action>,
    ) {
        // A wish that was made before the present epoch has been granted.
        let wants_view = wants_view && readiness.epoch == self.epoch;
        self.readiness.insert(from, readiness);
        self.form_if_needed(wants_view, out);
    }

    /// Starts a round if all members are ready, and the view in force, or in the making, is not
    /// theirs.
    fn form_if_needed(&mut self, wants_view: bool, out: &mut Vec<Action>) {
        let Some(members) = self.all_members() else {
            return;
        };
        let current = match (&self.round, &self.phase) {
            (Some(round), _) => Some(&round.view),
            (None, Phase::Installed(view)) => Some(&**view),
            (None, _) => None,
        };
        if !wants_view && current.is_some_and(|view| view.members == members) {
            return;
        }
        let known = self
            .readiness
            .values()
            .map(|readiness| readiness.epoch)
            .max();
        let known = known.unwrap_or_default().max(self.epoch);
        // Epochs last until 2093, at one view a second; then locks end, rather than wrap.
        let Some(epoch) = known.next() else { return };
        let unclean = self.readiness.iter().filter(|(_, its)| its.unclean);
        let unclean = unclean.map(|(&node, _)| node).collect();
        let view = View {
            epoch,
            members,
            unclean,
        };
        self.round = Some(Round {
            view: view.clone(),
            missing: self.members.clone(),
            table: Summary::default(),
        });
        for &node in self.members.iter().filter(|&&node| node != self.me) {
            out.push(Action::Send(
                node,
                ViewMessage::Freeze { view: view.clone() },
            ));
        }
        self.on_freeze(self.me, view, out);
    }

    /// Everybody's incarnation, once all are up and ready.
    fn all_members(&self) -> Option<Vec<Member>> {
        let member = |&node: &NodeId| {
            self.readiness.get(&node)?;
            Some(Member {
                node,
                incarnation: *self.incarnations.get(&node)?,
            })
        };
        self.members.iter().map(member).collect()
    }

    fn on_freeze(&mut self, from: NodeId, view: View, out: &mut Vec<Action>) {
        if !self.is_ours(&view) {
            return;
        }
        if view.epoch <= self.epoch {
            out.push(Action::Send(
                from,
                ViewMessage::Reject { epoch: self.epoch },
            ));
            return;
        }
        self.epoch = view.epoch;
        out.push(Action::Freeze);
        out.push(Action::Persist(view.epoch));
        self.phase = Phase::Persisting(view);
    }

    /// Whether a proposed view has the configured members, and this one in its present incarnation.
    fn is_ours(&self, view: &View) -> bool {
        let my_incarnation = self.incarnations.get(&self.me);
        let mut members = view.members.iter();
        self.ready
            && view.nodes().eq(self.members.iter().copied())
            && members.any(|its| its.node == self.me && Some(&its.incarnation) == my_incarnation)
    }

    /// Somebody knows of a higher epoch than the round's: try again above it.
    fn on_reject(&mut self, from: NodeId, epoch: Epoch, out: &mut Vec<Action>) {
        if let Some(readiness) = self.readiness.get_mut(&from) {
            readiness.epoch = readiness.epoch.max(epoch);
        }
        if self
            .round
            .as_ref()
            .is_some_and(|round| round.view.epoch <= epoch)
        {
            self.form_if_needed(true, out);
        }
    }

    fn on_summary(&mut self, from: NodeId, epoch: Epoch, summary: Summary, out: &mut Vec<Action>) {
        let Some(round) = &mut self.round else { return };
        if round.view.epoch != epoch || !round.missing.remove(&from) {
            return;
        }
        round.table.merge(summary);
        if !round.missing.is_empty() {
            return;
        }
        let Some(Round {
            view, mut table, ..
        }) = self.round.take()
        else {
            return;
        };
        table.conclude(&view.unclean);
        for readiness in self.readiness.values_mut() {
            *readiness = Readiness {
                epoch,
                unclean: false,
            };
        }
        for &node in self.members.iter().filter(|&&node| node != self.me) {
            let install = ViewMessage::Install {
                view: view.clone(),
                table: table.clone(),
            };
            out.push(Action::Send(node, install));
        }
        self.on_install(view, table, out);
    }

    fn on_install(&mut self, view: View, table: Summary, out: &mut Vec<Action>) {
        if !matches!(&self.phase, Phase::Frozen(awaited) if *awaited == view) {
            return;
        }
        self.unclean = false;
        let view = Arc::new(view);
        self.phase = Phase::Installed(Arc::clone(&view));
        out.push(Action::Install(view, table));
    }
}

impl ViewSource for Fixed {
    fn peer_up(
        &mut self,
        _now: Time,
        peer: NodeId,
        incarnation: Incarnation,
        out: &mut Vec<Action>,
    ) {
        self.incarnations.insert(peer, incarnation);
        if peer == self.coordinator {
            self.say_ready(false, out);
        }
    }

    fn peer_down(&mut self, _now: Time, peer: NodeId, _out: &mut Vec<Action>) {
        self.incarnations.remove(&peer);
        self.readiness.remove(&peer);
    }

    fn ready(&mut self, _now: Time, out: &mut Vec<Action>) {
        self.ready = true;
        self.say_ready(false, out);
    }

    fn receive(&mut self, _now: Time, from: NodeId, message: ViewMessage, out: &mut Vec<Action>) {
        let to_coordinator = matches!(
            message,
            ViewMessage::Ready { .. } | ViewMessage::Reject { .. } | ViewMessage::Summary { .. }
        );
        if self.coordinator != if to_coordinator { self.me } else { from } {
            return;
        }
        match message {
            ViewMessage::Ready {
                epoch,
                unclean,
                wants_view,
            } => {
                self.on_ready(from, Readiness { epoch, unclean }, wants_view, out);
            }
            ViewMessage::Reject { epoch } => self.on_reject(from, epoch, out),
            ViewMessage::Summary { epoch, summary } => self.on_summary(from, epoch, summary, out),
            ViewMessage::Freeze { view } => self.on_freeze(from, view, out),
            ViewMessage::Install { view, table } => self.on_install(view, table, out),
            ViewMessage::Quorum(_)
            | ViewMessage::PresumedStatus(_)
            | ViewMessage::Unlisted { .. } => {}
        }
    }

    fn persisted(&mut self, _now: Time, out: &mut Vec<Action>) {
        if let Phase::Persisting(view) = &self.phase {
            let view = view.clone();
            self.phase = Phase::Frozen(view.clone());
            out.push(Action::Summarise(view));
        }
    }

    fn summarised(&mut self, _now: Time, summary: Summary, out: &mut Vec<Action>) {
        let Phase::Frozen(view) = &self.phase else {
            return;
        };
        let epoch = view.epoch;
        if self.coordinator == self.me {
            self.on_summary(self.me, epoch, summary, out);
        } else {
            let summary = ViewMessage::Summary { epoch, summary };
            out.push(Action::Send(self.coordinator, summary));
        }
    }

    fn want_view(&mut self, _now: Time, out: &mut Vec<Action>) {
        if matches!(self.phase, Phase::Installed(_)) && self.round.is_none() {
            self.say_ready(true, out);
        }
    }

    fn view(&self) -> Option<&Arc<View>> {
        match &self.phase {
            Phase::Installed(view) => Some(view),
            _ => None,
        }
    }

    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn overview(&self, _now: Time, absent: &[NodeId]) -> QuorumOverview {
        QuorumOverview::without_voters(absent.to_vec(), self.view().is_some())
    }

    fn is_unclean(&self) -> bool {
        self.unclean
    }

    fn remember_unclean(&mut self) {
        self.unclean = true;
    }
}

#[cfg(test)]
mod tests;
