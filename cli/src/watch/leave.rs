//! A member that watches leaves its group before a signal ends it.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use distlock::Agent;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::exit::Failure;
use crate::refusal;
use crate::signals::{self, Signals};

/// The signals are blocked, so that all threads that are started from here on leave them alone.
pub(super) struct Prepared(Signals);

/// A thread that waits for them. The one that prints may stand still in the middle of a line, whose
/// reader has stopped.
pub(super) struct Leave {
    is_asked: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Leave {
    /// Before the member starts.
    pub(super) fn prepare() -> Result<Prepared, Failure> {
        let signals = Signals::block().map_err(|error| refusal::system("read signals", error))?;
        Ok(Prepared(signals))
    }

    /// If a signal has closed the agent, waits for that thread, which ends this process by the signal.
    pub(super) fn finish(self) {
        if self.is_asked.load(Ordering::Acquire) {
            let _ = self.thread.join();
        }
    }
}

impl Prepared {
    /// From now on the first signal that would end the process closes `agent` before it does.
    pub(super) fn at_signal(self, agent: &Agent) -> Result<Leave, Failure> {
        let is_asked = Arc::new(AtomicBool::new(false));
        let (asked, agent) = (Arc::clone(&is_asked), agent.clone());
        let leave = move || {
            let number = deadly_signal(&self.0);
            asked.store(true, Ordering::Release);
            agent.close();
            signals::die_of(number);
            // The first process of a container cannot be ended so.
            std::process::exit(128 + number);
        };
        let thread = thread::Builder::new().name("signals".to_owned());
        let thread = thread.spawn(leave);
        let thread = thread.map_err(|error| refusal::system("start a thread", error))?;
        Ok(Leave { is_asked, thread })
    }
}

/// Waits for a signal that ends a process, and lets the others have their way.
fn deadly_signal(signals: &Signals) -> i32 {
    loop {
        let mut fds = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut fds, PollTimeout::NONE);
        while let Ok(Some(number)) = signals.next() {
            if signals::is_deadly(number) {
                return number;
            }
            signals::let_act(number);
        }
    }
}
