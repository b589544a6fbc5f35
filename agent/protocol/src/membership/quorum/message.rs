//! What voters and members say to each other about quorum views, and what a voter keeps on disk.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::affiliation::{Founding, Membership, PermitId};
use super::certificate::{Endorsement, ViewChange};
use super::log::{LogMessage, LogRecord};
use super::view_config::{Digest, ViewConfig, Voter};
use crate::ids::{Epoch, Incarnation, NodeId};
use crate::lock::Summary;
use crate::membership::{Change, ClusterId, Member};

/// The order is that of the wire format: append only.
///
/// All of them may be lost, doubled, delayed and overtaken: each says how things stand, none what
/// has changed, and whatever matters is said again until the answer shows that it was heard.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum QuorumMessage {
    /// A member to all voters: let my lease run on; or, from an incarnation that is in no view: let
    /// me in.
    Renew(Renew),
    /// A voter to a member: it does, as far as I am concerned, under this view.
    Renewed {
        session: Incarnation,
        seq: u64,
        epoch: Epoch,
        digest: Digest,
    },
    /// A voter to an incarnation that is not in the view that it endorsed.
    Refused {
        session: Incarnation,
        seq: u64,
        /// That view, if it is certified and newer than the one that the member knows: then that
        /// incarnation's membership is over, or has not begun.
        certified: Option<Box<ViewConfig>>,
    },
    /// A voter to all voters: how I stand.
    Status(Box<Status>),
    /// A voter to one that has endorsed less: this was decided.
    Decided(Box<ViewChange>),
    /// The coordinator to all members: this is certified. Stop, and tell me what you have.
    Flush(Box<ViewConfig>),
    /// A member to the coordinator: I have stopped, and this is what I have.
    Summary {
        epoch: Epoch,
        digest: Digest,
        summary: Summary,
    },
    /// The coordinator to all members: it is in force, though not for locks in quarantine.
    Install {
        epoch: Epoch,
        digest: Digest,
        table: Summary,
    },
    /// What the voters' log sends.
    Log {
        from: Voter,
        to: Voter,
        message: LogMessage,
    },
    /// A member to one that is in no view with it: I am in this cluster.
    Cluster(Box<ClusterNotice>),
    /// A member that is in no view, to all that it can talk to: how I stand to founding.
    Founding(Box<FoundingStatus>),
    /// A founder, or a voter of the cluster that it founds, to one that has not accepted.
    Found(Box<Founding>),
    /// The coordinator to all members: the leases of the lost are over, and no lock is in quarantine
    /// any more.
    Lift { epoch: Epoch, digest: Digest },
}

/// What a member says of its cluster to one that may not know.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClusterNotice {
    pub(crate) membership: Membership,
    /// Clusters whose members may join this one.
    pub(crate) abandons: Vec<ClusterId>,
}

/// How a member that is in no view stands to founding. All of it is on its disk.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FoundingStatus {
    /// The incarnation that says so, and the first one that had this state.
    pub(crate) incarnation: Incarnation,
    pub(crate) birth: Incarnation,
    pub(crate) refusals: u32,
    pub(crate) stance: Stance,
    /// By which an operator has abandoned a cluster here.
    pub(crate) permit: Option<PermitId>,
    /// The longest lease in this member's file and record.
    pub(crate) longest: Duration,
    /// For how long this incarnation has been.
    pub(crate) running_for: Duration,
    /// The highest epoch it has heard of.
    pub(crate) known: Epoch,
    /// Voters of the founding that it accepted which it has heard with another birth.
    pub(crate) reborn: Vec<NodeId>,
    /// Who votes by its file, and a hash of the members there.
    pub(crate) voters: Vec<NodeId>,
    pub(crate) members: u64,
}

/// [`Standing`](super::affiliation::Standing), as others are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Stance {
    New,
    Accepted(Digest),
    /// A voter has endorsed it, and knows that all have accepted.
    Completed(Digest),
    Member(Digest),
}

impl Stance {
    /// The founding that was accepted, whatever came of it.
    pub(crate) const fn accepted(&self) -> Option<Digest> {
        match self {
            Self::New => None,
            Self::Accepted(its) | Self::Completed(its) | Self::Member(its) => Some(*its),
        }
    }
}

/// A member's request to renew its lease, with what else voters are to know of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Renew {
    /// The incarnation that asks.
    pub(crate) session: Incarnation,
    /// Rises with each request.
    pub(crate) seq: u64,
    /// The highest request that a majority of voters has answered, one way or another: who gets no
    /// answers cannot be a member.
    pub(crate) answered: u64,
    /// The newest certified view that it knows with itself in it; zero if there was none.
    pub(crate) epoch: Epoch,
    /// How far it has come in that one.
    pub(crate) stage: Stage,
    /// A limit is exceeded that only a new view lifts.
    pub(crate) wants_view: bool,
    /// The incarnation before this one left: it is inside of nothing.
    pub(crate) left: bool,
    /// How long the lease is, by the member's file.
    pub(crate) lease: Duration,
    /// What an operator wants changed. Whatever an earlier request wanted is not wanted any more: it may have come
    /// late.
    pub(crate) change: Option<Change>,
}

/// How far a member has come in a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Stage {
    /// It has stopped for it.
    Frozen,
    /// It is in force there, perhaps with locks in quarantine.
    Installed,
    /// No lock is in quarantine there, and its lease has been renewed under it.
    Leased,
    /// It holds nothing any more, and will never again.
    Leaving,
    /// The same, and it may be alone in knowing of locks that were abandoned.
    LeavingWithMarks,
    /// The same, and all who have the view know of some.
    LeavingWithSharedMarks,
}

/// How a voter stands. It is its endorsement, too.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Status {
    pub voter: Voter,
    /// The incarnation that says so.
    pub(crate) incarnation: Incarnation,
    /// The highest epoch it has heard of.
    pub(crate) known: Epoch,
    pub endorsed: Option<Endorsement>,
    /// Members of the view it endorsed of whom it has heard nothing, or nothing new, for too long.
    pub(crate) suspects: Vec<Member>,
    /// Those who said that they leave.
    pub(crate) leavers: Vec<Member>,
    /// Incarnations it has heard lately that are not in that view.
    pub(crate) newcomers: Vec<Member>,
}

/// What a voter must remember. Without it, it is another voter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VoterRecord {
    pub birth: Incarnation,
    /// The newest endorsement.
    pub endorsed: Option<ViewChange>,
    /// Whether that is known to be certified. It might not be found out again: those who endorsed
    /// it may have lost their states.
    pub(crate) certified: bool,
    /// Whether no leases were in use, when this was written, but those of the view configuration's
    /// members that have not left: then an incarnation that begins with this knows whose leases there
    /// may be.
    pub(crate) settled: bool,
    /// The longest lease that may still run because it was renewed here. On disk before one that
    /// is longer is renewed.
    pub(crate) longest: Duration,
    /// Where the log stands.
    pub log: Option<LogRecord>,
}

impl VoterRecord {
    /// Of one that has endorsed nothing.
    pub(crate) fn new(birth: Incarnation, longest: Duration) -> Self {
        Self {
            birth,
            endorsed: None,
            certified: false,
            settled: false,
            longest,
            log: None,
        }
    }

    /// The longest lease that may still run because it was renewed here.
    pub fn longest_lease(&self) -> Duration {
        self.longest
    }

    /// The highest epoch that was endorsed.
    pub fn epoch(&self) -> Option<Epoch> {
        self.view_config().map(|view_config| view_config.epoch)
    }

    /// For the disk. What is read there must be what was written: a checksum is the caller's.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("a record can be written")
    }

    /// What [`VoterRecord::to_bytes`] wrote; `None` if that is something else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        match postcard::take_from_bytes(bytes) {
            Ok((record, [])) => Some(record),
            _ => None,
        }
    }

    /// Who remembers this, at member `node`.
    pub fn voter(&self, node: NodeId) -> Voter {
        Voter {
            node,
            birth: self.birth,
        }
    }

    /// The view configuration that it endorsed last.
    pub fn view_config(&self) -> Option<&ViewConfig> {
        self.endorsed
            .as_ref()
            .map(|view_change| &view_change.view_config)
    }

    /// The newest view configuration that it knows to be certified: a voter proposes none but after
    /// such a one.
    pub fn certified_view_config(&self) -> Option<&ViewConfig> {
        let view_change = self.endorsed.as_ref()?;
        if self.certified {
            return Some(&view_change.view_config);
        }
        view_change.parent.as_ref()
    }
}
