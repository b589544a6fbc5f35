//! How the program ends: the contract's exit codes, and the one line that says why.

use std::ffi::OsStr;
use std::fmt::{self, Display};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use distlock_agent::protocol::is_displayable;

/// The lock was not acquired in time.
pub(crate) const NOT_ACQUIRED: u8 = 1;
/// The command line is wrong.
pub(crate) const USAGE: u8 = 64;
/// A file that was named does not exist.
pub(crate) const NO_INPUT: u8 = 66;
/// No agent, no quorum, or the place is taken.
pub(crate) const UNAVAILABLE: u8 = 69;
/// A file that is to be made is there already.
pub(crate) const CANNOT_CREATE: u8 = 73;
/// Standard output takes no more.
pub(crate) const IO: u8 = 74;
/// A deadlock that can be told.
pub(crate) const DEADLOCK: u8 = 75;
/// Permission denied.
pub(crate) const NO_PERMISSION: u8 = 77;
/// The configuration is wrong, or members disagree about it.
pub(crate) const CONFIG: u8 = 78;
/// The lock was lost while the command ran.
pub(crate) const LOST: u8 = 79;
/// The command was found and could not be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: u8 = 127;

/// Why the program gives up.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// Ends with `code`. `message` says what, why and what to do; line breaks in it (from file
    /// names, say) become spaces, so that it stays one line.
    pub(crate) fn new(code: u8, message: impl Display) -> Self {
        Self {
            code,
            message: one_line(&message.to_string()),
        }
    }

    /// A wrong command line; `command` is the one whose help tells more.
    pub(crate) fn usage(message: impl Display, command: &str) -> Self {
        Self::new(
            USAGE,
            format_args!("{message}; see 'distlock {command} --help'"),
        )
    }

    /// Says why on standard error, and gives the code.
    pub(crate) fn report(&self) -> ExitCode {
        say(self);
        self.code()
    }

    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Writes one line to standard error. Whoever closed it does not want to know.
pub(crate) fn say(message: impl Display) {
    let _ = io::stderr().write_all(format!("distlock: {message}\n").as_bytes());
}

/// Writes to standard output; `what` it is for the message. A reader that went away wants no more.
///
/// # Errors
/// If standard output takes no more.
pub(crate) fn print(bytes: &[u8], what: &str) -> Result<ExitCode, Failure> {
    write(bytes, what).map(|_| ExitCode::SUCCESS)
}

/// The same; says whether the reader is still there.
///
/// # Errors
/// As for [`print`].
pub(crate) fn write(bytes: &[u8], what: &str) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new(
            IO,
            format_args!("cannot write {what}: {error}; check what standard output goes to"),
        )),
    }
}

/// A file's name or an argument as text for a message: quoted, and on one line.
pub(crate) fn quoted(text: impl AsRef<OsStr>) -> String {
    format!(
        "'{}'",
        text.as_ref()
            .as_bytes()
            .escape_ascii()
            .to_string()
            .replace("\\'", "'")
    )
}

/// `text` with each run of white space and control characters made one space, and what else could
/// mislead who reads it escaped.
pub(crate) fn one_line(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    let words: Vec<_> = words.filter(|word| !word.is_empty()).map(clean).collect();
    words.join(" ")
}

/// What others chose, names and command lines, without what would upset a terminal or mislead who
/// reads it.
pub(crate) fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_displayable(c) {
            out.push(c);
        } else {
            out.extend(c.escape_default());
        }
    }
    out
}
