//! What a person at a terminal is told while a command waits for its lock.

use std::io::{self, IsTerminal};
use std::time::{Duration, SystemTime};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use distlock::status::{LockStatus, Status, WaiterStatus};
use distlock::{Agent, LockName};
use distlock_agent::runtime::thread;
use nix::unistd::gethostname;

use crate::exit::{clean, say};
use crate::holder;
use crate::quorum;

/// How long it waits without a word, and how long at least between a line and the next question.
const FIRST: Duration = Duration::from_secs(1);
/// How long at most between two questions: each that brings no news doubles it.
const LAST: Duration = Duration::from_secs(32);

/// Tells on standard error, if that is a terminal, for what the command waits: after a second, and again when
/// the holder or the place in line is another. Plain lines, so that nothing has to be taken back.
///
/// It lasts until this is dropped, which waits for nothing: an answer may be on its way for seconds. So what
/// has an agent of its own must close it before it ends.
#[derive(Debug)]
pub(super) struct Notice {
    _waits: Sender<()>,
}

impl Notice {
    /// From now on, for at most `limit`. Where that is soon over, or no thread is left, nothing is told.
    pub(super) fn begin(agent: &Agent, name: &LockName, limit: Option<Duration>) -> Self {
        let (waits, until) = bounded(0);
        let is_long = limit.is_none_or(|limit| limit > FIRST * 2);
        if is_long && io::stderr().is_terminal() {
            let (agent, name) = (agent.clone(), name.to_string());
            let _ = thread::spawn("distlock-notice", move || tell(&agent, &name, &until));
        }
        Self { _waits: waits }
    }
}

/// Tells until `until` says no more.
fn tell(agent: &Agent, name: &str, until: &Receiver<()>) {
    let host = gethostname().unwrap_or_default();
    let host = host.to_string_lossy();
    let own = |waiter: &WaiterStatus| waiter.pid == std::process::id() && waiter.host == *host;
    let mut told = String::new();
    let mut pause = FIRST;
    while until.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        pause = (pause * 2).min(LAST);
        let Ok(status) = agent.status() else {
            continue;
        };
        let Reason { what, text } = reason(&status, name, own, SystemTime::now());
        if what == told || until.try_recv().is_err_and(|error| error.is_disconnected()) {
            continue;
        }
        say(format_args!("waiting for '{name}'{text}"));
        told = what;
        pause = FIRST * 2;
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

/// For what the waiter waits that is `own`.
fn reason(
    status: &Status,
    name: &str,
    own: impl Fn(&WaiterStatus) -> bool,
    wall: SystemTime,
) -> Reason {
    let plain = |text: String| Reason {
        what: text.clone(),
        text,
    };
    if let Some(store) = status.store.as_ref().filter(|store| !store.ok) {
        let (at, why) = (clean(&store.at), clean(&store.reason));
        return plain(format!(": the store {at}: {why}"));
    }
    if !status.quorum.ok {
        return plain(format!(": {}", quorum::fact(&status.quorum, None)));
    }
    let Some(lock) = status.locks.iter().find(|lock| lock.name == name) else {
        return plain(String::new());
    };
    let place = place(status, lock, own);
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

/// Where in line the waiter is that is `own`. Among members nobody knows of an order, only who waits since when.
fn place(status: &Status, lock: &LockStatus, own: impl Fn(&WaiterStatus) -> bool) -> String {
    let Some(place) = lock.waiters.iter().position(own) else {
        return String::new();
    };
    let all = lock.waiters.len();
    match (status.member > 0, all - 1) {
        (false, _) => format!("; place {} of {all} in line", place + 1),
        (true, 0) => "; nobody else waits".to_owned(),
        (true, 1) if place == 0 => "; 1 other waits".to_owned(),
        (true, 1) => "; 1 other waits, and for longer".to_owned(),
        (true, others) => format!("; {others} others wait, {place} of them for longer"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use distlock::status::{HolderStatus, QuorumStatus};

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

    fn own(waiter: &WaiterStatus) -> bool {
        waiter.pid == 9
    }

    fn says(status: &Status) -> String {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(75);
        reason(status, "printer", own, wall).text
    }

    #[test]
    fn the_holder_and_the_place_in_line_are_told() {
        assert_eq!(
            says(&status(&[8, 9])),
            ", held for 1m 5s by member 2, host beta, process 7 (lp); 1 other waits, and for longer"
        );
        let mut local = status(&[8, 9]);
        local.member = 0;
        assert!(says(&local).ends_with("; place 2 of 2 in line"));
        assert_eq!(
            says(&status(&[8])),
            ", held for 1m 5s by member 2, host beta, process 7 (lp)"
        );
        let mut several = status(&[9]);
        let holder = several.locks[0].holders[0].clone();
        several.locks[0].holders.push(holder);
        assert!(says(&several).ends_with("(lp) and 1 more; nobody else waits"));
        let mut free = status(&[9]);
        free.locks[0].holders.clear();
        assert_eq!(says(&free), "; nobody else waits");
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
            reason(&status, "printer", own, wall).what
        };
        assert_eq!(what(20), what(80));
        assert_ne!(
            what(20),
            reason(&self::status(&[8, 9]), "printer", own, SystemTime::now()).what
        );
    }
}
