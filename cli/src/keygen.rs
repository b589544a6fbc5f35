//! `distlock keygen`: a new key for a group.

use std::process::ExitCode;

use distlock_agent::runtime::{GroupKey, KeyWriteError};

use crate::args::Keygen;
use crate::exit::{self, CANNOT_CREATE, Failure, NO_PERMISSION};
use crate::refusal;

/// Writes a new key, and prints its id.
///
/// # Errors
/// 73 if there is a file of that name already; 66, 69 or 77 if it cannot be written; 77 also if
/// others could decide what is in its directory.
pub(crate) fn keygen(args: &Keygen) -> Result<ExitCode, Failure> {
    let key = GroupKey::generate().map_err(|error| refusal::system("draw a key", error))?;
    key.write(&args.file).map_err(|error| {
        let code = match &error {
            KeyWriteError::Exists { .. } => CANNOT_CREATE,
            KeyWriteError::Io { source, .. } => refusal::code_of(source),
            _ => NO_PERMISSION,
        };
        Failure::new(code, error)
    })?;
    exit::print(format!("{}\n", key.id()).as_bytes(), "the key's id")
}
