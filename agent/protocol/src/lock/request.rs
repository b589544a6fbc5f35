//! A request for a lock, and how the grant that it gets ends: the words that every algorithm, the
//! table of locks and their callers share.

use serde::{Deserialize, Serialize};

use crate::clock::Stamp;
use crate::ids::RequestId;

/// With whom a request may be inside.
///
/// The order is that of the wire format: append only.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Mode {
    /// With nobody; where there are several permits, with as many as there are others.
    #[default]
    Exclusive,
    /// With all that are shared too. Only [`Algorithm::Manager`](super::Algorithm::Manager) and
    /// [`Algorithm::Semaphore`](super::Algorithm::Semaphore) with one permit serve it.
    Shared,
}

/// A wish to enter, as the engines see it. Its stamp is taken once, and then frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Request {
    /// Which.
    pub id: RequestId,
    /// Its place in the order of requests.
    pub stamp: Stamp,
    /// With whom it may be inside.
    pub mode: Mode,
    /// Whether the caller wants to be told ([`Effects::busy`](super::Effects)) when the lock is not
    /// free.
    pub tries: bool,
}

/// How a grant ends.
///
/// The order is that of the wire format: append only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Release {
    /// Its holder gave it back.
    Given,
    /// Its holder ended inside, and gave nothing back. The next holder is told.
    Abandoned,
    /// Nothing was done under it: its caller had gone, or waited no longer, before it knew of the grant; or the holder
    /// says so. The next holder is told what this one would have been told.
    Unused,
}

/// How the previous grant of a lock ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Previous {
    /// It was released, or there was none.
    Clean,
    /// Its holder ended inside, or its member did and nobody is left to tell that it had not been
    /// inside: what the lock protects may be half done.
    Abandoned,
}

impl Previous {
    /// As a yes or no.
    pub const fn is_abandoned(self) -> bool {
        matches!(self, Self::Abandoned)
    }

    /// Whether the grant before was `abandoned`.
    pub const fn after(abandoned: bool) -> Self {
        if abandoned {
            Self::Abandoned
        } else {
            Self::Clean
        }
    }
}
