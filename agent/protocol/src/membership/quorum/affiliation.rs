//! What a member remembers of its cluster, and how it came to be in it.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::certificate::ViewChange;
use super::view_config::{Digest, ViewConfig, Voter};
use crate::ids::{Epoch, Incarnation, NodeId};
use crate::membership::ClusterId;
use crate::membership::greeting::first_8;

/// What a member remembers of its cluster: on disk before anything is said that rests on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Affiliation {
    /// The first incarnation that had this state. A member that lost its state has another birth.
    /// Zero until the next incarnation begins.
    pub birth: Incarnation,
    /// How many foundings this member has refused, or given up after it had accepted them.
    pub refusals: u32,
    /// Whether it is in a cluster.
    pub(crate) standing: Standing,
    /// An operator's word that a cluster is abandoned.
    pub permit: Option<Permit>,
}

/// Whether a member is in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Standing {
    /// It never was.
    New,
    /// It has accepted this founding, which may come to be or not.
    Accepted(Box<Founding>),
    /// It is, for good.
    Member(Membership),
}

/// The cluster that a member is in.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Membership {
    pub(crate) cluster: Digest,
    /// Since when these vote.
    pub(crate) epoch: Epoch,
    /// The voters of the newest view that this member knows.
    pub(crate) voters: Vec<Voter>,
}

impl Membership {
    pub(crate) fn of(view_config: &ViewConfig) -> Self {
        Self {
            cluster: view_config.cluster,
            epoch: view_config.epoch,
            voters: view_config.voters.clone(),
        }
    }
}

/// An operator's word that a cluster is abandoned, and another may be founded in its place.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Permit {
    pub abandoned: ClusterId,
    /// The voters to whom it is given, by the file of that time: no others found a cluster by it. With
    /// another file at each of them there could be two.
    pub voters: Vec<NodeId>,
    /// The longest lease that may still run there, as far as this member remembers.
    pub(crate) longest: Duration,
}

/// Tells permits apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct PermitId(pub(crate) u64);

/// A cluster that is being founded.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Founding {
    /// The first view. Its cluster is the hash of [`Agreed`].
    pub(crate) view_config: ViewConfig,
    /// Those that must accept, by id.
    pub(crate) parties: Vec<Party>,
    /// The longest lease in any file or record of theirs.
    pub(crate) longest: Duration,
    /// The cluster that an operator has abandoned for this one.
    pub(crate) abandons: Option<ClusterId>,
}

/// One member that must accept a founding, as its founder knew it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Party {
    pub(crate) node: NodeId,
    pub(crate) birth: Incarnation,
    pub(crate) refusals: u32,
}

/// What makes a cluster's identity. No two foundings have it alike: to found again the founder must
/// have given up before, and counts that.
#[derive(Serialize)]
struct Agreed<'a> {
    group: &'a str,
    parties: &'a [Party],
    voters: &'a [Voter],
    epoch: Epoch,
}

impl Permit {
    /// What voters that have the same permit, for the same voters, have alike.
    pub(crate) fn id(&self) -> PermitId {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.abandoned.0);
        for node in &self.voters {
            hasher.update(&node.as_u16().to_be_bytes());
        }
        PermitId(first_8(hasher.finalize().as_bytes()))
    }
}

impl Affiliation {
    /// The cluster that an operator has abandoned here, as long as there is no other in its place.
    pub fn abandoned(&self) -> Option<ClusterId> {
        self.permit.as_ref().map(|permit| permit.abandoned)
    }

    /// Of a member whose state begins with this incarnation.
    pub const fn new(birth: Incarnation) -> Self {
        Self {
            birth,
            refusals: 0,
            standing: Standing::New,
            permit: None,
        }
    }

    /// An incarnation begins with this.
    pub(crate) fn begin(&mut self, incarnation: Incarnation) {
        if self.birth == Incarnation(0) {
            self.birth = incarnation;
        }
    }

    /// After an operator's word that its cluster, or the one whose founding it accepted, or
    /// `abandoned` where neither is remembered, is abandoned: as new, with another birth.
    /// `voters`: those of the file. `longest`: the longest lease that may still run there. `None` if it
    /// is not known which cluster that is.
    pub(crate) fn recover(
        &self,
        abandoned: Option<ClusterId>,
        voters: &BTreeSet<NodeId>,
        longest: Duration,
    ) -> Option<Self> {
        let permit = self.permit.as_ref();
        let permitted = permit.map(|permit| permit.longest);
        let remembered = self
            .cluster()
            .map(Digest::id)
            .or(permit.map(|permit| permit.abandoned));
        let longest = longest.max(permitted.unwrap_or_default());
        Some(Self {
            permit: Some(Permit {
                abandoned: abandoned.or(remembered)?,
                voters: voters.iter().copied().collect(),
                longest,
            }),
            ..Self::new(Incarnation(0))
        })
    }

    /// The cluster that this member is in, or would be in if its founding comes to be.
    pub fn cluster(&self) -> Option<Digest> {
        match &self.standing {
            Standing::New => None,
            Standing::Accepted(founding) => Some(founding.view_config.cluster),
            Standing::Member(membership) => Some(membership.cluster),
        }
    }

    /// The voters of that cluster, as this member knows them.
    pub(crate) fn voters(&self) -> Option<&[Voter]> {
        match &self.standing {
            Standing::New => None,
            Standing::Accepted(founding) => Some(&founding.view_config.voters),
            Standing::Member(membership) => Some(&membership.voters),
        }
    }

    /// The cluster that this member is in.
    pub fn cluster_id(&self) -> Option<ClusterId> {
        self.membership().map(|membership| membership.cluster.id())
    }

    pub(crate) fn membership(&self) -> Option<&Membership> {
        match &self.standing {
            Standing::Member(membership) => Some(membership),
            _ => None,
        }
    }

    pub(crate) fn accepted(&self) -> Option<&Founding> {
        match &self.standing {
            Standing::Accepted(founding) => Some(founding),
            _ => None,
        }
    }

    /// For the disk. What is read there must be what was written: a checksum is the caller's.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("a record can be written")
    }

    /// What [`Affiliation::to_bytes`] wrote; `None` if that is something else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        match postcard::take_from_bytes(bytes) {
            Ok((affiliation, [])) => Some(affiliation),
            _ => None,
        }
    }
}

impl Founding {
    /// Gives the cluster the name that follows from what its members agree on.
    pub(crate) fn named(mut self, group: &str) -> Self {
        let cluster = self.identity(group);
        (self.view_config.cluster, self.view_config.parent) = (cluster, cluster);
        self
    }

    fn identity(&self, group: &str) -> Digest {
        Digest::of_cluster(&Agreed {
            group,
            parties: &self.parties,
            voters: &self.view_config.voters,
            epoch: self.view_config.epoch,
        })
    }

    /// The view change that its voters endorse to complete it.
    pub(crate) fn view_change(&self) -> ViewChange {
        ViewChange {
            parent: None,
            view_config: self.view_config.clone(),
        }
    }

    /// Whether it is put together as foundings are.
    pub(crate) fn is_sound(&self, group: &str) -> bool {
        let voters = self.view_config.voters.iter();
        self.parties.is_sorted_by(|a, b| a.node < b.node)
            && voters.into_iter().all(|voter| {
                let party = self.party(voter.node);
                party.is_some_and(|party| party.birth == voter.birth)
            })
            && self.view_config.cluster == self.identity(group)
            && self.view_config.abandons.iter().copied().eq(self.abandons)
            && self.view_change().is_sound()
    }

    pub(crate) fn party(&self, node: NodeId) -> Option<&Party> {
        let at = self.parties.binary_search_by_key(&node, |party| party.node);
        self.parties.get(at.ok()?)
    }

    pub(crate) fn voters(&self) -> impl Iterator<Item = NodeId> {
        self.view_config.voters.iter().map(|voter| voter.node)
    }

    pub(crate) fn has_voter(&self, node: NodeId) -> bool {
        self.voters().any(|voter| voter == node)
    }
}
