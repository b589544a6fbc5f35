//! `distlock keygen`: a new key for a group.

use std::io;
use std::process::ExitCode;

use distlock_agent::runtime::GroupKey;

use crate::args::Keygen;
use crate::exit::{self, CANNOT_CREATE, Failure};
use crate::refusal;

/// Writes a new key, and prints its id.
///
/// # Errors
/// 73 if there is a file of that name already; 66, 69 or 77 if it cannot be written.
pub(crate) fn keygen(args: &Keygen) -> Result<ExitCode, Failure> {
    let key = GroupKey::generate().map_err(|error| refusal::system("draw a key", error))?;
    let path = args.file.display();
    key.write(&args.file).map_err(|error| {
        if error.kind() == io::ErrorKind::AlreadyExists {
            let what = format!("{path} is there already, and a key in it may be in use");
            return Failure::new(CANNOT_CREATE, what + ": choose another name, or remove it");
        }
        let what = format!("cannot write {path}: {error}; choose a directory of yours");
        Failure::new(refusal::code_of(&error), what)
    })?;
    exit::print(format!("{}\n", key.id()).as_bytes(), "the key's id")
}
