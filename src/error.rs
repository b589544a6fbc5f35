//! What can go wrong: one small enum an operation.
//!
//! Each message is one line that says what, why and what to do.

mod agent;
mod lock;
mod open;

use std::io;

pub use self::agent::{MembersError, ProcessError, SignalError, StatusError};
pub use self::lock::{HandleError, LockError, TimedLockError, TryLockError, UnlockError};
pub use self::open::{DirectoryFault, OpenError};

/// What to do about what the system says.
fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::NotFound => "make what is missing, or choose another place",
        io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::AlreadyExists => "something else is there: choose another place",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room there, or choose another place"
        }
        io::ErrorKind::OutOfMemory => "end something that takes memory, and try again",
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename => "choose another place",
        _ => "see what the system's log says about it",
    }
}

/// Whether `error` says that there are too many open files.
fn is_file_limit(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}
