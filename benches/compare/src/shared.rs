//! What all workers see: a mapped file with a record for each lock, which whoever is inside keeps.

use std::fs::File;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use nix::time::{ClockId, clock_gettime};

/// How many locks there are.
pub(crate) const LOCKS: usize = 1000;

/// What is known of a lock; on a cache line of its own. Nobody is 0.
#[repr(C, align(64))]
struct Record {
    /// Who is inside.
    inside: AtomicU64,
    /// The highest fence so far.
    fence: AtomicU64,
    /// Who was inside last, and when it began to release, in nanoseconds.
    last: AtomicU64,
    released: AtomicU64,
}

/// The records of all locks, as long as the process lives.
#[derive(Clone, Copy)]
pub(crate) struct Shared(&'static [Record]);

impl Shared {
    /// Maps the file of this directory, which the first one makes.
    #[expect(
        unsafe_code,
        reason = "memory that other processes change is seen by a mapping alone"
    )]
    pub(crate) fn open(directory: &Path) -> Self {
        let mut options = File::options();
        options.create(true).truncate(false).read(true).write(true);
        let file = options
            .open(directory.join("records"))
            .expect("our own directory");
        let length = LOCKS * size_of::<Record>();
        file.set_len(length as u64).expect("room for a small file");
        let length = NonZeroUsize::new(length).expect("it is not empty");
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping, at a place that the kernel chooses, of a file that is as long and
        // never becomes shorter.
        let start = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, &file, 0) }
            .expect("a file can be mapped");
        // SAFETY: it is aligned to a page and never unmapped; a record is atomics alone, of which
        // any bytes are a value, and through which alone anybody changes them.
        let records = unsafe { std::slice::from_raw_parts(start.cast().as_ptr(), LOCKS) };
        Self(records)
    }

    /// `me` has entered. Returns the time since another began to release; none if it was `me`.
    ///
    /// # Panics
    /// If another is inside, or the fence is not higher than all before.
    pub(crate) fn enter(self, lock: usize, me: u64, fence: Option<u64>) -> Option<u64> {
        let entered = now();
        let record = &self.0[lock];
        let other = record.inside.swap(me, SeqCst);
        assert!(other == 0, "VIOLATION: in lock {lock} are {other} and {me}");
        if let Some(fence) = fence {
            let before = record.fence.swap(fence, SeqCst);
            assert!(
                fence > before,
                "VIOLATION: in lock {lock} fence {fence} came after {before}"
            );
        }
        let last = record.last.swap(me, SeqCst);
        (last != 0 && last != me).then(|| entered - record.released.load(SeqCst))
    }

    /// `me` is about to release.
    ///
    /// # Panics
    /// If another has entered meanwhile.
    pub(crate) fn leave(self, lock: usize, me: u64) {
        let record = &self.0[lock];
        record.released.store(now(), SeqCst);
        let found = record.inside.swap(0, SeqCst);
        assert!(
            found == me,
            "VIOLATION: {found} came to {me} in lock {lock}"
        );
    }

    /// Has nobody been inside, for times to begin anew. Fences still rise.
    pub(crate) fn begin_anew(self) {
        for record in self.0 {
            record.last.store(0, SeqCst);
        }
    }
}

/// Nanoseconds since the machine started, the same in every process.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_BOOTTIME).expect("every Linux since 2.6.39 has it");
    Duration::from(time).as_nanos() as u64
}
