//! What is behind a `distlock_mutex`.

use std::os::fd::RawFd;
use std::sync::Arc;

use distlock_agent::protocol::{Fence, Mode};
use nix::errno::Errno;

use super::code;
use super::lost::LostFd;
use super::wait::Entrance;
use crate::Guard;
use crate::agent::{LockShared, Waiting};
use crate::backend::Patience;
use crate::thread::ThreadId;

/// A mutex, with what is held through this handle.
pub(super) struct Mutex {
    lock: Arc<LockShared>,
    state: parking_lot::Mutex<State>,
    lost: Arc<LostFd>,
}

#[derive(Default)]
struct State {
    is_closed: bool,
    /// More than one only if all but the last have been lost.
    held: Vec<Held>,
}

struct Held {
    thread: ThreadId,
    grant: u64,
    guard: Guard,
}

impl Mutex {
    pub(super) fn new(lock: Arc<LockShared>) -> Arc<Self> {
        Arc::new(Self {
            lock,
            state: parking_lot::Mutex::default(),
            lost: Arc::default(),
        })
    }

    /// Unlocks what this thread has locked.
    pub(super) fn unlock(&self) -> Result<(), Errno> {
        let held = {
            let mut state = self.state.lock();
            let thread = ThreadId::current();
            let mine = state.held.iter().position(|held| held.thread == thread);
            state.held.swap_remove(mine.ok_or(Errno::EPERM)?)
        };
        let unlocked = held.guard.unlock();
        self.lost.settle(held.grant);
        unlocked.map_err(|error| code::unlock(&error))
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
        let held = {
            let mut state = self.state.lock();
            state.is_closed = true;
            std::mem::take(&mut state.held)
        };
        drop(held);
    }
}

impl Entrance for Mutex {
    fn begin(&self, patience: Patience) -> Result<Waiting, Errno> {
        self.lock
            .begin(Mode::Exclusive, patience)
            .map_err(|error| code::acquire(&error))
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
