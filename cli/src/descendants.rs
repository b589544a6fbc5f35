//! What a command has started: also what has left its process group.
//!
//! `run` is a subreaper: a process whose parent ends becomes `run`'s child, and not init's. So all
//! that the command has started are below `run`, and once its children are killed, and theirs have
//! become its own, and so on, nothing is left; except what another user's credentials protect.
//!
//! Nothing here allocates, as procfs would, or takes a lock: the guardian uses it too.

use std::io::Write;
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, read};

/// Longer than `/proc/NUMBER/task/NUMBER/children`.
const MAX_PATH: usize = 64;
/// What of a process's stat is read: its number, its name in brackets, its state, its parent.
const MAX_STAT: usize = 128;

/// Has orphans of this process's descendants become its children. Where the kernel cannot, they are
/// found only as long as their parents live.
pub(crate) fn adopt() {
    let _ = prctl::set_child_subreaper(true);
}

/// Takes note of the end of children that were adopted: all but those in `own`.
pub(crate) fn reap(own: &[Pid]) {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    // One that is its own and not waited for yet hides the others until then.
    while let Ok(status) = waitid(Id::All, flags) {
        let pid = match status {
            WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..) => pid,
            _ => return,
        };
        if own.contains(&pid) {
            return;
        }
        let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
    }
}

/// Sends `signal` to the children of `parent` but `except`; whether there were any that had not ended
/// and may be signalled. The children of those that it ends become `parent`'s.
pub(crate) fn signal_children(parent: Pid, except: Pid, signal: Signal) -> bool {
    let Some(list) = open_of(parent, "children") else {
        return false;
    };
    let mut found = false;
    let mut number = 0;
    let mut chunk = [0; 512];
    loop {
        let len = match read(&list, &mut chunk) {
            Ok(0) => return found,
            Ok(len) => len,
            Err(Errno::EINTR) => continue,
            Err(_) => return found,
        };
        for &byte in &chunk[..len] {
            if byte.is_ascii_digit() {
                number = number * 10 + i32::from(byte - b'0');
                continue;
            }
            let pid = Pid::from_raw(number);
            number = 0;
            // The number is the child's while its parent has not waited for it; looked at last.
            if pid.as_raw() > 1 && pid != except && is_live_child(pid, parent) {
                found |= kill(pid, signal).is_ok();
            }
        }
    }
}

/// Whether the process `pid` is a child of `parent` and has not ended.
fn is_live_child(pid: Pid, parent: Pid) -> bool {
    let Some(file) = open_of(pid, "stat") else {
        return false;
    };
    let mut stat = [0; MAX_STAT];
    let len = read(&file, &mut stat).unwrap_or(0);
    // Of the program's name anything may be part.
    let Some(end) = stat[..len].iter().rposition(|&byte| byte == b')') else {
        return false;
    };
    let mut words = stat[end + 1..len].split(|&byte| byte == b' ').skip(1);
    let (state, of) = (words.next(), words.next());
    let number = |word: &[u8]| {
        let digits = word.iter().map(|byte| i32::from(byte.wrapping_sub(b'0')));
        digits.fold(0_i32, |number, digit| {
            number.wrapping_mul(10).wrapping_add(digit)
        })
    };
    let is_live = state.is_some_and(|state| state != b"Z" && state != b"X");
    is_live && of.map(number) == Some(parent.as_raw())
}

fn open_of(pid: Pid, file: &str) -> Option<OwnedFd> {
    let mut path = [0; MAX_PATH];
    let mut left = &mut path[..MAX_PATH - 1];
    write!(left, "/proc/{pid}/task/{pid}/{file}").ok()?;
    let path = std::ffi::CStr::from_bytes_until_nul(&path).ok()?;
    open(path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).ok()
}
