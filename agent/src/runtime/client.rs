//! A client: uses the agent of another process on this host, over its Unix stream socket.
//!
//! One stream carries the requests of all threads; a thread of its own reads the answers. When the
//! stream ends, for whatever reason, the agent takes back what this client had. So everything is
//! lost then and stays lost: there is no silent reconnection.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::mem;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use nix::errno::Errno;
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::geteuid;
use parking_lot::Mutex;

use super::agent::{Description, join, spawn};
use super::ancillary;
use super::announcer::Announcer;
use super::ask::{Caller, Patience};
use super::clock;
use super::error::{AcquireError, ReleaseError, SessionEnd, StatusError};
use super::events::{AgentEvent, Hub};
use super::fork::ForkStamp;
use super::frames::{self, FromAgent, MAX_FROM_AGENT, MAX_TO_AGENT, ToAgent};
use super::request::{Grant, Owner, Request, Waiting};
use super::spin::Spin;
use super::status::Status;
use crate::protocol::{Fence, LockName, LockSpec, Mode, NodeId, Previous, Release, Ticket};

/// How long an agent may take for its first message, for a message it does not read, for the
/// answer to a cancellation, and for a status. A longer one stands still.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection to an agent. Dropping it gives back everything that was acquired through it.
///
/// All methods may be called from any thread. In a process that was forked from the one that
/// connected, each of them fails or does nothing.
#[derive(Debug)]
pub struct Client {
    link: Arc<Link>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the threads and the reader share.
#[derive(Debug)]
struct Link {
    stamp: ForkStamp,
    group: String,
    member: NodeId,
    lease: Duration,
    stream: UnixStream,
    /// One frame at a time.
    writing: Mutex<()>,
    table: Mutex<Table>,
    hub: Hub,
    spin: Spin,
}

#[derive(Debug, Default)]
struct Table {
    last: u64,
    requests: BTreeMap<u64, Arc<Request>>,
    /// Cancelled, and not answered in time: if a grant comes, it goes back.
    abandoned: BTreeSet<u64>,
    questions: BTreeMap<u64, Sender<Result<Answer, StatusError>>>,
    listens: bool,
    ended: Option<SessionEnd>,
}

/// What an agent answers to a question.
#[derive(Debug)]
enum Answer {
    Status(Status),
    Description(Description),
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
    /// The agent has too many clients.
    #[error("the agent at {} has too many clients: end some, or try later", path.display())]
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
        source: io::Error,
    },
    /// The system refused for another reason.
    #[error(
        "cannot connect to the agent at {}: {source}{}", path.display(),
        super::durable::advice(source)
    )]
    Io {
        /// The socket.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl Client {
    /// Connects to the agent that serves `path`.
    ///
    /// # Errors
    /// If nobody serves it, or not us; [`ConnectError`] tells them apart.
    pub fn connect(path: &Path) -> Result<Self, ConnectError> {
        let stream = open(path)?;
        let io = |source| ConnectError::Io {
            path: path.to_owned(),
            source,
        };
        let no_answer = |source| ConnectError::NoAnswer {
            path: path.to_owned(),
            source,
        };
        stream.set_read_timeout(Some(PATIENCE)).map_err(io)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(io)?;
        let mut reader = Reader {
            stream: stream.try_clone().map_err(io)?,
            input: Vec::new(),
        };
        let (group, member, lease) = match reader.next().map_err(no_answer)? {
            Some(FromAgent::Welcome {
                group,
                member,
                lease,
            }) => (group, member, lease),
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
        let link = Arc::new(Link {
            stamp: ForkStamp::new().map_err(|errno| io(errno.into()))?,
            group,
            member,
            lease,
            stream,
            writing: Mutex::new(()),
            table: Mutex::new(Table::default()),
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

    /// How the whole group is.
    ///
    /// # Errors
    /// [`StatusError`] says why it cannot be told.
    pub fn status(&self) -> Result<Status, StatusError> {
        let asked = self.link.ask(|id| ToAgent::Status { id })?;
        match asked {
            Answer::Status(status) => Ok(status),
            Answer::Description(_) => Err(StatusError::TimedOut),
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
            Answer::Status(_) => Err(StatusError::TimedOut),
        }
    }

    /// What happens to the agent's group from now on; see [`Agent::events`](super::Agent::events).
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
            // The thread exists only in the parent: there is nothing to join or detach here.
            mem::forget(self.thread.get_mut().take());
        } else {
            self.close();
        }
    }
}

/// Connects, and checks who is at the other end.
fn open(path: &Path) -> Result<UnixStream, ConnectError> {
    let stream = UnixStream::connect(path).map_err(|source| {
        let path = path.to_owned();
        match source.raw_os_error().map(Errno::from_raw) {
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
    let me = geteuid();
    if peer.uid() != 0 && peer.uid() != me.as_raw() && !me.is_root() {
        return Err(ConnectError::Untrusted {
            path: path.to_owned(),
            uid: peer.uid(),
        });
    }
    Ok(stream)
}

impl Link {
    fn begin(
        self: &Arc<Self>,
        lock: &LockName,
        spec: Option<LockSpec>,
        mode: Mode,
        patience: Patience,
        caller: Caller,
    ) -> Result<Waiting, AcquireError> {
        if self.stamp.is_child() {
            return Err(AcquireError::Forked);
        }
        let deadline = patience.deadline();
        let pipe = caller.has_lifeline.then(io::pipe).transpose();
        let (theirs, lifeline) = pipe.map_err(|_| AcquireError::Limit)?.unzip();
        let request = Request::new();
        let id = {
            let mut table = self.table.lock();
            if let Some(end) = &table.ended {
                return Err(AcquireError::Closed(end.clone()));
            }
            let id = table.next_id();
            table.requests.insert(id, request.clone());
            id
        };
        let command = frames::cut_command(&caller.command).to_owned();
        let message = ToAgent::Acquire {
            id,
            lock: lock.clone(),
            spec,
            mode,
            patience,
            command,
            lifeline: theirs.is_some(),
        };
        self.say_with(&message, theirs.as_ref().map(AsFd::as_fd));
        if let Some(pid) = caller.command_pid {
            self.say_or_end(&ToAgent::CommandPid { id, pid });
        }
        // The outcome is in the request, wherever it is seen first.
        if let Some(spinner) = self.spin.start() {
            spinner.until(|| request.is_decided());
        }
        let lifeline = lifeline.map(OwnedFd::from);
        Ok(Waiting::new(
            self.clone(),
            Ticket(id),
            request,
            deadline,
            lifeline,
        ))
    }

    /// Waits no longer for an agent that stands still; whether the request is still undecided.
    fn abandon(&self, id: u64, request: &Request) -> bool {
        let mut table = self.table.lock();
        if request.is_decided() {
            return false;
        }
        table.requests.remove(&id);
        table.abandoned.insert(id);
        true
    }

    fn ask(&self, question: impl FnOnce(u64) -> ToAgent) -> Result<Answer, StatusError> {
        if self.stamp.is_child() {
            return Err(StatusError::Forked);
        }
        let (sender, receiver) = bounded(1);
        let id = {
            let mut table = self.table.lock();
            if let Some(end) = &table.ended {
                return Err(StatusError::Closed(end.clone()));
            }
            let id = table.next_id();
            table.questions.insert(id, sender);
            id
        };
        self.say_or_end(&question(id));
        receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            let mut table = self.table.lock();
            table.questions.remove(&id);
            Err(table
                .ended
                .clone()
                .map_or(StatusError::TimedOut, StatusError::Closed))
        })
    }

    /// Sends a message whole, or ends the connection.
    fn say_or_end(&self, message: &ToAgent) {
        self.say_with(message, None);
    }

    /// The same, and a descriptor with it.
    fn say_with(&self, message: &ToAgent, fd: Option<BorrowedFd<'_>>) {
        let mut frame = Vec::new();
        let said =
            frames::put(&mut frame, message, MAX_TO_AGENT).and_then(|()| self.send(&frame, fd));
        if let Err(error) = said {
            tracing::debug!("the connection to the agent broke: {error}");
            self.end(SessionEnd::Disconnected);
        }
    }

    fn send(&self, mut frame: &[u8], mut fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let _one_frame = self.writing.lock();
        while !frame.is_empty() {
            match ancillary::send(&self.stream, frame, fd) {
                Ok(len) => {
                    frame = &frame[len..];
                    fd = None;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads answers until the stream ends.
    fn listen(&self, mut reader: Reader) {
        loop {
            match reader.next() {
                Ok(Some(message)) => self.hear(message),
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!("the connection to the agent broke: {error}");
                    break;
                }
            }
        }
        self.end(SessionEnd::Disconnected);
    }

    fn hear(&self, message: FromAgent) {
        let mut table = self.table.lock();
        match message {
            FromAgent::Granted {
                id,
                fence,
                abandoned,
            } => {
                let Some(fence) = Fence::new(fence) else {
                    drop(table);
                    return self.end(SessionEnd::Disconnected);
                };
                let previous = Previous::after(abandoned);
                if let Some(request) = table.requests.get(&id).cloned() {
                    request.grant(fence, previous);
                    drop(table);
                    request.notify();
                } else if table.abandoned.remove(&id) {
                    drop(table);
                    let how = Release::Unused;
                    self.say_or_end(&ToAgent::Release { id, how });
                }
            }
            FromAgent::Refused { id, why } => {
                table.abandoned.remove(&id);
                let request = table.requests.remove(&id);
                drop(table);
                if let Some(request) = request {
                    // Its agent leaves: to us that is the end of the connection.
                    let why = match why {
                        AcquireError::Closed(_) => AcquireError::Closed(SessionEnd::Disconnected),
                        why => why,
                    };
                    request.refuse(why);
                    request.notify();
                }
            }
            FromAgent::Lost { id } => {
                let request = table.requests.remove(&id);
                drop(table);
                if let Some(request) = request {
                    request.lose();
                    request.notify();
                }
            }
            FromAgent::Status { id, status } => table.answer(id, Ok(Answer::Status(status))),
            FromAgent::StatusRefused { id } => table.answer(id, Err(StatusError::Limit)),
            FromAgent::StatusTooLong { id } => table.answer(id, Err(StatusError::TooLong)),
            FromAgent::Described { id, description } => {
                table.answer(id, Ok(Answer::Description(description)));
            }
            FromAgent::Event(event) => self.hub.publish(&event),
            FromAgent::Welcome { .. } | FromAgent::TooMany | FromAgent::Forbidden => {}
        }
    }

    /// Ends the connection: whoever waits is refused, whoever is inside has lost.
    fn end(&self, end: SessionEnd) {
        let requests = {
            let mut table = self.table.lock();
            if table.ended.is_some() {
                return;
            }
            table.ended = Some(end.clone());
            table.questions.clear();
            table.abandoned.clear();
            let requests = mem::take(&mut table.requests);
            for request in requests.values() {
                if request.is_decided() {
                    request.lose();
                } else {
                    request.refuse(AcquireError::Closed(end.clone()));
                }
            }
            requests
        };
        // The reader is woken by this, and the agent sees the end. The stream may have ended.
        let _ = self.stream.shutdown(Shutdown::Both);
        requests.values().for_each(|request| request.notify());
        self.hub.end(&end);
    }
}

impl Owner for Link {
    fn release(&self, ticket: Ticket, request: &Request, how: Release) -> Result<(), ReleaseError> {
        let release = ToAgent::Release { id: ticket.0, how };
        {
            let mut table = self.table.lock();
            let is_held = request.release();
            table.requests.remove(&ticket.0);
            drop(table);
            if !is_held {
                // An agent that leaves waits for this word, though the lock was lost.
                self.say_or_end(&release);
                return Err(ReleaseError::Lost);
            }
        }
        self.say_or_end(&release);
        // If the agent is gone, so was the lock, for who knows how long.
        match self.table.lock().ended {
            Some(SessionEnd::Disconnected) => Err(ReleaseError::Lost),
            _ => Ok(()),
        }
    }

    fn cancel(&self, ticket: Ticket, request: &Request) -> Result<(), AcquireError> {
        // The answer is a refusal, or the grant that came at this very moment.
        self.say_or_end(&ToAgent::Cancel { id: ticket.0 });
        if !request.wait(Some(clock::now() + PATIENCE)) && self.abandon(ticket.0, request) {
            return Err(AcquireError::TimedOut {
                missing: Vec::new(),
            });
        }
        Ok(())
    }

    fn withdraw(&self, ticket: Ticket, request: &Request) {
        if self.abandon(ticket.0, request) {
            self.say_or_end(&ToAgent::Cancel { id: ticket.0 });
        } else {
            // What was lost in the meantime is as good as given back.
            let _ = self.release(ticket, request, Release::Unused);
        }
    }

    fn set_command_pid(&self, ticket: Ticket, pid: u32) {
        self.say_or_end(&ToAgent::CommandPid { id: ticket.0, pid });
    }

    fn announcer(&self, ticket: Ticket) -> io::Result<Option<Announcer>> {
        let stream = self.stream.try_clone()?;
        Ok(Some(Announcer::new(stream.into(), ticket.0)))
    }

    fn is_child(&self) -> bool {
        self.stamp.is_child()
    }
}

impl Table {
    fn next_id(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn answer(&mut self, id: u64, answer: Result<Answer, StatusError>) {
        if let Some(question) = self.questions.remove(&id) {
            // The channel has room for one answer; who asked may have given up.
            let _ = question.try_send(answer);
        }
    }
}

/// Takes whole messages off the stream.
#[derive(Debug)]
struct Reader {
    stream: UnixStream,
    input: Vec<u8>,
}

impl Reader {
    /// The next message; `None` at the end of the stream.
    fn next(&mut self) -> io::Result<Option<FromAgent>> {
        let mut chunk = [0; 16 * 1024];
        loop {
            if let Some((message, len)) = frames::take(&self.input, MAX_FROM_AGENT)? {
                self.input.drain(..len);
                return Ok(Some(message));
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(None),
                Ok(len) => self.input.extend_from_slice(&chunk[..len]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
