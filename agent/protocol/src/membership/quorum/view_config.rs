//! A view as voters decide and endorse it, and what a majority of them is.

use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, Incarnation, NodeId};
use crate::membership::{ClusterId, Member, MembershipOverrides, View};

/// 256 bits that stand for a view configuration and, through its parent's digest, for all view
/// configurations before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Digest(pub(crate) [u8; 32]);

/// BLAKE3's key derivation separates these from all other hashes, and from later formats.
const DIGEST_CONTEXT: &str = "distlock 2026-11 digest of a charter";
const CLUSTER_CONTEXT: &str = "distlock 2026-11 cluster from what its members agreed on";

impl Digest {
    /// The identity of a cluster: a hash of `agreed`, which no two foundings have alike. It stands
    /// in for the parent's digest in the first view configuration.
    pub(crate) fn of_cluster(agreed: &impl Serialize) -> Self {
        let bytes = postcard::to_allocvec(agreed).expect("a founding can be written");
        let mut hasher = blake3::Hasher::new_derive_key(CLUSTER_CONTEXT);
        hasher.update(&bytes);
        Self(*hasher.finalize().as_bytes())
    }

    /// The short form, which people and files use.
    pub(crate) fn id(self) -> ClusterId {
        let mut id = [0; 8];
        id.copy_from_slice(&self.0[..8]);
        ClusterId(id)
    }
}

/// The beginning of it, which is enough for a reader.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id().fmt(f)
    }
}

/// A voter, which is a member's number together with the incarnation in which it began to remember.
/// One that has lost its state has another birth: it is not the voter that it was, and what that
/// one endorsed does not bind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Voter {
    pub node: NodeId,
    pub birth: Incarnation,
}

/// A view as voters decide and endorse it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ViewConfig {
    pub cluster: Digest,
    pub epoch: Epoch,
    /// Of the view configuration that this one follows; of the first, the cluster.
    pub parent: Digest,
    /// By id, each in one incarnation.
    pub members: Vec<Member>,
    /// Since which epoch each of `members` has been one, without a break: a session is never revived,
    /// and a member that was out in between must see it.
    pub since: Vec<Epoch>,
    /// By id.
    pub voters: Vec<Voter>,
    /// The only process that may put it in force: a voter, by the incarnation in which it votes.
    pub coordinator: Member,
    /// Members whose incarnations have ended since the last view that came into force, and that did
    /// not leave: they may have been inside of any lock. By id.
    pub unclean: Vec<NodeId>,
    /// The members that operators added and removed beyond what the files list, and the voters that
    /// they named.
    pub overrides: MembershipOverrides,
    /// Clusters that an operator gave up for this one: their members may join it.
    pub abandons: Vec<ClusterId>,
}

impl ViewConfig {
    pub fn digest(&self) -> Digest {
        let bytes = postcard::to_allocvec(self).expect("a view_config can be written");
        let mut hasher = blake3::Hasher::new_derive_key(DIGEST_CONTEXT);
        hasher.update(&bytes);
        Digest(*hasher.finalize().as_bytes())
    }

    /// The incarnation in which `node` is a member.
    pub(crate) fn incarnation_of(&self, node: NodeId) -> Option<Incarnation> {
        let at = self.members.binary_search_by_key(&node, |its| its.node);
        Some(self.members[at.ok()?].incarnation)
    }

    pub(crate) fn has_member(&self, member: Member) -> bool {
        self.incarnation_of(member.node) == Some(member.incarnation)
    }

    /// Since which epoch `member` has been in, without a break.
    pub fn member_since(&self, member: Member) -> Option<Epoch> {
        let at = self.members.iter().position(|its| *its == member)?;
        self.since.get(at).copied()
    }

    pub(crate) fn has_voter(&self, voter: Voter) -> bool {
        self.voters.contains(&voter)
    }

    /// Whether more than half of the voters are such.
    pub fn has_majority(&self, mut such: impl FnMut(Voter) -> bool) -> bool {
        let count = self.voters.iter().filter(|voter| such(**voter)).count();
        2 * count > self.voters.len()
    }

    /// The view that members get to see.
    pub(crate) fn view(&self) -> View {
        View {
            epoch: self.epoch,
            members: self.members.clone(),
            unclean: self.unclean.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use super::*;
    use crate::membership::quorum::certificate::ViewChange;
    use crate::membership::quorum::log::MAX_VIEW;
    use crate::membership::{Change, MAX_ADDRESS};

    fn node(id: u16) -> NodeId {
        NodeId::new(id).unwrap()
    }

    fn view_config(voters: &[(u16, u64)]) -> ViewConfig {
        let member = |id, incarnation| Member {
            node: node(id),
            incarnation: Incarnation(incarnation),
        };
        let cluster = Digest::of_cluster(&"shop");
        ViewConfig {
            cluster,
            epoch: Epoch::new(60_000_000).unwrap(),
            parent: cluster,
            members: vec![member(1, 7), member(300, 1 << 40)],
            since: vec![Epoch::new(60_000_000).unwrap(); 2],
            voters: voters
                .iter()
                .map(|&(id, birth)| Voter {
                    node: node(id),
                    birth: Incarnation(birth),
                })
                .collect(),
            coordinator: member(1, 7),
            unclean: vec![node(2)],
            overrides: MembershipOverrides::default(),
            abandons: Vec::new(),
        }
    }

    fn after(parent: &ViewConfig, voters: &[(u16, u64)]) -> ViewChange {
        let view_config = ViewConfig {
            epoch: parent.epoch.next().unwrap(),
            parent: parent.digest(),
            ..view_config(voters)
        };
        ViewChange {
            parent: Some(parent.clone()),
            view_config,
        }
    }

    /// Members of two versions of the program must agree on digests; these never change.
    #[test]
    fn digests_are_golden() {
        let view_config = view_config(&[(1, 7), (2, 8), (3, 9)]);
        assert_eq!(view_config.cluster.to_string(), "7d782f50f085d056");
        assert_eq!(view_config.digest().to_string(), "00d06fbd1047a7b0");
    }

    #[test]
    fn at_most_one_voter_comes_or_goes() {
        let three = view_config(&[(1, 1), (2, 1), (3, 1)]);
        for (voters, sound) in [
            (&[(1, 1), (2, 1), (3, 1)][..], true),
            (&[(1, 1), (2, 1)], true),
            (&[(1, 1), (2, 1), (3, 1), (4, 1)], true),
            (&[(1, 1)], false),
            // A voter that lost its state is replaced in two steps.
            (&[(1, 1), (2, 1), (3, 2)], false),
            (&[], false),
        ] {
            assert_eq!(after(&three, voters).is_sound(), sound, "{voters:?}");
        }
    }

    /// Otherwise a group would stand still for ever that has grown to its bounds.
    #[test]
    fn the_largest_group_fits_a_proposal() {
        // 1024 members are in the files, at most, and 128 are added.
        let members: Vec<Member> = (1..=1152)
            .map(|id| Member {
                node: node(id + 60_000),
                incarnation: Incarnation(u64::MAX),
            })
            .collect();
        let mut overrides = MembershipOverrides::default();
        for id in 1..=1024 {
            overrides = overrides.with(&Change::Remove(node(id))).unwrap();
        }
        for id in 61_025..=61_152 {
            let address = "a".repeat(MAX_ADDRESS);
            overrides = overrides.with(&Change::Add(node(id), address)).unwrap();
        }
        let largest = ViewConfig {
            since: vec![Epoch::MAX; members.len()],
            unclean: members.iter().map(|member| member.node).collect(),
            members,
            overrides,
            ..view_config(&[(1, u64::MAX); 7])
        };
        let view_change = after(&largest, &[(1, 1)]);
        let view_change = ViewChange {
            view_config: largest,
            ..view_change
        };
        let bytes = postcard::to_allocvec(&view_change).unwrap();
        assert!(bytes.len() <= MAX_VIEW, "{} bytes", bytes.len());
    }

    #[test]
    fn a_step_names_its_parent() {
        let first = view_config(&[(1, 1)]);
        let view_change = after(&first, &[(1, 1)]);
        let mut other = view_change.clone();
        other.parent.as_mut().unwrap().unclean.clear();
        assert!(view_change.is_sound() && !other.is_sound());
        let mut late = view_change.clone();
        late.view_config.epoch = late.view_config.epoch.next().unwrap();
        assert!(!late.is_sound());
    }

    #[test]
    fn certificates_need_both_majorities_and_the_first_all() {
        let three = view_config(&[(1, 1), (2, 1), (3, 1)]);
        let grown = after(&three, &[(1, 1), (2, 1), (3, 1), (4, 1)]);
        let by = |view_change: &ViewChange, ids: &[u16]| {
            view_change.is_certified_by(|voter| ids.contains(&voter.node.as_u16()))
        };
        assert!(by(&grown, &[1, 2, 3]) && by(&grown, &[1, 2, 4]));
        // A majority of the old voters alone, and two of four.
        assert!(!by(&grown, &[1, 2]) && !by(&grown, &[1, 4]));
        let first = ViewChange {
            parent: None,
            view_config: three,
        };
        assert!(by(&first, &[1, 2, 3]) && !by(&first, &[1, 2]));
    }
}
