//! Threads and futures that are waited for no longer than is sensible.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use distlock_agent::runtime::clock;

use crate::bench::WAIT;

/// What a thread of its own does. A thread that never ends is left behind.
pub(crate) struct Job<T>(Receiver<thread::Result<T>>);

/// Does that in a thread of its own.
pub(crate) fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Job<T> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        // Nobody need wait for it.
        let _ = sender.send(catch_unwind(AssertUnwindSafe(work)));
    });
    Job(receiver)
}

impl<T> Job<T> {
    /// What has come of it.
    #[track_caller]
    pub(crate) fn get(self) -> T {
        let Ok(outcome) = self.0.recv_timeout(WAIT) else {
            panic!("the thread hangs");
        };
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Whether it goes on. To be asked before [`Job::get`] is.
    pub(crate) fn goes_on(&self) -> bool {
        matches!(self.0.try_recv(), Err(TryRecvError::Empty))
    }
}

/// Wakes the thread that runs the task.
struct Task(Thread);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end in this thread, which sleeps until somebody wakes it.
#[track_caller]
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Task(thread::current())));
    let mut future = pin!(future);
    let begun = clock::now();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let waited = clock::now().since(begun);
        assert!(waited < WAIT, "nobody wakes the task");
        thread::park_timeout(WAIT - waited);
    }
}

/// Polls a future, which nobody wakes.
pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}
