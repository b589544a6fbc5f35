//! The descriptor by which a C program learns that a lock is lost.

use std::os::fd::RawFd;

use distlock_agent::runtime::sync::Mutex;
use nix::errno::Errno;

use super::readable::Readable;

/// One descriptor for all the grants of a mutex, one after the other.
#[derive(Default)]
pub(super) struct LostFd {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The last grant's number.
    grant: u64,
    /// While it was lost, and not settled since.
    readable: Readable,
}

impl LostFd {
    /// The descriptor.
    pub(super) fn fd(&self) -> Result<RawFd, Errno> {
        self.state.lock().readable.fd()
    }

    /// There is a new grant; its number.
    pub(super) fn begin(&self) -> u64 {
        let mut state = self.state.lock();
        state.readable.set(false);
        state.grant += 1;
        state.grant
    }

    /// `grant` is lost. One that was followed by another does not count.
    pub(super) fn lose(&self, grant: u64) {
        let mut state = self.state.lock();
        if state.grant == grant {
            state.readable.set(true);
        }
    }

    /// The holder of `grant` has unlocked, and knows.
    pub(super) fn settle(&self, grant: u64) {
        let mut state = self.state.lock();
        if state.grant == grant {
            state.readable.set(false);
            // A report that is under way comes too late.
            state.grant += 1;
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::fd::BorrowedFd;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    pub(in crate::ffi) fn is_readable(fd: RawFd) -> bool {
        // SAFETY: what it is of keeps the descriptor open.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], PollTimeout::ZERO).unwrap() == 1
    }

    #[test]
    fn tells_of_the_last_grant_only() {
        let lost = LostFd::default();
        let first = lost.begin();
        lost.lose(first);
        let fd = lost.fd().unwrap();
        assert!(is_readable(fd), "also when it is asked for later");
        let second = lost.begin();
        assert!(!is_readable(fd));
        lost.lose(first);
        assert!(!is_readable(fd));
        lost.lose(second);
        lost.lose(second);
        assert!(is_readable(fd));
        lost.settle(second);
        assert!(!is_readable(fd));
        lost.lose(second);
        assert!(!is_readable(fd), "it was settled");
    }
}
