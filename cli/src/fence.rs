//! `distlock fence`: the resource's side of a lock.

use std::process::ExitCode;

use distlock::{Fence, FenceChecker, FenceError, LockName};

use crate::args::{FenceCheck, FenceCommand, Group};
use crate::exit::{CONFIG, Failure, NO_PERMISSION, NOT_ACQUIRED, UNAVAILABLE};
use crate::{refusal, store};

/// Does what is asked about fences.
///
/// # Errors
/// 1 if the fence is lower than one that was seen; 64, 66, 69, 77 or 78 if that cannot be known.
pub(crate) fn fence(command: &FenceCommand) -> Result<ExitCode, Failure> {
    match command {
        FenceCommand::Check(args) => check(args),
    }
}

fn check(args: &FenceCheck) -> Result<ExitCode, Failure> {
    let fence = parse(&args.fence)?;
    if let Some(at) = &args.at {
        let name = LockName::new(args.file.as_os_str().as_encoded_bytes());
        let name = name.map_err(|error| Failure::usage(error, "fence check"))?;
        let flags = Group {
            at: Some(at.clone()),
            ..Group::default()
        };
        store::check_fence(&store::named(&flags, "fence check")?, &name, fence.as_u64())?;
        return Ok(ExitCode::SUCCESS);
    }
    FenceChecker::new(&args.file).check(fence)?;
    Ok(ExitCode::SUCCESS)
}

/// A fence as `DISTLOCK_FENCE` has it, and nothing that merely looks like one.
fn parse(text: &str) -> Result<Fence, Failure> {
    let fence: Fence = text
        .parse()
        .map_err(|error| Failure::usage(error, "fence check"))?;
    if fence.to_string() == text {
        Ok(fence)
    } else {
        let what = "a fence is written in digits, without a sign or leading zeros";
        Err(Failure::usage(what, "fence check"))
    }
}

impl From<FenceError> for Failure {
    fn from(error: FenceError) -> Self {
        let code = match &error {
            FenceError::Refused { .. } => NOT_ACQUIRED,
            FenceError::Busy { .. } => UNAVAILABLE,
            FenceError::Unsafe { .. } => NO_PERMISSION,
            FenceError::Io { source, .. } => refusal::code_of(source),
            _ => CONFIG,
        };
        Self::new(code, error)
    }
}
