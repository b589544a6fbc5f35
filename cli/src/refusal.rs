//! The library's errors as exit codes. Their messages say what to do already.

use std::fmt::Display;
use std::io;

use distlock::{ConfigError, HandleError, LockError, OpenError, ParseAlgorithmError, StatusError};
use distlock_lab::checkers::Violation;

use crate::exit::{CONFIG, Failure, NO_INPUT, NO_PERMISSION, UNAVAILABLE, USAGE};

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let error = match error {
            OpenError::Config(error) => return error.into(),
            error => error,
        };
        let code = match &error {
            OpenError::Directory { .. }
            | OpenError::Permission { .. }
            | OpenError::Unsafe { .. } => NO_PERMISSION,
            OpenError::Damaged { .. } | OpenError::Address { .. } | OpenError::Keys { .. } => {
                CONFIG
            }
            OpenError::Io { source, .. } => code_of(source),
            _ => UNAVAILABLE,
        };
        Self::new(code, error)
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        let code = match &error {
            ConfigError::Read { source, .. } => match code_of(source) {
                // What is there is no file that can be read.
                UNAVAILABLE if !is_shortage(source) => CONFIG,
                code => code,
            },
            _ => CONFIG,
        };
        Self::new(code, error)
    }
}

impl From<ParseAlgorithmError> for Failure {
    fn from(error: ParseAlgorithmError) -> Self {
        Self::usage(error, "run")
    }
}

impl From<HandleError> for Failure {
    fn from(error: HandleError) -> Self {
        let code = match &error {
            HandleError::Name(_) => USAGE,
            HandleError::Closed => return agent_ended(&"it did not answer"),
            HandleError::NoAnswer | HandleError::Forked => UNAVAILABLE,
            _ => CONFIG,
        };
        Self::new(code, error)
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        let code = match &error {
            LockError::WrongAlgorithm { .. }
            | LockError::WrongElection { .. }
            | LockError::WrongPermits { .. }
            | LockError::NotShareable { .. } => CONFIG,
            LockError::Io { source, .. } => code_of(source),
            LockError::Disconnected { reason } => return agent_ended(reason),
            _ => UNAVAILABLE,
        };
        Self::new(code, error)
    }
}

impl From<StatusError> for Failure {
    fn from(error: StatusError) -> Self {
        let code = match &error {
            StatusError::Io { source, .. } => code_of(source),
            StatusError::Disconnected { reason } => return agent_ended(reason),
            _ => UNAVAILABLE,
        };
        Self::new(code, error)
    }
}

impl From<Violation> for Failure {
    fn from(broken: Violation) -> Self {
        Self::new(
            UNAVAILABLE,
            format_args!(
                "the run broke a rule: {broken}; please report this with the command line"
            ),
        )
    }
}

/// The agent ended while this program used it.
fn agent_ended(reason: &dyn Display) -> Failure {
    Failure::new(
        UNAVAILABLE,
        format_args!(
            "the agent cannot be used any more: {reason}; see that it runs, and try again"
        ),
    )
}

/// Whether `error` says that there is not enough of something, which may change by itself.
fn is_shortage(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    error.kind() == io::ErrorKind::OutOfMemory
        || matches!(number, Some(libc::EMFILE | libc::ENFILE))
}

/// The system refuses what this program itself needs.
pub(crate) fn system(what: &str, error: impl Into<io::Error>) -> Failure {
    let error = error.into();
    let hint = match error.kind() {
        // What to do is said.
        io::ErrorKind::Unsupported => "",
        _ => "; see 'ulimit -a'",
    };
    Failure::new(
        code_of(&error),
        format_args!("cannot {what}: {error}{hint}"),
    )
}

/// The exit code for what the system says about a file.
pub(crate) fn code_of(error: &io::Error) -> u8 {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => NO_INPUT,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => NO_PERMISSION,
        _ => UNAVAILABLE,
    }
}
