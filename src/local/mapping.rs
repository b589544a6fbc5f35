//! The first 4096 bytes of a file, mapped shared.
//!
//! Words in it are only touched atomically, so a process that is killed at any moment leaves each
//! word whole. If another program cuts the file short, the kernel ends whoever touches the mapping
//! then, with SIGBUS. So each touch has a look at the file's length before it (or one that was
//! made a moment ago). If the file is cut between the two, the process is ended all
//! the same, and the kernel gives its locks back, as after any kill. Only this user and root can do
//! that, and they could kill the process too.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

/// How long it is.
pub(super) const LEN: usize = 4096;

/// The start of a file.
#[derive(Debug)]
pub(super) struct Mapping(NonNull<u8>);

#[expect(
    unsafe_code,
    reason = "the pointer is to memory shared with other processes anyway"
)]
// SAFETY: all access to the memory is by atomic operations.
unsafe impl Send for Mapping {}
#[expect(
    unsafe_code,
    reason = "the pointer is to memory shared with other processes anyway"
)]
// SAFETY: as for `Send`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the start of `file`, which is at least as long.
    pub(super) fn new(file: &File) -> io::Result<Self> {
        let len = NonZeroUsize::new(LEN).expect("a page is not empty");
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no other memory.
        #[expect(unsafe_code, reason = "what processes share needs shared memory")]
        let start = unsafe { mmap(None, len, access, MapFlags::MAP_SHARED, file, 0) }?;
        Ok(Self(start.cast()))
    }

    pub(super) fn word32(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= LEN);
        // SAFETY: within the mapping, which lives as long as `self`, aligned, and only used
        // atomically by all processes.
        #[expect(unsafe_code, reason = "a view into shared memory")]
        unsafe {
            AtomicU32::from_ptr(self.0.as_ptr().add(at).cast())
        }
    }

    pub(super) fn word64(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= LEN);
        // SAFETY: as in `word32`.
        #[expect(unsafe_code, reason = "a view into shared memory")]
        unsafe {
            AtomicU64::from_ptr(self.0.as_ptr().add(at).cast())
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped with this length in `new`, and no reference outlives `self`.
        #[expect(unsafe_code, reason = "the counterpart of the mapping")]
        let unmapped = unsafe { munmap(self.0.cast(), LEN) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}
