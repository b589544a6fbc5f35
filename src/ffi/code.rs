//! From errors to the numbers that C programs know, and to words.

use std::ffi::{CStr, c_int};
use std::io;

use distlock_agent::protocol::NameError;
use nix::errno::Errno;

use crate::backend::Patience;
use crate::config::ConfigError;
use crate::error::{
    HandleError, LockError, OpenError, ProcessError, SignalError, StatusError, UnlockError,
};
use crate::{FenceError, PreviousOwner};

/// What a panic inside the library becomes.
pub(super) const PANIC: Errno = Errno::EIO;

/// What the numbers of the interface mean. The others mean what the system says.
const MEANINGS: [(c_int, &CStr); 14] = [
    (0, c"success"),
    (libc::EBUSY, c"the lock is held by another"),
    (libc::ETIMEDOUT, c"the lock was not free in time"),
    (libc::EPERM, c"the caller does not hold the lock"),
    (
        libc::EINPROGRESS,
        c"the lock was asked for, and is not granted yet",
    ),
    (
        libc::EALREADY,
        c"this thread has asked for the lock already",
    ),
    (libc::EDEADLK, c"this thread holds the lock already"),
    (
        libc::ENOTCONN,
        c"no quorum, or no agent: members or the host's agent cannot be reached",
    ),
    (
        libc::ESTALE,
        c"the lock was lost, or the fence is too low: another may have been inside since",
    ),
    (
        libc::EINVAL,
        c"invalid argument or configuration, or a handle that is closed or another process's",
    ),
    (libc::ENAMETOOLONG, c"the name is longer than 255 bytes"),
    (libc::ECANCELED, c"the handle or its agent was closed"),
    (
        libc::EOWNERDEAD,
        c"the lock is held, and its former holder died inside",
    ),
    (
        libc::ENOLCK,
        c"a limit is exceeded: too many locks, requests or open files",
    ),
];

/// `code`, or its negative, in words.
pub(super) fn words(code: c_int) -> &'static CStr {
    let number = code.saturating_abs();
    if let Some((_, meaning)) = MEANINGS.iter().find(|(known, _)| *known == number) {
        return meaning;
    }
    if Errno::from_raw(number) == Errno::UnknownErrno {
        return c"unknown error";
    }
    // SAFETY: for an error that it knows, strerror returns a text that nobody changes or frees:
    // only those of unknown ones are put together.
    unsafe { CStr::from_ptr(libc::strerror(number)) }
}

pub(super) fn open(error: &OpenError) -> Errno {
    match error {
        // What is there is no configuration, whatever the system would read from it.
        OpenError::Config(ConfigError::Read { source, .. }) => match source.raw_os_error() {
            Some(_) => io(source),
            None => Errno::EINVAL,
        },
        OpenError::Config(_)
        | OpenError::Address { .. }
        | OpenError::Options { .. }
        | OpenError::NoService => Errno::EINVAL,
        OpenError::Directory { .. } | OpenError::Keys { .. } | OpenError::Unsafe { .. } => {
            Errno::EACCES
        }
        OpenError::Permission { source, .. } => match io(source) {
            // That is the number of "not the holder".
            Errno::EPERM | PANIC => Errno::EACCES,
            errno => errno,
        },
        OpenError::AddressInUse { .. } | OpenError::SocketInUse { .. } => Errno::EADDRINUSE,
        OpenError::AlreadyRunning { .. } | OpenError::AgentRunning { .. } => Errno::EBUSY,
        OpenError::Unreachable { .. }
        | OpenError::OtherBuild { .. }
        | OpenError::HostGroup { .. }
        | OpenError::Store { .. }
        | OpenError::TooManyClients { .. } => Errno::ENOTCONN,
        OpenError::Damaged { .. } => Errno::EBADMSG,
        OpenError::TooManyFiles { source, .. } | OpenError::Io { source, .. } => io(source),
    }
}

pub(super) fn handle(error: &HandleError) -> Errno {
    match error {
        HandleError::Name(NameError::TooLong { .. }) => Errno::ENAMETOOLONG,
        HandleError::Closed => Errno::ECANCELED,
        HandleError::NoAnswer => Errno::ENOTCONN,
        HandleError::Name(_)
        | HandleError::WrongAlgorithm { .. }
        | HandleError::NotInThisGroup { .. }
        | HandleError::NoElections { .. }
        | HandleError::OnlyProbable { .. }
        | HandleError::WrongPermits { .. }
        | HandleError::PermitsUnknown
        | HandleError::TooManyPermits { .. }
        | HandleError::Forked => Errno::EINVAL,
        HandleError::Io { source, .. } => io(source),
    }
}

/// What the new holder is told.
pub(super) fn entered(previous: PreviousOwner) -> Result<(), Errno> {
    match previous {
        PreviousOwner::Clean => Ok(()),
        PreviousOwner::Abandoned => Err(Errno::EOWNERDEAD),
    }
}

/// Another held the lock for as long as the caller waited.
pub(super) fn not_free(patience: Patience) -> Errno {
    match patience {
        Patience::Try => Errno::EBUSY,
        _ => Errno::ETIMEDOUT,
    }
}

pub(super) fn lock(error: &LockError) -> Errno {
    match error {
        LockError::NoQuorum { .. }
        | LockError::NoAnswer { .. }
        | LockError::Unreachable { .. }
        | LockError::Disconnected { .. } => Errno::ENOTCONN,
        LockError::Deadlock => Errno::EDEADLK,
        LockError::Closed => Errno::ECANCELED,
        LockError::Limit { .. } => Errno::ENOLCK,
        LockError::WrongAlgorithm { .. }
        | LockError::WrongElection { .. }
        | LockError::WrongPermits { .. }
        | LockError::NotShareable { .. }
        | LockError::Forked
        | LockError::Finished => Errno::EINVAL,
        // What the store has there is nothing that can be used.
        LockError::Store { .. } => Errno::EBADMSG,
        LockError::Io { source, .. } => io(source),
    }
}

pub(super) fn unlock(error: &UnlockError) -> Errno {
    match error {
        UnlockError::Lost => Errno::ESTALE,
        UnlockError::Closed => Errno::ECANCELED,
        UnlockError::Forked => Errno::EINVAL,
        UnlockError::Io { source, .. } => io(source),
    }
}

pub(super) fn process(error: &ProcessError) -> Errno {
    match error {
        ProcessError::Closed => Errno::ECANCELED,
        ProcessError::Ended { .. } => Errno::ENOTCONN,
        ProcessError::Forked => Errno::EINVAL,
    }
}

pub(super) fn signal(error: &SignalError) -> Errno {
    match error {
        SignalError::Closed => Errno::ECANCELED,
        SignalError::Unexpected | SignalError::Forked => Errno::EINVAL,
        SignalError::Io { source } => io(source),
    }
}

pub(super) fn status(error: &StatusError) -> Errno {
    match error {
        StatusError::Closed => Errno::ECANCELED,
        StatusError::Forked => Errno::EINVAL,
        StatusError::Disconnected { .. } | StatusError::Unavailable { .. } => Errno::ENOTCONN,
        StatusError::Io { source, .. } => io(source),
    }
}

pub(super) fn fence(error: &FenceError) -> Errno {
    match error {
        FenceError::Refused { .. } => Errno::ESTALE,
        FenceError::Damaged { .. } => Errno::EBADMSG,
        FenceError::Unsafe { .. } => Errno::EACCES,
        FenceError::Busy { .. } => Errno::EBUSY,
        FenceError::Io { source, .. } => io(source),
    }
}

fn io(error: &io::Error) -> Errno {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(errno) if errno != Errno::UnknownErrno => errno,
        _ => Errno::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_words() {
        let say = |code| words(code).to_str().unwrap();
        assert_eq!(say(0), "success");
        for (number, meaning) in MEANINGS {
            assert_eq!(words(number), meaning);
            assert_eq!(words(-number), meaning);
        }
        assert_eq!(say(-libc::ENOENT), "No such file or directory");
        assert_eq!(say(libc::ENOENT), "No such file or directory");
        for code in [c_int::MIN, -100_000, 100_000, c_int::MAX] {
            assert_eq!(say(code), "unknown error");
        }
    }

    #[test]
    fn unknown_system_errors_are_errors_all_the_same() {
        assert_eq!(io(&io::Error::other("no number")), Errno::EIO);
        assert_eq!(io(&io::Error::from_raw_os_error(0)), Errno::EIO);
        assert_eq!(
            io(&io::Error::from_raw_os_error(libc::ENOSPC)),
            Errno::ENOSPC
        );
    }
}
