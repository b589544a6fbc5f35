//! The file of one lock.
//!
//! Its name is the hash of the lock's name. It starts with what the lock is; a record for each permit
//! follows, of its holder, or its last one:
//!
//! ```text
//! 0    magic 8 | permits 4 | length of the name 2 | name up to 255
//! 496  whether somebody may be waiting 4
//! 504  whether commands of readers may be left (`lifeline`) 8
//! 512  the record of permit 0 (`record`)
//! 1024 the same for permit 1, and so on; after the last permit's those of readers
//! ```
//!
//! The file is created with its first part in place, which never changes but for the last two fields.
//! Its first 4096 bytes are mapped by those that enter ([`super::records`]).
//! What counts are locked ranges ([`range`]), and commands that are left ([`super::lifeline`]), and
//! not what the records say:
//! - byte `n` below the number of permits: permit `n` is held, or shared;
//! - byte `n` from there on: a reader, one of those who share permit 0, uses record `n`;
//! - all bytes below 2^62: *the file is being removed*, see [`LockFile::retire`];
//! - one byte above: somebody waits. Its number says who and since when, so that no record can
//!   outlive its process.
//!
//! An unused file is removed, since `/run/lock` is small: with all permits locked, so nobody is
//! inside. Whoever has locked a permit looks whether the name still leads to this file, and opens
//! the new one if not.

use std::fs::File;
use std::io;
use std::num::NonZeroU32;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use distlock_agent::protocol::LockName;
use nix::sys::stat::fstat;

use super::directory::{Directory, Keep};
use super::epoch::{epoch_2025, since_2025};
use super::mapping::{LEN, Mapping};
use super::range::{self, Range};
use super::record::{BLOCK, Record, array};

const MAGIC: &[u8; 8] = b"dlklock\x01";
/// All permits and then some.
const EVERYTHING: Range = Range::new(0, WAITERS.start());
/// The permit that readers share.
const SHARED: Range = Range::byte(0);
/// The bytes that waiters lock.
const WAITERS: Range = Range::new(1 << 62, i64::MAX);
/// Time in the number of a waiter's byte: hundredths of a second since 2025, 348 years.
const TICK_BITS: u32 = 40;

/// Whether somebody may be waiting: set by whoever begins to, cleared by whoever unlocks and finds
/// nobody.
const AWAITED_AT: usize = BLOCK - 16;
/// The field of readers is the last of the first block.
pub(super) const READERS_LEN: usize = 8;
pub(super) const READERS_AT: u64 = (BLOCK - READERS_LEN) as u64;

/// The most permits of a semaphore. Looking for a free one takes a system call each.
pub(crate) const MAX_PERMITS: u32 = 1024;

/// The most that share a lock. One more waits.
pub(super) const MAX_READERS: u32 = 1024;

/// An open file of a lock.
#[derive(Debug)]
pub(crate) struct LockFile {
    pub(super) file: File,
    inode: u64,
    /// Its first page; `None` where nobody enters by it, and of a file that is shorter.
    pub(super) mapping: Option<Mapping>,
    /// Whether the file had all of that page when it was looked at last.
    pub(super) is_whole: AtomicBool,
    pub(super) file_name: String,
    permits: NonZeroU32,
    name: LockName,
    /// Whether we wait, and the byte that says so.
    is_marked: bool,
    mark: Option<Range>,
}

impl LockFile {
    /// The file's name for the lock `name`.
    pub(crate) fn file_name(name: &LockName) -> String {
        blake3::hash(name.as_bytes()).to_hex().to_string()
    }

    /// Whether a file of this name could be a lock's.
    pub(crate) fn is_file_name(name: &str) -> bool {
        name.len() == 2 * blake3::OUT_LEN && name.bytes().all(|byte| byte.is_ascii_hexdigit())
    }

    /// Opens the file of `name`, and makes it for so many permits if there is none. The file that
    /// is there may say otherwise.
    pub(crate) fn open(
        directory: &Directory,
        name: &LockName,
        permits: NonZeroU32,
    ) -> io::Result<Self> {
        let file_name = Self::file_name(name);
        let mut content = [0; LEN];
        content[..BLOCK].copy_from_slice(&header(name, permits));
        for _ in 0..100 {
            let file = directory.open_or_create(&file_name, &content, Keep::ThisBoot)?;
            if let Some(mut file) = Self::read(file, directory, &file_name)? {
                if file.look_at_length()? {
                    // Where nothing more can be mapped, the kernel reads and writes.
                    file.mapping = Mapping::new(&file.file).ok();
                }
                return Ok(file);
            }
            std::thread::yield_now();
        }
        let what = "it is not the file of a lock, and somebody has it locked: end that program";
        Err(io::Error::new(io::ErrorKind::InvalidData, what))
    }

    /// Opens the file named `file_name`, if there is one.
    pub(crate) fn open_existing(
        directory: &Directory,
        file_name: &str,
    ) -> io::Result<Option<Self>> {
        match directory.open_file(file_name)? {
            Some(file) => Self::read(file, directory, file_name),
            None => Ok(None),
        }
    }

    /// Reads what the lock is. `None` if it is no lock's file, which only a crash of the host or
    /// a stranger to the group leaves behind: then it is removed, unless somebody has it locked.
    fn read(file: File, directory: &Directory, file_name: &str) -> io::Result<Option<Self>> {
        let inode = file.metadata()?.ino();
        let mut block = [0; BLOCK];
        let header = match file.read_exact_at(&mut block, 0) {
            Ok(()) => read_header(&block),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
            Err(error) => return Err(error),
        };
        if let Some((permits, name)) = header {
            let (file_name, is_marked, mark) = (file_name.to_owned(), false, None);
            return Ok(Some(Self {
                file,
                inode,
                mapping: None,
                is_whole: AtomicBool::new(false),
                file_name,
                permits,
                name,
                is_marked,
                mark,
            }));
        }
        if range::try_lock(&file, EVERYTHING)? && directory.leads_to(file_name, inode)? {
            directory.remove(file_name)?;
        }
        Ok(None)
    }

    pub(crate) fn name(&self) -> &LockName {
        &self.name
    }

    pub(crate) fn permits(&self) -> NonZeroU32 {
        self.permits
    }

    /// Locks a permit. The search starts at permit `start`.
    pub(crate) fn try_permit(&self, directory: &Directory, start: u32) -> io::Result<Found> {
        let permits = self.permits.get();
        for offset in 0..permits {
            let permit = (start % permits + offset) % permits;
            if !range::try_lock(&self.file, Range::byte(permit.into()))? {
                continue;
            }
            if !self.is_current(directory)? {
                return Ok(Found::Replaced);
            }
            let (readers, last) = self.last(permit)?;
            if self.is_unused(directory, permit, last.as_ref())?
                && self.are_readers_gone(directory, readers)?
            {
                return Ok(Found::Permit(permit, last));
            }
            range::unlock(&self.file, Range::byte(permit.into()))?;
        }
        self.taken(directory)
    }

    /// Shares the first permit. What is found is the number of this reader's record, and who had
    /// the lock alone last. The search for an unused record starts at reader `start`.
    pub(crate) fn try_share(&self, directory: &Directory, start: u32) -> io::Result<Found> {
        if !range::try_share(&self.file, SHARED)? {
            return self.taken(directory);
        }
        if !self.is_current(directory)? {
            return Ok(Found::Replaced);
        }
        for offset in 0..MAX_READERS {
            let reader = (start % MAX_READERS + offset) % MAX_READERS;
            let number = self.permits.get() + reader;
            if !range::try_lock(&self.file, Range::byte(number.into()))? {
                continue;
            }
            // Not before: the reader that had the record until now may have left a command.
            let (readers, last) = self.last(0)?;
            let is_writer_left = match &last {
                Some(last) => self.is_command_left(directory, 0, last)?,
                None => false,
            };
            if is_writer_left {
                range::unlock(&self.file, Range::byte(number.into()))?;
                break;
            }
            let before = match readers {
                Some(_) => self.record(number)?,
                None => None,
            };
            if self.is_unused(directory, number, before.as_ref())? {
                return Ok(Found::Permit(number, last));
            }
            range::unlock(&self.file, Range::byte(number.into()))?;
        }
        range::unlock(&self.file, SHARED)?;
        self.taken(directory)
    }

    /// No permit was found.
    fn taken(&self, directory: &Directory) -> io::Result<Found> {
        Ok(if self.is_current(directory)? {
            Found::Taken
        } else {
            Found::Replaced
        })
    }

    /// Gives the permit back, or a reader's share of it.
    pub(crate) fn release(&self, record: u32) -> io::Result<()> {
        if self.is_reader(record) {
            range::unlock(&self.file, SHARED)?;
        }
        range::unlock(&self.file, Range::byte(record.into()))
    }

    /// Whether the record is one of a reader.
    pub(crate) fn is_reader(&self, record: u32) -> bool {
        record >= self.permits.get()
    }

    /// Whether others may find this file under the lock's name. Asked with a permit locked, it
    /// stays so until that is given back.
    pub(crate) fn is_current(&self, directory: &Directory) -> io::Result<bool> {
        let found = directory.look(&self.file_name)?;
        let found = found.filter(|stat| stat.st_ino == self.inode);
        let is_whole = found.is_some_and(|stat| stat.st_size >= LEN as i64);
        self.is_whole.store(is_whole, Ordering::Relaxed);
        Ok(found.is_some())
    }

    /// Looks whether the file has all of the page that is mapped.
    pub(super) fn look_at_length(&self) -> io::Result<bool> {
        let is_whole = fstat(&self.file)?.st_size >= LEN as i64;
        self.is_whole.store(is_whole, Ordering::Relaxed);
        Ok(is_whole)
    }

    /// Whether somebody is about to remove this file just now.
    pub(crate) fn is_retiring(&self) -> io::Result<bool> {
        let found = range::find(&self.file, EVERYTHING)?;
        Ok(found.is_some_and(|range| !range.is_byte()))
    }

    /// Removes the file, unless somebody is inside or waits, or has died inside (which the next
    /// one is to learn) and `even_abandoned` is not set. Tells whether it is gone.
    pub(crate) fn retire(&self, directory: &Directory, even_abandoned: bool) -> io::Result<bool> {
        if self.is_awaited()? || !range::try_lock(&self.file, EVERYTHING)? {
            return Ok(false);
        }
        let retired = self.remove(directory, even_abandoned);
        range::unlock(&self.file, EVERYTHING)?;
        retired
    }

    /// With everything locked.
    fn remove(&self, directory: &Directory, even_abandoned: bool) -> io::Result<bool> {
        if !self.is_current(directory)? {
            return Ok(true);
        }
        // Again, because a waiter that came since may have found its permit locked by us. It
        // would sleep until its next look.
        if self.is_awaited()? {
            return Ok(false);
        }
        if !self.remove_lifelines(directory, even_abandoned)? {
            return Ok(false);
        }
        directory.remove(&self.file_name)?;
        Ok(true)
    }

    /// Tells `status` that this process waits.
    pub(crate) fn mark(&mut self) -> io::Result<()> {
        self.is_marked = true;
        // Another waiter of this process may have the same hundredth of a second.
        for later in 0..100 {
            let range = Waiter {
                pid: std::process::id(),
                tick: tick_now() + later,
            }
            .range();
            if range::try_lock(&self.file, range)? {
                self.mark = Some(range);
                break;
            }
        }
        // Without a mark it waits all the same, only unseen. Whoever unlocks from now on looks.
        let is_whole = self.look_at_length()?;
        match self.mapping.as_ref().filter(|_| is_whole) {
            Some(mapping) => mapping.word32(AWAITED_AT).store(1, Ordering::SeqCst),
            None => {
                let (yes, at) = (1_u32.to_ne_bytes(), AWAITED_AT as u64);
                self.file.write_all_at(&yes, at)?;
            }
        }
        Ok(())
    }

    pub(crate) fn is_marked(&self) -> bool {
        self.is_marked
    }

    /// The counterpart of [`LockFile::mark`].
    pub(crate) fn unmark(&mut self) -> io::Result<()> {
        self.is_marked = false;
        match self.mark.take() {
            Some(range) => range::unlock(&self.file, range),
            None => Ok(()),
        }
    }

    /// Whether somebody may be waiting, asked right after a permit was given back: whoever begins to
    /// wait later looks once more before it sleeps.
    pub(crate) fn may_be_awaited(&self) -> io::Result<bool> {
        let mapping = self.mapping.as_ref();
        let mapping = mapping.filter(|_| self.is_whole.load(Ordering::Relaxed));
        let Some(word) = mapping.map(|mapping| mapping.word32(AWAITED_AT)) else {
            return self.is_awaited();
        };
        if word.load(Ordering::SeqCst) == 0 {
            return Ok(false);
        }
        if self.is_awaited()? {
            return Ok(true);
        }
        // Nobody is: but somebody may have begun to wait since that look.
        word.store(0, Ordering::SeqCst);
        let is_awaited = self.is_awaited()?;
        if is_awaited {
            word.store(1, Ordering::SeqCst);
        }
        Ok(is_awaited)
    }

    /// Whether another open file waits.
    pub(crate) fn is_awaited(&self) -> io::Result<bool> {
        Ok(range::find(&self.file, WAITERS)?.is_some())
    }

    /// Who waits, in the order of their coming.
    pub(crate) fn waiters(&self) -> io::Result<Vec<Waiter>> {
        let ranges = range::find_all(&self.file, WAITERS)?;
        let mut waiters: Vec<_> = ranges.into_iter().map(Waiter::from_range).collect();
        waiters.sort_unstable_by_key(|waiter| waiter.tick);
        Ok(waiters)
    }

    /// The records of those who are inside.
    pub(crate) fn held(&self) -> io::Result<Vec<u32>> {
        let ranges = range::find_all(&self.file, EVERYTHING)?;
        let permits = ranges.into_iter().filter(|range| range.is_byte());
        Ok(permits
            .filter_map(|range| u32::try_from(range.start()).ok())
            .collect())
    }
}

/// What a search for a permit has come to.
#[derive(Debug)]
pub(crate) enum Found {
    /// One with this record is locked; and what the record says, for a reader that of the one who
    /// had the lock alone last.
    Permit(u32, Option<Record>),
    /// All are taken.
    Taken,
    /// The file is not the lock's any more. Closing it gives back what is locked in it.
    Replaced,
}

fn header(name: &LockName, permits: NonZeroU32) -> [u8; BLOCK] {
    let name = name.as_bytes();
    let mut block = [0; BLOCK];
    block[..8].copy_from_slice(MAGIC);
    block[8..12].copy_from_slice(&permits.get().to_le_bytes());
    let len = u16::try_from(name.len()).expect("a name has at most 255 bytes");
    block[12..14].copy_from_slice(&len.to_le_bytes());
    block[14..14 + name.len()].copy_from_slice(name);
    block
}

fn read_header(block: &[u8; BLOCK]) -> Option<(NonZeroU32, LockName)> {
    let permits = NonZeroU32::new(u32::from_le_bytes(array(block, 8)))?;
    if permits.get() > MAX_PERMITS {
        return None;
    }
    let len = usize::from(u16::from_le_bytes(array(block, 12)));
    let name = LockName::new(block.get(14..14 + len)?).ok()?;
    block.starts_with(MAGIC).then_some((permits, name))
}

/// Somebody who waits, as the number of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) pid: u32,
    /// Hundredths of a second since 2025-01-01.
    tick: u64,
}

impl Waiter {
    fn range(self) -> Range {
        let pid = i64::from(self.pid) & 0x3f_ffff; // Linux has at most 2^22 processes.
        let tick = i64::try_from(self.tick & ((1 << TICK_BITS) - 1)).expect("40 bits");
        Range::byte(WAITERS.start() | pid << TICK_BITS | tick)
    }

    fn from_range(range: Range) -> Self {
        let number = (range.start() - WAITERS.start()).unsigned_abs();
        let pid = u32::try_from(number >> TICK_BITS).expect("22 bits");
        Self {
            pid,
            tick: number & ((1 << TICK_BITS) - 1),
        }
    }

    pub(crate) fn since(self) -> SystemTime {
        epoch_2025() + Duration::from_millis(self.tick.saturating_mul(10))
    }
}

fn tick_now() -> u64 {
    u64::try_from(since_2025().as_millis() / 10).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_back() {
        let permits = NonZeroU32::new(MAX_PERMITS).unwrap();
        for name in [&b"x"[..], &[0xff; 255], b"\x01\n/.."] {
            let name = LockName::new(name).unwrap();
            assert_eq!(read_header(&header(&name, permits)), Some((permits, name)));
        }
        assert_eq!(read_header(&[0; BLOCK]), None);
        assert_eq!(read_header(&[0xff; BLOCK]), None);
    }

    #[test]
    fn whoever_unlocks_knows_of_those_that_wait() {
        let path = tempfile::tempdir().unwrap();
        let directory = Directory::open(path.path()).unwrap();
        let name = LockName::new("x").unwrap();
        let open = || LockFile::open(&directory, &name, NonZeroU32::MIN).unwrap();
        let (holder, mut first) = (open(), open());
        // One that has mapped nothing, as its file was short once.
        let other = LockFile::open_existing(&directory, &LockFile::file_name(&name));
        let mut other = other.unwrap().unwrap();
        assert!(!holder.may_be_awaited().unwrap());
        for _ in 0..2 {
            for waiter in [&mut first, &mut other] {
                waiter.mark().unwrap();
                assert!(holder.may_be_awaited().unwrap());
                assert!(holder.may_be_awaited().unwrap(), "still");
                waiter.unmark().unwrap();
                assert!(!holder.may_be_awaited().unwrap());
            }
        }
    }

    /// What its record said before is lost, and the next holder is to be told.
    #[test]
    fn the_file_of_who_ended_while_it_came_in_stays() {
        let path = tempfile::tempdir().unwrap();
        let directory = Directory::open(path.path()).unwrap();
        let name = LockName::new("x").unwrap();
        let file = LockFile::open(&directory, &name, NonZeroU32::MIN).unwrap();
        // The last word of a record.
        let fence = 7_u64.to_le_bytes();
        file.file
            .write_all_at(&fence, 2 * BLOCK as u64 - 8)
            .unwrap();
        assert!(!file.retire(&directory, false).unwrap());
        assert!(file.retire(&directory, true).unwrap());
    }

    #[test]
    fn a_waiter_is_read_back() {
        for pid in [1, 32_768, (1 << 22) - 1] {
            let waiter = Waiter {
                pid,
                tick: tick_now(),
            };
            assert_eq!(Waiter::from_range(waiter.range()), waiter);
            let age = SystemTime::now().duration_since(waiter.since()).unwrap();
            assert!(age < Duration::from_secs(1), "{age:?}");
        }
    }
}
