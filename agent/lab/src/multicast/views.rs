//! Who belongs to the view: decided at one place, one view after the other.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::checkers::Payload;
use distlock_protocol::multicast::{Install, Undelivered};
use distlock_protocol::{Epoch, NodeId};

/// What is decided, and what is about to be.
#[derive(Debug)]
pub(super) struct Views {
    /// The highest epoch that was tried.
    tried: Epoch,
    members: Vec<NodeId>,
    /// Who has not installed the last view yet.
    outstanding: BTreeSet<NodeId>,
    attempt: Option<Attempt>,
}

#[derive(Debug)]
struct Attempt {
    survivors: Vec<NodeId>,
    newcomers: Vec<NodeId>,
    missing: BTreeSet<NodeId>,
    said: Vec<Undelivered<Payload>>,
}

/// A view, decided.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) epoch: Epoch,
    pub(super) install: Install<Payload>,
    pub(super) survivors: Vec<NodeId>,
    pub(super) newcomers: Vec<NodeId>,
}

impl Views {
    pub(super) const fn new() -> Self {
        Self {
            tried: Epoch::ZERO,
            members: Vec::new(),
            outstanding: BTreeSet::new(),
            attempt: None,
        }
    }

    /// The members of the last view that was decided.
    pub(super) fn members(&self) -> &[NodeId] {
        &self.members
    }

    /// Those of whom one at least must live, or all that was delivered is lost.
    pub(super) fn bearers(&self) -> &[NodeId] {
        let attempt = self.attempt.as_ref();
        attempt.map_or(&self.members, |attempt| &attempt.survivors)
    }

    /// Whether the last view is in force everywhere, and no other is tried.
    pub(super) fn is_settled(&self) -> bool {
        self.attempt.is_none() && self.outstanding.is_empty()
    }

    /// Begins to change the view: all of these are to freeze, for the epoch that this returns.
    pub(super) fn change(&mut self, survivors: Vec<NodeId>, newcomers: Vec<NodeId>) -> Epoch {
        self.tried = self.tried.next().expect("runs are short");
        self.attempt = Some(Attempt {
            missing: survivors.iter().chain(&newcomers).copied().collect(),
            survivors,
            newcomers,
            said: Vec::new(),
        });
        self.tried
    }

    /// Who has installed the last view need not be waited for.
    pub(super) fn is_installed(&mut self, node: NodeId) {
        self.outstanding.remove(&node);
    }

    /// `node` has crashed: if the view that is tried needs it, another is to be tried, with these.
    pub(super) fn crashed(&mut self, node: NodeId) -> Option<(Vec<NodeId>, Vec<NodeId>)> {
        self.outstanding.remove(&node);
        let needs_it = |attempt: &mut Attempt| {
            attempt.survivors.contains(&node) || attempt.newcomers.contains(&node)
        };
        let mut attempt = self.attempt.take_if(needs_it)?;
        attempt.survivors.retain(|survivor| *survivor != node);
        attempt.newcomers.retain(|newcomer| *newcomer != node);
        Some((attempt.survivors, attempt.newcomers))
    }

    /// `node` has frozen for `epoch`; whether that decides the view.
    pub(super) fn hear(
        &mut self,
        epoch: Epoch,
        node: NodeId,
        said: Undelivered<Payload>,
    ) -> Option<Decided> {
        let attempt = self.attempt.as_mut().filter(|_| epoch == self.tried)?;
        if attempt.missing.remove(&node) {
            attempt.said.push(said);
        }
        let attempt = self.attempt.take_if(|attempt| attempt.missing.is_empty())?;
        let both = attempt.survivors.iter().chain(&attempt.newcomers);
        self.members = both.copied().collect();
        self.outstanding = self.members.iter().copied().collect();
        let install = Install::new(epoch, self.members.clone(), attempt.said);
        Some(Decided {
            epoch,
            install: install.expect("all of them are frozen in one view"),
            survivors: attempt.survivors,
            newcomers: attempt.newcomers,
        })
    }
}
