//! What views say of who may be a member, beyond what the members' files say.
//!
//! Files are address books, which may differ and be old. An operator's change travels with the views
//! instead, so that all have it at once and nobody needs to be restarted for it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;
use crate::membership::quorum::log::MAX_VOTERS;

/// How many members can be added to those in the files: a view has them all.
const MAX_ADDED: usize = 128;
/// How many can be removed for good.
const MAX_REMOVED: usize = 1024;
/// The longest address, in bytes.
pub const MAX_ADDRESS: usize = 128;

/// Who was added to the files' members, and who was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MembershipOverrides {
    /// Members that files need not have, and where they are.
    pub added: BTreeMap<NodeId, String>,
    /// Members that do not belong to the group any more, whatever files say.
    pub removed: BTreeSet<NodeId>,
    /// The members that shall vote. A removed one does not, for as long as it is removed.
    pub voters: BTreeSet<NodeId>,
}

/// An operator's change of who may be a member.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Change {
    /// Add the member at this address.
    Add(NodeId, String),
    /// Remove the member.
    Remove(NodeId),
    /// Make these members the voters: one to seven.
    Voters(BTreeSet<NodeId>),
}

impl MembershipOverrides {
    /// Whether `change` is in it.
    pub fn has(&self, change: &Change) -> bool {
        match change {
            Change::Add(node, address) => self.added.get(node) == Some(address),
            Change::Remove(node) => self.removed.contains(node),
            Change::Voters(voters) => self.voters == *voters,
        }
    }

    /// Whether that member shall vote.
    pub(crate) fn wants_vote_of(&self, node: NodeId) -> bool {
        self.voters.contains(&node) && !self.removed.contains(&node)
    }

    /// The overrides with `change`; `None` if there is no room for it, or it makes no sense.
    pub fn with(&self, change: &Change) -> Option<Self> {
        let mut overrides = self.clone();
        match change {
            Change::Add(_, address) if address.len() > MAX_ADDRESS => return None,
            Change::Add(node, address) => {
                overrides.removed.remove(node);
                overrides.added.insert(*node, address.clone());
            }
            Change::Remove(node) => {
                overrides.added.remove(node);
                overrides.removed.insert(*node);
            }
            Change::Voters(voters) if voters.is_empty() || voters.len() > MAX_VOTERS => {
                return None;
            }
            Change::Voters(voters) => overrides.voters.clone_from(voters),
        }
        if !overrides.voters.is_empty() && overrides.voters.is_subset(&overrides.removed) {
            return None;
        }
        let fits = overrides.added.len() <= MAX_ADDED && overrides.removed.len() <= MAX_REMOVED;
        fits.then_some(overrides)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_to_seven_members_can_be_named_as_voters() {
        let named = |count: u16| {
            let voters = (1..=count).filter_map(NodeId::new).collect();
            MembershipOverrides::default().with(&Change::Voters(voters))
        };
        let fit = (0..=9).filter(|count| named(*count).is_some());
        assert!(fit.eq(1..=7));
    }
}
