//! The check of a fence at a resource.

use std::ffi::{OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;

use crate::ffi::arguments::text;
use crate::ffi::code;
use crate::ffi::wait::call;
use crate::{Fence, FenceChecker};

/// Refuses a fence that is lower than one that was seen, at the resource that a lock protects: the
/// holder hands its fence to the resource, and the resource does what it is asked only after 0.
/// `file` keeps the highest fence, durably; it is made by the first check, and `file`.lock beside
/// it. Any number of processes and threads may check at once.
///
/// Returns 0, or
/// -ESTALE: the fence is lower than one that was seen, so that another was inside since;
/// -EINVAL: `fence` is 0 or above INT64_MAX, or there is no `file`;
/// -EBADMSG: the file is damaged, or none of fences;
/// -EBUSY: another process has had `file`.lock locked for ten seconds;
/// or what the system says, such as -ENOENT for a directory that is not there. After anything but
/// 0 the fence is not let through.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn distlock_fence_check(file: *const c_char, fence: u64) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let file = unsafe { text(file) }.ok_or(Errno::EINVAL)?;
        let fence = Fence::new(fence).ok_or(Errno::EINVAL)?;
        let checker = FenceChecker::new(OsStr::from_bytes(file.to_bytes()));
        checker.check(fence).map_err(|error| code::fence(&error))?;
        Ok(0)
    })
}
