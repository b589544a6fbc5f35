//! The options of `distlock top`.

use std::time::Duration;

use clap::Args;

use crate::watch::args::parse_interval;

#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct Top {
    /// How often to ask the agent: 0.1 to 3600 seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", allow_negative_numbers = true,
          value_parser = parse_interval)]
    pub(crate) interval: Duration,

    /// Ask twice, --interval apart, print one screen as plain text, and end
    #[arg(long)]
    pub(crate) once: bool,

    #[command(flatten)]
    pub(crate) group: crate::args::Group,
}
