//! Opening a group, and what a member warns of.

use std::time::Duration;

use distlock::discovery::GroupChoice;
use distlock::{Agent, NodeConfig};
use tracing::Level;

use crate::args::LogFormat;
use crate::exit::Failure;
use crate::log;

/// Opens `group`; the host's agent has to answer within `time`, if that is given.
///
/// # Errors
/// 66, 69, 77 or 78, as the library says why it cannot be.
pub(crate) fn open_within(group: &GroupChoice, time: Option<Duration>) -> Result<Agent, Failure> {
    if let GroupChoice::Member(member) = group {
        tell_warnings();
        // What is wrong with its file is told when it is opened.
        if let Some(path) = member.load().ok().as_ref().and_then(NodeConfig::audit) {
            tracing::warn!(
                event = "audit-unwritten",
                "this program is a member itself, and writes nothing to the audit log {}: only an agent \
                 does; to have it written, start distlock agent, and run this program as its client",
                path.display()
            );
        }
    }
    Ok(match time {
        Some(time) => group.open_within(time)?,
        None => group.open()?,
    })
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
