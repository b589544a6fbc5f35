//! The service for programs on this host, over a Unix stream socket.
//!
//! A client's requests and grants live as long as its stream and its process, whichever ends first:
//! a child that it forked may keep the stream open. Then what waits is cancelled and what is held
//! is released; a grant with a [`Lifeline`] only when that has ended too, and what has it open is
//! killed.
//!
//! Everything here runs on the agent thread, and is bounded: clients, requests of one client, bytes
//! read in one turn, and bytes that wait to be read by a client that does not.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use mio::event::Event;
use mio::net::{UnixListener, UnixStream};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::sys::socket::{getsockopt, sockopt};
use nix::sys::stat::Mode;
use nix::unistd::geteuid;
use socket2::{Domain, SockRef, Socket, Type};

use super::agent::Description;
use super::ancillary;
use super::ask::Caller;
use super::clock;
use super::error::AcquireError;
use super::frames::{self, FromAgent, MAX_FROM_AGENT, MAX_TO_AGENT, ToAgent};
use super::handoff::Shared;
use super::lifeline::{LIFELINES, Lifeline, Lifelines};
use super::process::Process;
use super::report::Asker;
use super::transport::BindError;
use super::transport::place::{self, SocketFile};
use super::turn::{ClientId, Sink};
use crate::protocol::{Ticket, Time};

/// More are turned away with a message.
const MAX_CLIENTS: usize = 4_096;
/// Requests of one client, waiting and granted.
const MAX_REQUESTS: usize = 4_096;
/// Bytes taken from one client in one turn.
const READ_LIMIT: usize = 64 * 1024;
/// Connections accepted in one turn.
const ACCEPT_LIMIT: usize = 64;
/// A client that leaves more than this unread is cut off.
const MAX_UNREAD: usize = 2 * MAX_FROM_AGENT;
/// After a failed accept (no descriptors left) the next try comes so much later.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const BACKLOG: i32 = 1_024;
/// Descriptors of one client whose messages have not come yet.
const MAX_DESCRIPTORS: usize = 16;
/// How much is still heard of a client whose process has ended: more than a stream can have left.
const LAST_TURNS: u32 = 64;
/// The token of a client's process is this much above that of its stream.
const PROCESSES: usize = 1 << (usize::BITS - 2);

/// The listening socket and the clients.
#[derive(Debug)]
pub(crate) struct Service {
    listener: UnixListener,
    token: Token,
    clients: BTreeMap<ClientId, Connection>,
    /// Those with something to read or to write.
    ready: BTreeSet<ClientId>,
    next: usize,
    /// Whether connections may be waiting, and from when on to look.
    accept_at: Option<Time>,
    /// Accepted when no descriptor was left for its process.
    halfway: Option<UnixStream>,
    lifelines: Lifelines,
    _file: SocketFile,
}

#[derive(Debug)]
struct Connection {
    stream: UnixStream,
    peer: Peer,
    /// How often it is still read from once its process has ended: what it had said is heard,
    /// and not what is said in its name for ever.
    last_turns: Option<u32>,
    _process: Process,
    input: Vec<u8>,
    /// What came with the bytes, and belongs to messages in their order.
    descriptors: VecDeque<OwnedFd>,
    /// Whether there may be more to read.
    readable: bool,
    output: Vec<u8>,
    /// How many bytes of `output` are sent.
    sent: usize,
    requests: BTreeMap<u64, Asked>,
    listens: bool,
}

/// A request of a client.
#[derive(Debug)]
struct Asked {
    ticket: Ticket,
    lifeline: Option<Lifeline>,
}

/// Who is at the other end, as the kernel says.
#[derive(Clone, Copy, Debug)]
struct Peer {
    pid: u32,
    uid: u32,
}

impl Service {
    /// Serves at `path`. Clients get tokens from `token` on, the listener the first.
    pub(crate) fn bind(path: &Path, registry: &Registry, token: Token) -> Result<Self, BindError> {
        let address = || path.display().to_string();
        let failed = |source| BindError::io(address(), source);
        let kind = Type::STREAM.nonblocking().cloexec();
        let socket = Socket::new(Domain::UNIX, kind, None).map_err(failed)?;
        let file = place::bind(&socket, path, Mode::S_IRUSR | Mode::S_IWUSR)
            .map_err(|error| BindError::place(address(), error))?;
        socket.listen(BACKLOG).map_err(failed)?;
        let mut listener = UnixListener::from_std(std::os::unix::net::UnixListener::from(
            OwnedFd::from(socket),
        ));
        registry
            .register(&mut listener, token, Interest::READABLE)
            .map_err(failed)?;
        Ok(Self {
            listener,
            token,
            clients: BTreeMap::new(),
            ready: BTreeSet::new(),
            next: token.0 + 1,
            accept_at: None,
            halfway: None,
            lifelines: Lifelines::default(),
            _file: file,
        })
    }

    /// Notes what the poll says about one of the tokens.
    pub(crate) fn note(&mut self, event: &Event) {
        if event.token() == self.token {
            self.accept_at = Some(Time::ZERO);
        } else if event.token().0 >= LIFELINES {
            self.lifelines.note(event.token());
        } else if let Some(id) = event.token().0.checked_sub(PROCESSES).map(ClientId) {
            if let Some(client) = self.clients.get_mut(&id) {
                client.last_turns.get_or_insert(LAST_TURNS);
                client.readable = true;
                self.ready.insert(id);
            }
        } else if let Some(client) = self.clients.get_mut(&ClientId(event.token().0)) {
            client.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
            self.ready.insert(ClientId(event.token().0));
        }
    }

    /// Does what there is to do for the clients; when it wants to be called again, if nothing
    /// happens before.
    pub(crate) fn work(&mut self, shared: &Shared, registry: &Registry) -> Option<Time> {
        self.accept(shared, registry);
        for id in std::mem::take(&mut self.ready) {
            let Some(client) = self.clients.get_mut(&id) else {
                continue;
            };
            if let Err(error) = client.work(id, shared, &mut self.lifelines, registry) {
                tracing::debug!("client {:?} ended: {error}", client.peer);
                self.end(id, shared, registry);
            } else if client.wants_more() || client.last_turns.is_some() {
                self.ready.insert(id);
            }
        }
        let look_at = self.lifelines.work(shared);
        if self.ready.is_empty() {
            [self.accept_at, look_at].into_iter().flatten().min()
        } else {
            Some(Time::ZERO)
        }
    }

    /// Tells a client, if it is still there. What runs under a lock that is lost is ended from
    /// here too, since its runner may stand still.
    pub(crate) fn tell(
        &mut self,
        client: ClientId,
        message: &FromAgent,
        shared: &Shared,
        registry: &Registry,
    ) {
        let mut lifeline = None;
        if let Some(connection) = self.clients.get_mut(&client) {
            connection.tell(message);
            self.ready.insert(client);
            if let FromAgent::Lost { id } = message {
                lifeline = connection.take_command(*id);
            }
        }
        let &FromAgent::Lost { id } = message else {
            return;
        };
        let owner = (client, id);
        if let Some((ticket, lifeline)) = lifeline {
            self.lifelines.wait_for(lifeline, ticket, owner, registry);
        }
        // First its runner ends it, and knows why.
        let (now, lease) = (clock::now(), shared.identity.settings.lease);
        self.lifelines
            .evict(owner, now + lease / 4, now + lease / 2);
    }

    /// Tells all clients that listen. Who leaves too much unread misses events, and nothing else.
    pub(crate) fn tell_listeners(&mut self, message: &FromAgent) {
        for (&id, client) in self.clients.iter_mut().filter(|(_, client)| client.listens) {
            if client.unread() < READ_LIMIT {
                client.tell(message);
                self.ready.insert(id);
            }
        }
    }

    fn accept(&mut self, shared: &Shared, registry: &Registry) {
        if self.accept_at.is_none_or(|at| at > clock::now()) {
            return;
        }
        for _ in 0..ACCEPT_LIMIT {
            let accepted = match self.halfway.take() {
                Some(stream) => Ok(stream),
                None => self.listener.accept().map(|(stream, _)| stream),
            };
            match accepted {
                Ok(stream) => match self.register(stream, shared, registry) {
                    Ok(()) => {}
                    Err(error) if self.halfway.is_none() => {
                        tracing::warn!("a client was turned away: {error}");
                    }
                    Err(error) => {
                        tracing::warn!("cannot accept clients: {error}");
                        self.accept_at = Some(clock::now() + ACCEPT_PAUSE);
                        return;
                    }
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.accept_at = None;
                    return;
                }
                Err(error) if is_transient(&error) => {}
                Err(error) => {
                    // Out of descriptors: those who are connected are served on.
                    tracing::warn!("cannot accept clients: {error}");
                    self.accept_at = Some(clock::now() + ACCEPT_PAUSE);
                    return;
                }
            }
        }
        self.accept_at = Some(Time::ZERO);
    }

    fn register(
        &mut self,
        mut stream: UnixStream,
        shared: &Shared,
        registry: &Registry,
    ) -> io::Result<()> {
        let peer = Peer::of(&stream)?;
        // The file's mode keeps others out; this holds also if somebody widened it.
        let me = geteuid().as_raw();
        if peer.uid != me && peer.uid != 0 {
            return Err(io::Error::other(format!(
                "user {} may not use it",
                peer.uid
            )));
        }
        let id = ClientId(self.next);
        self.next += 1;
        let full = self.clients.len() >= MAX_CLIENTS;
        let process = match Process::of_peer(&stream, peer.pid) {
            Ok(process) => process,
            Err(error) => match error.raw_os_error() {
                Some(libc::ESRCH) => return Ok(()),
                Some(libc::EMFILE | libc::ENFILE) => {
                    self.halfway = Some(stream);
                    return Err(error);
                }
                _ => return Err(error),
            },
        };
        if !full {
            let interest = Interest::READABLE | Interest::WRITABLE;
            registry.register(&mut stream, Token(id.0), interest)?;
            registry.register(
                &mut SourceFd(&process.as_raw_fd()),
                Token(PROCESSES + id.0),
                Interest::READABLE,
            )?;
        }
        let mut client = Connection::new(stream, peer, process);
        if full {
            client.tell(&FromAgent::TooMany);
            client.flush()?;
            return Err(io::Error::other("there are too many clients"));
        }
        let identity = &shared.identity;
        let group = identity.settings.group.clone();
        client.tell(&FromAgent::Welcome {
            group,
            member: identity.me,
            lease: identity.settings.lease,
        });
        self.clients.insert(id, client);
        self.ready.insert(id);
        Ok(())
    }

    fn end(&mut self, id: ClientId, shared: &Shared, registry: &Registry) {
        if let Some(client) = self.clients.remove(&id) {
            client.end(id, shared, &mut self.lifelines, registry);
        }
    }
}

/// Errors that concern one connection, not the listener.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
    )
}

impl Peer {
    fn of(stream: &UnixStream) -> io::Result<Self> {
        let credentials = getsockopt(stream, sockopt::PeerCredentials)?;
        let pid = u32::try_from(credentials.pid()).unwrap_or(0);
        Ok(Self {
            pid,
            uid: credentials.uid(),
        })
    }
}

impl Connection {
    fn new(stream: UnixStream, peer: Peer, process: Process) -> Self {
        Self {
            stream,
            peer,
            last_turns: None,
            _process: process,
            input: Vec::new(),
            descriptors: VecDeque::new(),
            readable: true,
            output: Vec::new(),
            sent: 0,
            requests: BTreeMap::new(),
            listens: false,
        }
    }

    /// Reads, answers and writes what is possible. An error ends the client.
    fn work(
        &mut self,
        id: ClientId,
        shared: &Shared,
        lifelines: &mut Lifelines,
        registry: &Registry,
    ) -> io::Result<()> {
        let mut open = true;
        if self.wants_more() || self.last_turns.is_some() {
            open = self.fill()?;
            self.obey(id, shared, lifelines, registry)?;
        }
        if let Some(turns) = &mut self.last_turns {
            *turns -= 1;
            if !self.readable || *turns == 0 {
                return Err(io::Error::other("its process has ended"));
            }
        }
        self.flush()?;
        if self.unread() > MAX_UNREAD {
            return Err(io::Error::other("it does not read its answers"));
        }
        if open {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    /// Whether there is more to read from it. Who does not read its answers is not asked for more
    /// questions; when it has read them, the poll says that its stream can be written to.
    fn wants_more(&self) -> bool {
        self.readable && self.unread() < READ_LIMIT
    }

    /// Reads what has come; whether the stream is open.
    fn fill(&mut self) -> io::Result<bool> {
        let mut chunk = [0; 16 * 1024];
        let mut taken = 0;
        while taken < READ_LIMIT {
            match ancillary::receive(&self.stream, &mut chunk, &mut self.descriptors) {
                Ok(0) => return Ok(false),
                Ok(len) => {
                    self.input.extend_from_slice(&chunk[..len]);
                    taken += len;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn obey(
        &mut self,
        id: ClientId,
        shared: &Shared,
        lifelines: &mut Lifelines,
        registry: &Registry,
    ) -> io::Result<()> {
        let input = std::mem::take(&mut self.input);
        let mut done = 0;
        while let Some((message, len)) = frames::take(&input[done..], MAX_TO_AGENT)? {
            done += len;
            self.obey_one(id, message, shared, lifelines, registry)?;
        }
        if self.descriptors.len() > MAX_DESCRIPTORS {
            return Err(io::Error::other("it sent descriptors that nobody wants"));
        }
        self.input.extend_from_slice(&input[done..]);
        Ok(())
    }

    fn obey_one(
        &mut self,
        client: ClientId,
        message: ToAgent,
        shared: &Shared,
        lifelines: &mut Lifelines,
        registry: &Registry,
    ) -> io::Result<()> {
        let mut turn = shared.turn();
        match message {
            ToAgent::Acquire {
                id,
                lock,
                spec,
                mode,
                patience,
                command,
                lifeline,
            } => {
                if self.requests.contains_key(&id) {
                    return Err(io::Error::other("it used a request's number twice"));
                }
                let lifeline = lifeline.then(|| self.take_lifeline()).transpose()?;
                let asked = if self.requests.len() < MAX_REQUESTS {
                    let command = frames::cut_command(&command).into();
                    let caller = Caller {
                        pid: self.peer.pid,
                        command,
                        command_pid: None,
                        has_lifeline: lifeline.is_some(),
                    };
                    turn.ask(
                        lock,
                        spec,
                        mode,
                        patience.wait(),
                        caller,
                        Sink::Client { client, id },
                    )
                } else {
                    Err(AcquireError::Limit)
                };
                match asked {
                    Ok(ticket) => drop(self.requests.insert(id, Asked { ticket, lifeline })),
                    Err(why) => self.tell(&FromAgent::Refused { id, why }),
                }
            }
            ToAgent::Cancel { id } => {
                if let Some(asked) = self.requests.get(&id) {
                    turn.cancel(asked.ticket);
                }
            }
            ToAgent::Release { id } => {
                if let Some(Asked { ticket, lifeline }) = self.requests.remove(&id) {
                    match lifeline.filter(|lifeline| !lifeline.has_ended()) {
                        Some(lifeline) => {
                            lifelines.wait_for(lifeline, ticket, (client, id), registry);
                        }
                        None => turn.withdraw(ticket),
                    }
                }
            }
            ToAgent::CommandPid { id, pid } => {
                if let Some(asked) = self.requests.get_mut(&id) {
                    turn.set_command_pid(asked.ticket, pid);
                    if let Some(lifeline) = &mut asked.lifeline {
                        lifeline.set_command(pid, self.peer.pid);
                    }
                }
            }
            ToAgent::Status { id } => {
                if turn.ask_status(Asker::Client { client, id }).is_err() {
                    self.tell(&FromAgent::StatusRefused { id });
                }
            }
            ToAgent::Listen => self.listens = true,
            ToAgent::Describe { id, lock } => {
                let description = Description::of(&lock, &shared.identity.settings);
                self.tell(&FromAgent::Described { id, description });
            }
        }
        turn.finish();
        Ok(())
    }

    fn tell(&mut self, message: &FromAgent) {
        // What is lost stays on the list: it is the client's until it releases it or is gone.
        if let FromAgent::Refused { id, .. } = message {
            self.requests.remove(id);
        }
        if let Err(error) = frames::put(&mut self.output, message, MAX_FROM_AGENT) {
            tracing::error!("a message to a client cannot be written: {error}");
            if let FromAgent::Status { id, .. } = message {
                self.tell(&FromAgent::StatusRefused { id: *id });
            }
        }
    }

    fn unread(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Writes as much as the stream takes.
    fn flush(&mut self) -> io::Result<()> {
        while self.unread() > 0 {
            // A client that is gone must not end the agent by SIGPIPE.
            let socket = SockRef::from(&self.stream);
            match socket.send_with_flags(&self.output[self.sent..], libc::MSG_NOSIGNAL) {
                Ok(len) => self.sent += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.sent = 0;
        Ok(())
    }

    /// What runs under a lock, if it is known by a lifeline: from now on it is not the client's.
    fn take_command(&mut self, id: u64) -> Option<(Ticket, Lifeline)> {
        let asked = self.requests.get_mut(&id)?;
        let taken = (asked.ticket, asked.lifeline.take()?);
        self.requests.remove(&id);
        Some(taken)
    }

    /// The descriptor that came with a message.
    fn take_lifeline(&mut self) -> io::Result<Lifeline> {
        let none = || io::Error::other("its lifeline did not come with its request");
        Lifeline::new(self.descriptors.pop_front().ok_or_else(none)?)
    }

    /// Takes back everything the client has and waits for.
    fn end(
        self,
        client: ClientId,
        shared: &Shared,
        lifelines: &mut Lifelines,
        registry: &Registry,
    ) {
        let mut turn = shared.turn();
        for (id, Asked { ticket, lifeline }) in self.requests {
            match lifeline {
                Some(lifeline) if turn.is_held(ticket) => {
                    let owner = (client, id);
                    lifelines.wait_for(lifeline, ticket, owner, registry);
                    lifelines.kill(owner);
                }
                _ => turn.withdraw(ticket),
            }
        }
        turn.finish();
    }
}
