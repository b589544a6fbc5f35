//! The command line of `distlock doctor`.

use clap::Args;

use super::Group;

/// Look for faults on this host, in its group and in its file, and tell what to do.
///
/// It asks the agent, by --socket or as this host has it, and reads the configuration, by --config and
/// --id or as the packaged agent has it. Either alone will do: a check that lacks the other says so. It
/// changes nothing.
///
/// Prints one line for each check: ok, warn, fail or skipped. Exits with 0 if there is nothing to see
/// to, 1 if there is a warning, 2 if something fails: as Nagios has it.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct Doctor {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) group: Group,
}
