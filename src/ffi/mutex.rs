//! What is behind a `distlock_mutex`.

use std::mem;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use distlock_agent::protocol::{Fence, Mode};
use distlock_agent::runtime::{clock, sync};
use nix::errno::Errno;

use super::code;
use super::decided::{Decided, DecidedFd};
use super::lost::LostFd;
use super::wait::Entrance;
use crate::backend::Patience;
use crate::error::LockError;
use crate::handle::{LockHandle, LockRequest};
use crate::session::TaskTimer;
use crate::thread::ThreadId;
use crate::{Guard, PreviousOwner};

/// A mutex, with what is held through this handle.
pub(super) struct Mutex {
    lock: LockHandle,
    state: sync::Mutex<State>,
    lost: Arc<LostFd>,
    decided: Arc<DecidedFd>,
}

#[derive(Default)]
struct State {
    is_closed: bool,
    /// More than one only if all but the last have been lost.
    held: Vec<Held>,
    /// What threads have asked for and look at, one request each.
    asked: Vec<Asked>,
}

/// What a thread has asked for, and has not been told of.
struct Asked {
    thread: ThreadId,
    request: LockRequest,
    decided: Decided,
    timer: TaskTimer,
}

impl Asked {
    /// Looks at the request; without an outcome, has the descriptor tell of it.
    fn look(&mut self, is_told: bool) -> Poll<Result<Guard, LockError>> {
        // Before the look: what comes after that tells again.
        self.decided.set(false);
        let outcome = self.request.wait_on(Some(Duration::ZERO));
        if outcome.is_pending() && is_told {
            self.tell();
        }
        outcome
    }

    fn tell(&mut self) {
        let waker = self.decided.waker();
        let at = self.request.wake_by(&waker);
        // Without a thread that wakes it, it is looked at all the time.
        if at <= clock::now() || self.timer.set(at, &waker).is_err() {
            self.decided.set(true);
        }
    }
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
            decided: Arc::default(),
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
            if state.asked.iter().any(|asked| asked.thread == thread) {
                return Err(Errno::EALREADY);
            }
        }
        let mut request = self.begin(Patience::Lease)?;
        request.ask().map_err(|error| code::lock(&error))?;
        let mut asked = Asked {
            thread,
            request,
            decided: Decided::new(&self.decided),
            timer: TaskTimer::new(self.lock.session()),
        };
        if self.decided.is_wanted() {
            asked.tell();
        }
        self.keep(asked)
    }

    fn keep(&self, asked: Asked) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if state.is_closed {
            drop(state);
            drop(asked);
            return Err(Errno::ECANCELED);
        }
        state.asked.push(asked);
        Ok(())
    }

    /// What became of this thread's request: `EINPROGRESS` if nothing yet.
    pub(super) fn look(&self) -> Result<(Option<Fence>, PreviousOwner), Errno> {
        let mut asked = self.take_asked().ok_or(Errno::EINVAL)?;
        let Poll::Ready(outcome) = asked.look(self.decided.is_wanted()) else {
            self.keep(asked)?;
            return Err(Errno::EINPROGRESS);
        };
        drop(asked);
        let guard = outcome.map_err(|error| code::lock(&error))?;
        let previous = guard.previous_owner();
        Ok((self.enter(guard)?, previous))
    }

    /// This thread's request, which is withdrawn unless it is kept.
    fn take_asked(&self) -> Option<Asked> {
        let mut state = self.state.lock();
        let thread = ThreadId::current();
        let mine = state
            .asked
            .iter()
            .position(|asked| asked.thread == thread)?;
        Some(state.asked.swap_remove(mine))
    }

    /// Withdraws this thread's request, if there is one.
    pub(super) fn cancel(&self) {
        drop(self.take_asked());
    }

    /// Readable while a request is to be looked at.
    pub(super) fn decided_fd(&self) -> Result<RawFd, Errno> {
        self.decided.fd()
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
