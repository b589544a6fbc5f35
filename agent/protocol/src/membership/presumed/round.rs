//! How the member that the others stand under forms a view of them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use super::{Peer, Phase, Presumed, Round};
use crate::ids::{Epoch, NodeId};
use crate::lock::Summary;
use crate::membership::view::{Member, View};
use crate::membership::view_source::{Action, ViewMessage};
use crate::time::Time;

impl Presumed {
    /// Starts a round if all that are there stand under this member, and the view in force, or in
    /// the making, is not theirs. `anew`: also if it is.
    pub(super) fn form_if_needed(&mut self, anew: bool, out: &mut Vec<Action>) {
        let mut statuses = self.peers.values().filter_map(Peer::status);
        let is_split = statuses.any(|status| status.under != self.me.node);
        if is_split || self.is_anybody_awaited() || self.is_at_odds() {
            self.round = None;
            return;
        }
        let members = self.members_under_me();
        let current = match (&self.round, &self.phase) {
            (Some(round), _) => Some(&round.view),
            (None, Phase::Installed(view)) => Some(&**view),
            (None, _) => None,
        };
        let statuses = self.peers.values().filter_map(Peer::status);
        let known = statuses
            .map(|status| status.epoch)
            .max()
            .unwrap_or_default();
        // Some may have heard nothing of this member, which heard them, and have gone on without it.
        let is_right = |view: &View| view.members == members && known <= view.epoch;
        if !anew && current.is_some_and(is_right) {
            return;
        }
        // Epochs last until 2093, at one view a second; then locks end, rather than wrap.
        let Some(epoch) = known.max(self.epoch).next() else {
            return;
        };
        let view = View {
            epoch,
            unclean: self.unclean_for(&members),
            members,
        };
        for node in view.nodes().filter(|&node| node != self.me.node) {
            let view = view.clone();
            out.push(Action::Send(node, ViewMessage::Freeze { view }));
        }
        self.round = Some(Round {
            view: view.clone(),
            told: BTreeMap::new(),
            table: None,
        });
        self.take_part(view, out);
    }

    /// This member and those that stand under it, as far as all of them know each other.
    fn members_under_me(&self) -> Vec<Member> {
        let mut members: Vec<Member> = Vec::new();
        let mut unlisted: BTreeSet<NodeId> = BTreeSet::new();
        let peers = self.peers.iter().filter_map(|(&node, peer)| {
            peer.status()?;
            let incarnation = peer.incarnation?;
            Some((Member { node, incarnation }, &peer.unlisted))
        });
        // This member is the lowest.
        let none = BTreeSet::new();
        for (member, unlisted_there) in [(self.me, &none)].into_iter().chain(peers) {
            let knows_all = members
                .iter()
                .all(|its| !unlisted_there.contains(&its.node));
            if knows_all && !unlisted.contains(&member.node) {
                members.push(member);
                unlisted.extend(unlisted_there);
            }
        }
        members
    }

    /// Whose last incarnations ended without leaving, as far as the members of a view know.
    fn unclean_for(&self, members: &[Member]) -> Vec<NodeId> {
        let status_of = |member: &Member| self.peers.get(&member.node)?.status();
        let told = members.iter().filter_map(status_of);
        let last = told.flat_map(|status| status.last.iter().copied());
        let reckoned = self.reckoned().map(|(member, _)| member);
        let is_gone = |member: &Member| {
            let peer = self.peers.get(&member.node);
            let has_left = peer.is_some_and(|peer| peer.left == Some(member.incarnation));
            !members.contains(member) && !has_left
        };
        let gone = last.chain(reckoned).filter(is_gone);
        let mut unclean: BTreeSet<NodeId> = gone.map(|member| member.node).collect();
        // Whoever is in the view tells of itself.
        for member in members {
            let status = status_of(member);
            if status.map_or(self.restart, |status| status.restart).unclean {
                unclean.insert(member.node);
            } else {
                unclean.remove(&member.node);
            }
        }
        unclean.into_iter().collect()
    }

    pub(super) fn on_summary(
        &mut self,
        now: Time,
        from: NodeId,
        epoch: Epoch,
        summary: Summary,
        out: &mut Vec<Action>,
    ) {
        let Some(round) = &mut self.round else { return };
        let is_awaited = round.view.nodes().any(|node| node == from);
        if round.view.epoch != epoch || round.table.is_some() || !is_awaited {
            return;
        }
        round.told.insert(from, summary);
        if round.told.len() < round.view.members.len() {
            return;
        }
        let mut table = Summary::reconcile(core::mem::take(&mut round.told));
        let is_nobody_lost = round.view.unclean.is_empty() || table.vouches_for_the_lost();
        let delay = if is_nobody_lost {
            Duration::ZERO
        } else {
            self.lock_delay
        };
        let statuses = self.peers.values().filter_map(Peer::status);
        if self.restart.marked
            || statuses
                .map(|status| status.restart)
                .any(|restart| restart.marked)
        {
            table.suspect_all();
        }
        table.conclude(&round.view.unclean);
        round.table = Some((table, now + delay));
        self.finish_round(now, out);
    }

    /// Installs the round's view, once it may begin.
    pub(super) fn finish_round(&mut self, now: Time, out: &mut Vec<Action>) {
        let is_due = |round: &mut Round| round.table.as_ref().is_some_and(|(_, at)| *at <= now);
        let Some(Round {
            view,
            table: Some((table, _)),
            ..
        }) = self.round.take_if(is_due)
        else {
            return;
        };
        for node in view.nodes().filter(|&node| node != self.me.node) {
            let (view, table) = (view.clone(), table.clone());
            out.push(Action::Send(node, ViewMessage::Install { view, table }));
        }
        self.on_install(view, table, out);
    }

    /// A member of the round knows of a higher epoch: once more, above that.
    pub(super) fn on_reject(&mut self, from: NodeId, epoch: Epoch, out: &mut Vec<Action>) {
        let peer = self.peers.get_mut(&from);
        if let Some(status) = peer.and_then(|peer| peer.status.as_mut()) {
            status.epoch = status.epoch.max(epoch);
        }
        let round = self.round.as_ref();
        if round.is_some_and(|round| round.view.epoch <= epoch) {
            self.form_if_needed(true, out);
        }
    }
}
