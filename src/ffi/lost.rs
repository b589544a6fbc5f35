//! The descriptor by which a C program learns that a lock is lost.

use std::os::fd::{AsFd, AsRawFd, RawFd};

use distlock_agent::runtime::sync::Mutex;
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};

/// One descriptor for all the grants of a mutex, one after the other.
#[derive(Default)]
pub(super) struct LostFd {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The last grant's number.
    grant: u64,
    /// Whether it was lost, and not settled since.
    is_lost: bool,
    /// Made when somebody wants it.
    event: Option<EventFd>,
}

impl LostFd {
    /// The descriptor.
    pub(super) fn fd(&self) -> Result<RawFd, Errno> {
        let mut state = self.state.lock();
        if state.event.is_none() {
            let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
            let event = EventFd::from_value_and_flags(u32::from(state.is_lost), flags)?;
            state.event = Some(event);
        }
        let event = state.event.as_ref().ok_or(Errno::EIO)?;
        Ok(event.as_fd().as_raw_fd())
    }

    /// There is a new grant; its number.
    pub(super) fn begin(&self) -> u64 {
        let mut state = self.state.lock();
        state.clear();
        state.grant += 1;
        state.grant
    }

    /// `grant` is lost. One that was followed by another does not count.
    pub(super) fn lose(&self, grant: u64) {
        let mut state = self.state.lock();
        if state.grant == grant && !state.is_lost {
            state.is_lost = true;
            if let Some(event) = &state.event {
                // It fails only at 2^64 - 2 losses that nobody cleared.
                let _ = event.write(1);
            }
        }
    }

    /// The holder of `grant` has unlocked, and knows.
    pub(super) fn settle(&self, grant: u64) {
        let mut state = self.state.lock();
        if state.grant == grant {
            state.clear();
            // A report that is under way comes too late.
            state.grant += 1;
        }
    }
}

impl State {
    fn clear(&mut self) {
        self.is_lost = false;
        if let Some(event) = &self.event {
            // That it was not readable is the ordinary case.
            let _ = event.read();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::BorrowedFd;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn is_readable(lost: &LostFd) -> bool {
        let fd = lost.fd().unwrap();
        // SAFETY: `lost` keeps the descriptor open.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], PollTimeout::ZERO).unwrap() == 1
    }

    #[test]
    fn tells_of_the_last_grant_only() {
        let lost = LostFd::default();
        let first = lost.begin();
        lost.lose(first);
        assert!(is_readable(&lost), "also when it is asked for later");
        let second = lost.begin();
        assert!(!is_readable(&lost));
        lost.lose(first);
        assert!(!is_readable(&lost));
        lost.lose(second);
        lost.lose(second);
        assert!(is_readable(&lost));
        lost.settle(second);
        assert!(!is_readable(&lost));
        lost.lose(second);
        assert!(!is_readable(&lost), "it was settled");
    }
}
