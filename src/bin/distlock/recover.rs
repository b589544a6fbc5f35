//! `distlock recover`: a voter begins anew.

use std::process::ExitCode;

use crate::args;
use crate::exit::{Failure, say};
use crate::group;
use crate::way;

/// Has this host's member forget what it voted for.
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
    let config = member.load()?;
    if !config.recover()? {
        say(format_args!(
            "member {} has no state, and begins as a new voter anyway",
            member.id
        ));
    }
    Ok(ExitCode::SUCCESS)
}
