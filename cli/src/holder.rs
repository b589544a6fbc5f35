//! Who holds a lock that was not acquired in time.

use std::thread;
use std::time::Duration;

use crossbeam_channel::bounded;
use distlock::status::{HolderStatus, Status};
use distlock::{Agent, LockName};

use crate::exit::clean;

/// Who holds the lock `name`, in words, if the group tells within `limit`: `-n` and `-w` keep their
/// time.
pub(crate) fn held_by(agent: &Agent, name: &LockName, limit: Duration) -> Option<String> {
    let (sender, receiver) = bounded(1);
    let agent = agent.clone();
    let ask = move || {
        let status = agent.status();
        // Before whoever waits goes on: a member leaves when its last clone is dropped.
        drop(agent);
        let _ = sender.send(status);
    };
    thread::Builder::new().spawn(ask).ok()?;
    first(receiver.recv_timeout(limit).ok()?.ok()?, name)
}

fn first(status: Status, name: &LockName) -> Option<String> {
    let name = name.to_string();
    let lock = status.locks.into_iter().find(|lock| lock.name == name)?;
    let (first, others) = lock.holders.split_first()?;
    Some(match others.len() {
        0 => words(first),
        more => format!("{} and {more} more", words(first)),
    })
}

/// A holder: its member, host, process and program.
pub(crate) fn words(holder: &HolderStatus) -> String {
    let member = match holder.member {
        0 => String::new(),
        id => format!("member {id}, "),
    };
    // The name of the program alone: its arguments may hold what is not for everybody.
    let program = holder.command.split_whitespace().next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default();
    let (host, program, pid) = (clean(&holder.host), clean(program), holder.pid);
    format!("{member}host {host}, process {pid} ({program})")
}
