//! The descriptors of this process, which clients share with the agent itself.

use std::os::fd::AsRawFd;

use nix::sys::resource::{Resource, getrlimit};

/// How many clients, and queues for what floods in, leave to the agent and its program. The agent opens
/// one file when it has put its state on disk, unless the file system can exchange two names; without
/// that one it has to end the next time. It opens one when it looks at the group's keys, and one for a
/// moment when a client or its command comes; the rest is for what the program does.
const RESERVED: u64 = 16;

/// Whether `fd` can be spared: the kernel gives the lowest number that is free, so a high one tells
/// that there are few left.
pub(crate) fn is_spare(fd: &impl AsRawFd) -> bool {
    let number = u64::try_from(fd.as_raw_fd()).unwrap_or(u64::MAX);
    getrlimit(Resource::RLIMIT_NOFILE)
        .is_ok_and(|(limit, _)| number < limit.saturating_sub(RESERVED))
}
