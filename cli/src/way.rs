//! Opening a group, and what a member warns of.

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
    if let GroupChoice::Member(_) = group {
        tell_warnings();
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
