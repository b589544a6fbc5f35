//! Sleeping on a word of memory, which may be shared by processes, until another thread wakes whoever sleeps
//! there (futex(2)).

use std::sync::atomic::AtomicU32;
use std::time::Duration;
use std::{io, ptr};

use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

/// Of those that sleep on a word, which are woken: all by default.
pub const EVERYBODY: u32 = u32::MAX;

/// Sleeps while the word is `value`, until somebody wakes one of the kinds in `kinds`, at most for `timeout`.
/// It may return early without reason. A signal does not lengthen the wait.
pub fn wait(word: &AtomicU32, value: u32, timeout: Duration, kinds: u32) {
    let Ok(now) = clock_gettime(ClockId::CLOCK_MONOTONIC) else {
        return;
    };
    let until = now + TimeSpec::from_duration(timeout);
    // Interruption, a call and the end of the time are all the same to the caller.
    futex(
        word,
        libc::FUTEX_WAIT_BITSET,
        value,
        Some(until.as_ref()),
        kinds,
    );
}

/// On how many words [`wait_any`] can sleep.
pub const MOST_WORDS: usize = 128;

/// Sleeps while each word has the value beside it, until somebody wakes a sleeper of any kind on one of them. It may
/// return early without reason.
///
/// # Errors
/// `ENOSYS` before Linux 5.16, or where a filter forbids it.
///
/// # Panics
/// With more than [`MOST_WORDS`].
pub fn wait_any(words: &[(&AtomicU32, u32)]) -> io::Result<()> {
    /// As linux/futex.h has it.
    #[repr(C)]
    struct Waiter {
        value: u64,
        address: u64,
        flags: u32,
        reserved: u32,
    }
    const SIZE_U32: u32 = 2;
    assert!(words.len() <= MOST_WORDS, "{} words", words.len());
    let waiters: Vec<Waiter> = words
        .iter()
        .map(|(word, value)| Waiter {
            value: (*value).into(),
            address: word.as_ptr().expose_provenance() as u64,
            flags: SIZE_U32,
            reserved: 0,
        })
        .collect();
    let forever = ptr::null::<libc::timespec>();
    #[expect(unsafe_code, reason = "libc has no wrapper for futex_waitv")]
    // SAFETY: the words live as long as the borrow, and the list as long as the call.
    let woken = unsafe {
        libc::syscall(
            libc::SYS_futex_waitv,
            waiters.as_ptr(),
            waiters.len() as libc::c_uint,
            0 as libc::c_uint,
            forever,
            libc::CLOCK_MONOTONIC,
        )
    };
    match Errno::result(woken) {
        // A word that has another value, or a signal, is as good as a call.
        Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Wakes one of those that sleep on the word and are of one of these kinds: the one that has slept longest.
pub fn wake_one(word: &AtomicU32, kinds: u32) {
    futex(word, libc::FUTEX_WAKE_BITSET, 1, None, kinds);
}

/// Wakes all of them.
pub fn wake_all(word: &AtomicU32, kinds: u32) {
    futex(word, libc::FUTEX_WAKE_BITSET, i32::MAX as u32, None, kinds);
}

fn futex(word: &AtomicU32, operation: i32, value: u32, until: Option<&libc::timespec>, kinds: u32) {
    let until = until.map_or(ptr::null(), ptr::from_ref);
    let unused = ptr::null::<u32>();
    #[expect(unsafe_code, reason = "libc has no wrapper for futex")]
    // SAFETY: the word lives as long as the borrow, `until` is null or points to a timespec, and the second
    // word is not used by these operations.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            operation,
            value,
            until,
            unused,
            kinds,
        );
    }
}
