//! What becomes of a lock's record: the steps of which every write is made.
//!
//! Each step is a pure change of a record. An agent reads the record, makes its steps, and writes the
//! result if the version is still the one that it read; so no two agents' steps ever mix.

use core::num::NonZeroU32;

use super::record::{Claim, LockRecord, SessionName};
use crate::ids::Fence;
use crate::lock::{Mode, Previous, Release};

/// How many claims may wait in a queue.
pub const MAX_QUEUE: usize = 1024;
/// How many may share a lock at a time; more wait.
const MAX_SHARING: usize = 1024;

/// The fences of a lock are used up, or its record says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no fence is left: the record has one that no clock can have given")]
pub struct FencesUsedUp;

/// Where a claim would go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Inside,
    Queue,
    /// Nowhere: the queue is full.
    Full,
}

impl LockRecord {
    /// Takes out the claims of which `ending` says how they ended. Whether there were any.
    ///
    /// A claim that waits is gone and that is all. Of one that was inside the next is told, if its holder
    /// ended there; and if the holder never knew that it was inside, the next is told what that one would
    /// have been told.
    pub fn take_out(&mut self, ending: impl Fn(&Claim) -> Option<Release>) -> bool {
        let before = self.inside.len() + self.queue.len();
        let left = &mut self.left;
        self.inside.retain(|claim| {
            let how = ending(claim);
            if how == Some(Release::Abandoned)
                || how == Some(Release::Unused) && claim.previous.is_abandoned()
            {
                *left = Previous::Abandoned;
            }
            how.is_none()
        });
        self.queue.retain(|claim| ending(claim).is_none());
        self.inside.len() + self.queue.len() < before
    }

    /// Moves inside from the queue's head what goes together, each with a fence: above the last, and not
    /// below `floor`.
    ///
    /// # Errors
    /// No fence is left.
    pub fn promote(&mut self, floor: u64) -> Result<(), FencesUsedUp> {
        while self
            .queue
            .first()
            .is_some_and(|head| self.goes_in(head.mode))
        {
            let mut claim = self.queue.remove(0);
            claim.fence = Some(self.next_fence(floor)?);
            claim.previous = self.left;
            if claim.mode == Mode::Exclusive {
                // It is told; those that share the lock leave the mark for who may repair what it means.
                self.left = Previous::Clean;
            }
            self.inside.push(claim);
        }
        Ok(())
    }

    /// Gives the claims inside that `is_meant` other fences: above the last, and not below `floor`.
    ///
    /// # Errors
    /// No fence is left.
    pub fn renew_fences(
        &mut self,
        floor: u64,
        is_meant: impl Fn(&Claim) -> bool,
    ) -> Result<(), FencesUsedUp> {
        for at in 0..self.inside.len() {
            if is_meant(&self.inside[at]) {
                self.inside[at].fence = Some(self.next_fence(floor)?);
            }
        }
        Ok(())
    }

    fn next_fence(&mut self, floor: u64) -> Result<Fence, FencesUsedUp> {
        let fence = self.fence.saturating_add(1).max(floor);
        let next = Fence::new(fence).ok_or(FencesUsedUp)?;
        self.fence = fence;
        Ok(next)
    }

    /// Where a claim of that mode would go now.
    pub(super) fn place(&self, mode: Mode) -> Place {
        if self.queue.is_empty() && self.goes_in(mode) {
            Place::Inside
        } else if self.queue.len() < MAX_QUEUE {
            Place::Queue
        } else {
            Place::Full
        }
    }

    /// Whether nobody is inside or waits.
    pub const fn is_idle(&self) -> bool {
        self.inside.is_empty() && self.queue.is_empty()
    }

    /// Whether one more of that mode can be inside.
    fn goes_in(&self, mode: Mode) -> bool {
        let share = self.inside.iter().all(|claim| claim.mode == Mode::Shared);
        match mode {
            Mode::Shared => {
                self.permits == NonZeroU32::MIN && share && self.inside.len() < MAX_SHARING
            }
            Mode::Exclusive => {
                (!share || self.inside.is_empty())
                    && self.inside.len() < self.permits.get() as usize
            }
        }
    }

    /// The claim of that request, and whether it is inside.
    pub fn find(&self, session: &SessionName, ticket: u64) -> Option<(&Claim, bool)> {
        let inside = self.inside.iter().map(|claim| (claim, true));
        let queue = self.queue.iter().map(|claim| (claim, false));
        inside
            .chain(queue)
            .find(|(claim, _)| claim.is(session, ticket))
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::String;
    use alloc::vec::Vec;

    use super::*;

    fn claim(ticket: u64, mode: Mode) -> Claim {
        Claim {
            session: SessionName::new(1),
            ticket,
            mode,
            fence: None,
            previous: Previous::Clean,
            host: String::new(),
            pid: None,
            command: None,
        }
    }

    fn record(permits: u32, queue: &[(u64, Mode)]) -> LockRecord {
        let mut record = LockRecord::new(NonZeroU32::new(permits).unwrap());
        record.queue = queue
            .iter()
            .map(|(ticket, mode)| claim(*ticket, *mode))
            .collect();
        record.promote(100).unwrap();
        record
    }

    fn tickets(claims: &[Claim]) -> Vec<u64> {
        claims.iter().map(|claim| claim.ticket).collect()
    }

    const X: Mode = Mode::Exclusive;
    const S: Mode = Mode::Shared;

    fn leave(record: &mut LockRecord, ticket: u64, how: Release) {
        assert!(record.take_out(|claim| (claim.ticket == ticket).then_some(how)));
        record.promote(0).unwrap();
    }

    #[test]
    fn one_is_inside_and_the_others_follow_in_order() {
        let mut record = record(1, &[(1, X), (2, X), (3, X)]);
        assert_eq!(
            (tickets(&record.inside), tickets(&record.queue)),
            ([1].into(), [2, 3].into())
        );
        leave(&mut record, 2, Release::Unused);
        leave(&mut record, 1, Release::Given);
        assert_eq!(
            (tickets(&record.inside), tickets(&record.queue)),
            ([3].into(), [].into())
        );
    }

    #[test]
    fn those_that_share_go_in_together_and_not_past_who_waits() {
        let mut record = record(1, &[(1, S), (2, S), (3, X), (4, S)]);
        assert_eq!(tickets(&record.inside), [1, 2]);
        assert_eq!(record.place(S), Place::Queue);
        leave(&mut record, 1, Release::Given);
        assert_eq!(tickets(&record.inside), [2]);
        leave(&mut record, 2, Release::Given);
        assert_eq!(tickets(&record.inside), [3]);
        leave(&mut record, 3, Release::Given);
        assert_eq!(tickets(&record.inside), [4]);
        assert_eq!(
            (record.place(S), record.place(X)),
            (Place::Inside, Place::Queue)
        );
    }

    #[test]
    fn as_many_are_inside_as_there_are_permits() {
        let mut record = record(2, &[(1, X), (2, X), (3, X)]);
        assert_eq!(tickets(&record.inside), [1, 2]);
        assert_eq!(record.place(S), Place::Queue);
        leave(&mut record, 1, Release::Given);
        assert_eq!(tickets(&record.inside), [2, 3]);
    }

    #[test]
    fn fences_rise_above_the_last_and_the_clock() {
        let mut record = record(1, &[(1, X), (2, X), (3, X)]);
        let fence = |record: &LockRecord| record.inside[0].fence.unwrap().as_u64();
        assert_eq!(fence(&record), 100);
        leave(&mut record, 1, Release::Given);
        assert_eq!(fence(&record), 101);
        record.fence = i64::MAX as u64;
        record.take_out(|claim| (claim.ticket == 2).then_some(Release::Given));
        assert_eq!(record.promote(0), Err(FencesUsedUp));
    }

    #[test]
    fn the_next_is_told_of_who_ended_inside_and_only_the_next() {
        let mut record = record(1, &[(1, X), (2, X), (3, X), (4, X)]);
        leave(&mut record, 1, Release::Abandoned);
        assert_eq!(record.inside[0].previous, Previous::Abandoned);
        // It never knew: the next is told in its place.
        leave(&mut record, 2, Release::Unused);
        assert_eq!(record.inside[0].previous, Previous::Abandoned);
        leave(&mut record, 3, Release::Given);
        assert_eq!(record.inside[0].previous, Previous::Clean);
    }

    #[test]
    fn those_that_share_are_all_told_until_one_is_alone() {
        let mut record = record(1, &[(1, X), (2, S), (3, S), (4, X), (5, X)]);
        leave(&mut record, 1, Release::Abandoned);
        assert!(
            record
                .inside
                .iter()
                .all(|claim| claim.previous.is_abandoned())
        );
        leave(&mut record, 2, Release::Given);
        leave(&mut record, 3, Release::Given);
        assert_eq!(record.inside[0].previous, Previous::Abandoned);
        leave(&mut record, 4, Release::Given);
        assert_eq!(record.inside[0].previous, Previous::Clean);
    }

    #[test]
    fn a_full_queue_takes_nobody() {
        let many: Vec<_> = (0..=MAX_QUEUE as u64).map(|ticket| (ticket, X)).collect();
        let mut record = record(1, &many);
        assert_eq!(record.place(X), Place::Full);
        leave(&mut record, 0, Release::Given);
        assert_eq!(record.place(X), Place::Queue);
    }
}
