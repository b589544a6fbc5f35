//! The local group: the processes of one user on one host, with the host's kernel as the arbiter.
//!
//! A lock is a kernel lock on a file in the group's [`directory`], so exclusion, and release when
//! a holder dies, are the kernel's. What is added: the order among a process's threads
//! ([`queue`](distlock_agent::runtime::queue)), waiting with timeouts and fences ([`page`]), and records for `status` ([`file`]).
//!
//! No thread is started, and no process ever waits inside the kernel for a lock, so one that is
//! stopped while it waits holds up nobody.

mod directory;
mod file;
mod kernel;
mod lifeline;
mod page;
mod range;
mod record;
mod status;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use crossbeam_channel::{Receiver, Sender};
use distlock_agent::protocol::{Fence, LockName};
use distlock_agent::runtime::status::Status;
use distlock_agent::runtime::sync::{Mutex, RwLock};

use self::directory::Directory;
use self::file::MAX_PERMITS;
use self::kernel::KernelLock;
use self::page::Page;
use crate::backend::{Ask, Backend, Lock};
use crate::error::{HandleError, LockError, OpenError, StatusError};
use crate::{Algorithm, Event};

pub(crate) use self::directory::default_path as directory;

/// The back end of the local group.
pub(crate) struct Group {
    shared: Arc<Shared>,
}

/// What the group and its locks share.
struct Shared {
    directory: Directory,
    /// Replaced if somebody removes the file and another process makes a new one.
    page: RwLock<Arc<Page>>,
    is_closed: AtomicBool,
    /// The locks that threads of this process wait for, each as often as there are threads.
    awaited: Mutex<Vec<Arc<KernelLock>>>,
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
        let directory = Directory::open(&path)?;
        let page = Page::open(&directory)?;
        let (events, listener) = crossbeam_channel::bounded(0);
        let shared = Shared {
            directory,
            page: RwLock::new(Arc::new(page)),
            is_closed: AtomicBool::new(false),
            awaited: Mutex::default(),
            events: Mutex::new(Some(events)),
            listener,
        };
        Ok(Self {
            shared: Arc::new(shared),
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
        self.shared.listener.clone()
    }

    fn close(&self) {
        self.shared.is_closed.store(true, Ordering::SeqCst);
        let awaited = std::mem::take(&mut *self.shared.awaited.lock());
        for lock in awaited {
            lock.close();
        }
        *self.shared.events.lock() = None;
    }
}

impl Shared {
    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// The page, which is whole.
    fn page(&self) -> Result<Arc<Page>, LockError> {
        let page = Arc::clone(&self.page.read());
        match page.is_whole() {
            Ok(true) => Ok(page),
            Ok(false) => self.open_page_again(),
            Err(source) => Err(self.page_failed(source)),
        }
    }

    /// In place of one that somebody has removed or spoilt.
    fn open_page_again(&self) -> Result<Arc<Page>, LockError> {
        let page = Page::open(&self.directory)
            .map_err(|error| self.page_failed(io::Error::other(error)))?;
        let page = Arc::new(page);
        *self.page.write() = Arc::clone(&page);
        Ok(page)
    }

    fn page_failed(&self, source: io::Error) -> LockError {
        let what = format!(
            "the fence counter in {} cannot be used",
            self.directory.path().display()
        );
        LockError::io(what, source)
    }

    /// The next fence, for a lock that is held now, and whose last holder had the fence `last`.
    fn next_fence(&self, last: u64) -> Result<Fence, LockError> {
        let mut page = Arc::clone(&self.page.read());
        let is_current = page.is_current(&self.directory);
        if !is_current.map_err(|source| self.page_failed(source))? {
            // Fences of the old page would be lower than those that others take by now.
            page = self.open_page_again()?;
        }
        page.next_fence(last).ok_or_else(|| LockError::Limit {
            what: "there are no fences left".into(),
        })
    }
}

/// Where the group's times begin.
fn epoch_2025() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_735_689_600)
}

/// The first eight bytes of the hash of `bytes`.
fn hash64(bytes: &[u8]) -> u64 {
    let hash = blake3::hash(bytes);
    u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
}
