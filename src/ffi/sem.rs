//! What is behind a `distlock_sem`.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use distlock_agent::protocol::{Fence, Mode};
use distlock_agent::runtime::sync;
use nix::errno::Errno;

use super::agent::{Agent, Permit};
use super::code;
use super::wait::Entrance;
use crate::Guard;
use crate::backend::Patience;
use crate::handle::{LockHandle, LockRequest};
use crate::thread::ThreadId;

static LAST: AtomicU64 = AtomicU64::new(0);

/// A semaphore. The permits taken through it are with its agent.
pub(super) struct Sem {
    /// A number of its own.
    number: u64,
    lock: LockHandle,
    agent: Arc<Agent>,
    /// Changed with the agent's permits locked.
    is_closed: sync::Mutex<bool>,
}

impl Sem {
    pub(super) fn new(lock: LockHandle, agent: Arc<Agent>) -> Arc<Self> {
        Arc::new(Self {
            number: LAST.fetch_add(1, Ordering::Relaxed),
            lock,
            agent,
            is_closed: sync::Mutex::new(false),
        })
    }

    /// Gives back a permit: best this thread's, so that the search for self-deadlocks stays right,
    /// else one taken through this handle, else any of this semaphore in this agent.
    pub(super) fn post(&self) -> Result<(), Errno> {
        let permit = {
            let mut permits = self.agent.permits.lock();
            // Who closes it at this very moment has given back everything.
            let none = if self.is_closed() {
                Errno::ECANCELED
            } else {
                Errno::EPERM
            };
            let held = permits.get_mut(self.lock.name()).ok_or(none)?;
            let thread = ThreadId::current();
            let nearness = |permit: &Permit| (permit.thread == thread, permit.sem == self.number);
            let nearest = (0..held.len()).max_by_key(|at| nearness(&held[*at]));
            let permit = held.swap_remove(nearest.ok_or(none)?);
            if held.is_empty() {
                permits.remove(self.lock.name());
            }
            permit
        };
        permit.guard.unlock().map_err(|error| code::unlock(&error))
    }

    /// How many permits nobody holds.
    pub(super) fn value(&self) -> Result<c_int, Errno> {
        let held = self.agent.count_holders(self.lock.name())?;
        let held = u32::try_from(held).unwrap_or(u32::MAX);
        let free = self.lock.permits().get().saturating_sub(held);
        Ok(c_int::try_from(free).unwrap_or(c_int::MAX))
    }

    /// Gives back what was taken through this handle, and sends away who waits.
    pub(super) fn close(&self) {
        let mut given_back = Vec::new();
        {
            let mut permits = self.agent.permits.lock();
            *self.is_closed.lock() = true;
            if let Some(held) = permits.get_mut(self.lock.name()) {
                given_back.extend(held.extract_if(.., |permit| permit.sem == self.number));
                if held.is_empty() {
                    permits.remove(self.lock.name());
                }
            }
        }
        drop(given_back);
    }
}

impl Entrance for Sem {
    fn begin(&self, patience: Patience) -> Result<LockRequest, Errno> {
        self.lock
            .begin(Mode::Exclusive, patience)
            .map_err(|error| code::lock(&error))
    }

    fn is_closed(&self) -> bool {
        *self.is_closed.lock()
    }

    fn enter(&self, guard: Guard) -> Result<Option<Fence>, Errno> {
        let mut permits = self.agent.permits.lock();
        if self.is_closed() {
            drop(permits);
            drop(guard);
            return Err(Errno::ECANCELED);
        }
        let fence = guard.fence();
        let permit = Permit {
            sem: self.number,
            thread: ThreadId::current(),
            guard,
        };
        permits
            .entry(self.lock.name().clone())
            .or_default()
            .push(permit);
        Ok(fence)
    }
}
