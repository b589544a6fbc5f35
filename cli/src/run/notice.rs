//! What a person at a terminal is told while a command waits for its lock.

use std::io::{self, IsTerminal};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use distlock::status::Status;
use distlock::{Agent, LockName};
use distlock_agent::runtime::thread;

use crate::exit::{clean, say};
use crate::holder;
use crate::quorum;

/// How long it waits without a word, and then at least between two lines.
const FIRST: Duration = Duration::from_secs(1);
/// How long at most: each line doubles it.
const LAST: Duration = Duration::from_secs(32);

/// Tells on standard error, if that is a terminal, for what the command waits: after a second, and again when
/// the holder or the place in line is another. Plain lines, so that nothing has to be taken back.
#[derive(Debug)]
pub(super) struct Notice {
    waits: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Notice {
    /// From now on. Without a thread to spare nothing is told.
    pub(super) fn begin(agent: &Agent, name: &LockName) -> Self {
        let (waits, until) = bounded(0);
        let is_read = io::stderr().is_terminal();
        let thread = is_read.then(|| {
            let (agent, name) = (agent.clone(), name.to_string());
            thread::spawn("distlock-notice", move || tell(&agent, &name, &until))
        });
        Self {
            waits: Some(waits),
            thread: thread.and_then(Result::ok),
        }
    }

    /// The lock is held, and the command is not to wait for an answer that is on its way.
    pub(super) fn held(mut self) {
        self.thread = None;
    }
}

impl Drop for Notice {
    fn drop(&mut self) {
        self.waits = None;
        // A member leaves when its last clone is dropped.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Tells until `until` says no more.
fn tell(agent: &Agent, name: &str, until: &Receiver<()>) {
    let mut told = String::new();
    let mut pause = FIRST;
    while until.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        let Ok(status) = agent.status() else {
            continue;
        };
        let Reason { what, text } = reason(&status, name, std::process::id(), SystemTime::now());
        if what == told || until.try_recv().is_err_and(|error| error.is_disconnected()) {
            continue;
        }
        say(format_args!("waiting for '{name}'{text}"));
        told = what;
        pause = (pause * 2).min(LAST);
    }
}

/// For what a request waits.
#[derive(Debug, PartialEq, Eq)]
struct Reason {
    /// What makes it another one.
    what: String,
    /// What follows the lock's name.
    text: String,
}

/// For what the process `pid` of the host that is asked waits.
fn reason(status: &Status, name: &str, pid: u32, wall: SystemTime) -> Reason {
    let plain = |text: String| Reason {
        what: text.clone(),
        text,
    };
    if let Some(store) = status.store.as_ref().filter(|store| !store.ok) {
        let (at, why) = (clean(&store.at), clean(&store.reason));
        return plain(format!(": the store {at} cannot be reached: {why}"));
    }
    if !status.quorum.ok {
        return plain(format!(": {}", quorum::fact(&status.quorum, None)));
    }
    let Some(lock) = status.locks.iter().find(|lock| lock.name == name) else {
        return plain(String::new());
    };
    let mut waiters = lock.waiters.iter();
    let is_own = |member: u16| member == status.member || status.member == 0;
    let place = waiters.position(|waiter| waiter.pid == pid && is_own(waiter.member));
    let place = place.map_or_else(String::new, |place| {
        format!("; place {} of {} in line", place + 1, lock.waiters.len())
    });
    if lock.quarantined {
        return plain(format!(
            ": its holder's member is lost, and until the end of its lease nobody is let in{place}"
        ));
    }
    let Some((first, others)) = lock.holders.split_first() else {
        return plain(place);
    };
    let since = humantime::parse_rfc3339(&first.since).ok();
    let held = since.map_or_else(String::new, |since| {
        // Another host's clock may be ahead of this one's.
        let held = wall.duration_since(since).unwrap_or_default();
        let held = humantime::format_duration(Duration::from_secs(held.as_secs()));
        format!(" for {held}")
    });
    let more = match others.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let by = holder::words(first);
    Reason {
        what: format!("{}{by}{more}{place}", first.since),
        text: format!(", held{held} by {by}{more}{place}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use distlock::status::{HolderStatus, LockStatus, QuorumStatus, WaiterStatus};

    /// A lock that is held since 10 s after 1970 began, and waited for by these processes of member 1.
    fn status(waiters: &[u32]) -> Status {
        let holder = HolderStatus {
            member: 2,
            host: "beta".to_owned(),
            pid: 7,
            command: "/usr/bin/lp report.ps".to_owned(),
            command_pid: None,
            since: "1970-01-01T00:00:10Z".to_owned(),
            fence: Some(1),
        };
        let waiters = waiters.iter().map(|&pid| WaiterStatus {
            member: 1,
            host: "alpha".to_owned(),
            pid,
            since: holder.since.clone(),
        });
        let lock = LockStatus {
            name: "printer".to_owned(),
            algorithm: "manager".to_owned(),
            quarantined: false,
            waiters: waiters.collect(),
            holders: vec![holder],
        };
        Status {
            member: 1,
            quorum: QuorumStatus {
                ok: true,
                ..QuorumStatus::default()
            },
            locks: vec![lock],
            ..Status::default()
        }
    }

    fn says(status: &Status) -> String {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(75);
        reason(status, "printer", 9, wall).text
    }

    #[test]
    fn the_holder_and_the_place_in_line_are_told() {
        assert_eq!(
            says(&status(&[8, 9])),
            ", held for 1m 5s by member 2, host beta, process 7 (lp); place 2 of 2 in line"
        );
        assert_eq!(
            says(&status(&[8])),
            ", held for 1m 5s by member 2, host beta, process 7 (lp)"
        );
        let mut several = status(&[9]);
        let holder = several.locks[0].holders[0].clone();
        several.locks[0].holders.push(holder);
        assert!(says(&several).ends_with("(lp) and 1 more; place 1 of 1 in line"));
        let mut free = status(&[9]);
        free.locks[0].holders.clear();
        assert_eq!(says(&free), "; place 1 of 1 in line");
        free.locks.clear();
        assert_eq!(says(&free), "");
    }

    #[test]
    fn what_keeps_everybody_out_is_told_first() {
        let mut status = status(&[9]);
        status.locks[0].quarantined = true;
        assert!(says(&status).starts_with(": its holder's member is lost, "));
        status.quorum.ok = false;
        status.quorum.voters = vec![1, 2, 3];
        status.quorum.missing = vec![2, 3];
        assert!(
            says(&status).starts_with(": no quorum: members 2, 3 "),
            "{status:?}"
        );
    }

    #[test]
    fn time_alone_is_no_news() {
        let status = status(&[9]);
        let what = |secs| {
            let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(secs);
            reason(&status, "printer", 9, wall).what
        };
        assert_eq!(what(20), what(80));
        assert_ne!(
            what(20),
            reason(&self::status(&[8, 9]), "printer", 9, SystemTime::now()).what
        );
    }
}
