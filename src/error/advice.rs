//! What to do about what the system says.

use std::io;

/// What to do about what the system says.
pub(super) fn advice(source: &io::Error) -> &'static str {
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
pub(super) fn is_file_limit(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}
