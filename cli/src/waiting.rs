//! Waiting as a member of a group. A member that just died would be missed by all the others until
//! it is started again; so a signal that ends the waiting first lets it leave. And while its file
//! and another member's disagree, it would wait for ever.

use std::io::{self, PipeReader};
use std::os::fd::AsFd;
use std::thread;

use crossbeam_channel::{Receiver, bounded, select};
use distlock::{Agent, Event};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::exit::{self, Failure};
use crate::refusal;
use crate::signals::{self, Signals};

/// Why there was no waiting until the end.
#[derive(Debug)]
pub(crate) enum Broken {
    /// This signal wants the process to end.
    Signal(i32),
    /// Something is wrong.
    Failure(Failure),
}

impl From<Failure> for Broken {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

/// Does `wait`, which waits for something that `agent` gives, and closes the agent when a signal
/// or a disagreement about the configuration puts an end to it.
///
/// # Errors
/// What put an end to it, or what `wait` says.
pub(crate) fn attend<T>(
    agent: &Agent,
    signals: &Signals,
    wait: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Broken> {
    let events = agent.events();
    let (done, until_done) = io::pipe().map_err(|error| refusal::system("open a pipe", error))?;
    let (until_told, told) = bounded::<()>(0);
    thread::scope(|scope| {
        let by_signal = scope.spawn(|| {
            let signal = deadly_signal(signals, &done);
            signal.inspect(|_| agent.close())
        });
        let by_disagreement = scope.spawn(|| {
            let failure = disagreement(agent, &events, &told);
            failure.inspect(|_| agent.close())
        });
        let waited = wait();
        drop(until_done);
        drop(until_told);
        let signal = by_signal.join().expect("it does not panic");
        let failure = by_disagreement.join().expect("it does not panic");
        match (signal, failure) {
            (Some(number), _) => Err(Broken::Signal(number)),
            (None, Some(failure)) => Err(Broken::Failure(failure)),
            (None, None) => Ok(waited?),
        }
    })
}

/// Waits for a signal that ends a process, and lets the others have their way; `None` when `done`
/// is closed at its other end.
fn deadly_signal(signals: &Signals, done: &PipeReader) -> Option<i32> {
    loop {
        let mut fds = [
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(done.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return None,
        }
        let is_done = fds[1].revents().is_some_and(|events| !events.is_empty());
        while let Ok(Some(number)) = signals.next() {
            if signals::is_deadly(number) {
                return Some(number);
            }
            signals::let_act(number);
        }
        if is_done {
            return None;
        }
    }
}

/// Waits for a member whose configuration differs, so that the group cannot form; `None` when
/// `told` ends. A newcomer with a wrong file is no reason to leave a group that is there.
fn disagreement(agent: &Agent, events: &Receiver<Event>, told: &Receiver<()>) -> Option<Failure> {
    let wrong = |event| {
        let Event::Disagreement {
            member,
            key,
            ours,
            theirs,
            refused,
        } = event
        else {
            return None;
        };
        let is_alone = || agent.status().is_ok_and(|status| status.epoch == 0);
        (refused || is_alone()).then(|| differs(member.as_u16(), &key, &ours, &theirs))
    };
    loop {
        select! {
            recv(events) -> event => if let Some(failure) = wrong(event.ok()?) {
                return Some(failure);
            },
            // Of the two that may be there, `select!` takes one by chance.
            recv(told) -> _ => return events.try_iter().find_map(wrong),
        }
    }
}

/// What is wrong between two members' files, and what to do.
pub(crate) fn differs(member: u16, key: &str, ours: &str, theirs: &str) -> Failure {
    let message = match key {
        // The files may be the same by now: what was founded with others is on disk.
        "voters" => format!(
            "member {member} is in another cluster of this group's name, where the voters are \
             {theirs}, and here they are {ours}; stop the agents of one of the two, remove their \
             states, and start them again with the other's configuration"
        ),
        _ => format!(
            "the configuration differs from that of member {member}: {key}: {theirs} there, {ours} \
             here; make the files the same, and start again whose was wrong"
        ),
    };
    Failure::new(exit::CONFIG, message)
}
