//! The command line of `distlock store`.

use clap::{Args, Subcommand};

use super::Group;

#[derive(Debug, Args)]
pub(crate) struct Store {
    #[command(subcommand)]
    pub(crate) command: StoreCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    Check(StoreCheck),
    Init(StoreInit),
    Gc(StoreGc),
}

/// Tell what the store is, whether it keeps what it acknowledges, and what the group has there.
///
/// Nothing is written. Exits with 0 if the store answers and is as it is required to be. Otherwise: 64
/// no store is named; 69 it does not answer, or refuses this user; 77 or 78 a password or certificate
/// cannot be used, or the store may forget and require=keeps was said.
#[derive(Debug, Args)]
pub(crate) struct StoreCheck {
    #[command(flatten)]
    pub(crate) group: Group,
}

/// Make in the store what has to be there before anything is locked.
///
/// In PostgreSQL that is a table, in etcd nothing. What is there already stays. Exits as check does.
#[derive(Debug, Args)]
pub(crate) struct StoreInit {
    /// Print the statements, and do nothing
    #[arg(long)]
    pub(crate) print: bool,

    #[command(flatten)]
    pub(crate) group: Group,
}

/// Remove the records of locks that nobody has used for long, and tell which.
///
/// A record keeps the last fence of its lock. Without it the next fence is the time of day: higher than
/// the last one, unless the clock of the host that gives it was set back by more than --idle. Exits as
/// check does.
#[derive(Debug, Args)]
pub(crate) struct StoreGc {
    /// Of locks that were granted last longer ago than that
    #[arg(long, value_name = "TIME", default_value = "30d")]
    pub(crate) idle: humantime::Duration,

    /// Tell which, and remove nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) group: Group,
}
