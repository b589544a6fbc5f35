//! What does not depend on the group: the clock, limits, the member's process.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::resource::{Resource, getrlimit};

use crate::doctor::facts::{Host, Process};

const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
const RMEM_MAX: &str = "/proc/sys/net/core/rmem_max";
const OPTMEM_MAX: &str = "/proc/sys/net/core/optmem_max";

/// `process` is this member's, if it is known; `runs` is whether there is one.
pub(super) fn look(process: Option<Process>, runs: bool) -> Host {
    let read = |path: &str| fs::read_to_string(path).ok();
    let number = |path: &str| read(path)?.trim().parse().ok();
    let open_files = match process {
        Some(process) => limit_of(process.pid),
        // That of a process that is not known may be any.
        None if runs => None,
        // An agent raises its limit as far as it may.
        None => getrlimit(Resource::RLIMIT_NOFILE)
            .ok()
            .map(|(_, hard)| hard),
    };
    Host {
        clock_source: read(CLOCK_SOURCE).map(|text| text.trim().to_owned()),
        open_files,
        rmem_max: number(RMEM_MAX),
        optmem_max: number(OPTMEM_MAX),
    }
}

/// How many open files a process may have.
fn limit_of(pid: u32) -> Option<u64> {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    soft_limit(&limits)
}

fn soft_limit(limits: &str) -> Option<u64> {
    let mut lines = limits.lines();
    let files = lines.find_map(|line| line.strip_prefix("Max open files"))?;
    match files.split_ascii_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

/// The process that has the state directory `path` locked: this member's. Read from what the kernel
/// tells of locks, as whoever takes the lock to find out may keep out an agent that starts.
pub(super) fn process_of(path: &Path) -> Option<Process> {
    let lock = path.join("lock");
    let inode = lock.symlink_metadata().ok()?.ino();
    let told: u32 = fs::read_to_string(&lock).ok()?.trim().parse().ok()?;
    let locks = fs::read_to_string("/proc/locks").ok()?;
    if !is_locked(&locks, told, inode) {
        return None;
    }
    let stat = fs::read_to_string(format!("/proc/{told}/stat")).ok()?;
    Some(Process {
        pid: told,
        is_stopped: is_stopped(&stat),
    })
}

/// Whether the process `pid` has the file with this inode locked by flock(2).
fn is_locked(locks: &str, pid: u32, inode: u64) -> bool {
    let (pid, inode) = (pid.to_string(), inode.to_string());
    locks.lines().any(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let is_exclusive = fields.next() == Some("FLOCK") && fields.nth(1) == Some("WRITE");
        let is_its = fields.next() == Some(&pid);
        // Of a file system with several devices the first two parts name another than stat(2) does.
        let file = fields.next().and_then(|file| file.rsplit(':').next());
        is_exclusive && is_its && file == Some(&inode)
    })
}

/// By SIGSTOP and its like, or by a debugger.
fn is_stopped(stat: &str) -> bool {
    let state = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.split_ascii_whitespace().next());
    matches!(state, Some("T" | "t"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_tells_is_understood() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max processes             31589                31589                processes\n\
                      Max open files            16640                20480                files\n";
        assert_eq!(soft_limit(limits), Some(16_640));
        let unlimited = limits.replace("16640", "unlimited");
        assert_eq!(soft_limit(&unlimited), Some(u64::MAX));
        assert_eq!(soft_limit(""), None);

        let locks = "1: FLOCK  ADVISORY  READ 7 fe:00:30 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 7 fe:00:31 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 7 fe:00:32 0 EOF\n";
        for (pid, inode, expected) in [
            (7, 30, false),
            (7, 31, false),
            (7, 32, true),
            (8, 32, false),
        ] {
            assert_eq!(is_locked(locks, pid, inode), expected, "{pid} {inode}");
        }

        assert!(is_stopped("12 (a) T) T 1 12"));
        assert!(!is_stopped("12 (T ) S 1 12"));
    }
}
