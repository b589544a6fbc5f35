//! What a member tells of its locks when a view ends, and what a view begins with.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;
use core::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::{Ending, LockSpec, Mode, Request};
use crate::ids::{Epoch, LockName, NodeId, RequestId};

/// How many locks that nobody uses are told of at most. What does not fit is [in doubt].
///
/// [in doubt]: Summary::doubt
pub(crate) const MAX_IDLE: usize = 4_096;

/// The locks in use: what one member knows of itself, or, merged, what a view begins with.
///
/// A member tells only of its own requests. Nobody else can know better, so summaries of members
/// that stopped in different epochs merge without contradiction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Summary {
    /// The highest Lamport clock.
    pub clock: u64,
    /// The last view that was in force; 0 if there was none yet.
    pub epoch: Epoch,
    /// The locks that somebody holds or waits for, or that were abandoned and not entered since,
    /// by name. While a view is formed also the others of which there is something to say.
    pub locks: BTreeMap<LockName, LockSummary>,
    /// Whether locks that are not named here may have been abandoned.
    pub doubt: bool,
    /// Whether all locks that anybody can have been inside of are named here.
    pub is_complete: bool,
    /// In a view's table: whether locks that are not named here are in quarantine.
    pub quarantines_rest: bool,
    /// Whether somebody tells who was in the view before.
    pub is_continued: bool,
    /// Whether somebody tells whose last incarnation ended in order, and knew of locks that were
    /// abandoned.
    pub inherits_marks: bool,
}

/// One lock in use.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LockSummary {
    /// How it is served.
    pub spec: LockSpec,
    /// Who is inside.
    pub holders: Vec<RequestId>,
    /// How they are inside.
    pub held: Mode,
    /// Who waits, by stamp.
    pub waiters: Vec<Request>,
    /// The last grant that is known of.
    pub last: Last,
    /// Whether a grant was abandoned and somebody is to be told, whatever `last` says.
    pub abandoned: bool,
    /// Who of those whose incarnations ended without leaving may have been inside. A lock that a view
    /// begins with such is in quarantine: nobody enters before their leases are over.
    pub suspects: Vec<NodeId>,
}

/// The last grant of a lock that a member knows of. The greater of two is the later.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Last {
    /// The epoch; 0 if there was no view yet in this incarnation.
    pub epoch: Epoch,
    /// The counter of its fence.
    pub counter: u32,
    /// What is known of it.
    pub ending: Ending,
}

impl LockSummary {
    /// A lock that nobody uses.
    pub(crate) const fn idle(spec: LockSpec, abandoned: bool) -> Self {
        Self {
            spec,
            holders: Vec::new(),
            held: Mode::Exclusive,
            waiters: Vec::new(),
            last: Last {
                epoch: Epoch::ZERO,
                counter: 0,
                ending: Ending::Heard,
            },
            abandoned,
            suspects: Vec::new(),
        }
    }

    /// In a view's table: whether nobody enters before the leases of the lost are over.
    pub(crate) fn is_quarantined(&self) -> bool {
        !self.suspects.is_empty()
    }

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
        self.epoch = self.epoch.max(other.epoch);
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

    /// Whether those who have told know that nobody else can be inside of any lock. Only before
    /// [`Summary::conclude`].
    pub fn vouches_for_the_lost(&self) -> bool {
        let vouched = |lock: &LockSummary| lock.suspects.is_empty();
        self.is_complete && self.locks.values().all(vouched)
    }

    /// The union of what members tell that may have been in different views at the same time. Of a
    /// lock that too many hold the lowest members keep it, as many as may be inside together, and
    /// it is served as the lowest of those who use it says.
    pub(crate) fn reconcile(mut told: BTreeMap<NodeId, Self>) -> Self {
        let mut rivals: BTreeMap<LockName, (LockSpec, Mode, usize)> = BTreeMap::new();
        let mut table = Self::default();
        for (name, lock) in told.values_mut().flat_map(|summary| &mut summary.locks) {
            let first = (lock.spec, lock.held, 0);
            let (spec, held, count) = rivals.entry(name.clone()).or_insert(first);
            lock.spec = *spec;
            lock.waiters.retain(|waiter| spec.can_serve(waiter.mode));
            lock.holders.sort_unstable();
            lock.holders.retain(|_| {
                if *count == 0 {
                    *held = lock.held;
                }
                let permits = match lock.held {
                    Mode::Exclusive => spec.permits.get() as usize,
                    Mode::Shared => usize::MAX,
                };
                let fits = spec.can_serve(lock.held) && lock.held == *held && *count < permits;
                *count += usize::from(fits);
                fits
            });
            if lock.holders.is_empty() {
                lock.held = Mode::default();
            }
        }
        for summary in told.into_values() {
            table.merge(summary);
        }
        table
    }

    /// Any lock may have been abandoned.
    pub(crate) fn suspect_all(&mut self) {
        self.doubt = true;
        for lock in self.locks.values_mut() {
            lock.abandoned = true;
        }
    }

    /// All have told, and the leases are over of all who are not in the view that begins: what follows
    /// from it for that view, to which the incarnations of `unclean` do not belong any more.
    pub fn conclude(&mut self, unclean: &[NodeId]) {
        self.conclude_in_quarantine(unclean);
        self.lift();
    }

    /// The same while such leases may run: the locks that one of the lost may be inside of, and those
    /// of which that is not known, are in quarantine.
    pub fn conclude_in_quarantine(&mut self, unclean: &[NodeId]) {
        self.quarantines_rest = !self.is_complete;
        self.doubt |= !unclean.is_empty() && !self.is_complete;
        // All members of the last view have ended, and nobody knows any more which locks those were.
        // What others tell is older than the marks.
        let are_marks_lost = self.inherits_marks && !self.is_continued;
        self.doubt |= are_marks_lost;
        let mut idle = 0;
        let (doubt, quarantines_rest) = (&mut self.doubt, &mut self.quarantines_rest);
        let knew = *doubt;
        // What a member tells of a view before the last one went into the last one's table. A
        // member of that one has nothing to say of a lock that was entered since, and is idle.
        let present = core::mem::take(&mut self.epoch);
        self.locks.retain(|_, lock| {
            let Last { epoch, ending, .. } = core::mem::take(&mut lock.last);
            let ended_inside = matches!(ending, Ending::Conferred | Ending::Abandoned);
            let is_marked = ended_inside && epoch >= present;
            // Those who wait for it are new, and nobody else tells of it.
            let is_in_doubt = are_marks_lost || knew && epoch == Epoch::ZERO;
            lock.abandoned |= is_marked || is_in_doubt || !lock.suspects.is_empty();
            lock.abandoned &= !lock.is_taken_alone();
            if !lock.is_idle() {
                return true;
            }
            let is_worth_it = lock.abandoned || knew;
            idle += usize::from(is_worth_it);
            let fits = idle <= MAX_IDLE;
            *doubt |= is_worth_it && !fits;
            *quarantines_rest |= lock.is_quarantined() && !fits;
            is_worth_it && fits
        });
        (self.is_complete, self.is_continued, self.inherits_marks) = (false, false, false);
    }

    /// Whether the view that begins with this has locks in quarantine.
    pub fn quarantines(&self) -> bool {
        self.quarantines_rest || self.locks.values().any(LockSummary::is_quarantined)
    }

    /// The leases of the lost are over.
    pub fn lift(&mut self) {
        self.quarantines_rest = false;
        for lock in self.locks.values_mut() {
            lock.suspects.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::vec;

    use super::*;
    use crate::ids::Incarnation;
    use crate::lock::{Algorithm, Stamp};

    fn node(id: u16) -> NodeId {
        NodeId::new(id).unwrap()
    }

    fn name(number: usize) -> LockName {
        LockName::new(format!("{number}")).unwrap()
    }

    fn idle(epoch: u32, counter: u32, abandoned: bool, suspects: &[u16]) -> LockSummary {
        let ending = if abandoned {
            Ending::Abandoned
        } else {
            Ending::Heard
        };
        LockSummary {
            spec: LockSpec::exclusive(Algorithm::Bakery),
            holders: Vec::new(),
            held: Mode::Exclusive,
            waiters: Vec::new(),
            last: Last {
                epoch: Epoch::new(epoch).unwrap(),
                counter,
                ending,
            },
            abandoned: false,
            suspects: suspects.iter().map(|&id| node(id)).collect(),
        }
    }

    fn of(locks: impl IntoIterator<Item = LockSummary>) -> Summary {
        Summary {
            locks: locks
                .into_iter()
                .enumerate()
                .map(|(n, lock)| (name(n), lock))
                .collect(),
            is_complete: true,
            is_continued: true,
            ..Summary::default()
        }
    }

    /// The last view was in force in one member only, whose incarnation ended in order and knew of
    /// locks that were abandoned. The others tell of the view before.
    #[test]
    fn what_was_known_before_the_last_view_does_not_settle_whether_a_lock_is_marked() {
        let mut table = of([idle(2, 3, false, &[])]);
        (table.is_complete, table.is_continued) = (false, false);
        table.merge(Summary {
            inherits_marks: true,
            ..Summary::default()
        });
        table.conclude(&[]);
        assert!(table.doubt && table.locks[&name(0)].abandoned);
    }

    /// What becomes of one lock that these members tell of, after the death of member 1.
    fn marked(told: &[LockSummary]) -> bool {
        let mut table = Summary::default();
        for lock in told {
            table.merge(of([lock.clone()]));
        }
        table.conclude(&[node(1)]);
        assert!(!table.doubt);
        table.locks.get(&name(0)).is_some_and(|lock| lock.abandoned)
    }

    #[test]
    fn one_who_vouches_is_enough_and_the_last_word_counts() {
        assert!(marked(&[idle(1, 3, false, &[1]), idle(1, 3, false, &[1])]));
        assert!(!marked(&[idle(1, 3, false, &[1]), idle(1, 3, false, &[])]));
        assert!(marked(&[idle(1, 3, true, &[]), idle(1, 2, false, &[])]));
        assert!(!marked(&[idle(1, 3, true, &[]), idle(1, 4, false, &[])]));
        assert!(!marked(&[idle(1, 9, true, &[]), idle(2, 1, false, &[])]));
    }

    /// The server has let somebody in and told it of the mark, and all have heard of that grant.
    /// Whether it came in time only that one can tell.
    #[test]
    fn a_grant_that_nobody_entered_took_no_mark_away() {
        let told = |ending| {
            let mut lock = idle(1, 5, false, &[]);
            lock.last.ending = ending;
            lock
        };
        assert!(marked(&[told(Ending::Conferred), told(Ending::Heard)]));
        assert!(!marked(&[told(Ending::Conferred), told(Ending::Entered)]));
        assert!(marked(&[told(Ending::Entered), told(Ending::Abandoned)]));
    }

    /// A view came into force in some members only, and was given up for the next. There somebody
    /// was told of the mark, and the lock has been idle since.
    #[test]
    fn a_mark_that_a_view_has_settled_does_not_come_back() {
        let mut table = of([idle(1, 1, true, &[])]);
        assert!(marked(&[idle(1, 1, true, &[])]));
        table.merge(Summary {
            epoch: Epoch::new(2).unwrap(),
            ..of([])
        });
        table.conclude(&[]);
        assert!(table.locks.is_empty());
    }

    #[test]
    fn who_is_alone_inside_was_told_of_all_before() {
        let mut inside = idle(1, 4, false, &[]);
        let id = RequestId {
            node: node(2),
            incarnation: Incarnation(1),
            seq: 1,
        };
        inside.holders = vec![id];
        inside.abandoned = true;
        assert!(!marked(&[inside.clone()]));
        inside.held = Mode::Shared;
        assert!(marked(&[inside]));
    }

    #[test]
    fn without_a_complete_catalogue_the_rest_is_in_doubt() {
        let mut table = of([]);
        table.is_complete = false;
        let mut whole = table.clone();
        table.conclude(&[node(1)]);
        assert!(table.doubt);
        whole.conclude(&[]);
        assert!(!whole.doubt, "nobody died");
        // All incarnations are new, and one of the former ones knew of a mark.
        let mut reborn = Summary {
            inherits_marks: true,
            ..Summary::default()
        };
        reborn.conclude(&[]);
        assert!(reborn.doubt);
    }

    /// Locks that nobody uses do not make a view ever larger; what does not fit is in doubt, and
    /// never taken for clean.
    #[test]
    fn what_does_not_fit_is_in_doubt() {
        let told = |count| of((0..count).map(|_| idle(1, 3, true, &[])));
        for (count, doubt) in [(MAX_IDLE, false), (MAX_IDLE + 1, true)] {
            let mut table = told(count);
            table.conclude(&[]);
            assert_eq!((table.locks.len(), table.doubt), (MAX_IDLE, doubt));
        }
    }

    /// Those who wait for it have just come; who was there before knows only that it knows nothing.
    #[test]
    fn a_lock_that_only_the_new_tell_of_is_in_doubt() {
        for doubt in [false, true] {
            let mut before = of([]);
            before.doubt = doubt;
            let mut asked = idle(0, 0, false, &[]);
            asked.waiters = vec![waiter()];
            before.merge(Summary {
                is_complete: false,
                is_continued: false,
                ..of([asked])
            });
            before.conclude(&[]);
            assert_eq!(before.locks[&name(0)].abandoned, doubt);
        }
    }

    fn waiter() -> Request {
        let node = node(3);
        Request {
            id: RequestId {
                node,
                incarnation: Incarnation(1),
                seq: 1,
            },
            stamp: Stamp { clock: 1, node },
            mode: Mode::Exclusive,
            tries: false,
        }
    }

    #[test]
    fn a_lock_that_nobody_uses_and_nothing_is_to_be_told_of_is_forgotten() {
        let mut table = of([idle(1, 3, false, &[])]);
        let mut doubtful = Summary {
            doubt: true,
            ..table.clone()
        };
        table.conclude(&[]);
        assert!(table.locks.is_empty());
        // Forgotten, it would be in doubt.
        doubtful.conclude(&[]);
        assert_eq!(doubtful.locks.len(), 1);
    }
}
