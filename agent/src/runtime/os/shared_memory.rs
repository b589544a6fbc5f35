//! Memory that processes of this host share: a sealed file without a name, mapped by each of them.
//!
//! What lies there consists of atomic words, so that a process which is killed at any moment leaves each
//! of them whole. Nobody can make the file shorter, and a part of it is used only once it has its pages: a
//! process that touches these never gets SIGBUS.

use std::ffi::CStr;
use std::io;
use std::num::NonZeroUsize;
use std::ops::{Deref, Range};
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, munmap};
use nix::sys::stat::fstat;
use nix::unistd::ftruncate;

/// Of a file that nobody can execute: `MFD_NOEXEC_SEAL`.
const NOEXEC_SEAL: MFdFlags = MFdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL);

/// What lies in shared memory.
///
/// # Safety
/// It consists of atomic words, or of other such types: any bytes are a value of it, zeros at the
/// beginning, and others may change them at any moment.
#[expect(
    unsafe_code,
    reason = "its implementors promise what the compiler cannot check"
)]
pub(crate) unsafe trait Words: Sized + Send + Sync {
    /// More than nothing.
    const LEN: NonZeroUsize = NonZeroUsize::new(size_of::<Self>()).expect("more than nothing");
}

#[expect(unsafe_code, reason = "it promises that it is an atomic word")]
// SAFETY: it is one.
unsafe impl Words for AtomicU64 {}

/// Who may change what is in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writers {
    /// Only this process: whoever else gets the file can read it.
    Maker,
    /// Whoever gets the file.
    All,
}

/// A mapping of shared memory with a `T` at its start, also in forked children.
#[derive(Debug)]
pub(crate) struct SharedMemory<T: Words>(NonNull<T>);

impl<T: Words> SharedMemory<T> {
    /// New memory, and the file by which others map it. Nothing in it may be touched before it was
    /// [reserved](reserve).
    ///
    /// # Errors
    /// If there is no memory or no descriptor left.
    pub(crate) fn make(name: &CStr, writers: Writers) -> io::Result<(Self, OwnedFd)> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let make = |flags| memfd_create(name, flags);
        // A system can demand that such files cannot be executed; before Linux 6.3 none can say so.
        let file = match make(flags | NOEXEC_SEAL) {
            Err(Errno::EINVAL) => make(flags)?,
            made => made?,
        };
        ftruncate(&file, T::LEN.get() as i64)?;
        let memory = Self::map(&file, Writers::All)?;
        let mut seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
        if writers == Writers::Maker {
            seals |= SealFlag::F_SEAL_FUTURE_WRITE;
        }
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals | SealFlag::F_SEAL_SEAL))?;
        Ok((memory, file))
    }

    /// The memory behind a file that another process has made, to be read, or to be written to as well.
    ///
    /// # Errors
    /// If it is too short, its maker could still make it shorter, or there is no memory left.
    pub(crate) fn of(file: impl AsFd, writers: Writers) -> io::Result<Self> {
        let seals = fcntl(&file, FcntlArg::F_GET_SEALS).map(SealFlag::from_bits_retain)?;
        if !seals.contains(SealFlag::F_SEAL_SHRINK) {
            return Err(io::Error::other("the file of shared memory is not sealed"));
        }
        Self::map(file, writers)
    }

    fn map(file: impl AsFd, writers: Writers) -> io::Result<Self> {
        if fstat(&file)?.st_size < T::LEN.get() as i64 {
            return Err(io::Error::other("the file of shared memory is too short"));
        }
        let access = match writers {
            Writers::Maker => ProtFlags::PROT_READ,
            Writers::All => ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
        };
        #[expect(unsafe_code, reason = "memory is mapped")]
        // SAFETY: the kernel chooses the place, so nothing else is there.
        let at = unsafe { mmap(None, T::LEN, access, MapFlags::MAP_SHARED, file, 0) }?;
        Ok(Self(at.cast()))
    }

    /// Keeps it from this process's forked children, which then must not touch it.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub(crate) fn keep_from_children(&self) -> io::Result<()> {
        #[expect(unsafe_code, reason = "the advice is about memory")]
        // SAFETY: the range is this mapping; it changes nothing in this process.
        unsafe { madvise(self.0.cast(), T::LEN.get(), MmapAdvise::MADV_DONTFORK) }?;
        Ok(())
    }
}

/// Has the file of shared memory have the pages of these bytes: one that is missing when it is touched would
/// be SIGBUS.
///
/// # Errors
/// If there is no memory left.
pub(crate) fn reserve(file: impl AsFd, bytes: Range<usize>) -> io::Result<()> {
    let (start, len) = (bytes.start as i64, bytes.len() as i64);
    Ok(fallocate(file, FallocateFlags::empty(), start, len)?)
}

impl<T: Words> Deref for SharedMemory<T> {
    type Target = T;

    fn deref(&self) -> &T {
        #[expect(unsafe_code, reason = "the words are in mapped memory")]
        // SAFETY: the mapping is page-aligned, as long as a `T` and readable, and lives as long as this;
        // the file cannot become shorter. Any bytes are a `T`, and all processes use it by atomic
        // operations.
        unsafe {
            self.0.as_ref()
        }
    }
}

#[expect(unsafe_code, reason = "a raw pointer is neither Send nor Sync")]
// SAFETY: what it points to are atomic words, which any thread may use and unmap.
unsafe impl<T: Words> Send for SharedMemory<T> {}
#[expect(unsafe_code, reason = "a raw pointer is neither Send nor Sync")]
// SAFETY: as above.
unsafe impl<T: Words> Sync for SharedMemory<T> {}

impl<T: Words> Drop for SharedMemory<T> {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "memory is unmapped")]
        // SAFETY: it was mapped with this length, and no reference to it outlives this.
        let _ = unsafe { munmap(self.0.cast(), T::LEN.get()) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn others_see_what_its_maker_writes_and_may_write_as_it_says() {
        for writers in [Writers::Maker, Writers::All] {
            let (memory, file) = SharedMemory::<AtomicU64>::make(c"test", writers).unwrap();
            reserve(&file, 0..8).unwrap();
            let theirs = SharedMemory::<AtomicU64>::of(&file, Writers::Maker).unwrap();
            memory.store(7, Ordering::Relaxed);
            assert_eq!(theirs.load(Ordering::Relaxed), 7);
            let written = SharedMemory::<AtomicU64>::of(&file, Writers::All);
            assert_eq!(written.is_ok(), writers == Writers::All);
            assert_eq!(ftruncate(&file, 0), Err(Errno::EPERM));
            assert_eq!(ftruncate(&file, 1 << 20), Err(Errno::EPERM));
            drop((memory, file));
            assert_eq!(theirs.load(Ordering::Relaxed), 7, "it stays");
        }
    }

    #[test]
    fn what_is_too_short_or_can_become_so_is_refused() {
        let file = memfd_create(c"test", MFdFlags::MFD_ALLOW_SEALING).unwrap();
        ftruncate(&file, 4).unwrap();
        let refused = |file: &OwnedFd| {
            let mapped = SharedMemory::<AtomicU64>::of(file, Writers::Maker);
            mapped.unwrap_err().to_string()
        };
        assert!(refused(&file).contains("not sealed"));
        fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).unwrap();
        assert!(refused(&file).contains("too short"));
        let file = tempfile::tempfile().unwrap();
        assert!(SharedMemory::<AtomicU64>::of(&file, Writers::Maker).is_err());
    }
}
