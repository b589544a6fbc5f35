//! The handles that C programs have.
//!
//! A handle looks like a pointer and is a number that is used once: it is looked up, never
//! dereferenced. So a handle that was closed, of another kind, or of the parent process is merely
//! unknown, and a thread that still works with a handle while another closes it keeps what is
//! behind it alive.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use distlock_agent::runtime::ForkStamp;
use distlock_agent::runtime::sync::RwLock;
use nix::errno::Errno;

use super::agent::Agent;
use super::mutex::Mutex;
use super::sem::Sem;

/// Handles are multiples of this, as the pointers they look like would be. The first one is near
/// this library, so that another copy of it in the process has others.
const STEP: usize = 16;

/// The present process's table; null until there is one.
static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());

struct Table {
    stamp: ForkStamp,
    handles: RwLock<BTreeMap<usize, Handle>>,
    /// The last number given out.
    last: AtomicUsize,
    /// The parent's table, which a leak checker then finds.
    _inherited: Option<&'static Self>,
}

/// What a handle stands for.
#[derive(Clone)]
pub(super) enum Handle {
    Agent(Arc<Agent>),
    Mutex(Arc<Mutex>),
    Sem(Arc<Sem>),
}

/// One of the kinds of [`Handle`].
pub(super) trait Kind: Sized {
    fn of(handle: &Handle) -> Option<&Arc<Self>>;
}

impl Kind for Agent {
    fn of(handle: &Handle) -> Option<&Arc<Self>> {
        match handle {
            Handle::Agent(agent) => Some(agent),
            Handle::Mutex(_) | Handle::Sem(_) => None,
        }
    }
}

impl Kind for Mutex {
    fn of(handle: &Handle) -> Option<&Arc<Self>> {
        match handle {
            Handle::Mutex(mutex) => Some(mutex),
            Handle::Agent(_) | Handle::Sem(_) => None,
        }
    }
}

impl Kind for Sem {
    fn of(handle: &Handle) -> Option<&Arc<Self>> {
        match handle {
            Handle::Sem(sem) => Some(sem),
            Handle::Agent(_) | Handle::Mutex(_) => None,
        }
    }
}

/// A new handle for `handle`.
pub(super) fn insert<T>(handle: Handle) -> Result<*mut T, Errno> {
    let table = Table::own()?;
    let mut handles = table.handles.write();
    loop {
        // After the largest number comes zero, which is no handle; old handles may live that long.
        let number = table
            .last
            .fetch_add(STEP, Ordering::Relaxed)
            .wrapping_add(STEP);
        if number != 0 && !handles.contains_key(&number) {
            handles.insert(number, handle);
            return Ok(ptr::without_provenance_mut(number));
        }
    }
}

/// What `handle` stands for; `EINVAL` if it is no handle of this process and this kind.
pub(super) fn find<T: Kind, P>(handle: *const P) -> Result<Arc<T>, Errno> {
    let table = Table::existing().ok_or(Errno::EINVAL)?;
    let handles = table.handles.read();
    let found = handles.get(&handle.addr()).and_then(T::of);
    found.map(Arc::clone).ok_or(Errno::EINVAL)
}

/// Takes `handle` out of the table; `None` if it is no handle of this process and this kind.
pub(super) fn remove<T: Kind, P>(handle: *const P) -> Option<Arc<T>> {
    let table = Table::existing()?;
    let mut handles = table.handles.write();
    let found = handles.get(&handle.addr()).and_then(T::of).map(Arc::clone);
    if found.is_some() {
        handles.remove(&handle.addr());
    }
    found
}

impl Table {
    /// This process's table, if it ever had a handle.
    fn existing() -> Option<&'static Self> {
        let table = TABLE.load(Ordering::Acquire);
        // SAFETY: it is null or was leaked by `own`, so it lives, unchanged, until the process ends.
        let table = unsafe { table.as_ref() }?;
        (!table.stamp.is_child()).then_some(table)
    }

    /// This process's table, made if there is none. A forked child leaves its parent's alone, since
    /// a thread of the parent may have been changing it at the fork, and goes on counting where
    /// that stood: the parent's handles stay unknown.
    fn own() -> Result<&'static Self, Errno> {
        loop {
            if let Some(table) = Self::existing() {
                return Ok(table);
            }
            let old = TABLE.load(Ordering::Acquire);
            // SAFETY: as in `existing`.
            let inherited = unsafe { old.as_ref() };
            let last = inherited.map_or_else(
                || (&raw const TABLE).addr() / STEP * STEP,
                |old| old.last.load(Ordering::Relaxed),
            );
            let new = Box::into_raw(Box::new(Self {
                stamp: ForkStamp::new()?,
                handles: RwLock::default(),
                last: AtomicUsize::new(last),
                _inherited: inherited,
            }));
            if TABLE
                .compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
                .is_err()
            {
                // SAFETY: nobody has seen it: another thread was faster.
                drop(unsafe { Box::from_raw(new) });
            }
        }
    }
}
