//! Opening a group, and what a member warns of.

use std::fmt;
use std::time::Duration;

use distlock::Agent;
use distlock::discovery::GroupChoice;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::exit::{Failure, one_line};

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
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        // Where standard error is closed it could only panic.
        .log_internal_errors(false)
        .event_format(Line)
        .init();
}

/// A warning as one line, like all that this program says.
struct Line;

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        context.format_fields(Writer::new(&mut text), event)?;
        writeln!(writer, "distlock: {}", one_line(&text))
    }
}
