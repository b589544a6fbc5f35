//! What voters endorse, and which endorsements certify it.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::view_config::{Digest, ViewConfig, Voter};
use crate::ids::Epoch;

/// A view configuration with the one before it: what is proposed, decided, endorsed and kept.
///
/// Whoever proposes a view change knows that its parent is certified. So certified view configurations form one
/// chain: two of them in one epoch would have the same parent, and a majority of that one's voters
/// for each; some voter would have endorsed twice in the epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ViewChange {
    /// `None` before the first view configuration.
    pub parent: Option<ViewConfig>,
    pub view_config: ViewConfig,
}

impl ViewChange {
    /// Whether the view configuration follows its parent as view configurations may. Of the voters at most one comes or
    /// goes: majorities of neighbours meet only then (three voters of which one is replaced have
    /// two majorities, before and after, without a voter in common).
    pub(crate) fn is_sound(&self) -> bool {
        let Self {
            parent,
            view_config,
        } = self;
        let rises = view_config.members.is_sorted_by(|a, b| a.node < b.node)
            && view_config.voters.is_sorted_by(|a, b| a.node < b.node)
            && view_config.since.len() == view_config.members.len()
            && !view_config.voters.is_empty();
        let follows = match parent {
            None => view_config.parent == view_config.cluster,
            Some(parent) => {
                view_config.cluster == parent.cluster
                    && view_config.abandons == parent.abandons
                    && view_config.parent == parent.digest()
                    && parent.epoch.next() == Some(view_config.epoch)
                    && differing_voters(parent, view_config) <= 1
            }
        };
        rises && follows
    }

    /// Whether these voters' endorsements make a certificate: of a majority before and a majority
    /// after. The first one has all voters', as nobody is before them who could say that it is new;
    /// when fewer will do, [`founding`](super::founding) knows.
    pub(crate) fn is_certified_by(&self, mut such: impl FnMut(Voter) -> bool) -> bool {
        match &self.parent {
            None => self.view_config.voters.iter().all(|voter| such(*voter)),
            Some(parent) => parent.has_majority(&mut such) && self.view_config.has_majority(such),
        }
    }

    /// All who may endorse it.
    pub(crate) fn voters(&self) -> impl Iterator<Item = Voter> + '_ {
        let before = self.parent.iter().flat_map(|parent| &parent.voters);
        let only_before = before.filter(|voter| !self.view_config.has_voter(**voter));
        only_before.chain(&self.view_config.voters).copied()
    }
}

/// How many voters one of the view configurations has and the other has not.
fn differing_voters(one: &ViewConfig, other: &ViewConfig) -> usize {
    let only =
        |a: &ViewConfig, b: &ViewConfig| a.voters.iter().filter(|v| !b.has_voter(**v)).count();
    only(one, other) + only(other, one)
}

/// The newest endorsement of a voter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Endorsement {
    pub epoch: Epoch,
    pub digest: Digest,
    /// The cluster of what was endorsed: who has endorsed another one's views can never vote here.
    pub(crate) cluster: Digest,
    /// For how long at least no lease was renewed here but those of the view's members.
    pub(crate) age: Duration,
    /// How long the leases were, at most, that were renewed here before.
    pub(crate) longest: Duration,
}
