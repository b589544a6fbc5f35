//! The library's errors as exceptions, which `distlock/_errors.py` defines.

use std::io;

use distlock::{HandleError, LockError, OpenError, StatusError, UnlockError};
use pyo3::prelude::*;

/// An exception by its name in `distlock._errors`, with the library's whole line.
pub(crate) struct Failure {
    class: &'static str,
    message: String,
    errno: Option<i32>,
    missing: Vec<u16>,
}

impl Failure {
    pub(crate) fn new(class: &'static str, message: impl ToString) -> Self {
        Self {
            class,
            message: message.to_string(),
            errno: None,
            missing: Vec::new(),
        }
    }

    fn system(message: impl ToString, source: &io::Error) -> Self {
        Self {
            errno: source.raw_os_error(),
            ..Self::new("SystemFailure", message)
        }
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| {
            failure
                .exception(py)
                .map_or_else(|error| error, Self::from_value)
        })
    }
}

impl Failure {
    fn exception<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let module = py.import("distlock._errors")?;
        let exception = module.getattr(self.class)?.call1((self.message,))?;
        if let Some(errno) = self.errno {
            exception.setattr("errno", errno)?;
        }
        if self.class == "NoQuorum" {
            exception.setattr("missing", self.missing)?;
        }
        Ok(exception)
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        match &error {
            OpenError::Io { source, .. } => Self::system(&error, source),
            OpenError::Permission { source, .. } => Self {
                errno: source.raw_os_error(),
                ..Self::new("AccessRefused", &error)
            },
            OpenError::Directory { .. } | OpenError::Unsafe { .. } => {
                Self::new("AccessRefused", &error)
            }
            OpenError::Unreachable { .. }
            | OpenError::HostGroup { .. }
            | OpenError::OtherBuild { .. } => Self::new("Unreachable", &error),
            OpenError::Config(_)
            | OpenError::Options { .. }
            | OpenError::Address { .. }
            | OpenError::Keys { .. } => Self::new("InvalidConfig", &error),
            OpenError::TooManyClients { .. } | OpenError::TooManyFiles { .. } => {
                Self::new("LimitExceeded", &error)
            }
            _ => Self::new("OpenError", &error),
        }
    }
}

impl From<HandleError> for Failure {
    fn from(error: HandleError) -> Self {
        let class = match &error {
            HandleError::Io { source, .. } => return Self::system(&error, source),
            HandleError::NoAnswer => "NoAnswer",
            HandleError::Closed => "Closed",
            HandleError::Forked => "Forked",
            _ => "InvalidLock",
        };
        Self::new(class, error)
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        let class = match &error {
            LockError::Io { source, .. } => return Self::system(&error, source),
            LockError::NoQuorum { missing } => {
                let missing = missing.iter().map(|absent| absent.member.as_u16());
                return Self {
                    missing: missing.collect(),
                    ..Self::new("NoQuorum", &error)
                };
            }
            LockError::Deadlock => "Deadlock",
            LockError::Closed => "Closed",
            LockError::WrongAlgorithm { .. }
            | LockError::WrongElection { .. }
            | LockError::NotShareable { .. }
            | LockError::WrongPermits { .. } => "InvalidLock",
            LockError::Limit { .. } => "LimitExceeded",
            LockError::NoAnswer { .. } | LockError::Unreachable { .. } => "NoAnswer",
            LockError::Store { .. } => "StoreRefused",
            LockError::Disconnected { .. } => "Disconnected",
            LockError::Forked => "Forked",
            _ => "Error",
        };
        Self::new(class, error)
    }
}

impl From<UnlockError> for Failure {
    fn from(error: UnlockError) -> Self {
        match &error {
            UnlockError::Lost | UnlockError::Closed => Self::new("LockLost", &error),
            UnlockError::Forked => Self::new("Forked", &error),
            UnlockError::Io { source, .. } => Self::system(&error, source),
            _ => Self::new("Error", &error),
        }
    }
}

impl From<StatusError> for Failure {
    fn from(error: StatusError) -> Self {
        let class = match &error {
            StatusError::Io { source, .. } => return Self::system(&error, source),
            StatusError::Closed => "Closed",
            StatusError::Forked => "Forked",
            StatusError::Disconnected { .. } => "Disconnected",
            StatusError::Unavailable { .. } => "NoAnswer",
            _ => "Error",
        };
        Self::new(class, error)
    }
}
