//! What a member knows of the overrides: which members and voters an operator wants.

use alloc::collections::BTreeMap;

use super::super::outbox::Outbox;
use super::super::view_config::{Digest, ViewConfig, Voter};
use crate::ids::{Epoch, NodeId};
use crate::membership::{Action, Change, MembershipOverrides};
use crate::time::Time;

/// The overrides of the newest view that this member was told of.
#[derive(Clone, Debug, Hash)]
pub(super) struct KnownOverrides {
    me: NodeId,
    overrides: MembershipOverrides,
    /// The epoch of the view that has them.
    epoch: Epoch,
    /// What an operator wants changed, until the overrides have it, or that time has come.
    change_request: Option<(Change, Time)>,
    /// The voters that say that this member was removed, and by which view.
    removed_by: BTreeMap<NodeId, Digest>,
    /// Whether the other voters still need this member's vote.
    is_needed: bool,
}

impl KnownOverrides {
    pub(super) fn new(me: NodeId) -> Self {
        Self {
            me,
            overrides: MembershipOverrides::default(),
            epoch: Epoch::ZERO,
            change_request: None,
            removed_by: BTreeMap::new(),
            is_needed: false,
        }
    }

    /// What does not end with a session.
    pub(super) fn take_over(&mut self, before: &mut Self) {
        self.change_request = before.change_request.take();
        self.overrides = core::mem::take(&mut before.overrides);
        self.epoch = before.epoch;
    }

    pub(super) fn change_request(&self, now: Time) -> Option<&Change> {
        let (change, until) = self.change_request.as_ref()?;
        (now < *until).then_some(change)
    }

    /// An operator wants this changed, in place of what was wanted before. What is so already is not
    /// wanted: no view would come that ends the request, and it would stand against what others
    /// want later.
    pub(super) fn want(&mut self, change: Change, until: Time) {
        let is_so = self.overrides.has(&change);
        self.change_request = (!is_so).then_some((change, until));
    }

    /// Whether the other voters still need this member's vote.
    pub(super) fn note_needed(&mut self, is_needed: bool) {
        self.is_needed = is_needed;
    }

    /// The next overrides count, whichever their epoch is: they are another cluster's.
    pub(super) fn forget_epoch(&mut self) {
        self.epoch = Epoch::ZERO;
    }

    /// The voters that the overrides names, but for removed members.
    pub(super) fn wanted_voters(&self) -> impl Iterator<Item = NodeId> + '_ {
        let voters = self.overrides.voters.iter().copied();
        voters.filter(|node| self.overrides.wants_vote_of(*node))
    }

    pub(super) fn wants_own_vote(&self) -> bool {
        self.overrides.wants_vote_of(self.me)
    }

    /// The certified view that this member is in has these overrides.
    pub(super) fn read(&mut self, view_config: &ViewConfig, out: &mut Outbox) {
        self.note(view_config.epoch, view_config.overrides.clone(), out);
    }

    /// What a voter says of its newest certified view. That this member was removed counts when a
    /// majority of that view's voters says so: it may have been added again since, and what others
    /// remember, and its own voter, says nothing of that.
    pub(super) fn told(&mut self, from: NodeId, view_config: &ViewConfig, out: &mut Outbox) {
        let mut overrides = view_config.overrides.clone();
        if overrides.removed.contains(&self.me) {
            let digest = view_config.digest();
            self.removed_by.insert(from, digest);
            let says = |voter: &&Voter| {
                voter.node != self.me && self.removed_by.get(&voter.node) == Some(&digest)
            };
            let many = view_config.voters.iter().filter(says).count();
            if 2 * many <= view_config.voters.len() {
                overrides.removed.remove(&self.me);
            }
        }
        self.note(view_config.epoch, overrides, out);
    }

    /// A member that was removed ends when it is told; so a voter is not told before the others can
    /// do without its vote.
    fn note(&mut self, epoch: Epoch, mut overrides: MembershipOverrides, out: &mut Outbox) {
        if epoch < self.epoch {
            return;
        }
        self.epoch = epoch;
        self.change_request
            .take_if(|(change, _)| overrides.has(change));
        if self.is_needed {
            overrides.removed.remove(&self.me);
        }
        if overrides != self.overrides {
            self.overrides = overrides.clone();
            out.act(Action::Members(overrides));
        }
    }
}
