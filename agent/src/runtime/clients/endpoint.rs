//! Where an agent serves the programs of its host: at a path, or at a socket that it is given.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use socket2::{Domain, SockRef, Type};

/// Where an agent serves the programs of its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// At this path: the agent makes the socket, for its own user alone, and removes it at its end.
    Path(PathBuf),
    /// The same, except that the socket's file stays when the agent ends: programs that look there
    /// see that nobody serves it, and do not take the host for one that has no agent.
    Lasting(PathBuf),
    /// At a socket that somebody else has made, who said who may connect, and who removes it.
    Given(Listener),
}

impl From<PathBuf> for Endpoint {
    fn from(path: PathBuf) -> Self {
        Self::Path(path)
    }
}

/// A Unix stream socket that listens, from somebody else: a service manager that starts the agent
/// when the first program connects, for one.
///
/// A copy is the same socket. Programs that connect before an agent serves it, or between two
/// incarnations of an agent, wait in its queue.
#[derive(Clone, Debug)]
pub struct Listener {
    socket: Arc<OwnedFd>,
}

impl Listener {
    /// Takes `socket`, which no program that this process starts inherits from now on.
    ///
    /// # Errors
    /// If it is anything but a Unix stream socket that listens at a path.
    pub fn new(socket: OwnedFd) -> Result<Self, ListenerError> {
        let kind = {
            let socket = SockRef::from(&socket);
            socket
                .domain()
                .and_then(|domain| Ok((domain, socket.r#type()?)))
        };
        match kind {
            Ok((Domain::UNIX, Type::STREAM)) => {}
            Ok(_) => return Err(ListenerError::OtherKind),
            Err(error) if error.raw_os_error() == Some(Errno::ENOTSOCK as i32) => {
                return Err(ListenerError::NotASocket);
            }
            Err(error) => return Err(error.into()),
        }
        if !SockRef::from(&socket).is_listener()? {
            return Err(ListenerError::NotListening);
        }
        if SockRef::from(&socket).local_addr()?.as_pathname().is_none() {
            return Err(ListenerError::NoPath);
        }
        fcntl(&socket, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).map_err(io::Error::from)?;
        Ok(Self {
            socket: Arc::new(socket),
        })
    }

    /// The path at which it listens, if it has one.
    pub fn path(&self) -> Option<PathBuf> {
        let address = SockRef::from(&*self.socket).local_addr().ok()?;
        address.as_pathname().map(Into::into)
    }

    /// Another descriptor of the same socket.
    pub(crate) fn try_clone(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone()
    }
}

/// Two are the same if they are copies of one.
impl PartialEq for Listener {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.socket, &other.socket)
    }
}

impl Eq for Listener {}

/// Why a descriptor is no socket to serve at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenerError {
    /// It is a file, a pipe or something else.
    #[error("it is no socket")]
    NotASocket,
    /// It is a socket for something else.
    #[error("it is no Unix stream socket")]
    OtherKind,
    /// It listens at an abstract name, which is nobody's: it has no owner and no mode, and who is
    /// first has it.
    #[error("it listens at an abstract name, and not at a path")]
    NoPath,
    /// It is a connection, or was only bound.
    #[error("it does not listen")]
    NotListening,
    /// The system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

    use socket2::{SockAddr, Socket};

    use super::*;

    #[test]
    fn only_a_unix_stream_socket_that_listens_will_do() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("s");
        let listener = Listener::new(UnixListener::bind(&path).unwrap().into()).unwrap();
        assert_eq!(listener.path(), Some(path));
        assert_eq!(listener, listener.clone());

        let refused = |fd: OwnedFd| Listener::new(fd).unwrap_err().to_string();
        let nobodys = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        // The kernel chooses the name.
        nobodys.bind(&SockAddr::unix("").unwrap()).unwrap();
        nobodys.listen(1).unwrap();
        let no_path = "it listens at an abstract name, and not at a path";
        assert_eq!(refused(nobodys.into()), no_path);
        let (stream, _other) = UnixStream::pair().unwrap();
        assert_eq!(refused(stream.into()), "it does not listen");
        let datagram = UnixDatagram::bind(root.path().join("d")).unwrap();
        assert_eq!(refused(datagram.into()), "it is no Unix stream socket");
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(refused(tcp.into()), "it is no Unix stream socket");
        let file = tempfile::tempfile().unwrap();
        assert_eq!(refused(file.into()), "it is no socket");
    }
}
