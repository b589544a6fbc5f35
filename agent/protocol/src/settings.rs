//! What all members of a group must have alike.

use alloc::collections::BTreeMap;
use alloc::string::String;
use core::fmt;
use core::time::Duration;

use crate::election;
use crate::ids::LockName;
use crate::lock::{Algorithm, LockSpec};

/// What all members' files must have alike; a member whose settings differ is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The group's name. Its hash is in every datagram, so that groups never mix.
    pub group: String,
    /// How long a member may act without hearing from a majority of the voters. It bounds, too, how
    /// long a predecessor's clients can still be inside after a restart, and when a silent member
    /// counts as missing.
    pub lease: Duration,
    /// What a silent member means.
    pub failure: Failure,
    /// After a holder was lost its locks stay closed for so much longer, for resources that cannot
    /// check fences (Burrows 2006, section 2.4).
    pub lock_delay: Duration,
    /// The algorithm of locks that are not listed.
    pub algorithm: Algorithm,
    /// How leaders are elected.
    pub election: election::Algorithm,
    /// The listed locks.
    pub locks: BTreeMap<LockName, LockSpec>,
}

impl Settings {
    /// Of a group of that name whose file says nothing else.
    pub fn new(group: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            lease: Duration::from_secs(5),
            failure: Failure::default(),
            lock_delay: Duration::ZERO,
            algorithm: Algorithm::Manager,
            election: election::Algorithm::default(),
            locks: BTreeMap::new(),
        }
    }
}

/// What a silent member means, and so who decides on views.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Failure {
    /// A majority of voters decides, and whoever is left out has a lease that is over before anybody
    /// takes its place.
    #[default]
    Quorum,
    /// Who does not answer is gone: the rule of the lectures. Two can be inside at once, if one of
    /// them only paused or was cut off, and there are no fences.
    PresumeFailed,
    /// Nobody is ever gone: who is silent is waited for. A measure for the others, in tests and
    /// benchmarks; no configuration file can ask for it.
    Unanimity,
}

impl Failure {
    /// Whether a lock may be served so. Where a majority decides nobody is to be let in beside
    /// another, and callers are told fences: an algorithm that excludes by chance does not go with
    /// it.
    pub const fn can_serve(self, spec: LockSpec) -> bool {
        let excludes = !spec.algorithm.is_probabilistic();
        spec.is_valid() && (excludes || !matches!(self, Self::Quorum))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Quorum => "quorum",
            Self::PresumeFailed => "presume-failed",
            Self::Unanimity => "unanimity",
        })
    }
}
