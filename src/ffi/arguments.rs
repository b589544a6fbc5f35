//! What C programs pass: strings, places for what is returned, times.

use std::ffi::{CStr, c_char};
use std::ptr;
use std::time::Duration;

use nix::errno::Errno;

use crate::Fence;
use crate::backend::Patience;

/// What a C program says about time; `None` if it is nonsense.
pub(super) fn patience(timeout_ms: i64) -> Option<Patience> {
    match timeout_ms {
        -1 => Some(Patience::For(Duration::MAX)),
        _ => Some(Patience::For(Duration::from_millis(
            u64::try_from(timeout_ms).ok()?,
        ))),
    }
}

/// What stores a fence at `fence`.
///
/// # Safety
/// `fence` is NULL, or may be written to until the function of the interface returns.
pub(super) unsafe fn tell(fence: *mut u64) -> impl FnOnce(Option<Fence>) + Copy {
    move |granted: Option<Fence>| {
        // SAFETY: the caller's promise.
        if let Some(fence) = unsafe { fence.as_mut() } {
            *fence = granted.map_or(0, Fence::as_u64);
        }
    }
}

/// The place for a new handle, with NULL in it.
///
/// # Safety
/// `place` is NULL, or may be written to.
pub(super) unsafe fn out<'a, T>(place: *mut *mut T) -> Result<&'a mut *mut T, Errno> {
    if place.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller's promise. It may not have been initialised, so it is written first.
    unsafe {
        place.write(ptr::null_mut());
        Ok(&mut *place)
    }
}

/// The string at `text`, unless it is NULL.
///
/// # Safety
/// `text` is NULL, or a string that lives and does not change during `'a`.
pub(super) unsafe fn text<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller's promise.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}
