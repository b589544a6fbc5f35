//! What the local group and its locks share: the directory, the page, and who is to be woken when the
//! group closes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use distlock_agent::protocol::Fence;
use distlock_agent::runtime::queue::Queue;
use distlock_agent::runtime::sync::{Mutex, RwLock};

use super::directory::Directory;
use super::listener::Listener;
use super::page::Page;
use crate::error::{LockError, OpenError};

/// What the group and its locks share.
pub(super) struct Shared {
    /// The process that opened the group: a child that it forks cannot use that.
    pub(super) pid: u32,
    pub(super) directory: Directory,
    /// Replaced if somebody removes the file and another process makes a new one.
    page: RwLock<Arc<Page>>,
    is_closed: AtomicBool,
    /// By lock, where threads of this process wait, each as often as there are threads.
    awaited: Mutex<Vec<(Arc<Queue>, u64)>>,
    /// Wakes tasks of this process.
    pub(super) listener: Arc<Listener>,
}

impl Shared {
    pub(super) fn open(directory: Directory) -> Result<Self, OpenError> {
        let page = Page::open(&directory)?;
        Ok(Self {
            pid: std::process::id(),
            directory,
            page: RwLock::new(Arc::new(page)),
            is_closed: AtomicBool::new(false),
            awaited: Mutex::default(),
            listener: Arc::default(),
        })
    }

    /// Ends the waiting of all threads and tasks of this process.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        let awaited = std::mem::take(&mut *self.awaited.lock());
        for (queue, hash) in awaited {
            queue.close();
            // Who waits looks by itself, too.
            if let Ok(page) = self.page() {
                page.bell(hash).ring_all();
            }
        }
        self.listener.close();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// The page, which is whole.
    pub(super) fn page(&self) -> Result<Arc<Page>, LockError> {
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
    pub(super) fn next_fence(&self, last: u64) -> Result<Fence, LockError> {
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

/// A thread of this process that waits for a lock, so that closing the group finds it.
pub(super) struct Awaited {
    group: Arc<Shared>,
    queue: Arc<Queue>,
}

impl Awaited {
    /// In `queue` a thread waits, for the lock whose name has this hash.
    pub(super) fn new(group: &Arc<Shared>, queue: &Arc<Queue>, hash: u64) -> Self {
        group.awaited.lock().push((Arc::clone(queue), hash));
        Self {
            group: Arc::clone(group),
            queue: Arc::clone(queue),
        }
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        let mut awaited = self.group.awaited.lock();
        if let Some(at) = awaited
            .iter()
            .position(|(other, _)| Arc::ptr_eq(other, &self.queue))
        {
            awaited.swap_remove(at);
        }
    }
}
