//! What `include/distlock.h` declares. As handles are looked up and not followed, and what is stored
//! goes to a place that is there or to none, all but options and what comes back is safe.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::ptr;

// The library's functions are in it.
use distlock as _;

pub type Handle = *mut c_void;

/// A string, or NULL.
#[repr(transparent)]
pub struct Text<'a>(*const c_char, PhantomData<&'a CStr>);

impl<'a> From<Option<&'a CStr>> for Text<'a> {
    fn from(text: Option<&'a CStr>) -> Self {
        Self(text.map_or(ptr::null(), CStr::as_ptr), PhantomData)
    }
}

#[repr(C)]
pub struct Options {
    pub size: usize,
    pub config_path: *const c_char,
    pub id: u32,
    pub socket_path: *const c_char,
    pub state_dir: *const c_char,
    pub flags: u32,
    pub at: *const c_char,
}

unsafe extern "C-unwind" {
    safe fn distlock_version() -> *const c_char;
    safe fn distlock_strerror(code: c_int) -> *const c_char;
    pub fn distlock_agent_open(options: *const Options, agent: Option<&mut Handle>) -> c_int;
    pub fn distlock_agent_open_driven(options: *const Options, agent: Option<&mut Handle>)
    -> c_int;
    pub safe fn distlock_agent_fd(agent: Handle) -> c_int;
    pub safe fn distlock_agent_process(agent: Handle) -> c_int;
    pub safe fn distlock_agent_sigio(agent: Handle, is_on: c_int) -> c_int;
    pub safe fn distlock_agent_timeout(agent: Handle, timeout_ms: Option<&mut i64>) -> c_int;
    pub safe fn distlock_agent_close(agent: Handle);
    pub safe fn distlock_mutex_open(
        agent: Handle,
        name: Text<'_>,
        mutex: Option<&mut Handle>,
    ) -> c_int;
    pub safe fn distlock_mutex_close(mutex: Handle);
    pub safe fn distlock_lock(mutex: Handle, fence: Option<&mut u64>) -> c_int;
    pub safe fn distlock_lock_begin(mutex: Handle) -> c_int;
    pub safe fn distlock_lock_poll(mutex: Handle, fence: Option<&mut u64>) -> c_int;
    pub safe fn distlock_lock_cancel(mutex: Handle) -> c_int;
    pub safe fn distlock_trylock(mutex: Handle, fence: Option<&mut u64>) -> c_int;
    pub safe fn distlock_timedlock(
        mutex: Handle,
        timeout_ms: i64,
        fence: Option<&mut u64>,
    ) -> c_int;
    pub safe fn distlock_unlock(mutex: Handle) -> c_int;
    pub safe fn distlock_is_held(mutex: Handle) -> c_int;
    pub safe fn distlock_lost_fd(mutex: Handle) -> c_int;
    pub safe fn distlock_sem_open(
        agent: Handle,
        name: Text<'_>,
        permits: u32,
        sem: Option<&mut Handle>,
    ) -> c_int;
    pub safe fn distlock_fence_check(file: Text<'_>, fence: u64) -> c_int;
    pub safe fn distlock_sem_wait(sem: Handle) -> c_int;
    pub safe fn distlock_sem_trywait(sem: Handle) -> c_int;
    pub safe fn distlock_sem_timedwait(sem: Handle, timeout_ms: i64) -> c_int;
    pub safe fn distlock_sem_post(sem: Handle) -> c_int;
    pub safe fn distlock_sem_getvalue(sem: Handle, value: Option<&mut c_int>) -> c_int;
    pub safe fn distlock_sem_close(sem: Handle);
}

/// What a function returned: never that the library is defective.
pub fn code(code: c_int) -> c_int {
    assert_ne!(code, -libc::EIO, "a defect in the library");
    assert!(code > -4096 && code < 1 << 20, "{code} is no code");
    code
}

/// A handle of the local group.
pub fn open_local() -> Handle {
    let mut agent = ptr::null_mut();
    // SAFETY: no options.
    let got = unsafe { distlock_agent_open(ptr::null(), Some(&mut agent)) };
    assert_eq!(got, 0);
    agent
}

pub fn version() -> &'static CStr {
    // SAFETY: a string that lives on.
    unsafe { CStr::from_ptr(distlock_version()) }
}

pub fn words(code: c_int) -> &'static CStr {
    // SAFETY: a string that lives on, as the header says.
    unsafe { CStr::from_ptr(distlock_strerror(code)) }
}
