//! Agents without a thread, each driven by a thread of the program, as its event loop would.

use std::os::fd::AsFd as _;
use std::thread;

use distlock::{Agent, Driven};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// When it is looked at least whether the agent was closed, in milliseconds.
const LOOK: u16 = 100;

/// Drives it until it is closed.
pub(crate) fn drive(driven: Driven) -> Agent {
    let agent = driven.agent().clone();
    thread::spawn(move || {
        while driven.process().is_ok() {
            let mut polled = [PollFd::new(driven.as_fd(), PollFlags::POLLIN)];
            // Whatever has happened, there is no harm in processing it.
            let _ = poll(&mut polled, PollTimeout::from(LOOK));
        }
    });
    agent
}
