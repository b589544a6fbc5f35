//! The ways into a group: the library's agent for what [`Group`] says.

use std::fmt;

use distlock::{Agent, Config, NodeConfig};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::exit::{Failure, one_line};
use crate::group::{Group, Member};

/// Opens `group`.
///
/// # Errors
/// 66, 69, 77 or 78, as the library says why it cannot be.
pub(crate) fn open(group: &Group) -> Result<Agent, Failure> {
    match group {
        Group::Local => Ok(Agent::local()?),
        Group::Host(socket) => Ok(Agent::connect(socket)?),
        Group::Member(member) => join(member, |config| config),
    }
}

/// Becomes `member`, with what `equip` adds to its configuration.
///
/// # Errors
/// As for [`open`].
pub(crate) fn join(
    member: &Member,
    equip: impl FnOnce(NodeConfig) -> NodeConfig,
) -> Result<Agent, Failure> {
    tell_warnings();
    let mut config: NodeConfig = Config::load(&member.config)?.node(member.id)?;
    if let Some(dir) = &member.state_dir {
        config = config.with_state_dir(dir);
    }
    Ok(Agent::from_config(equip(config))?)
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
