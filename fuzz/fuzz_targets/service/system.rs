//! The system that the agent runs on, so far as an input decides what it does: its clock, sleep and
//! random numbers.
//!
//! The agent calls the C library for them, and the linker takes the functions here instead: so the
//! agent knows nothing of the fuzzer. Where no [`Clock`] is stopped, and in other threads, they do
//! what the C library does. The wall clock is left alone, as libFuzzer times inputs by it; only the
//! first epoch of a group follows from that.

use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use libc::{c_int, c_long, c_uint, c_void, clockid_t, size_t, ssize_t, timespec};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

thread_local! {
    /// What the stopped clock shows, in nanoseconds; 0 while none is stopped.
    static NOW: Cell<u64> = const { Cell::new(0) };
    /// How often random numbers were drawn since.
    static DRAWN: Cell<u64> = const { Cell::new(0) };
}

/// `CLOCK_BOOTTIME` of this thread, which stands still until this is dropped.
pub(super) struct Clock(());

impl Clock {
    /// Stops it at `now`, which is not zero.
    pub(super) fn stop(now: Duration) -> Self {
        NOW.set(nanos(now));
        DRAWN.set(0);
        Self(())
    }

    /// It goes on by `time` at once.
    pub(super) fn pass(&self, time: Duration) {
        NOW.set(NOW.get() + nanos(time));
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        NOW.set(0);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("less than 584 years")
}

/// Whether the other end of the stream `fd` is closed.
pub(super) fn has_hung_up(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::POLLHUP)];
    poll(&mut fds, PollTimeout::ZERO).expect("it does not wait");
    let found = fds[0].revents();
    found.is_some_and(|found| found.contains(PollFlags::POLLHUP))
}

/// Stands in for clock_gettime(2).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    let now = NOW.get();
    if now == 0 || clock != libc::CLOCK_BOOTTIME {
        // SAFETY: the caller's promise.
        return unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) as c_int };
    }
    let now = Duration::from_nanos(now);
    // SAFETY: the caller promises that it may be written.
    unsafe {
        time.write(timespec {
            tv_sec: now.as_secs() as i64,
            tv_nsec: c_long::from(now.subsec_nanos()),
        });
    }
    0
}

/// Stands in for clock_nanosleep(2), which the standard library sleeps by. While the clock is
/// stopped it goes on by that time instead.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    time: *const timespec,
    left: *mut timespec,
) -> c_int {
    if NOW.get() == 0 || flags != 0 {
        // SAFETY: the caller's promise.
        let done = unsafe { libc::syscall(libc::SYS_clock_nanosleep, clock, flags, time, left) };
        // This function returns the error, and leaves errno alone.
        return if done == 0 {
            0
        } else {
            nix::errno::Errno::last_raw()
        };
    }
    // SAFETY: the caller promises that it may be read.
    let time = unsafe { time.read() };
    NOW.set(NOW.get() + time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64);
    0
}

/// Stands in for nanosleep(2), which the standard library slept by before.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
unsafe extern "C" fn nanosleep(time: *const timespec, left: *mut timespec) -> c_int {
    if NOW.get() == 0 {
        // SAFETY: the caller's promise.
        return unsafe { libc::syscall(libc::SYS_nanosleep, time, left) as c_int };
    }
    // SAFETY: the caller's promise.
    unsafe { clock_nanosleep(libc::CLOCK_MONOTONIC, 0, time, left) }
}

/// Stands in for getrandom(2), which the crate of that name looks up (`build.rs`). While the clock is
/// stopped the numbers are 1, 2 and so on.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(bytes: *mut c_void, len: size_t, flags: c_uint) -> ssize_t {
    if NOW.get() == 0 {
        // SAFETY: the caller's promise.
        return unsafe { libc::syscall(libc::SYS_getrandom, bytes, len, flags) as ssize_t };
    }
    DRAWN.set(DRAWN.get() + 1);
    let drawn = DRAWN.get().to_le_bytes();
    for at in 0..len {
        // SAFETY: the caller promises that so many bytes may be written.
        unsafe { bytes.cast::<u8>().add(at).write(drawn[at % drawn.len()]) };
    }
    len as ssize_t
}
