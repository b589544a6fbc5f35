//! Threads of the library's own.

use std::io;
use std::os::unix::thread::JoinHandleExt;
use std::thread::{self, JoinHandle};

use nix::sys::pthread::pthread_self;
use nix::sys::signal::{SigSet, SigmaskHow};

use crate::runtime::os::sync::Mutex;

/// Starts a thread that takes no signals: they are for the application's own threads.
///
/// # Errors
/// If the system has no thread left.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let thread = thread::Builder::new().name(name.to_owned()).spawn(run);
    before.thread_set_mask()?;
    thread
}

/// Waits for the end of a thread that was told to end. Called on that very thread, by what its
/// owner wants done at a loss, it goes on: the thread ends by itself afterwards.
pub(crate) fn join(thread: &Mutex<Option<JoinHandle<()>>>) {
    let mut slot = thread.lock();
    let Some(thread) = slot.take() else { return };
    // `std::thread::current` panics in the destructors of a C thread's data.
    if thread.as_pthread_t() != pthread_self() && thread.join().is_err() {
        tracing::error!(
            event = "agent-failed",
            "a thread of the agent panicked at its end"
        );
    }
}
