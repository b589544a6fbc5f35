//! The end of a lease in shared memory: other processes of this host see it as it moves, and see
//! that it does not move any more, without a word from the agent, which may be dead.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::protocol::Time;
use crate::runtime::os::clock::Shift;
use crate::runtime::os::shared_memory::{SharedMemory, Writers};

/// The page as the agent writes it.
#[derive(Debug)]
pub(crate) struct LeasePage {
    file: OwnedFd,
    limit: SharedMemory<AtomicU64>,
}

impl LeasePage {
    /// # Errors
    /// If there is no memory or no descriptor left.
    pub(crate) fn new() -> io::Result<Self> {
        let (limit, file) = SharedMemory::make(c"distlock-lease", Writers::Maker)?;
        Ok(Self { file, limit })
    }

    /// The lease ends at `limit`.
    pub(crate) fn store(&self, limit: Time) {
        self.limit.store(limit.as_nanos(), Ordering::Release);
    }
}

impl AsFd for LeasePage {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// What a holder can give to another process of its own, so that this one sees until when the lock
/// is held, and whether what runs under it is still there, when the holder stands still and the
/// agent is dead.
#[derive(Debug)]
pub struct LeaseWatch {
    limit: SharedMemory<AtomicU64>,
    shift: Shift,
    lifeline: Option<OwnedFd>,
}

impl LeaseWatch {
    /// `shift` turns the times of the page's writer into ours.
    pub(crate) fn new(
        page: impl AsFd,
        shift: Shift,
        lifeline: Option<OwnedFd>,
    ) -> io::Result<Self> {
        Ok(Self {
            limit: SharedMemory::of(page, Writers::Maker)?,
            shift,
            lifeline,
        })
    }

    /// Until when nobody else is let in; [`Time::MAX`] where no lease bounds it. Async-signal-safe,
    /// and as good in a forked child.
    pub fn limit(&self) -> Time {
        self.shift.ours(self.limit.load(Ordering::Acquire))
    }

    /// The reading end of what the command inherits; `None` where the agent is in this process.
    pub fn lifeline(&self) -> Option<BorrowedFd<'_>> {
        self.lifeline.as_ref().map(AsFd::as_fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_see_the_end_move_and_cannot_move_it() {
        let page = LeasePage::new().unwrap();
        let watch = LeaseWatch::new(&page, Shift::NONE, None).unwrap();
        for limit in [Time::from_nanos(1_000), Time::MAX, Time::from_nanos(2_000)] {
            page.store(limit);
            assert_eq!(watch.limit(), limit);
        }
        assert!(SharedMemory::<AtomicU64>::of(&page, Writers::All).is_err());
        drop(page);
        assert_eq!(
            watch.limit(),
            Time::from_nanos(2_000),
            "the last word stays"
        );
    }
}
