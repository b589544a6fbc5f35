//! How long the lock is under way from one member to another: a file that whoever is inside keeps.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use distlock::DistMutex;
use nix::time::{ClockId, clock_gettime};

/// The record, as one member opened it.
pub(crate) struct Turns {
    file: File,
    me: u64,
}

/// What the file says; all times in nanoseconds.
#[derive(Clone, Copy, Default)]
struct Record {
    /// Who was inside last, and when it released.
    last: u64,
    released: u64,
    /// How often somebody else was inside next, and how long that took, all together.
    count: u64,
    total: u64,
}

impl Turns {
    pub(crate) fn open(directory: &Path, me: u16) -> Self {
        let path = directory.join("turns");
        let file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path);
        Self {
            file: file.expect("our own directory"),
            me: me.into(),
        }
    }

    /// Takes the lock once, and notes the way it came by. Releasing includes one small write to
    /// the file, which is counted: there is no later moment at which it could be done.
    pub(crate) fn take(&self, lock: &dyn DistMutex) -> (u64, Duration) {
        let Ok(guard) = lock.lock() else {
            return (0, Duration::ZERO);
        };
        let entered = now().as_nanos() as u64;
        let mut record = self.read();
        if record.last != self.me && record.last != 0 {
            record.count += 1;
            record.total += entered - record.released;
        }
        record.last = self.me;
        record.released = now().as_nanos() as u64;
        self.write(record);
        drop(guard);
        (record.count, Duration::from_nanos(record.total))
    }

    fn read(&self) -> Record {
        let mut bytes = [0; 32];
        // Shorter at the first time only: then it is all zeros, as it should be.
        self.file.read_at(&mut bytes, 0).expect("our own file");
        let field = |at| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        Record {
            last: field(0),
            released: field(8),
            count: field(16),
            total: field(24),
        }
    }

    fn write(
        &self,
        Record {
            last,
            released,
            count,
            total,
        }: Record,
    ) {
        let fields = [last, released, count, total].map(u64::to_ne_bytes);
        self.file
            .write_all_at(fields.as_flattened(), 0)
            .expect("our own file");
    }
}

/// Time since the machine started, the same in every process.
pub(crate) fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME)
        .expect("every Linux since 2.6.39 has it")
        .into()
}
