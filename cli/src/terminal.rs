//! The controlling terminal, and whose turn it is to use it.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;
use nix::sys::signal::killpg;
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The terminal that controls this session. SIGTTOU must be blocked while it is used, or the
/// kernel stops whoever takes it from the background.
#[derive(Debug)]
pub(crate) struct Terminal {
    tty: File,
}

impl Terminal {
    /// The terminal, if this session has one.
    pub(crate) fn open() -> Option<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NOCTTY);
        options.open("/dev/tty").ok().map(|tty| Self { tty })
    }

    /// Whether this process group has the foreground.
    pub(crate) fn is_ours(&self) -> bool {
        tcgetpgrp(&self.tty) == Ok(getpgrp())
    }

    /// Gives the foreground to `group`. A terminal that was hung up has none to give, which is no
    /// reason not to run.
    pub(crate) fn give(&self, group: Pid) {
        let _ = tcsetpgrp(&self.tty, group);
    }

    /// Takes the foreground back from `group`, or from a group that is gone; not from anybody
    /// else, such as a shell that took it in the meantime.
    pub(crate) fn take_back(&self, group: Option<Pid>) {
        let Ok(foreground) = tcgetpgrp(&self.tty) else {
            return;
        };
        if Some(foreground) == group || killpg(foreground, None) == Err(Errno::ESRCH) {
            let _ = tcsetpgrp(&self.tty, getpgrp());
        }
    }
}
