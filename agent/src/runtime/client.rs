//! A client: uses the agent of another process on this host, over its Unix stream socket.
//!
//! One stream carries the requests of all threads; a thread of its own reads the answers. When the
//! stream ends, for whatever reason, the agent takes back what this client had. So everything is
//! lost then and stays lost: there is no silent reconnection.

mod cancels;
mod gate;
mod lending;
mod link;
mod loan;
mod reader;
mod table;

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use nix::errno::Errno;
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::geteuid;
use socket2::{Domain, SockAddr, Socket, Type};

use self::gate::Gate;
use self::link::{Link, PATIENCE};
pub use self::loan::{ClientLoan, Turn};
use self::reader::Reader;
use self::table::{Answer, Table};
use crate::protocol::{Change, LockName, LockSpec, Mode, NodeId, Time};
use crate::runtime::api::caller::Caller;
use crate::runtime::api::description::Description;
use crate::runtime::api::error::{AcquireError, ChangeError, SessionEnd, StatusError};
use crate::runtime::api::events::{AgentEvent, Hub, Leader, Observed, observe};
use crate::runtime::api::metrics::Metrics;
use crate::runtime::api::patience::{Patience, change_is_answered_within};
use crate::runtime::api::status::Status;
use crate::runtime::clients::limits::{MAX_CLIENTS, MAX_OF_ONE_PROCESS};
use crate::runtime::disk::trust::{self, PathTrustError};
use crate::runtime::frames::{FromAgent, ToAgent};
use crate::runtime::os::clock::{self, Reading, Shift};
use crate::runtime::os::fork::ForkStamp;
use crate::runtime::os::spin::Spin;
use crate::runtime::os::sync::Mutex;
use crate::runtime::os::thread::{join, spawn};
use crate::runtime::request::{Grant, Waiting};

/// A connection to an agent. Dropping it gives back everything that was acquired through it.
///
/// All methods may be called from any thread. In a process that was forked from the one that
/// connected, each of them fails or does nothing.
#[derive(Debug)]
pub struct Client {
    link: Arc<Link>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Why there is no connection to an agent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Nothing is there, or its process is gone.
    #[error(
        "no agent serves {}: start one with `distlock agent --socket`, or correct the path",
        path.display()
    )]
    NotServed {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The socket's permissions.
    #[error(
        "{} may not be used by this user: run as the user of its agent, or as root",
        path.display()
    )]
    Forbidden {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The agent belongs to somebody who could be deceiving.
    #[error(
        "the agent at {} runs as user {uid}, neither this user nor root: it is not trusted",
        path.display()
    )]
    Untrusted {
        /// The socket.
        path: PathBuf,
        /// Its user.
        uid: u32,
    },
    /// Others can have put the socket there.
    #[error(
        "the agent at {} is not trusted: {why}; {}", path.display(), why.advice()
    )]
    Unsafe {
        /// The socket.
        path: PathBuf,
        /// What lets them.
        why: PathTrustError,
    },
    /// The agent has too many clients, in all or of this process, or too few descriptors for another.
    #[error(
        "the agent at {} has too many clients: close some if this process has {MAX_OF_ONE_PROCESS}, \
         end some or try later if there are {MAX_CLIENTS}, or else raise the limit of open files of \
         the agent (ulimit -n)",
        path.display()
    )]
    TooMany {
        /// The socket.
        path: PathBuf,
    },
    /// It does not answer as an agent of this version does.
    #[error("the agent at {} does not answer as expected: {source}", path.display())]
    NoAnswer {
        /// The socket.
        path: PathBuf,
        /// What happened.
        r#source: io::Error,
    },
    /// The system refused for another reason.
    #[error(
        "cannot connect to the agent at {}: {source}{}", path.display(),
        crate::runtime::disk::state_dir::advice(source)
    )]
    Io {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        r#source: io::Error,
    },
}

impl Client {
    /// Connects to the agent that serves `path`.
    ///
    /// # Errors
    /// If nobody serves it, or not us; [`ConnectError`] tells them apart.
    pub fn connect(path: &Path) -> Result<Self, ConnectError> {
        Self::open(path, clock::now() + PATIENCE, None)
    }

    /// Connects to the agent that serves `path`, which may take no longer than `time`; nor may the
    /// answer to anything that is asked of it until then.
    ///
    /// # Errors
    /// As for [`Client::connect`].
    pub fn connect_within(path: &Path, time: Duration) -> Result<Self, ConnectError> {
        let end = clock::now() + time;
        Self::open(path, end, Some(end))
    }

    fn open(path: &Path, end: Time, opening: Option<Time>) -> Result<Self, ConnectError> {
        let before = clock::now();
        let stream = open(path, end)?;
        let io = |source| ConnectError::Io {
            path: path.to_owned(),
            source,
        };
        let no_answer = |source| ConnectError::NoAnswer {
            path: path.to_owned(),
            source,
        };
        let mut reader = Reader {
            stream: stream.try_clone().map_err(io)?,
            input: Vec::new(),
            fds: VecDeque::new(),
        };
        let (group, member, lease, theirs) = match reader.next_by(end).map_err(no_answer)? {
            Some(FromAgent::Welcome {
                group,
                member,
                lease,
                clock,
            }) => (group, member, lease, clock),
            Some(FromAgent::TooMany) => {
                return Err(ConnectError::TooMany {
                    path: path.to_owned(),
                });
            }
            Some(FromAgent::Forbidden) => {
                return Err(ConnectError::Forbidden {
                    path: path.to_owned(),
                    source: io::ErrorKind::PermissionDenied.into(),
                });
            }
            Some(_) => return Err(no_answer(io::ErrorKind::InvalidData.into())),
            None => return Err(no_answer(io::ErrorKind::UnexpectedEof.into())),
        };
        stream.set_read_timeout(None).map_err(io)?;
        let peer =
            getsockopt(&stream, sockopt::PeerCredentials).map_err(|errno| io(errno.into()))?;
        let shift = Shift::new(theirs, Reading::take(), before);
        let link = Arc::new(Link {
            stamp: ForkStamp::new().map_err(|errno| io(errno.into()))?,
            group,
            member,
            lease,
            shift,
            stream,
            writing: Gate::default(),
            opening,
            table: Mutex::new(Table::new(lease)),
            has_ended: AtomicBool::new(false),
            can_borrow: shift == Shift::NONE && peer.uid() == geteuid().as_raw(),
            reader: OnceLock::new(),
            loan_page: OnceLock::new(),
            hub: Hub::default(),
            spin: Spin::default(),
        });
        let of_thread = link.clone();
        let thread = spawn("distlock-client", move || of_thread.listen(reader)).map_err(io)?;
        Ok(Self {
            link,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Waits for `lock`, for itself alone, as long as `patience` says.
    ///
    /// # Errors
    /// [`AcquireError`] says why there is no grant.
    pub fn acquire(
        &self,
        lock: &LockName,
        spec: Option<LockSpec>,
        patience: Patience,
        caller: Caller,
    ) -> Result<Grant, AcquireError> {
        self.begin(lock, spec, Mode::Exclusive, patience, caller)?
            .finish()
    }

    /// Asks for `lock`, alone or with all who share it, to be waited for bit by bit.
    ///
    /// # Errors
    /// [`AcquireError`] says why it cannot be asked for.
    pub fn begin(
        &self,
        lock: &LockName,
        spec: Option<LockSpec>,
        mode: Mode,
        patience: Patience,
        caller: Caller,
    ) -> Result<Waiting, AcquireError> {
        self.link.begin(lock, spec, mode, patience, caller)
    }

    /// The lock `lock`, for threads that enter by themselves while the agent lends it: when it has
    /// answered, and where it can. `None` where it is known that they cannot: through an agent of another
    /// user, or in another time namespace.
    pub fn lend(&self, lock: &LockName) -> Option<Arc<ClientLoan>> {
        self.link.lend(lock)
    }

    /// How the whole group is.
    ///
    /// # Errors
    /// [`StatusError`] says why it cannot be told.
    pub fn status(&self) -> Result<Status, StatusError> {
        let asked = self.link.ask(|id| ToAgent::Status { id })?;
        match asked {
            Answer::Status(status) => Ok(*status),
            _ => Err(StatusError::TimedOut),
        }
    }

    /// What the agent has counted and measured.
    ///
    /// # Errors
    /// [`StatusError`] says why it cannot be told.
    pub fn metrics(&self) -> Result<Metrics, StatusError> {
        let asked = self.link.ask(|id| ToAgent::Metrics { id })?;
        match asked {
            Answer::Metrics(metrics) => Ok(*metrics),
            _ => Err(StatusError::TimedOut),
        }
    }

    /// Changes who may be a member of the agent's group; see
    /// [`Agent::change`](crate::runtime::Agent::change).
    ///
    /// # Errors
    /// [`ChangeError`] says why it is not done.
    pub fn change(&self, change: Change) -> Result<(), ChangeError> {
        let lease = self.lease();
        let patience = change_is_answered_within(lease) + lease;
        let change = |id| ToAgent::Change { id, change };
        match self.link.ask_for(patience, change) {
            Ok(Answer::Changed(outcome)) => outcome,
            Ok(_) | Err(StatusError::TimedOut | StatusError::Limit | StatusError::TooLong) => {
                Err(ChangeError::TimedOut)
            }
            Err(StatusError::Forked) => Err(ChangeError::Forked),
            Err(StatusError::Closed(end)) => Err(ChangeError::Closed(end)),
        }
    }

    /// How the group's configuration says that `lock` is served.
    ///
    /// # Errors
    /// [`StatusError`] says why it cannot be told.
    pub fn describe(&self, lock: &LockName) -> Result<Description, StatusError> {
        let asked = self.link.ask(|id| ToAgent::Describe {
            id,
            lock: lock.clone(),
        })?;
        match asked {
            Answer::Description(description) => Ok(description),
            _ => Err(StatusError::TimedOut),
        }
    }

    /// What happens to the agent's group from now on; see
    /// [`Agent::events`](crate::runtime::Agent::events).
    pub fn events(&self) -> Receiver<AgentEvent> {
        self.events_as(|event| Some(event.clone()))
    }

    /// As [`Client::events`], each event as `map` makes it, without those it makes nothing of.
    pub fn events_as<T: Send + 'static>(&self, map: fn(&AgentEvent) -> Option<T>) -> Receiver<T> {
        if self.link.stamp.is_child() {
            return bounded(1).1;
        }
        let events = self.link.hub.subscribe(map);
        let first = !mem::replace(&mut self.link.table.lock().listens, true);
        if first {
            self.link.say_or_end(&ToAgent::Listen);
        }
        events
    }

    /// Who leads in the election called `lock`, as far as the agent knows: now, and from now on. In a
    /// forked child the channel is at its end.
    pub fn observe(&self, lock: &LockName) -> Receiver<Option<Leader>> {
        self.observe_as(lock, |leader| leader).into_receiver()
    }

    /// As [`Self::observe`], each leader as `map` makes it.
    pub fn observe_as<T: Send + 'static>(
        &self,
        lock: &LockName,
        map: fn(Leader) -> T,
    ) -> Observed<Option<T>> {
        if self.link.stamp.is_child() {
            return Observed::over();
        }
        let observed = observe(&self.link.hub, lock, None, map);
        self.link
            .say_or_end(&ToAgent::Observe { lock: lock.clone() });
        observed
    }

    /// The group's name.
    pub fn group(&self) -> &str {
        &self.link.group
    }

    /// The member whose agent this is.
    pub fn member(&self) -> NodeId {
        self.link.member
    }

    /// The group's lease: an agent that takes this one's place grants nothing before it is over.
    pub fn lease(&self) -> Duration {
        self.link.lease
    }

    /// Disconnects: waiting requests end, what is held is given back and lost to its guards. Does
    /// nothing the second time.
    pub fn close(&self) {
        if self.link.stamp.is_child() {
            return;
        }
        self.link.end(SessionEnd::Closed);
        join(&self.thread);
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.link.stamp.is_child() {
            // The thread exists only in the parent: there is nothing to join or detach here. Nor is the
            // memory that is shared with the agent, to be unmapped.
            mem::forget(self.thread.get_mut().take());
            mem::forget(Arc::clone(&self.link));
        } else {
            self.close();
        }
    }
}

/// Connects by `end`, and checks who is at the other end, and who can have put him there.
fn open(path: &Path, end: Time) -> Result<UnixStream, ConnectError> {
    let refused = |why| ConnectError::Unsafe {
        path: path.to_owned(),
        why,
    };
    match trust::way(path) {
        // Where nothing is, or this user may not look, the system says so below.
        Ok(_) | Err(PathTrustError::Io { .. }) => {}
        Err(why) => return Err(refused(why)),
    }
    let stream = connect(path, end).map_err(|source| {
        let path = path.to_owned();
        match source.raw_os_error().map(Errno::from_raw) {
            // Its queue is full, and nobody takes from it.
            Some(Errno::EAGAIN) => ConnectError::NoAnswer {
                path,
                source: io::ErrorKind::TimedOut.into(),
            },
            Some(Errno::ENOENT | Errno::ECONNREFUSED | Errno::ENOTDIR | Errno::ENOTSOCK) => {
                ConnectError::NotServed { path, source }
            }
            Some(Errno::EACCES | Errno::EPERM) => ConnectError::Forbidden { path, source },
            _ => ConnectError::Io { path, source },
        }
    })?;
    let peer = getsockopt(&stream, sockopt::PeerCredentials).map_err(|errno| ConnectError::Io {
        path: path.to_owned(),
        source: errno.into(),
    })?;
    if trust::is_trusted(peer.uid()) {
        return Ok(stream);
    }
    if !geteuid().is_root() {
        return Err(ConnectError::Untrusted {
            path: path.to_owned(),
            uid: peer.uid(),
        });
    }
    let directory = path.parent().filter(|path| !path.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    trust::directory_of(peer.uid(), directory).map_err(refused)?;
    Ok(stream)
}

/// As connect(2) does, but where the agent's queue is full, waits for room in it until `end` only.
fn connect(path: &Path, end: Time) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    let address = SockAddr::unix(path)?;
    loop {
        let left = end.since(clock::now());
        if left.is_zero() {
            return Err(Errno::EAGAIN.into());
        }
        socket.set_write_timeout(Some(left))?;
        match socket.connect(&address) {
            Ok(()) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    socket.set_write_timeout(None)?;
    Ok(UnixStream::from(OwnedFd::from(socket)))
}
