//! The page that all processes of the local group share: the fence counter and the bells.
//!
//! It is a file of 4096 bytes, mapped shared ([`mapping`](super::mapping)). All of it is written when
//! it is made, so a file system that fills up later takes nothing of it away (where one copies what is
//! written, as btrfs does, it may: the directory is meant for a tmpfs).
//!
//! *The fence counter* only rises. A new file starts it at the seconds since 2025-01-01 with 32
//! binary places, so that fences rise also when the directory was emptied, by a reboot or by hand
//! (four thousand million grants a second would be needed to overtake the clock). A directory on
//! disk may lose the last increments when the host crashes; so the first process after each boot
//! raises the counter to that value as well.
//!
//! *A bell* is a futex that unlocking rings and waiting listens to. It is a hint and never a
//! proof: a killed holder rings none, a woken waiter may be stopped before it looks, and some
//! bells are shared by several locks.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use distlock_agent::protocol::Fence;
use distlock_agent::runtime::futex;
use nix::sys::stat::fstat;

use super::directory::{Directory, Keep};
use super::epoch::since_2025;
use super::mapping::{LEN, Mapping};
use crate::error::OpenError;

/// The page's name in the directory.
pub(crate) const NAME: &str = "group";

/// Eight bytes at the start: what this is, in which layout.
const MAGIC: u64 = u64::from_le_bytes(*b"distlk\0\x02");
/// The boot in which the counter was last raised, hashed.
const BOOT_AT: usize = 8;
const FENCE_AT: usize = 16;
/// Bells up to the end: how often each has rung, and how often waiters have looked.
const BELLS_AT: usize = 64;
const BELL_LEN: usize = 8;
const BELLS: u64 = ((LEN - BELLS_AT) / BELL_LEN) as u64;

/// The mapped page.
#[derive(Debug)]
pub(crate) struct Page {
    mapping: Mapping,
    file: File,
    inode: u64,
}

impl Page {
    /// Maps the page of the group in `directory`, and makes it if there is none.
    pub(crate) fn open(directory: &Directory) -> Result<Self, OpenError> {
        let path = directory.path().join(NAME);
        let failed = |source| {
            let what = format!("{} cannot be used", path.display());
            OpenError::io(what, source, "make it readable and writable for its owner")
        };
        let boot = directory.boot().get();
        let file = directory
            .open_or_create(NAME, &Self::fresh(boot), Keep::Always)
            .map_err(failed)?;
        let page = Self::map(file).map_err(failed)?;
        let page = match page {
            Some(page) if page.is_whole().map_err(failed)? => page,
            _ => return Err(damaged(path)),
        };
        page.catch_up(boot);
        Ok(page)
    }

    /// Maps `file`; `None` if it has not the length of such a page.
    fn map(file: File) -> io::Result<Option<Self>> {
        let metadata = file.metadata()?;
        if metadata.len() != LEN as u64 {
            return Ok(None);
        }
        Ok(Some(Self {
            mapping: Mapping::new(&file)?,
            file,
            inode: metadata.ino(),
        }))
    }

    /// What a new page contains.
    fn fresh(boot: u64) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[BOOT_AT..][..8].copy_from_slice(&boot.to_ne_bytes());
        bytes[FENCE_AT..][..8].copy_from_slice(&first_fence().to_ne_bytes());
        bytes
    }

    /// Raises the counter if nobody has since the host's last boot.
    fn catch_up(&self, boot: u64) {
        if self.mapping.word64(BOOT_AT).load(Ordering::Acquire) != boot {
            self.mapping
                .word64(FENCE_AT)
                .fetch_max(first_fence(), Ordering::AcqRel);
            self.mapping.word64(BOOT_AT).store(boot, Ordering::Release);
        }
    }

    /// Whether the group still uses this page, and not a new one after somebody removed it; and
    /// whether it is whole.
    pub(crate) fn is_current(&self, directory: &Directory) -> io::Result<bool> {
        let found = directory.look(NAME)?;
        Ok(found.is_some_and(|stat| stat.st_ino == self.inode && self.is_good(stat.st_size)))
    }

    /// Whether the page can be touched, and is one.
    pub(crate) fn is_whole(&self) -> io::Result<bool> {
        Ok(self.is_good(fstat(&self.file)?.st_size))
    }

    fn is_good(&self, len: i64) -> bool {
        // Cut short and made longer again it has no content.
        len == LEN as i64 && self.mapping.word64(0).load(Ordering::Relaxed).to_le() == MAGIC
    }

    /// The next fence, larger than `last`; `None` when there are no more, in 2093.
    pub(crate) fn next_fence(&self, last: u64) -> Option<Fence> {
        let counter = self.mapping.word64(FENCE_AT);
        let mut before = counter.fetch_add(1, Ordering::AcqRel);
        if before < last {
            // Somebody has put an older page in the place of the group's, or set the clock back.
            counter.fetch_max(last, Ordering::AcqRel);
            before = counter.fetch_add(1, Ordering::AcqRel);
        }
        Fence::new(before.checked_add(1)?)
    }

    /// The bell of the lock whose name hashes to `hash`.
    pub(crate) fn bell(&self, hash: u64) -> Bell<'_> {
        let at = BELLS_AT + BELL_LEN * usize::try_from(hash % BELLS).expect("less than a page");
        // Of the locks that share the word, some 32 kinds are told apart.
        let kind = 1 << (hash / BELLS % 32);
        Bell {
            word: self.mapping.word32(at),
            looks: self.mapping.word32(at + 4),
            kind,
        }
    }
}

/// The bell of one lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bell<'a> {
    word: &'a AtomicU32,
    looks: &'a AtomicU32,
    kind: u32,
}

impl<'a> Bell<'a> {
    /// What [`Bell::listen`] needs to know: taken before looking whether the lock is free.
    pub(crate) fn count(self) -> u32 {
        self.word.load(Ordering::SeqCst)
    }

    /// Waits until the bell has rung since `count` was taken, at most for `timeout`. It may
    /// return early without reason.
    pub(crate) fn listen(self, count: u32, timeout: Duration) {
        futex::wait(self.word, count, timeout, self.kind);
    }

    /// The word that its ringing changes, which holds [`Bell::count`].
    pub(crate) fn word(self) -> &'a AtomicU32 {
        self.word
    }

    /// For one that sleeps on it whatever its lock, and may have been woken in the place of a waiter for another
    /// lock: wakes the one of those that has slept longest.
    pub(crate) fn pass_on(self) {
        futex::wake_one(self.word, !self.kind);
    }

    /// Counts a look of a waiter, and tells how many there have been.
    pub(crate) fn look(self) -> u32 {
        self.looks.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// Wakes one waiter, the one that has slept longest.
    /// Returns the new count.
    pub(crate) fn ring(self) -> u32 {
        let count = self.word.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        futex::wake_one(self.word, self.kind);
        count
    }

    /// Wakes all waiters.
    pub(crate) fn ring_all(self) {
        self.word.fetch_add(1, Ordering::SeqCst);
        futex::wake_all(self.word, self.kind);
    }
}

/// Where fences start in a group that knows nothing of former ones.
fn first_fence() -> u64 {
    let since_2025 = since_2025();
    let places = (u64::from(since_2025.subsec_nanos()) << 32) / 1_000_000_000;
    // The upper half has 31 bits, until 2093: then there are no more fences.
    let secs = since_2025.as_secs().min((1 << 31) - 1);
    (secs << 32) + places
}

fn damaged(path: PathBuf) -> OpenError {
    let reason = "it is not this version's shared page; end the programs that use it, and remove \
                  it";
    OpenError::Damaged {
        path,
        reason: reason.to_owned(),
    }
}
