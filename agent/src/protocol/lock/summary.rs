//! What a member tells of its locks when a view ends, and what a view begins with.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;
use core::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::{LockSpec, Mode, Request, Trail};
use crate::protocol::ids::{Epoch, LockName, NodeId, RequestId};

/// How many locks that nobody uses are told of at most. What does not fit is [in doubt].
///
/// [in doubt]: Summary::doubt
pub(crate) const MAX_IDLE: usize = 4_096;

/// The locks in use: what one member knows of itself, or, merged, what a view begins with.
///
/// A member tells only of its own requests. Nobody else can know better, so summaries of members
/// that stopped in different epochs merge without contradiction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The highest Lamport clock.
    pub clock: u64,
    /// The locks that somebody holds or waits for, or that were abandoned and not entered since,
    /// by name. While a view is formed also the others of which there is something to say.
    pub locks: BTreeMap<LockName, LockSummary>,
    /// Whether locks that are not named here may have been abandoned.
    pub doubt: bool,
    /// Whether all locks that anybody can have been inside of are named here.
    pub is_complete: bool,
    /// Whether somebody tells who was in the view before.
    pub is_continued: bool,
    /// Whether somebody tells whose last life ended in order, and knew of locks that were abandoned.
    pub inherits_marks: bool,
}

/// One lock in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockSummary {
    /// How it is served.
    pub spec: LockSpec,
    /// Who is inside.
    pub holders: Vec<RequestId>,
    /// How they are inside.
    pub held: Mode,
    /// Who waits, by stamp.
    pub waiters: Vec<Request>,
    /// The last grant that is known of, and its epoch.
    pub last: (Epoch, Trail),
    /// Whether a grant was abandoned and somebody is to be told, whatever `last` says.
    pub abandoned: bool,
    /// Who of those whose lives ended without leaving may have been inside.
    pub suspects: Vec<NodeId>,
}

impl LockSummary {
    /// Whether nobody holds it or waits for it.
    fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.waiters.is_empty()
    }

    /// Whether somebody is inside with nobody else: it was told of all that was before.
    fn is_taken_alone(&self) -> bool {
        let is_single = self.spec.permits == NonZeroU32::MIN;
        is_single && self.held == Mode::Exclusive && !self.holders.is_empty()
    }
}

impl Summary {
    /// Takes in what another member tells. Requests made in the new view are stamped later than
    /// all that are here, as the clock is set past the highest.
    pub fn merge(&mut self, other: Self) {
        self.clock = self.clock.max(other.clock);
        self.doubt |= other.doubt;
        self.is_complete |= other.is_complete;
        self.is_continued |= other.is_continued;
        self.inherits_marks |= other.inherits_marks;
        for (name, theirs) in other.locks {
            let ours = match self.locks.entry(name) {
                Entry::Vacant(place) => {
                    place.insert(theirs);
                    continue;
                }
                Entry::Occupied(place) => place.into_mut(),
            };
            ours.last = ours.last.max(theirs.last);
            ours.abandoned |= theirs.abandoned;
            // One who can vouch is enough.
            ours.suspects.retain(|node| theirs.suspects.contains(node));
            // Those inside at one time are inside in one way.
            ours.held = ours.held.max(theirs.held);
            ours.holders.extend(theirs.holders);
            ours.holders.sort_unstable();
            ours.waiters.extend(theirs.waiters);
            ours.waiters.sort_unstable_by_key(|request| request.stamp);
        }
    }

    /// All have told: what follows from it for the view that begins, to which the lives of
    /// `unclean` do not belong any more.
    pub fn conclude(&mut self, unclean: &[NodeId]) {
        self.doubt |= !unclean.is_empty() && !self.is_complete;
        // The whole group has ended, and nobody knows any more which locks those were.
        self.doubt |= self.inherits_marks && !self.is_continued;
        let mut idle = 0;
        let doubt = &mut self.doubt;
        let knew = *doubt;
        self.locks.retain(|_, lock| {
            let (_, trail) = core::mem::take(&mut lock.last);
            lock.abandoned |= trail.abandoned || !lock.suspects.is_empty();
            lock.abandoned &= !lock.is_taken_alone();
            lock.suspects.clear();
            if !lock.is_idle() {
                return true;
            }
            let is_worth_it = lock.abandoned || knew;
            idle += usize::from(is_worth_it);
            *doubt |= is_worth_it && idle > MAX_IDLE;
            is_worth_it && idle <= MAX_IDLE
        });
        (self.is_complete, self.is_continued, self.inherits_marks) = (false, false, false);
    }
}
