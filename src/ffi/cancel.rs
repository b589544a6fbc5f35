//! Thread cancellation (`pthread_cancel`), which unwinds the stack of the cancelled thread.
//!
//! It may only unwind frames of Rust in which nothing is to be dropped. So all work is done with
//! cancellation disabled, and a wait is cut into slices: between two of them the thread is back in
//! the exported function, whose frame has nothing to drop, and there it may be cancelled. What it
//! waits for is kept with the thread meanwhile, and withdrawn when the thread ends ([`Parked`]).

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;

// `C-unwind`, unlike what the `libc` crate declares: cancellation unwinds out of these.
unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    fn pthread_testcancel();
}

/// `PTHREAD_CANCEL_DISABLE` of glibc and of musl.
const DISABLE: c_int = 1;

/// Disables cancellation; what to [`restore`].
pub(super) fn disable() -> c_int {
    let mut before = DISABLE;
    // SAFETY: `before` is a valid place. A number that the system refuses changes nothing.
    unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
    before
}

/// Makes cancellation what it was. To be called where nothing is to be dropped: with asynchronous
/// cancellation, which is not for callers of this library, the thread may end here.
pub(super) fn restore(before: c_int) {
    let mut ours = DISABLE;
    // SAFETY: `ours` is a valid place, and `before` came from the system.
    unsafe { pthread_setcancelstate(before, &raw mut ours) };
}

/// Ends this thread if it was cancelled and its cancellation was enabled `before`. To be called
/// where nothing is to be dropped.
pub(super) fn point(before: c_int) {
    restore(before);
    // SAFETY: if it unwinds, it does so through frames without anything to drop.
    unsafe { pthread_testcancel() };
    disable();
}

/// A place of each thread for a value that is dropped when the thread ends, however it ends. (What
/// `thread_local!` holds is not dropped when the main thread is cancelled.)
pub(super) struct Parked<T> {
    /// The key of the place, plus one; 0 before the first use.
    key: AtomicU32,
    values: PhantomData<fn() -> T>,
}

impl<T> Parked<T> {
    pub(super) const fn new() -> Self {
        Self {
            key: AtomicU32::new(0),
            values: PhantomData,
        }
    }

    /// Leaves `value` with this thread; what was there is dropped.
    pub(super) fn put(&self, value: T) -> Result<(), Errno> {
        let key = self.key()?;
        let _old = self.take();
        let value = Box::into_raw(Box::new(value));
        // SAFETY: the key is one that the system gave us.
        let code = unsafe { libc::pthread_setspecific(key, value.cast()) };
        if code == 0 {
            return Ok(());
        }
        // SAFETY: it was made above, and was not stored.
        drop(unsafe { Box::from_raw(value) });
        Err(Errno::from_raw(code))
    }

    /// Takes back what was left with this thread.
    pub(super) fn take(&self) -> Option<T> {
        let key = self.existing_key()?;
        // SAFETY: the key is one that the system gave us.
        let value = unsafe { libc::pthread_getspecific(key) }.cast::<T>();
        if value.is_null() {
            return None;
        }
        // SAFETY: as above. With a null pointer it needs no memory, and cannot fail.
        unsafe { libc::pthread_setspecific(key, std::ptr::null()) };
        // SAFETY: `put` made it of a box of this type, and it is in no place any more.
        Some(*unsafe { Box::from_raw(value) })
    }

    fn existing_key(&self) -> Option<libc::pthread_key_t> {
        self.key.load(Ordering::Acquire).checked_sub(1)
    }

    fn key(&self) -> Result<libc::pthread_key_t, Errno> {
        if let Some(key) = self.existing_key() {
            return Ok(key);
        }
        let mut key = 0;
        // SAFETY: `key` is a valid place, and the destructor takes what `put` stores.
        let code = unsafe { libc::pthread_key_create(&raw mut key, Some(drop_parked::<T>)) };
        if code != 0 {
            return Err(Errno::from_raw(code));
        }
        let race = self
            .key
            .compare_exchange(0, key + 1, Ordering::AcqRel, Ordering::Acquire);
        let Err(other) = race else { return Ok(key) };
        // SAFETY: another thread was faster; nobody has used this one.
        unsafe { libc::pthread_key_delete(key) };
        Ok(other - 1)
    }
}

/// What the system calls at the end of a thread, for its place that is not empty.
unsafe extern "C" fn drop_parked<T>(value: *mut c_void) {
    // SAFETY: `put` made it of a box of this type; the system has emptied the place.
    let value = unsafe { Box::from_raw(value.cast::<T>()) };
    // There is nobody left to tell of a panic, which has been reported on standard error.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(value)));
}
