//! Opening a group, and what a member warns of.

use std::path::{Path, PathBuf};
use std::time::Duration;

use distlock::Agent;
use distlock::discovery::GroupChoice;
use tracing::Level;

use crate::args::LogFormat;
use crate::exit::Failure;
use crate::log;

/// Opens `group`; the host's agent has to answer within `time`, if that is given.
///
/// # Errors
/// 66, 69, 77 or 78, as the library says why it cannot be.
pub(crate) fn open_within(group: &GroupChoice, time: Option<Duration>) -> Result<Agent, Failure> {
    if group.has_own_agent() {
        tell_warnings();
        if let Some(path) = audit_of(group) {
            tracing::warn!(
                event = "audit-unwritten",
                "this program is an agent itself, and writes nothing to the audit log {}: only \
                 'distlock agent' does; to have it written, start distlock agent, and run this program as its client",
                path.display()
            );
        }
    }
    Ok(match time {
        Some(time) => group.open_within(time)?,
        None => group.open()?,
    })
}

/// Where the group's file has an audit log written. What is wrong with the file is told when it is opened.
fn audit_of(group: &GroupChoice) -> Option<PathBuf> {
    match group {
        GroupChoice::Member(member) => member.load().ok()?.audit().map(Path::to_owned),
        GroupChoice::Store(choice) => choice.load().ok()?.audit().map(Path::to_owned),
        _ => None,
    }
}

/// Opens `group`, as long as it takes.
///
/// # Errors
/// As for [`open_within`].
pub(crate) fn open(group: &GroupChoice) -> Result<Agent, Failure> {
    open_within(group, None)
}

/// Has what a member warns of told: it concerns who runs it. State that a reboot loses, for one.
pub(crate) fn tell_warnings() {
    log::start(LogFormat::Text, Level::WARN);
}
