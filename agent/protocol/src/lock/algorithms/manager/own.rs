//! This member's place, and the stay while it has the token.

use super::{Place, Worth};
use crate::ids::RequestId;

/// This member's request that waits to be inside alone, or is.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Caller {
    pub(super) id: RequestId,
    pub(super) tries: bool,
    pub(super) is_inside: bool,
}

/// This member's place.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Own {
    pub(super) number: u64,
    /// Whether it is in no list before it has the token.
    pub(super) tries: bool,
    /// Whether the manager was told that it is a ghost's. For the manager it stays one, also when it has a
    /// caller again.
    pub(super) is_ghost: bool,
    /// Which place comes after it.
    pub(super) next: Option<Place>,
    /// While the token is here.
    pub(super) stay: Option<Stay>,
}

/// The token is here.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Stay {
    pub(super) worth: Worth,
    pub(super) entries: u32,
    /// Whether it has been here while nobody used it.
    pub(super) is_lent: bool,
    /// Whether this member's callers have gone before others' for long enough.
    pub(super) is_batch_over: bool,
}

/// A member that has entered so often in one stay keeps the token when nobody uses it, whatever a loan was
/// worth before.
const MANY: u32 = 8;

impl Stay {
    /// Whether a loan pays.
    pub(super) fn pays(&self) -> bool {
        self.entries > 0 && self.worth.pays() || self.entries >= MANY
    }
}

impl Own {
    /// Whether it waits in the list.
    pub(super) const fn waits(&self) -> bool {
        self.stay.is_none() && !self.tries
    }

    /// The end of its stay: what a loan is worth to whoever has the token next. `recalled`: as another
    /// wants it.
    pub(super) fn end(self, recalled: bool) -> Option<Worth> {
        let stay = self.stay?;
        let mut worth = stay.worth;
        if stay.entries > 1 {
            worth.rise();
        } else if stay.is_lent && recalled {
            worth.fall();
        }
        Some(worth)
    }
}
