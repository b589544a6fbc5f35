//! Who writes to the stream: one at a time, and nobody waits for longer than there is time. Tasks do not wait
//! at all: what they have to say is said by whoever writes at that moment.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::protocol::Time;
use crate::runtime::os::clock;

/// A mutex that is waited for until a deadline.
#[derive(Debug, Default)]
pub(super) struct Gate {
    is_taken: Mutex<bool>,
    freed: Condvar,
    /// Requests that are to be cancelled, and whether there are any: known without the mutex.
    cancels: Mutex<Vec<u64>>,
    has_cancels: AtomicBool,
}

/// The turn of the one who writes.
#[derive(Debug)]
pub(super) struct Entered<'a>(&'a Gate);

impl Gate {
    /// The right to write, if it can be had by `end`.
    pub(super) fn enter(&self, end: Time) -> Option<Entered<'_>> {
        let mut is_taken = self.is_taken.lock().unwrap_or_else(PoisonError::into_inner);
        while *is_taken {
            let left = end.since(clock::now());
            if left.is_zero() {
                return None;
            }
            let woken = self.freed.wait_timeout(is_taken, left);
            (is_taken, _) = woken.unwrap_or_else(PoisonError::into_inner);
        }
        *is_taken = true;
        Some(Entered(self))
    }

    /// Leaves to whoever writes next that this request is to be cancelled.
    pub(super) fn leave_cancel(&self, id: u64) {
        let mut cancels = self.cancels.lock().unwrap_or_else(PoisonError::into_inner);
        cancels.push(id);
        self.has_cancels.store(true, Ordering::SeqCst);
    }

    /// Whether something was left. To be asked after one's own turn: whoever left it then could not have one.
    pub(super) fn has_cancels(&self) -> bool {
        self.has_cancels.load(Ordering::SeqCst)
    }

    /// What was left.
    pub(super) fn take_cancels(&self) -> Vec<u64> {
        let mut cancels = self.cancels.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_cancels.store(false, Ordering::SeqCst);
        std::mem::take(&mut *cancels)
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let gate = self.0;
        *gate.is_taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        gate.freed.notify_one();
    }
}

/// Waits until something can be written to `stream`; whether it can by `end`.
pub(super) fn has_room(stream: BorrowedFd<'_>, end: Time) -> bool {
    loop {
        let left = end.since(clock::now());
        if left.is_zero() {
            return false;
        }
        let millis = u16::try_from(left.as_millis() + 1).unwrap_or(u16::MAX);
        let mut fds = [PollFd::new(stream, PollFlags::POLLOUT)];
        // Interrupted or not, the clock is looked at.
        if poll(&mut fds, PollTimeout::from(millis)) == Ok(1) {
            return true;
        }
    }
}
