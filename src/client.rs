//! This process as a client of the host's agent.

use std::io;
use std::path::Path;
use std::time::Duration;

use distlock_agent::runtime::{self, ConnectError};

use crate::Agent;
use crate::error::OpenError;
use crate::group::Connection;

impl Agent {
    /// Connects to the agent of this host that serves the socket `path`, and takes part in its
    /// group through it.
    ///
    /// When the connection breaks, the agent takes back what this process holds: guards are lost,
    /// and everything afterwards is an error. There is no silent reconnection.
    ///
    /// # Errors
    /// If no agent serves the socket, or this user may not use it.
    pub fn connect(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let client = runtime::Client::connect(path.as_ref()).map_err(open)?;
        Connection::Client(client).into_agent()
    }

    /// Connects as [`Agent::connect`] does, which waits for an agent that stands still for five
    /// seconds, but within `time`. Until that is over since this call, nothing else that is asked of
    /// the agent is waited for any longer either: so a program has one deadline for all that it does
    /// up to its first lock.
    ///
    /// # Errors
    /// As for [`Agent::connect`].
    pub fn connect_within(path: impl AsRef<Path>, time: Duration) -> Result<Self, OpenError> {
        let client = runtime::Client::connect_within(path.as_ref(), time).map_err(open)?;
        Connection::Client(client).into_agent()
    }
}

fn open(error: ConnectError) -> OpenError {
    match error {
        ConnectError::NoAnswer { path, source } if source.kind() == io::ErrorKind::InvalidData => {
            OpenError::OtherBuild { socket: path }
        }
        ConnectError::NotServed { path, source } | ConnectError::NoAnswer { path, source } => {
            OpenError::Unreachable {
                socket: path,
                source,
            }
        }
        ConnectError::TooMany { path } => OpenError::TooManyClients { socket: path },
        ConnectError::Forbidden { path, source } => OpenError::Permission {
            what: format!("the agent at {} is not for this user", path.display()),
            source,
            hint: "run as its user, or as root".to_owned(),
        },
        ConnectError::Untrusted { path, uid } => OpenError::Permission {
            what: format!("the agent at {} is not trusted", path.display()),
            source: io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("it runs as user {uid}, neither this user nor root"),
            ),
            hint: "use an agent of this user or of root".to_owned(),
        },
        ConnectError::Unsafe { path, why } => OpenError::Unsafe {
            reason: format!(
                "the agent at {} is not trusted: {why}; {}",
                path.display(),
                why.advice()
            ),
        },
        ConnectError::Io { path, source } => {
            let what = format!("cannot connect to the agent at {}", path.display());
            OpenError::io(what, source, "run as its user, or as root")
        }
        error => OpenError::Io {
            what: "cannot connect to the agent".to_owned(),
            source: io::Error::other(error),
        },
    }
}
