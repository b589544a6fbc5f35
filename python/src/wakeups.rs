//! How threads of an agent, which never take the GIL, wake what Python waits for.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

/// An eventfd that is readable when one of the tokens that wait was woken.
#[pyclass(frozen, module = "distlock._distlock")]
pub(crate) struct Wakeups(Arc<Shared>);

struct Shared {
    event: EventFd,
    /// Those that were woken. Also threads of agents take the mutex, so in a forked child it may be
    /// locked for ever: the child makes another object.
    woken: Mutex<Vec<u64>>,
}

#[pymethods]
impl Wakeups {
    #[new]
    fn new() -> PyResult<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let event = EventFd::from_value_and_flags(0, flags)
            .map_err(|errno| PyOSError::new_err((errno as i32, errno.desc())))?;
        let woken = Mutex::default();
        Ok(Self(Arc::new(Shared { event, woken })))
    }

    /// The descriptor.
    fn fileno(&self) -> RawFd {
        self.0.event.as_raw_fd()
    }

    /// The tokens that were woken since the last call. The descriptor is not readable then.
    fn take(&self) -> PyResult<Vec<u64>> {
        match self.0.event.read() {
            Ok(_) | Err(Errno::EAGAIN) => {}
            Err(errno) => return Err(PyOSError::new_err((errno as i32, errno.desc()))),
        }
        let mut woken = self.0.woken.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(std::mem::take(&mut *woken))
    }
}

impl Wakeups {
    /// What wakes `token`.
    pub(crate) fn waker(&self, token: u64) -> Waker {
        let shared = Arc::clone(&self.0);
        Waker::from(Arc::new(Token { shared, token }))
    }
}

struct Token {
    shared: Arc<Shared>,
    token: u64,
}

impl Wake for Token {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let woken = self.shared.woken.lock();
        woken
            .unwrap_or_else(PoisonError::into_inner)
            .push(self.token);
        // It fails only if 2^64 - 2 wakeups were not taken.
        let _ = self.shared.event.write(1);
    }
}
