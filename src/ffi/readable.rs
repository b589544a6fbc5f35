//! A descriptor for poll(2) and its like, which is readable while something is so.

use std::os::fd::{AsFd, AsRawFd, RawFd};

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};

/// Made when a program wants it.
#[derive(Default)]
pub(super) struct Readable {
    is_on: bool,
    event: Option<EventFd>,
}

impl Readable {
    /// The descriptor, which is the same each time.
    pub(super) fn fd(&mut self) -> Result<RawFd, Errno> {
        if self.event.is_none() {
            let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
            let event = EventFd::from_value_and_flags(u32::from(self.is_on), flags)?;
            self.event = Some(event);
        }
        let event = self.event.as_ref().ok_or(Errno::EIO)?;
        Ok(event.as_fd().as_raw_fd())
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.event.is_some()
    }

    pub(super) fn set(&mut self, is_on: bool) {
        if is_on == self.is_on {
            return;
        }
        self.is_on = is_on;
        if let Some(event) = &self.event {
            // Neither can fail: it holds one when it is readable, and nothing else.
            let _ = if is_on {
                event.write(1).map(drop)
            } else {
                event.read().map(drop)
            };
        }
    }
}
