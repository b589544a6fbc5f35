//! What the kernel tells of processes, and lends of them.
#![allow(unsafe_code, reason = "nix has neither pidfd_open nor pidfd_getfd")]

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::page;

/// A descriptor of the process `pid`.
///
/// # Errors
/// If it is not there.
pub(crate) fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: it takes numbers, and what it returns is a new descriptor.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = Errno::result(fd)?;
    // SAFETY: it is new.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// A copy of a descriptor of another process, if it is there.
///
/// # Panics
/// If this process can have no more: then it would not know what waits for what.
pub(crate) fn descriptor(of: &OwnedFd, fd: u32) -> Option<OwnedFd> {
    // SAFETY: it takes numbers, and what it returns is a new descriptor.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_getfd, of.as_raw_fd(), fd, 0) };
    let full = [Errno::EMFILE, Errno::ENFILE];
    assert!(
        fd >= 0 || !full.contains(&Errno::last()),
        "no descriptor is left"
    );
    // SAFETY: it is new.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// What the system says of a process, if it is there.
fn status(pid: u32) -> io::Result<String> {
    // It is all read by one call, or by none.
    let mut text = [0; 8192];
    let len = File::open(format!("/proc/{pid}/status"))?.read(&mut text)?;
    Ok(String::from_utf8_lossy(&text[..len]).into_owned())
}

/// The signals that a process has not taken yet, as bits: `status` is its file of that name.
fn pending_in(status: &str) -> u64 {
    let of = |name| status.lines().find_map(|line| line.strip_prefix(name));
    let masks = [of("SigPnd:"), of("ShdPnd:")].into_iter().flatten();
    masks
        .filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .fold(0, |all, mask| all | mask)
}

/// Whether a process has ended, or is about to end. All its threads sleep while they do not have the
/// turn: one that does not sleep is on its way there, or to its end.
pub(crate) fn is_dying(pid: u32, pidfd: &OwnedFd) -> bool {
    loop {
        if has_ended(pidfd, PollTimeout::ZERO) {
            return true;
        }
        let Ok(status) = status(pid) else {
            return true;
        };
        let sleeps = status.lines().any(|line| line.starts_with("State:\tS"));
        if sleeps {
            return pending_in(&status) & (1 << (libc::SIGKILL - 1)) != 0;
        }
        std::thread::yield_now();
    }
}

/// Whether a process ends in that time.
pub(crate) fn has_ended(pidfd: &OwnedFd, patience: PollTimeout) -> bool {
    is_readable(pidfd, patience)
}

/// Whether there is something to be read in that time.
pub(crate) fn is_readable(fd: &OwnedFd, patience: PollTimeout) -> bool {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, patience) == Ok(1)
}

/// Whether a process has a signal that it has not taken yet.
pub(crate) fn has_pending(pid: u32) -> bool {
    status(pid).is_ok_and(|status| pending_in(&status) != 0)
}

/// Copies of these descriptors of another process, if all are there.
///
/// # Panics
/// As [`descriptor`].
pub(crate) fn descriptors(of: &OwnedFd, fds: &[page::PollFd]) -> Option<Vec<OwnedFd>> {
    let each = fds.iter().map(|its| descriptor(of, its.fd as u32));
    each.collect()
}

/// Whether one of these copies of `fds` is ready.
pub(crate) fn are_ready(copies: &[OwnedFd], fds: &[page::PollFd]) -> bool {
    let mut polled: Vec<_> = copies
        .iter()
        .zip(fds)
        .map(|(fd, its)| PollFd::new(fd.as_fd(), PollFlags::from_bits_truncate(its.events)))
        .collect();
    poll(&mut polled, PollTimeout::ZERO) != Ok(0)
}
