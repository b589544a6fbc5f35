//! `distlock recover`: an operator's word that a cluster is abandoned.

use std::process::ExitCode;

use crate::args;
use crate::audit::AuditFile;
use crate::exit::Failure;
use crate::group;
use crate::way;

/// Has this host's member forget what it voted for, and found another cluster with the other voters.
///
/// # Errors
/// 64 without `--force`, or if it is not said which member; 69 if that runs; 66, 77 or 78 if its
/// configuration or state cannot be used.
pub(crate) fn recover(args: &args::Recover) -> Result<ExitCode, Failure> {
    if !args.force {
        let what = "this makes a new group where an old one may still run: when it is certain that \
                    a majority of the voters has lost its state, say --force";
        return Err(Failure::usage(what, "recover"));
    }
    let member = group::member(&args.group, "recover")?;
    way::tell_warnings();
    let node = member.load()?;
    // Before anything is changed: what cannot be told is not done.
    let audit = node.audit();
    let audit = audit.map(|path| AuditFile::open(path, node.me().as_u16()));
    let audit = audit.transpose()?;
    node.recover(args.cluster)?;
    audit.map_or(Ok(()), AuditFile::note_recovery)?;
    Ok(ExitCode::SUCCESS)
}
