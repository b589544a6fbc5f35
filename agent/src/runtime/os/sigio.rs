//! SIGIO for an agent without a thread: the kernel interrupts the application when something
//! arrives, or a timer runs out.
//!
//! The member's socket can do that itself (`O_ASYNC`); an epoll instance and a timerfd cannot, so
//! a timer that sends the signal runs beside the one of the descriptor.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr;

use nix::errno::Errno;
use nix::sys::signal::{SigEvent, SigSet, SigevNotify, Signal};
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;
use nix::unistd::getpid;

/// Sends this process SIGIO.
#[derive(Debug)]
pub(crate) struct SignalTimer(Timer);

#[expect(
    unsafe_code,
    reason = "a timer's name is a pointer for the sake of some systems"
)]
// SAFETY: a timer belongs to the process, and every thread may set and delete it.
unsafe impl Send for SignalTimer {}

impl SignalTimer {
    pub(crate) fn new() -> io::Result<Self> {
        let notify = SigevNotify::SigevSignal {
            signal: Signal::SIGIO,
            si_value: 0,
        };
        let timer = Timer::new(ClockId::CLOCK_BOOTTIME, SigEvent::new(notify))?;
        Ok(Self(timer))
    }

    pub(crate) fn set(&mut self, at: Expiration) -> Result<(), Errno> {
        self.0.set(at, TimerSetTimeFlags::TFD_TIMER_ABSTIME)
    }
}

/// Has the kernel send this process SIGIO, or not any more, when something arrives at `socket`.
pub(crate) fn announce(socket: RawFd, is_on: bool) -> io::Result<()> {
    #[expect(unsafe_code, reason = "nix has no F_SETOWN")]
    // SAFETY: these take and return numbers; a socket that is no more is an error.
    let set = unsafe {
        let flags = Errno::result(libc::fcntl(socket, libc::F_GETFL))?;
        let flags = if is_on {
            Errno::result(libc::fcntl(socket, libc::F_SETOWN, getpid().as_raw()))?;
            flags | libc::O_ASYNC
        } else {
            flags & !libc::O_ASYNC
        };
        libc::fcntl(socket, libc::F_SETFL, flags)
    };
    Errno::result(set)?;
    Ok(())
}

/// Whether SIGIO would interrupt: without a handler it ends the process, or does nothing. A thread
/// that blocks it waits for it by sigwaitinfo(2) or ppoll(2).
pub(crate) fn is_expected() -> io::Result<bool> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    #[expect(unsafe_code, reason = "nix can only replace a handler")]
    // SAFETY: nothing is changed, and on success `action` is written.
    let handler = unsafe {
        Errno::result(libc::sigaction(
            libc::SIGIO,
            ptr::null(),
            action.as_mut_ptr(),
        ))?;
        action.assume_init().sa_sigaction
    };
    let is_handled = ![libc::SIG_DFL, libc::SIG_IGN].contains(&handler);
    Ok(is_handled || SigSet::thread_get_mask()?.contains(Signal::SIGIO))
}
