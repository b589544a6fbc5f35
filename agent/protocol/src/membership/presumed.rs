//! Views by presumption: who does not answer is gone.
//!
//! The rule of the lectures (Jones 2002): a message is repeated, and a peer that answers none of it
//! is presumed to have failed; the others forget it and go on. The decision is with the lowest
//! member that is not gone, so that there is nothing to elect:
//!
//! 1. Each member *stands under* the lowest that it does not presume gone, and tells all others
//!    whenever that changes.
//! 2. A member that stands under itself forms a view of all that stand under it, once no member
//!    that it hears stands elsewhere: it freezes them, collects their summaries and installs the
//!    union, as [`Fixed`](super::Fixed) does.
//! 3. A member takes part in an epoch once, and only under the member that it stands under.
//!
//! As long as nobody is presumed gone who is not, a view has everybody in it who can be inside: one
//! that still counts on the dead holds up the rest until it has noticed, too. A pause or a cut ends
//! that: each side goes on by itself, and two are inside at once. That is the rule, and why it has
//! no fences. When the sides hear each other again they stand under the same member, which forms a
//! view of all; of locks that both sides hold, the lowest members keep them
//! ([`Summary::reconcile`]).
//!
//! A member whose settings differ can be in no view with this one, and is not silent either. So once a
//! member has heard of such a difference, it takes part in no first view, its own or another's, until one
//! of the two is started again. A view that is there goes on, and takes in members that agree with it.
//! Two that differ and were let in while they did not hear each other both go on: that is the cut again.
//!
//! Where the network is cut so that three members do not agree on who hears whom, one may hear
//! nobody but members that stand under somebody it does not hear. It waits until that is over.

mod peer;
mod round;
mod status;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use self::peer::Peer;
pub(crate) use self::status::{PresumedStatus, UncleanRestart};
use super::quorum::QuorumOverview;
use super::view::{Member, View};
use super::view_source::{Action, ViewMessage, ViewSource};
use crate::ids::{Epoch, Incarnation, NodeId};
use crate::lock::{AbandonedMarks, Summary};
use crate::time::Time;

#[derive(Debug)]
pub(crate) struct Presumed {
    me: Member,
    /// After a holder was lost nobody enters for so long.
    lock_delay: Duration,
    /// All other members of the file.
    peers: BTreeMap<NodeId, Peer>,
    /// The highest epoch this member has taken part in, as on disk or on its way there.
    epoch: Epoch,
    /// Whether this member may be in a view.
    ready: bool,
    restart: UncleanRestart,
    phase: Phase,
    /// The members of the last view that was in force here.
    last: Vec<Member>,
    /// Under whom the others were told last that this member stands.
    stands_under: Option<NodeId>,
    /// The round of this member as coordinator.
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

/// One attempt to form a view.
#[derive(Debug)]
struct Round {
    view: View,
    told: BTreeMap<NodeId, Summary>,
    /// What the view begins with, once all have told, and when it may begin.
    table: Option<(Summary, Time)>,
}

impl Presumed {
    /// `epoch`: the highest on disk.
    pub(crate) fn new(
        me: Member,
        members: &BTreeSet<NodeId>,
        lock_delay: Duration,
        epoch: Epoch,
        restart: UncleanRestart,
    ) -> Self {
        let others = members.iter().filter(|&&node| node != me.node);
        Self {
            me,
            lock_delay,
            peers: others.map(|&node| (node, Peer::default())).collect(),
            epoch,
            ready: false,
            restart,
            phase: Phase::Outside,
            last: Vec::new(),
            stands_under: None,
            round: None,
        }
    }

    /// The lowest member that is there, and may be in a view.
    fn under(&self) -> NodeId {
        let standing = self
            .peers
            .iter()
            .filter(|(_, peer)| peer.status().is_some())
            .map(|(&node, _)| node);
        standing.chain([self.me.node]).min().unwrap_or(self.me.node)
    }

    /// The view that is in force, or to come.
    fn newest(&self) -> Option<&View> {
        match &self.phase {
            Phase::Persisting(view) | Phase::Frozen(view) => Some(view),
            Phase::Installed(view) => Some(view),
            Phase::Outside => None,
        }
    }

    /// The other members of the last views that have not left, all of whom may have been let in.
    fn reckoned(&self) -> impl Iterator<Item = (Member, &Peer)> {
        let newest = self.newest().map_or(&[][..], |view| &view.members);
        let members = self.last.iter().chain(newest);
        let members = members.filter_map(|&member| Some((member, self.peers.get(&member.node)?)));
        members.filter(|(member, peer)| peer.left != Some(member.incarnation))
    }

    /// Whether somebody may be inside of whom it is not known yet where it stands.
    fn is_anybody_awaited(&self) -> bool {
        let is_unheard = |(member, peer): (Member, &Peer)| {
            let may_live = peer
                .incarnation
                .is_none_or(|incarnation| incarnation == member.incarnation);
            may_live && peer.is_there() && peer.status.is_none()
        };
        // Who has had no view yet cannot know whether others have one.
        let is_stranger = |peer: &Peer| {
            let is_away = peer.left.is_some() && peer.incarnation.is_none();
            !is_away && peer.is_there() && peer.status.is_none()
        };
        self.reckoned().any(is_unheard)
            || self.last.is_empty() && self.peers.values().any(is_stranger)
    }

    /// Whether a view would be a first one, as neither this member nor another that is there has been in
    /// one, while a member is there whose settings differ.
    fn is_at_odds(&self) -> bool {
        let mut statuses = self.peers.values().filter_map(Peer::status);
        let is_first = self.last.is_empty() && statuses.all(|status| status.last.is_empty());
        is_first && self.peers.values().any(|peer| peer.refused)
    }

    /// Where this member stands now.
    fn status(&self) -> PresumedStatus {
        PresumedStatus {
            epoch: self.epoch,
            restart: self.restart,
            wants_view: false,
            under: self.under(),
            last: Vec::new(),
        }
    }

    /// Tells one member where this one stands, and with whom it was in views.
    fn tell(&self, to: NodeId, mut status: PresumedStatus, out: &mut Vec<Action>) {
        status.last = self.reckoned().map(|(member, _)| member).collect();
        if !self.last.is_empty() {
            status.last.push(self.me);
        }
        out.push(Action::Send(to, ViewMessage::PresumedStatus(status)));
    }

    /// Something has changed: tells the others if this member stands elsewhere now, and forms a
    /// view, if that follows.
    fn reconsider(&mut self, out: &mut Vec<Action>) {
        if !self.ready {
            return;
        }
        let under = self.under();
        if self.stands_under.replace(under) != Some(under) {
            self.tell_all(out);
        }
        if under == self.me.node {
            self.form_if_needed(false, out);
        } else {
            self.round = None;
        }
    }

    fn tell_all(&self, out: &mut Vec<Action>) {
        for (&node, peer) in &self.peers {
            if peer.incarnation.is_some() {
                self.tell(node, self.status(), out);
            }
        }
    }

    /// Tells one member alone.
    fn restate(&self, to: NodeId, out: &mut Vec<Action>) {
        if self.ready {
            self.tell(to, self.status(), out);
        }
    }

    /// Stops granting, for a view that is to come.
    fn take_part(&mut self, view: View, out: &mut Vec<Action>) {
        self.epoch = view.epoch;
        out.push(Action::Freeze);
        out.push(Action::Persist(view.epoch));
        self.phase = Phase::Persisting(view);
    }

    fn on_status(&mut self, from: NodeId, mut status: PresumedStatus, out: &mut Vec<Action>) {
        // What it has told of itself stays: so one that was in a view is known.
        status
            .last
            .retain(|member| self.peers.contains_key(&member.node));
        // A wish that was made before the present epoch has been granted.
        let wants_view = status.wants_view && status.epoch == self.epoch;
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.status = Some(status);
        }
        self.reconsider(out);
        if wants_view {
            self.renew_view(out);
        }
    }

    /// Forms the view in force once more, in a new epoch, if that is for this member to do.
    fn renew_view(&mut self, out: &mut Vec<Action>) {
        let is_idle = matches!(self.phase, Phase::Installed(_)) && self.round.is_none();
        if self.ready && is_idle && self.under() == self.me.node {
            self.form_if_needed(true, out);
        }
    }

    fn on_freeze(&mut self, from: NodeId, view: View, out: &mut Vec<Action>) {
        let is_mine = view.members.contains(&self.me);
        if !self.ready || !is_mine || self.is_at_odds() {
            return;
        }
        if self.under() != from || view.nodes().next() != Some(from) {
            return self.restate(from, out);
        }
        let is_unlisted = |node: &NodeId| *node != self.me.node && !self.peers.contains_key(node);
        let nodes: Vec<NodeId> = view.nodes().filter(is_unlisted).collect();
        if !nodes.is_empty() {
            out.push(Action::Unlisted(nodes.clone()));
            out.push(Action::Send(from, ViewMessage::Unlisted { nodes }));
        } else if view.epoch <= self.epoch {
            let epoch = self.epoch;
            out.push(Action::Send(from, ViewMessage::Reject { epoch }));
        } else {
            self.take_part(view, out);
        }
    }

    /// A member of the round cannot be in a view with these.
    fn on_unlisted(&mut self, from: NodeId, mut nodes: Vec<NodeId>, out: &mut Vec<Action>) {
        nodes.retain(|node| self.peers.contains_key(node));
        self.note(from, |peer| peer.unlisted.extend(nodes), out);
    }

    fn on_install(&mut self, view: View, table: Summary, out: &mut Vec<Action>) {
        if !matches!(&self.phase, Phase::Frozen(awaited) if *awaited == view) {
            return;
        }
        self.restart = UncleanRestart::default();
        self.last.clone_from(&view.members);
        for node in view.nodes() {
            let peer = self.peers.get_mut(&node);
            if let Some(status) = peer.and_then(|peer| peer.status.as_mut()) {
                // What it told has been reckoned with.
                status.epoch = status.epoch.max(view.epoch);
                (status.restart, status.wants_view) = (UncleanRestart::default(), false);
                status.last.clone_from(&view.members);
            }
        }
        let view = Arc::new(view);
        self.phase = Phase::Installed(Arc::clone(&view));
        out.push(Action::Install(view, table));
        self.reconsider(out);
    }

    /// Changes what is known of a peer, and does what follows.
    fn note(&mut self, peer: NodeId, change: impl FnOnce(&mut Peer), out: &mut Vec<Action>) {
        if let Some(peer) = self.peers.get_mut(&peer) {
            change(peer);
            self.reconsider(out);
        }
    }

    /// Whether this member hears others that stand under somebody it does not hear.
    fn is_stuck(&self) -> bool {
        let under = self.under();
        let mut statuses = self.peers.values().filter_map(Peer::status);
        if under == self.me.node {
            return statuses.any(|status| status.under != under);
        }
        let coordinator = self.peers.get(&under).and_then(Peer::status);
        coordinator.is_none_or(|status| status.under != under)
    }
}

impl ViewSource for Presumed {
    fn peer_up(
        &mut self,
        _now: Time,
        peer: NodeId,
        incarnation: Incarnation,
        out: &mut Vec<Action>,
    ) {
        self.restate(peer, out);
        let change = |peer: &mut Peer| {
            peer.incarnation = Some(incarnation);
            (peer.suspected, peer.refused) = (false, false);
        };
        self.note(peer, change, out);
    }

    fn peer_down(&mut self, _now: Time, peer: NodeId, out: &mut Vec<Action>) {
        let change = |peer: &mut Peer| {
            *peer = Peer {
                left: peer.left,
                ..Peer::default()
            };
        };
        self.note(peer, change, out);
    }

    fn peer_left(&mut self, _now: Time, peer: NodeId, out: &mut Vec<Action>) {
        let Some(peer) = self.peers.get_mut(&peer) else {
            return;
        };
        // What it was alone in knowing, these are to reckon with.
        let status = peer.status.take();
        self.restart.marked |= status.is_some_and(|status| status.restart.marked);
        *peer = Peer {
            left: peer.incarnation,
            ..Peer::default()
        };
        self.reconsider(out);
    }

    fn peer_suspected(&mut self, _now: Time, peer: NodeId, out: &mut Vec<Action>) {
        self.note(peer, |peer| peer.suspected = true, out);
    }

    fn peer_alive(&mut self, _now: Time, peer: NodeId, out: &mut Vec<Action>) {
        self.note(peer, |peer| peer.suspected = false, out);
    }

    fn peer_refused(&mut self, _now: Time, peer: NodeId, out: &mut Vec<Action>) {
        self.note(peer, |peer| peer.refused = true, out);
    }

    fn ready(&mut self, _now: Time, out: &mut Vec<Action>) {
        self.ready = true;
        self.reconsider(out);
    }

    fn receive(&mut self, now: Time, from: NodeId, message: ViewMessage, out: &mut Vec<Action>) {
        match message {
            ViewMessage::PresumedStatus(status) => self.on_status(from, status, out),
            ViewMessage::Freeze { view } => self.on_freeze(from, view, out),
            ViewMessage::Reject { epoch } => self.on_reject(from, epoch, out),
            ViewMessage::Unlisted { nodes } => self.on_unlisted(from, nodes, out),
            ViewMessage::Summary { epoch, summary } => {
                self.on_summary(now, from, epoch, summary, out);
            }
            // Only the view's coordinator has it, and one that is awaited has but one.
            ViewMessage::Install { view, table } if view.nodes().next() == Some(from) => {
                self.on_install(view, table, out);
            }
            _ => {}
        }
    }

    fn timeout(&mut self, now: Time, out: &mut Vec<Action>) {
        self.finish_round(now, out);
    }

    fn next_timeout(&self, _now: Time) -> Option<Time> {
        let (_, at) = self.round.as_ref()?.table.as_ref()?;
        Some(*at)
    }

    fn persisted(&mut self, _now: Time, out: &mut Vec<Action>) {
        if let Phase::Persisting(view) = &self.phase {
            let view = view.clone();
            self.phase = Phase::Frozen(view.clone());
            out.push(Action::Summarise(view));
        }
    }

    fn summarised(&mut self, now: Time, summary: Summary, out: &mut Vec<Action>) {
        let Phase::Frozen(view) = &self.phase else {
            return;
        };
        let (epoch, coordinator) = (view.epoch, view.nodes().next());
        if coordinator == Some(self.me.node) {
            self.on_summary(now, self.me.node, epoch, summary, out);
        } else if let Some(coordinator) = coordinator {
            let summary = ViewMessage::Summary { epoch, summary };
            out.push(Action::Send(coordinator, summary));
        }
    }

    fn want_view(&mut self, _now: Time, out: &mut Vec<Action>) {
        let under = self.under();
        if under == self.me.node {
            self.renew_view(out);
        } else if self.ready && matches!(self.phase, Phase::Installed(_)) {
            let status = PresumedStatus {
                wants_view: true,
                ..self.status()
            };
            self.tell(under, status, out);
        }
    }

    fn leave(&mut self, _now: Time, _out: &mut Vec<Action>) {
        self.round = None;
        self.ready = false;
    }

    fn leave_marks(&mut self, _now: Time, marks: AbandonedMarks, out: &mut Vec<Action>) {
        if self.ready && marks == AbandonedMarks::Own {
            self.restart.marked = true;
            self.tell_all(out);
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
        let absent = absent.iter().copied();
        let lacking = match self.view() {
            Some(view) => {
                let is_member = |&node: &NodeId| view.nodes().any(|member| member == node);
                absent.filter(is_member).collect()
            }
            None if self.is_stuck() => absent.collect(),
            // Who is presumed gone is not waited for.
            None => {
                let is_there = |node: &NodeId| {
                    let peer = self.peers.get(node);
                    peer.is_some_and(|peer| peer.is_there() && peer.left.is_none())
                };
                absent.filter(is_there).collect()
            }
        };
        QuorumOverview::without_voters(lacking, self.view().is_some())
    }

    fn is_unclean(&self) -> bool {
        self.restart != UncleanRestart::default()
    }

    fn remember_unclean(&mut self) {
        self.restart.unclean = true;
    }
}

#[cfg(test)]
mod tests;
