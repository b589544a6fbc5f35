//! Tells a forked child from the process that started an agent.
//!
//! After `fork` the child has the memory of the agent but not its thread, and shares its sockets
//! with the parent. A mutex may have been held at that moment, and whatever the child sent would
//! be said in the parent's name. So every entry point, and every `Drop`, asks the stamp first and
//! touches nothing in a child. Comparing process ids would cost a system call, and fail when the
//! ids wrap around; a page that the kernel wipes in children costs one load.
//!
//! # A child's own agent
//! A child may open an agent of its own: the local group, a client, a member. Of what its parent's
//! threads held at the fork, all stays held for ever in the child. So nothing on that way may rest
//! on what is shared by the whole process and another thread may have locked, or left half changed.
//! There is:
//!
//! | what | why a child can use it |
//! |-|-|
//! | our mutexes ([`sync`](crate::runtime::os::sync)) | each has its state in itself, and a child makes its own; an inherited one is at most tried, never waited for |
//! | the command line ([`Caller::current`](crate::runtime::Caller::current)) | is tried, and read again if it is held |
//! | the table of the C library's handles (`src/ffi/table.rs`) | a child makes its own, and goes on with the atomic number of the last handle |
//! | the numbers of threads, of the C library's semaphores, and in names of temporary files | atomic counters |
//! | the C library's place for what a thread waits for (`src/ffi/cancel.rs`) | a key of pthread, whose number is atomic; keys live on in a child |
//! | chance | the kernel's: [`RandomState`](std::hash::RandomState) has no lock, but gives parent and child the same numbers |
//! | mio, socket2, nix, pidfds, timers | descriptors, which a child opens itself; their statics are atomic numbers of versions and ids |
//! | crossbeam's channels | each has its state in itself; what a thread waits by is the thread's |
//! | `tracing` | its call sites are a list without locks, and one that another thread was just adding counts as to be asked again each time. With two subscribers or more it reads a lock of std's, which is held for writing while a subscriber is made |
//! | BLAKE3, AES | what the processor can do, in atomics |
//! | std's threads, parking and thread locals | futexes in each thread's own memory |
//! | std's lock of the environment | reading does not exclude reading; it is held for writing within `set_var` |
//! | malloc, threads and the loader of the C library | its `fork` sets them right |
//!
//! What remains is the application's: its subscriber of `tracing` may have locks of its own (as
//! standard error's, which a panic needs too), and a fork in the very moment in which another thread
//! makes a subscriber, or changes the environment, leaves the child with that lock. parking_lot is
//! not among our dependencies, since it has one table for the waiting threads of all its locks
//! (`.ci/run` sees to that). `tests/forks.rs` forks under contention.

use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use nix::errno::Errno;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};

/// The kernel rounds up to a page.
const LEN: NonZeroUsize = NonZeroUsize::MIN;
const PARENT: u8 = 1;

/// A mark that only the process which made it can see.
#[derive(Debug)]
pub struct ForkStamp {
    page: NonNull<AtomicU8>,
}

impl ForkStamp {
    /// Marks this process.
    ///
    /// # Errors
    /// `ENOMEM` if there is no memory, `EINVAL` if the kernel is older than Linux 4.14.
    pub fn new() -> Result<Self, Errno> {
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        #[expect(unsafe_code, reason = "only mmap can make a page that fork wipes")]
        // SAFETY: a new private mapping at an address of the kernel's choice aliases nothing.
        let start = unsafe { mmap_anonymous(None, LEN, access, MapFlags::MAP_PRIVATE) }?;
        let stamp = Self { page: start.cast() };
        #[expect(unsafe_code, reason = "the advice is about memory")]
        // SAFETY: the range is the mapping just made, and wiping it in children leaves zeroes,
        // which are a valid `AtomicU8`.
        unsafe { madvise(start, LEN.get(), MmapAdvise::MADV_WIPEONFORK) }?;
        stamp.mark().store(PARENT, Ordering::Relaxed);
        Ok(stamp)
    }

    /// Whether this process was forked from the one that made the stamp.
    pub fn is_child(&self) -> bool {
        self.mark().load(Ordering::Relaxed) != PARENT
    }

    fn mark(&self) -> &AtomicU8 {
        #[expect(unsafe_code, reason = "the mark lies in a mapping of our own")]
        // SAFETY: the page stays mapped, readable and writable until `self` is dropped, is
        // aligned for anything, and all access goes through this atomic.
        unsafe {
            self.page.as_ref()
        }
    }
}

impl Drop for ForkStamp {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "the mapping is ours to unmap")]
        // SAFETY: the mapping was made in `new`, and no reference to it outlives `self`.
        let unmapped = unsafe { munmap(self.page.cast(), LEN.get()) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping: {unmapped:?}");
    }
}

#[expect(
    unsafe_code,
    reason = "a pointer to a mapping that every thread may use"
)]
// SAFETY: the mapping belongs to the process, not to a thread, and its only content is atomic.
unsafe impl Send for ForkStamp {}
#[expect(
    unsafe_code,
    reason = "a pointer to a mapping that every thread may use"
)]
// SAFETY: as for `Send`: shared access is to an atomic only.
unsafe impl Sync for ForkStamp {}

#[cfg(test)]
mod tests {
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};

    use super::*;

    #[test]
    fn a_child_knows_that_it_is_one() {
        let stamp = ForkStamp::new().unwrap();
        assert!(!stamp.is_child());
        #[expect(unsafe_code, reason = "fork is what is tested")]
        // SAFETY: the child only loads an atomic and exits without running destructors.
        let forked = unsafe { fork() }.unwrap();
        match forked {
            ForkResult::Child => {
                let code = i32::from(!stamp.is_child());
                #[expect(unsafe_code, reason = "no destructor may run in the child of a test")]
                // SAFETY: `_exit` takes no locks and does not return.
                unsafe {
                    libc::_exit(code)
                }
            }
            ForkResult::Parent { child } => {
                assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
            }
        }
        assert!(!stamp.is_child());
    }
}
