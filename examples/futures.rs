//! Waits for a lock as a task does, and drops its work if the lock is lost.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use distlock::{Agent, DistMutex};

async fn job() -> u32 {
    7
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mutex = Agent::open()?.mutex("nightly report")?;
    let guard = mutex.lock_async_for(Duration::from_secs(10)).await?;
    let report = guard.hold(job()).await?;
    println!("{report}");
    guard.unlock_async().await?;
    Ok(())
}

/// In place of a runtime's executor: runs one task on this thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut task = pin!(run());
    loop {
        match task.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outcome) => return outcome,
            Poll::Pending => thread::park(),
        }
    }
}
