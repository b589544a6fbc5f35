//! The end of a lease in shared memory: other processes of this host see it as it moves, and see
//! that it does not move any more, without a word from the agent, which may be dead.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::stat::fstat;
use nix::unistd::ftruncate;

use crate::protocol::Time;
use crate::runtime::os::clock::Shift;

/// Of a file that nobody can execute: `MFD_NOEXEC_SEAL`.
const NOEXEC_SEAL: MFdFlags = MFdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL);
const LEN: usize = size_of::<AtomicU64>();

/// The page as the agent writes it.
#[derive(Debug)]
pub(crate) struct LeasePage {
    file: OwnedFd,
    mapping: Mapping,
}

impl LeasePage {
    /// # Errors
    /// If there is no memory or no descriptor left.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let make = |flags| memfd_create(c"distlock-lease", flags);
        // A system can demand that such files cannot be executed; before Linux 6.3 none can say so.
        let file = match make(flags | NOEXEC_SEAL) {
            Err(Errno::EINVAL) => make(flags)?,
            made => made?,
        };
        ftruncate(&file, LEN as i64)?;
        let mapping = Mapping::new(&file, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE)?;
        // Who else has it can neither write to it nor make it shorter.
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
        fcntl(
            &file,
            FcntlArg::F_ADD_SEALS(seals | SealFlag::F_SEAL_FUTURE_WRITE),
        )?;
        Ok(Self { file, mapping })
    }

    /// The lease ends at `limit`.
    pub(crate) fn store(&self, limit: Time) {
        self.mapping
            .word()
            .store(limit.as_nanos(), Ordering::Release);
    }
}

impl AsFd for LeasePage {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// What a holder can give to another process of its own, so that this one sees until when the lock
/// is held, and whether what runs under it is still there, when the holder stands still and the
/// agent is dead.
#[derive(Debug)]
pub struct LeaseWatch {
    mapping: Mapping,
    shift: Shift,
    lifeline: Option<OwnedFd>,
}

impl LeaseWatch {
    /// `shift` turns the times of the page's writer into ours.
    pub(crate) fn new(
        page: impl AsFd,
        shift: Shift,
        lifeline: Option<OwnedFd>,
    ) -> io::Result<Self> {
        if fstat(&page)?.st_size < LEN as i64 {
            return Err(io::Error::other("it is no page with a lease"));
        }
        Ok(Self {
            mapping: Mapping::new(page, ProtFlags::PROT_READ)?,
            shift,
            lifeline,
        })
    }

    /// Until when nobody else is let in; [`Time::MAX`] where no lease bounds it. Async-signal-safe,
    /// and as good in a forked child.
    pub fn limit(&self) -> Time {
        self.shift.ours(self.mapping.word().load(Ordering::Acquire))
    }

    /// The reading end of what the command inherits; `None` where the agent is in this process.
    pub fn lifeline(&self) -> Option<BorrowedFd<'_>> {
        self.lifeline.as_ref().map(AsFd::as_fd)
    }
}

/// One page of shared memory with one word in it.
#[derive(Debug)]
struct Mapping(NonNull<libc::c_void>);

impl Mapping {
    fn new(file: impl AsFd, protection: ProtFlags) -> io::Result<Self> {
        const LENGTH: NonZeroUsize = NonZeroUsize::new(LEN).expect("more than nothing");
        #[expect(unsafe_code, reason = "memory is mapped")]
        // SAFETY: the kernel chooses the place, so nothing else is there.
        let at = unsafe { mmap(None, LENGTH, protection, MapFlags::MAP_SHARED, file, 0) }?;
        Ok(Self(at))
    }

    fn word(&self) -> &AtomicU64 {
        #[expect(unsafe_code, reason = "the word is in mapped memory")]
        // SAFETY: the mapping is page-aligned, as long as the word and readable, and lives as long
        // as this; the file is not shorter. All processes use it as an atomic word.
        unsafe {
            self.0.cast().as_ref()
        }
    }
}

#[expect(unsafe_code, reason = "a raw pointer is neither Send nor Sync")]
// SAFETY: what it points to is an atomic word, which any thread may use and unmap.
unsafe impl Send for Mapping {}
#[expect(unsafe_code, reason = "a raw pointer is neither Send nor Sync")]
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "memory is unmapped")]
        // SAFETY: it was mapped with this length, and no reference to it outlives this.
        let _ = unsafe { munmap(self.0, LEN) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_see_the_end_move_and_cannot_move_it() {
        let page = LeasePage::new().unwrap();
        let watch = LeaseWatch::new(&page, Shift::NONE, None).unwrap();
        for limit in [Time::from_nanos(1_000), Time::MAX, Time::from_nanos(2_000)] {
            page.store(limit);
            assert_eq!(watch.limit(), limit);
        }
        let write = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let refused = Mapping::new(&page, write).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::EPERM as i32));
        assert_eq!(ftruncate(&page, 0), Err(Errno::EPERM));
        drop(page);
        assert_eq!(
            watch.limit(),
            Time::from_nanos(2_000),
            "the last word stays"
        );
    }

    #[test]
    fn what_is_too_short_is_refused() {
        let file = tempfile::tempfile().unwrap();
        assert!(LeaseWatch::new(&file, Shift::NONE, None).is_err());
    }
}
