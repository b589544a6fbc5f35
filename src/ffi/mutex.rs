//! What is behind a `distlock_mutex`.

use std::mem;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use distlock_agent::protocol::{Fence, Mode};
use distlock_agent::runtime::sync;
use nix::errno::Errno;

use super::code;
use super::lost::LostFd;
use super::wait::Entrance;
use crate::backend::Patience;
use crate::handle::{LockHandle, LockRequest};
use crate::thread::ThreadId;
use crate::{Guard, PreviousOwner};

/// A mutex, with what is held through this handle.
pub(super) struct Mutex {
    lock: LockHandle,
    state: sync::Mutex<State>,
    lost: Arc<LostFd>,
}

#[derive(Default)]
struct State {
    is_closed: bool,
    /// More than one only if all but the last have been lost.
    held: Vec<Held>,
    /// What threads have asked for and look at, one request each.
    asked: Vec<(ThreadId, LockRequest)>,
}

struct Held {
    thread: ThreadId,
    grant: u64,
    guard: Guard,
}

impl Mutex {
    pub(super) fn new(lock: LockHandle) -> Arc<Self> {
        Arc::new(Self {
            lock,
            state: sync::Mutex::default(),
            lost: Arc::default(),
        })
    }

    /// Unlocks what this thread has locked.
    pub(super) fn unlock(&self) -> Result<(), Errno> {
        let held = {
            let mut state = self.state.lock();
            let thread = ThreadId::current();
            let mine = state.held.iter().position(|held| held.thread == thread);
            // Who closes it at this very moment has released everything.
            let none = if state.is_closed {
                Errno::ECANCELED
            } else {
                Errno::EPERM
            };
            state.held.swap_remove(mine.ok_or(none)?)
        };
        let unlocked = held.guard.unlock();
        self.lost.settle(held.grant);
        unlocked.map_err(|error| code::unlock(&error))
    }

    /// Asks for the lock, for this thread, which will look at the request.
    pub(super) fn ask(&self) -> Result<(), Errno> {
        let thread = ThreadId::current();
        {
            let state = self.state.lock();
            if state.is_closed {
                return Err(Errno::ECANCELED);
            }
            if state.asked.iter().any(|(asked, _)| *asked == thread) {
                return Err(Errno::EALREADY);
            }
        }
        let mut waiting = self.begin(Patience::Lease)?;
        waiting.ask().map_err(|error| code::lock(&error))?;
        let mut state = self.state.lock();
        if state.is_closed {
            drop(state);
            drop(waiting);
            return Err(Errno::ECANCELED);
        }
        state.asked.push((thread, waiting));
        Ok(())
    }

    /// What became of this thread's request: `EINPROGRESS` if nothing yet.
    pub(super) fn look(&self) -> Result<(Option<Fence>, PreviousOwner), Errno> {
        let mut waiting = self.take_asked().ok_or(Errno::EINVAL)?;
        let Poll::Ready(outcome) = waiting.wait_on(Some(Duration::ZERO)) else {
            let mut state = self.state.lock();
            if !state.is_closed {
                state.asked.push((ThreadId::current(), waiting));
                return Err(Errno::EINPROGRESS);
            }
            drop(state);
            drop(waiting);
            return Err(Errno::ECANCELED);
        };
        let guard = outcome.map_err(|error| code::lock(&error))?;
        let previous = guard.previous_owner();
        Ok((self.enter(guard)?, previous))
    }

    /// This thread's request, which is withdrawn unless it is put back.
    pub(super) fn take_asked(&self) -> Option<LockRequest> {
        let mut state = self.state.lock();
        let thread = ThreadId::current();
        let mine = state.asked.iter().position(|(asked, _)| *asked == thread)?;
        Some(state.asked.swap_remove(mine).1)
    }

    /// Whether the lock is held through this handle.
    pub(super) fn is_held(&self) -> bool {
        self.state
            .lock()
            .held
            .iter()
            .any(|held| held.guard.is_held())
    }

    pub(super) fn lost_fd(&self) -> Result<RawFd, Errno> {
        self.lost.fd()
    }

    /// Releases what is held, and sends away who waits.
    pub(super) fn close(&self) {
        let ended = {
            let mut state = self.state.lock();
            state.is_closed = true;
            (mem::take(&mut state.held), mem::take(&mut state.asked))
        };
        drop(ended);
    }
}

impl Entrance for Mutex {
    fn begin(&self, patience: Patience) -> Result<LockRequest, Errno> {
        self.lock
            .begin(Mode::Exclusive, patience)
            .map_err(|error| code::lock(&error))
    }

    fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    fn enter(&self, guard: Guard) -> Result<Option<Fence>, Errno> {
        let mut state = self.state.lock();
        if state.is_closed {
            drop(state);
            drop(guard);
            return Err(Errno::ECANCELED);
        }
        let grant = self.lost.begin();
        let lost = Arc::downgrade(&self.lost);
        guard.on_loss(move |_| {
            if let Some(lost) = lost.upgrade() {
                lost.lose(grant);
            }
        });
        let fence = guard.fence();
        state.held.push(Held {
            thread: ThreadId::current(),
            grant,
            guard,
        });
        Ok(fence)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::{Agent, LockOptions};

    /// The thread that unlocks has found the handle, and then another closes it.
    #[test]
    fn an_unlock_beside_a_close_hears_of_the_close() {
        let directory = tempfile::tempdir().unwrap();
        let agent = Agent::local_in(directory.path().join("group")).unwrap();
        let exclusive = Some(NonZeroU32::MIN);
        let handle = agent.handle(b"m", exclusive, &LockOptions::new());
        let mutex = Mutex::new(handle.unwrap());
        let lock = || {
            let mut waiting = mutex.begin(Patience::Try).unwrap();
            let Poll::Ready(Ok(guard)) = waiting.wait_on(None) else {
                panic!("nobody else is here");
            };
            mutex.enter(guard).unwrap();
        };
        assert_eq!(mutex.unlock(), Err(Errno::EPERM));
        lock();
        assert_eq!(mutex.unlock(), Ok(()));
        lock();
        mutex.close();
        assert_eq!(mutex.unlock(), Err(Errno::ECANCELED));
    }
}
