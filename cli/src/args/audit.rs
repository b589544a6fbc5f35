//! The command line of `distlock audit`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;

use crate::completions;

#[derive(Debug, Args)]
pub(crate) struct Audit {
    #[command(subcommand)]
    pub(crate) command: AuditCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    Verify(AuditVerify),
}

/// Tell whether an audit log is as the agent wrote it.
///
/// Each line has the hash of the line before: what was changed or taken out shows. Lines that are missing
/// since there was no room for them are counted. What was cut off at the end does not show: compare the last
/// hash with one that was noted elsewhere.
///
/// Exits with 0 if nothing was changed or taken out; 1 if something was, with the file and the line; 66 no
/// such file; 77 permission.
#[derive(Debug, Args)]
pub(crate) struct AuditVerify {
    /// The files of one log, the oldest first; `-` is standard input
    #[arg(value_name = "FILE", required = true, add = ArgValueCompleter::new(completions::files))]
    pub(crate) files: Vec<PathBuf>,
}
