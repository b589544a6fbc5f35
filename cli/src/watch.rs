//! `distlock status --watch` and `distlock who NAME --watch`: the state, and then a line for each
//! change, for scripts and for people that follow a group.
//!
//! Who holds and who waits is no event of an agent. So the state is asked for again and again, at an
//! interval, and at each event of the group besides.

pub(crate) mod args;
mod change;
mod leave;

use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use crossbeam_channel::{Receiver, never};
use distlock::discovery::GroupChoice;
use distlock::status::{REPORT_TIME, SCHEMA, Status};
use distlock::{Agent, Event, StatusError};
use distlock_agent::protocol::Time;
use distlock_agent::runtime::clock;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;

use crate::exit::{self, Failure};
use crate::status::{await_view, json_line};
use crate::{group, way};
use change::Change;
pub(crate) use change::keep_unanswered;
use leave::Leave;

/// Events come in flocks, and in a group whose network is bad without end: two looks are at least so
/// far apart.
const MIN_GAP: Duration = Duration::from_millis(100);
/// How many times in a row an agent may be unable to answer that is there: too many ask, or it stood
/// still with its host.
const MAX_UNANSWERED: u32 = 3;

/// Prints what changes, of the lock `only` if one is given, until nobody reads it any more.
///
/// # Errors
/// As for `status`: if there is no way to the group, or it ends.
pub(crate) fn watch(
    flags: &crate::args::Group,
    only: Option<&str>,
    interval: Duration,
    json: bool,
) -> Result<ExitCode, Failure> {
    let command = if only.is_some() { "who" } else { "status" };
    let group = group::select(flags, command)?;
    let is_member = matches!(group, GroupChoice::Member(_));
    if !group.has_own_agent() && std::process::id() != 1 {
        return follow(&way::open(&group)?, only, interval, json);
    }
    // A member that just died would be missed by the others, and the first process of a container is
    // not ended by a signal that it does not handle.
    let leave = Leave::prepare()?;
    let agent = way::open(&group)?;
    let leave = leave.at_signal(&agent)?;
    if is_member {
        await_view(&agent);
    }
    let ended = follow(&agent, only, interval, json);
    leave.finish();
    agent.close();
    ended
}

fn follow(
    agent: &Agent,
    only: Option<&str>,
    interval: Duration,
    json: bool,
) -> Result<ExitCode, Failure> {
    // First, so that no event is missed between a look and the next.
    let mut events = agent.events();
    let mut seen = Status::default();
    let mut unanswered = 0;
    loop {
        let asked = clock::now();
        match agent.status() {
            Ok(mut status) => {
                unanswered = 0;
                if clock::now().since(asked) >= REPORT_TIME {
                    keep_unanswered(&seen, &mut status);
                }
                let text = lines(&change::changes(&seen, &status, only), json);
                if !exit::write(text.as_bytes(), "the status")? {
                    return Ok(ExitCode::SUCCESS);
                }
                seen = status;
            }
            Err(StatusError::Unavailable { .. }) if unanswered + 1 < MAX_UNANSWERED => {
                unanswered += 1;
            }
            Err(error) => return Err(error.into()),
        }
        await_next(&mut events, asked, interval);
        if !is_read() {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Waits until the state is to be asked for again.
fn await_next(events: &mut Receiver<Event>, asked: Time, interval: Duration) {
    match events.recv_timeout((asked + interval).since(clock::now())) {
        Ok(_) => clock::sleep((asked + MIN_GAP).since(clock::now())),
        Err(error) if error.is_timeout() => {}
        // The next answer says why.
        Err(_) => *events = never(),
    }
    // One look tells of all that have come meanwhile.
    while events.try_recv().is_ok() {}
}

/// Whether somebody still reads standard output, if that is a pipe or a socket. Otherwise it would
/// show at the next change only.
fn is_read() -> bool {
    let out = io::stdout();
    let mut fds = [PollFd::new(out.as_fd(), PollFlags::empty())];
    // These are told whatever is asked for.
    let gone = PollFlags::POLLERR | PollFlags::POLLHUP;
    let told = poll(&mut fds, PollTimeout::ZERO).is_ok();
    !told || !fds[0].revents().is_some_and(|told| told.intersects(gone))
}

/// One line for each change, all with the time of the look.
fn lines(changes: &[Change<'_>], json: bool) -> String {
    #[derive(Serialize)]
    struct Line<'a> {
        schema: u32,
        ts: &'a str,
        #[serde(flatten)]
        change: &'a Change<'a>,
    }
    let ts = clock::rfc3339(SystemTime::now());
    let line = |change| match json {
        true => json_line(&Line {
            schema: SCHEMA,
            ts: &ts,
            change,
        }),
        false => format!("{ts} {change}\n"),
    };
    changes.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::{bounded, unbounded};

    use super::*;

    #[test]
    fn one_look_tells_of_many_events_and_not_at_once() {
        let (sender, mut events) = unbounded();
        for _ in 0..1_000 {
            sender.send(Event::Removed).expect("room");
        }
        let asked = clock::now();
        await_next(&mut events, asked, Duration::from_secs(3600));
        assert!(clock::now().since(asked) >= MIN_GAP);
        assert!(events.is_empty());
    }

    #[test]
    fn where_no_event_can_come_any_more_the_state_is_asked_for_at_the_interval() {
        let (_, mut events) = bounded::<Event>(0);
        // At once: the agent has ended, perhaps.
        let asked = clock::now();
        await_next(&mut events, asked, Duration::from_secs(3600));
        let interval = Duration::from_millis(20);
        let asked = clock::now();
        await_next(&mut events, asked, interval);
        assert!(clock::now().since(asked) >= interval);
    }
}
