//! Which users are trusted.

use nix::unistd::geteuid;

pub(super) const EVERYBODY: u32 = 0o002;
pub(super) const OTHERS: u32 = 0o022;

/// Whether `user` is this process's or root.
pub fn is_trusted(user: u32) -> bool {
    user == 0 || user == geteuid().as_raw()
}
