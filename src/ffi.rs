//! The C library: what `include/distlock.h` declares, which is generated from this file, [`options`] and
//! [`functions`].
//!
//! The functions are a border, and do no work of their own: what C gives is checked and turned into
//! what the rest of the crate speaks, and errors are turned into numbers. What is behind the handles
//! is in the other modules below.
//!
//! # Safety
//! As in any C interface: what is not NULL points to what its type says, for as long as the call
//! lasts. Handles are excepted, since they are looked up and not followed.

#![expect(
    unsafe_code,
    reason = "C has exported names, raw pointers and cancellation"
)]
#![expect(non_camel_case_types, reason = "the names of the C interface")]
#![expect(unreachable_pub, reason = "the header is made of the public items")]

mod agent;
mod arguments;
mod cancel;
mod code;
mod decided;
mod functions;
mod lost;
mod mutex;
mod options;
mod readable;
mod sem;
mod table;
mod wait;

use std::ffi::{CStr, c_char, c_int};

/// This process's part in a group. All agents, mutexes and semaphores may be used by all threads
/// at once.
pub struct distlock_agent(());

/// A mutex of a group, by its name.
pub struct distlock_mutex(());

/// A counting semaphore of a group, by its name.
pub struct distlock_sem(());

/// The version of the library, such as "0.2.0". It need not be that of this header.
#[unsafe(no_mangle)]
pub extern "C" fn distlock_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no NUL byte"),
        };
    VERSION.as_ptr()
}

/// What a code that a function returned means, in a few words. It takes plain errno values too, of
/// either sign. Never NULL; not to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn distlock_strerror(code: c_int) -> *const c_char {
    code::words(code).as_ptr()
}
