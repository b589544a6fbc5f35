//! A future of the library, for Python: polled by an event loop, or waited for in slices.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::wakeups::Wakeups;

/// How late a thread that waits learns that a signal came: Ctrl-C ends its wait.
pub(crate) const SLICE: Duration = Duration::from_millis(100);

/// The outcome, as soon as there is an interpreter to make it in.
pub(crate) type Outcome = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

type Work = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// Something that was asked for, and has no outcome yet. Dropping it withdraws it.
#[pyclass(frozen, module = "distlock._distlock")]
pub(crate) struct Pending(Mutex<Option<Work>>);

impl Pending {
    pub(crate) fn new(work: impl Future<Output = Outcome> + Send + 'static) -> Self {
        Self(Mutex::new(Some(Box::pin(work))))
    }

    fn take(&self) -> Option<Work> {
        let mut work = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        work.take()
    }
}

#[pymethods]
impl Pending {
    /// The outcome in a tuple, or `None` if `token` of `wakeups` will be woken, or if it was told or
    /// withdrawn before. It does not wait.
    fn poll(
        &self,
        py: Python<'_>,
        wakeups: &Wakeups,
        token: u64,
    ) -> PyResult<Option<(Py<PyAny>,)>> {
        let polled = {
            let mut work = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(future) = work.as_mut() else {
                return Ok(None);
            };
            let polled = poll(future, &wakeups.waker(token));
            if polled.is_ready() {
                *work = None;
            }
            polled
        };
        match polled {
            Poll::Ready(outcome) => outcome(py).map(|outcome| Some((outcome,))),
            Poll::Pending => Ok(None),
        }
    }

    /// Waits for the outcome without the GIL. A signal whose handler raises withdraws it.
    fn wait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let mut work = self.take().ok_or_else(over)?;
        let sleeper = Arc::new(Sleeper {
            thread: thread::current(),
            is_woken: AtomicBool::new(false),
        });
        let waker = Waker::from(Arc::clone(&sleeper));
        loop {
            let polled = py.detach(|| {
                let polled = poll(&mut work, &waker);
                if polled.is_pending() {
                    sleeper.sleep();
                }
                polled
            });
            if let Poll::Ready(outcome) = polled {
                return outcome(py);
            }
            py.check_signals()?;
        }
    }

    /// Withdraws it: what was granted at this moment goes back.
    fn cancel(&self) {
        drop(self.take());
    }
}

fn poll(work: &mut Work, waker: &Waker) -> Poll<Outcome> {
    work.as_mut().poll(&mut Context::from_waker(waker))
}

fn over() -> PyErr {
    PyRuntimeError::new_err("the outcome of this request was returned before")
}

/// A thread that waits.
struct Sleeper {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Sleeper {
    /// Sleeps until it is woken, at most for a slice.
    fn sleep(&self) {
        if !self.is_woken.swap(false, Ordering::AcqRel) {
            thread::park_timeout(SLICE);
            self.is_woken.store(false, Ordering::Release);
        }
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
