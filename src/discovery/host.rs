//! What a host tells of the configured group that it is in.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use distlock_agent::runtime::Endpoint;
use nix::errno::Errno;

use crate::error::OpenError;

/// Where the agent of a host serves the programs of that host, unless it is told otherwise.
pub const HOST_SOCKET: &str = "/run/distlock/distlock.sock";

/// The configuration that the packaged agent reads.
const HOST_CONFIG: &str = "/etc/distlock/distlock.toml";

/// Every agent that serves at [`HOST_SOCKET`] makes this directory. Unlike the socket it is still
/// there after a reboot.
const HOST_STATE: &str = "/var/lib/distlock";

/// The paths by which a host tells whether it is in a configured group.
pub(super) struct Host<'a> {
    pub(super) socket: &'a Path,
    pub(super) config: &'a Path,
    pub(super) state: &'a Path,
}

impl Host<'static> {
    /// Nothing in a process's environment changes these.
    pub(super) fn this() -> Self {
        Self {
            socket: Path::new(HOST_SOCKET),
            config: Path::new(HOST_CONFIG),
            state: Path::new(HOST_STATE),
        }
    }
}

impl Host<'_> {
    /// The socket of the host's agent, served or not; `None` if nothing tells of a configured group.
    ///
    /// # Errors
    /// If something does, and the socket is not there.
    pub(super) fn agent(&self) -> Result<Option<PathBuf>, OpenError> {
        if is_there(self.socket)? {
            return Ok(Some(self.socket.to_owned()));
        }
        for path in [self.config, self.state] {
            if is_there(path)? {
                let socket = self.socket.to_owned();
                return Err(self.unserved(socket, Errno::ENOENT.into()));
            }
        }
        Ok(None)
    }

    /// There is a configured group, and nobody answers at `socket`.
    pub(super) fn unserved(&self, socket: PathBuf, source: io::Error) -> OpenError {
        let evidence = [self.config, self.state, self.socket].into_iter();
        let evidence = evidence.filter(|path| !matches!(is_there(path), Ok(false)));
        OpenError::HostGroup {
            socket,
            source,
            evidence: evidence.map(Into::into).collect(),
        }
    }

    /// Leaves on this host what tells that it has a configured group, also after a reboot.
    pub(super) fn mark(&self) -> Result<(), OpenError> {
        match fs::DirBuilder::new().mode(0o700).create(self.state) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(_) if matches!(is_there(self.state), Ok(true)) => Ok(()),
            made => made.map_err(|error| {
                let what = format!(
                    "cannot make {}, by which the programs of this host tell that they must not \
                     use the local group",
                    self.state.display()
                );
                OpenError::io(what, error, "make it as root, or serve at another socket")
            }),
        }
    }
}

/// Where an agent that was to serve at `endpoint` serves. At the socket where programs look for this
/// host's agent it leaves the socket's file behind, and a directory that is still there after a
/// reboot: without them programs would use the local group while no agent runs.
///
/// # Errors
/// If it cannot leave them.
pub(crate) fn host_endpoint(endpoint: Endpoint) -> Result<Endpoint, OpenError> {
    let path = match &endpoint {
        Endpoint::Path(path) | Endpoint::Lasting(path) => Some(path.clone()),
        Endpoint::Given(listener) => listener.path(),
    };
    let Some(path) = path.filter(|path| is_host_socket(path)) else {
        return Ok(endpoint);
    };
    Host::this().mark()?;
    Ok(match endpoint {
        Endpoint::Path(_) => Endpoint::Lasting(path),
        endpoint => endpoint,
    })
}

/// Whether `path` is [`HOST_SOCKET`], however it is spelled.
fn is_host_socket(path: &Path) -> bool {
    let host = Path::new(HOST_SOCKET);
    let directory = |path: &Path| path.parent().and_then(|parent| parent.canonicalize().ok());
    path == host
        || path.file_name() == host.file_name() && {
            let own = directory(path);
            own.is_some() && own == directory(host)
        }
}

/// Whether there is anything at `path`, be it a symbolic link that leads nowhere.
fn is_there(path: &Path) -> Result<bool, OpenError> {
    match path.symlink_metadata() {
        Ok(_) => Ok(true),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(false)
        }
        Err(source) => Err(OpenError::Permission {
            what: format!(
                "cannot tell whether this host has a configured group: {}",
                path.display()
            ),
            source,
            hint: "ask who runs its agent for access, or ask for the local group (--local, \
                   Agent::local, DISTLOCK_LOCAL)"
                .to_owned(),
        }),
    }
}
