//! The local group: the processes of one user on one host, with the host's kernel as the arbiter.
//!
//! A lock is a kernel lock on a file in the group's [`directory`], so exclusion, and release when
//! a holder dies, are the kernel's. What is added: the order among a process's threads
//! ([`queue`](distlock_agent::runtime::queue)), waiting with timeouts and fences ([`page`]), and records for `status` ([`file`]).
//!
//! No thread is started, and no process ever waits inside the kernel for a lock, so one that is
//! stopped while it waits holds up nobody.

mod directory;
mod epoch;
mod file;
mod kernel;
mod lifeline;
mod listener;
mod mapping;
mod page;
mod range;
mod record;
mod records;
mod shared;
mod status;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};
use distlock_agent::protocol::LockName;
use distlock_agent::runtime::status::Status;
use distlock_agent::runtime::sync::Mutex;

use self::directory::Directory;
use self::file::MAX_PERMITS;
use self::kernel::KernelLock;
use self::shared::Shared;
use crate::Algorithm;
use crate::backend::{Ask, Backend, Lock};
use crate::error::{HandleError, OpenError, StatusError};
use crate::event::Event;

pub(crate) use self::directory::default_path as directory;

/// The back end of the local group.
pub(crate) struct Group {
    shared: Arc<Shared>,
    /// Kept until the end, so that event channels end with the group. Nothing is ever sent, so one
    /// does for all who listen.
    events: Mutex<Option<Sender<Event>>>,
    listener: Receiver<Event>,
}

impl Group {
    /// Opens the group in the directory `path`, and makes that if there is none.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        let path: PathBuf = std::path::absolute(path).map_err(|error| {
            OpenError::io(
                "the local group's directory has no name",
                error,
                "name another",
            )
        })?;
        let shared = Shared::open(Directory::open(&path)?)?;
        let (events, listener) = crossbeam_channel::bounded(0);
        Ok(Self {
            shared: Arc::new(shared),
            events: Mutex::new(Some(events)),
            listener,
        })
    }
}

impl Backend for Group {
    fn open(&self, name: &LockName, ask: Ask) -> Result<Arc<dyn Lock>, HandleError> {
        if let Some(asked) = ask
            .algorithm
            .filter(|algorithm| *algorithm != Algorithm::Kernel)
        {
            return Err(HandleError::NotInThisGroup { asked });
        }
        let permits = ask.permits.ok_or(HandleError::PermitsUnknown)?;
        if permits.get() > MAX_PERMITS {
            return Err(HandleError::TooManyPermits {
                asked: permits,
                max: MAX_PERMITS,
            });
        }
        Ok(Arc::new(KernelLock::new(
            Arc::clone(&self.shared),
            name.clone(),
            permits,
        )))
    }

    fn status(&self) -> Result<Status, StatusError> {
        status::read(&self.shared.directory)
    }

    fn events(&self) -> Receiver<Event> {
        self.listener.clone()
    }

    fn close(&self) {
        self.shared.close();
        *self.events.lock() = None;
    }
}
