//! Tells a forked child from the process that started an agent.
//!
//! After `fork` the child has the memory of the agent but not its thread, and shares its sockets
//! with the parent. A mutex may have been held at that moment, and whatever the child sent would
//! be said in the parent's name. So every entry point, and every `Drop`, asks the stamp first and
//! touches nothing in a child. Comparing process ids would cost a system call, and fail when the
//! ids wrap around; a page that the kernel wipes in children costs one load.

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
