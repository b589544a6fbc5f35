//! The service for programs on this host, over a Unix stream socket.
//!
//! A client's requests and grants live as long as its stream and its process, whichever ends first:
//! a child that it forked may keep the stream open. Then what waits is cancelled and what is held
//! is released; a grant with a [`Lifeline`](crate::runtime::clients::lifeline::Lifeline) only when that has ended
//! too, and what has it open is killed. What is taken back so counts as abandoned; what a client
//! releases itself does not. A client that is cut off keeps what it holds until it can know that.
//!
//! Everything here runs on the agent thread, and is bounded: clients, also of one process, and what
//! they may take of the process's descriptors; requests of one client; messages obeyed in one turn,
//! of one client and of all together; bytes that are read and make no message yet; bytes that wait to
//! be read by a client that does not, and the names of elections that are observed, of one client and
//! of all together. A client that says nothing costs two descriptors and
//! nothing else; it may be one that holds a lock, so it has no time limit.

pub(crate) mod endpoint;
pub(crate) mod lifeline;

mod connection;
mod cut_off;

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mio::event::Event;
use mio::net::{UnixListener, UnixStream};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::sys::stat::Mode;
use nix::unistd::geteuid;
use socket2::{Domain, Socket, Type};

use self::connection::{Connection, Ended, Heard, Peer, UNREAD_LIMIT};
use self::cut_off::CutOff;
use crate::protocol::{Release, Time};
use crate::runtime::api::events::AgentEvent;
use crate::runtime::api::status::{ClientsStatus, Status};
use crate::runtime::clients::endpoint::Endpoint;
use crate::runtime::clients::lifeline::{LIFELINES, Lifeline, LifelineDir, Lifelines};
use crate::runtime::frames::{self, FromAgent};
use crate::runtime::net::transport::BindError;
use crate::runtime::net::transport::socket_file::{self, SocketFile};
use crate::runtime::os::clock::{self, Reading};
use crate::runtime::os::descriptors;
use crate::runtime::os::pidfd::Process;
use crate::runtime::request::lease_page::LeasePage;
use crate::runtime::shared::Shared;
use crate::runtime::shared::entry::ClientId;
use crate::runtime::shared::entry::Lease;

/// More are turned away with a message. All of them at once can be told of a new lease, or that a
/// lock is lost, in some milliseconds.
pub(crate) const MAX_CLIENTS: usize = 4_096;
/// Clients of one process: a program that forgets to close them does not keep all others out. Those of
/// other PID namespaces, which are all number 0 here, cannot be told apart, and are not counted.
pub(crate) const MAX_OF_ONE_PROCESS: usize = 1_024;
/// Messages obeyed in one turn, of all clients together, which share them evenly; a client whose turn
/// it is counts for one more. It is some hundred microseconds' work, after which datagrams and timers
/// come first again.
const TURN_LIMIT: usize = 256;
/// What all clients together leave unread, and observe. It is four of the longest statuses, or 16 KiB
/// for each of as many clients as there may be: who reads what it is told needs none of it but for
/// moments, for the kernel keeps as much as most ever have to read.
const MAX_TAKEN: usize = 64 << 20;
/// What they may leave unread and observe so that another status is told, which may be 16 MiB: a quarter
/// stays for what is short, which is told however much there is. Otherwise somebody would be cut off
/// for others' questions.
const MAX_WITH_STATUS: usize = MAX_TAKEN / 4 * 3;
/// Connections accepted in one turn: each takes some ten system calls, so that they are together as
/// much work as the messages of a turn.
const ACCEPT_LIMIT: usize = 64;
/// After a failed accept (no descriptors left) the next try comes so much later.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often the log tells of clients that are turned away or cut off.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// How many connections the kernel keeps that are not accepted yet: as many as one process may have.
/// Whoever comes when there are so many waits in connect(2) until some are accepted.
const BACKLOG: i32 = 1_024;
/// As the status counts what there were too few of.
const FEW_DESCRIPTORS: &str = "few-descriptors";
const TOO_MUCH: &str = "too-much";
const TOO_MANY_REQUESTS: &str = "too-many-requests";
const TOO_MANY_QUESTIONS: &str = "too-many-questions";
const MISSED_EVENT: &str = "missed-event";
/// The token of a client's process is this much above that of its stream.
const PROCESSES: usize = 1 << (usize::BITS - 2);

/// The listening socket and the clients.
#[derive(Debug)]
pub(crate) struct Service {
    listener: UnixListener,
    token: Token,
    clients: BTreeMap<ClientId, Connection>,
    /// Those who were cut off, and hold something as far as they know.
    cut_off: BTreeMap<ClientId, CutOff>,
    /// How many of both each process has.
    of_process: BTreeMap<u32, usize>,
    /// Those with something to read or to write.
    ready: BTreeSet<ClientId>,
    /// Whose turn it is next among those.
    turn_of: ClientId,
    /// Of those who were turned away, refused something or cut off, by reason.
    dropped: BTreeMap<&'static str, u64>,
    /// What all of them take ([`Connection::taken`]), as it was when each was looked at last.
    taken: usize,
    /// Whether the status does not tell of all that yet.
    is_news: bool,
    /// When the log may tell again of one.
    tell_at: Time,
    next: usize,
    /// Whether connections may be waiting, and from when on to look.
    accept_at: Option<Time>,
    /// Accepted when no descriptor was left for its process.
    halfway: Option<UnixStream>,
    lifelines: Lifelines,
    lease: Lease,
    /// When to end the commands if the lease is not renewed before, while there may be some.
    evict_at: Option<Time>,
    /// Of a socket that this agent has made, if it is to go away with the agent.
    _file: Option<SocketFile>,
}

impl Service {
    /// Serves at `endpoint`. Clients get tokens from `token` on, the listener the first.
    pub(crate) fn open(
        endpoint: &Endpoint,
        lifelines: Arc<LifelineDir>,
        registry: &Registry,
        token: Token,
    ) -> Result<Self, BindError> {
        let given = || "the socket that it was given".to_owned();
        let (socket, file, address) = match endpoint {
            Endpoint::Path(path) => {
                let (socket, file) = bind(path)?;
                (socket, Some(file), path.display().to_string())
            }
            Endpoint::Lasting(path) => {
                let (socket, file) = bind(path)?;
                file.keep();
                (socket, None, path.display().to_string())
            }
            Endpoint::Given(listener) => {
                let socket = listener.try_clone();
                let socket = socket.map_err(|error| BindError::io(given(), error))?;
                (socket.into(), None, given())
            }
        };
        let failed = |source| BindError::io(&address, source);
        socket.set_nonblocking(true).map_err(failed)?;
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
            cut_off: BTreeMap::new(),
            of_process: BTreeMap::new(),
            ready: BTreeSet::new(),
            turn_of: ClientId(0),
            dropped: BTreeMap::new(),
            taken: 0,
            is_news: true,
            tell_at: Time::ZERO,
            next: token.0 + 1,
            // Some may have been waiting since before there was an agent.
            accept_at: Some(Time::ZERO),
            halfway: None,
            lifelines: Lifelines::new(lifelines),
            lease: Lease {
                session: 0,
                until: Time::ZERO,
            },
            evict_at: None,
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
                client.note_end_of_process();
                self.ready.insert(id);
            } else if let Some(client) = self.cut_off.get_mut(&id) {
                client.note();
            }
        } else if let Some(client) = self.clients.get_mut(&ClientId(event.token().0)) {
            client.note(event);
            self.ready.insert(ClientId(event.token().0));
        } else if let Some(client) = self.cut_off.get_mut(&ClientId(event.token().0)) {
            client.note();
        }
    }

    /// Does what there is to do for the clients; when it wants to be called again, if nothing
    /// happens before.
    pub(crate) fn work(&mut self, shared: &Shared, registry: &Registry) -> Option<Time> {
        self.accept(shared, registry);
        self.serve(shared, registry);
        self.cut_off(shared, registry);
        if self.lifelines.take_commands_noted() {
            self.evict_at = self.eviction(shared);
        }
        self.evict_in_time(shared, registry);
        if cfg!(debug_assertions) {
            self.assert_consistent();
        }
        let look_at = self.lifelines.work(shared);
        let cut_off_at = self.forget_cut_off(shared);
        self.publish(shared);
        if self.ready.is_empty() {
            let times = [self.accept_at, look_at, self.evict_at, cut_off_at];
            times.into_iter().flatten().min()
        } else {
            Some(Time::ZERO)
        }
    }

    /// What is counted as clients come, ask and go is what can be counted now.
    fn assert_consistent(&self) {
        let counted: usize = self.clients.values().map(|client| client.counted).sum();
        assert_eq!(self.taken, counted, "of the memory that clients take");
        let of_process: usize = self.of_process.values().sum();
        assert_eq!(
            of_process,
            self.clients.len() + self.cut_off.len(),
            "of the clients of processes"
        );
    }

    /// Has the status tell of the clients. Asking for it must not wait for the event loop.
    fn publish(&mut self, shared: &Shared) {
        if mem::take(&mut self.is_news) {
            shared.lock_core().set_clients(self.status());
        }
    }

    /// Serves those who are ready, as many as fit into one turn; the others first in the next.
    fn serve(&mut self, shared: &Shared, registry: &Registry) {
        let mut left = TURN_LIMIT;
        let (late, early) = (
            self.ready.range(self.turn_of..),
            self.ready.range(..self.turn_of),
        );
        let in_turn: Vec<_> = late.chain(early).copied().take(TURN_LIMIT).collect();
        let share = (TURN_LIMIT / in_turn.len().max(1)).max(1);
        for id in in_turn {
            self.turn_of = id;
            if left == 0 {
                return;
            }
            self.ready.remove(&id);
            left -= 1;
            let Some(client) = self.clients.get_mut(&id) else {
                continue;
            };
            let worked = client.work(id, share.min(left), shared, &mut self.lifelines, registry);
            let (peer, wants_a_turn) = (client.peer(), client.wants_a_turn());
            for (reason, times) in client.take_refused() {
                self.count(reason, times);
            }
            match worked {
                Ok(obeyed) => left = left.saturating_sub(obeyed),
                Err(ended) => {
                    tracing::debug!("client {peer:?} ended: {ended}");
                    self.end(id, &ended, shared, registry);
                    continue;
                }
            }
            if wants_a_turn {
                self.ready.insert(id);
            }
            self.recount(id);
            self.turn_of = ClientId(id.0 + 1);
        }
    }

    /// Tells a client, if it is still there; a grant not without its lease.
    pub(crate) fn tell(&mut self, client: ClientId, message: &FromAgent) {
        let Some(connection) = self.clients.get_mut(&client) else {
            return;
        };
        if matches!(message, FromAgent::Granted { .. }) {
            connection.tell_lease(self.lease);
        }
        connection.tell(message);
        self.ready.insert(client);
    }

    /// Gives a client what its command inherits, and what it sees the lease by, before its grant.
    pub(crate) fn hand(&mut self, client: ClientId, id: u64, page: io::Result<Arc<LeasePage>>) {
        match page {
            Ok(page) => {
                let connection = self.clients.get_mut(&client).into_iter();
                connection.for_each(|connection| connection.hand(id, page.clone()));
            }
            // Its client gives the grant back.
            Err(error) => self.tell_log(&format!("no memory or descriptor for a lease: {error}")),
        }
    }

    /// Tells clients how the group is, by the numbers of their questions. It is written down once. For
    /// whom there is no room is refused.
    pub(crate) fn tell_status(&mut self, status: &Status, askers: &[(ClientId, u64)]) {
        let encoded = frames::encode_status(status);
        if let Err(error) = &encoded {
            tracing::error!("a status cannot be written: {error}");
        }
        for &(client, id) in askers {
            match &encoded {
                Ok(status) if self.has_room(client, status.len()) => {
                    let connection = self.clients.get_mut(&client).into_iter();
                    connection.for_each(|connection| connection.tell_status(id, status));
                    self.ready.insert(client);
                    self.recount(client);
                }
                Ok(_) => {
                    self.count(TOO_MUCH, 1);
                    self.tell(client, &FromAgent::StatusRefused { id });
                }
                Err(_) => self.tell(client, &FromAgent::StatusTooLong { id }),
            }
        }
    }

    /// Whether a client may leave so much more unread. Nobody is cut off for it: others may be about to
    /// read what they were told; and so it leaves room for what is short, which is told even so. If then
    /// there is too much, who has the most is cut off.
    fn has_room(&self, client: ClientId, len: usize) -> bool {
        self.clients.get(&client).is_none_or(|connection| {
            let is_short = connection.taken() + len <= UNREAD_LIMIT;
            is_short || (connection.has_room(len) && self.taken + len <= MAX_WITH_STATUS)
        })
    }

    /// While all together take too much, cuts off the client that takes the most.
    fn cut_off(&mut self, shared: &Shared, registry: &Registry) {
        while self.taken > MAX_TAKEN {
            let most = self.clients.iter().max_by_key(|(_, client)| client.counted);
            let Some((&id, client)) = most else {
                return;
            };
            let what = format!("client {:?} was cut off: {}", client.peer(), Ended::TooMuch);
            self.tell_log(&what);
            self.end(id, &Ended::TooMuch, shared, registry);
        }
    }

    /// Takes back what those held who were cut off and know it by now; when to look again.
    fn forget_cut_off(&mut self, shared: &Shared) -> Option<Time> {
        let now = clock::now();
        let clients = self.cut_off.iter_mut();
        let is_over = |(&id, client): (&ClientId, &mut CutOff)| client.is_over(now).then_some(id);
        for id in clients.filter_map(is_over).collect::<Vec<_>>() {
            if let Some(client) = self.cut_off.remove(&id) {
                self.leave_process(client.peer());
                client.end(shared);
            }
        }
        self.cut_off.values().filter_map(CutOff::due).min()
    }

    /// A client of a process is there no more.
    fn leave_process(&mut self, peer: Peer) {
        if let Entry::Occupied(mut count) = self.of_process.entry(peer.pid) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// Notes what a client has come to take.
    fn recount(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(&id) {
            self.taken = self.taken - client.counted + client.taken();
            client.counted = client.taken();
        }
    }

    /// Tells a client that a grant is lost. What runs under it is ended from here too, since its
    /// runner may stand still: before `limit`, at which others may be let in.
    pub(crate) fn lose(
        &mut self,
        client: ClientId,
        id: u64,
        limit: Time,
        shared: &Shared,
        registry: &Registry,
    ) {
        self.take_over(client, id, registry);
        let lease = shared.identity.settings.lease;
        // First its runner ends it, and knows why.
        let [ask, kill] = lifeline::eviction(clock::now(), limit, lease);
        self.lifelines.evict((client, id), ask, kill);
    }

    /// Tells a client that a grant is lost. What runs under it is not the client's any more.
    fn take_over(&mut self, client: ClientId, id: u64, registry: &Registry) {
        let Some(connection) = self.clients.get_mut(&client) else {
            return;
        };
        connection.tell(&FromAgent::Lost { id });
        self.ready.insert(client);
        if let Some((ticket, lifeline)) = connection.take_command(id) {
            let abandoned = (ticket, Release::Abandoned);
            self.lifelines
                .wait_for(lifeline, abandoned, (client, id), registry);
        }
    }

    /// The lease has another end, and those whom it concerns are told.
    pub(crate) fn renew(&mut self, lease: Lease, shared: &Shared) {
        self.lease = lease;
        self.evict_at = self.eviction(shared);
        let concerned = |client: &Connection| client.is_concerned();
        for (&id, client) in self.clients.iter_mut().filter(|(_, c)| concerned(c)) {
            client.tell_lease(lease);
            self.ready.insert(id);
        }
    }

    /// When commands are told to end if the lease is not renewed.
    fn eviction(&self, shared: &Shared) -> Option<Time> {
        let bounded = ![Time::ZERO, Time::MAX].contains(&self.lease.until);
        let lease = shared.identity.settings.lease;
        bounded.then(|| lifeline::ask_at(self.lease.until, lease))
    }

    /// Ends the commands whose time is over, before anything else is done.
    pub(crate) fn evict(&mut self, shared: &Shared, registry: &Registry) {
        self.evict_in_time(shared, registry);
        self.lifelines.end_overdue();
    }

    /// Ends all commands when the lease is nearly over and was not renewed. There is no way back:
    /// their locks count as lost, also if it is renewed after all.
    fn evict_in_time(&mut self, shared: &Shared, registry: &Registry) {
        let now = clock::now();
        if self.evict_at.is_none_or(|at| now < at) {
            return;
        }
        self.evict_at = None;
        let clients = self.clients.iter();
        let commands: Vec<_> = clients
            .flat_map(|(&client, connection)| connection.commands().map(move |id| (client, id)))
            .collect();
        for (client, id) in commands {
            self.take_over(client, id, registry);
        }
        let lease = shared.identity.settings.lease;
        let kill = lifeline::kill_at(self.lease.until, lease);
        if self.lifelines.evict_all(now, kill) {
            tracing::warn!(
                "the lease was not renewed and is nearly over: commands that run under locks are \
                 ended; see whether a majority of the members can be reached"
            );
        }
    }

    /// Tells all clients that listen. Who leaves too much unread misses it, and is told so when it has
    /// read.
    pub(crate) fn tell_listeners(&mut self, event: &AgentEvent) {
        let mut missed = 0;
        for (&id, client) in &mut self.clients {
            match client.tell_event(event) {
                Some(Heard::Told) => {
                    self.ready.insert(id);
                }
                Some(Heard::Missed) => missed += 1,
                None => {}
            }
        }
        self.count(MISSED_EVENT, missed);
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
                        self.tell_log(&format!("a client was turned away: {error}"));
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

    /// Tells the log, but not of each of thousands.
    fn tell_log(&mut self, what: &str) {
        let now = clock::now();
        if self.tell_at <= now {
            self.tell_at = now + TELL_EVERY;
            tracing::warn!("{what}; the status counts them");
        }
    }

    fn register(
        &mut self,
        mut stream: UnixStream,
        shared: &Shared,
        registry: &Registry,
    ) -> io::Result<()> {
        let peer = Peer::of(&stream)?;
        self.is_news = true;
        if let Some((why, answer)) = self.refusal(&stream, peer) {
            self.count(why.reason(), 1);
            // It is the first message, for which there is room; who is gone does not miss it.
            let _ = connection::tell_only(&stream, &answer);
            return Err(io::Error::other(why.to_string()));
        }
        let id = ClientId(self.next);
        self.next += 1;
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
        let interest = Interest::READABLE | Interest::WRITABLE;
        registry.register(&mut stream, Token(id.0), interest)?;
        registry.register(
            &mut SourceFd(&process.as_raw_fd()),
            Token(PROCESSES + id.0),
            Interest::READABLE,
        )?;
        let mut client = Connection::new(stream, peer, process);
        let identity = &shared.identity;
        let group = identity.settings.group.clone();
        client.tell(&FromAgent::Welcome {
            group,
            member: identity.me,
            lease: identity.settings.lease,
            clock: Reading::take(),
        });
        self.clients.insert(id, client);
        *self.of_process.entry(peer.pid).or_default() += 1;
        self.ready.insert(id);
        Ok(())
    }

    /// Why this client is turned away, if it is, and what it is told.
    fn refusal(&self, stream: &UnixStream, peer: Peer) -> Option<(Refusal, FromAgent)> {
        let of_process = self.of_process.get(&peer.pid);
        // The mode of the socket's file keeps others out; this holds also if somebody widened it.
        if peer.uid != geteuid().as_raw() && peer.uid != 0 {
            Some((Refusal::User(peer.uid), FromAgent::Forbidden))
        } else if self.clients.len() + self.cut_off.len() >= MAX_CLIENTS {
            Some((Refusal::All, FromAgent::TooMany))
        } else if peer.pid != 0 && of_process.is_some_and(|&count| count >= MAX_OF_ONE_PROCESS) {
            Some((Refusal::Process(peer.pid), FromAgent::TooMany))
        } else if !descriptors::is_spare(stream) {
            Some((Refusal::Descriptors, FromAgent::TooMany))
        } else {
            None
        }
    }

    fn end(&mut self, id: ClientId, ended: &Ended, shared: &Shared, registry: &Registry) {
        self.is_news = true;
        if let Some(reason) = ended.reason() {
            self.count(reason, 1);
        }
        let Some(client) = self.clients.remove(&id) else {
            return;
        };
        self.taken -= client.counted;
        let peer = client.peer();
        match client.end(id, shared, &mut self.lifelines, registry) {
            Some(cut_off) => drop(self.cut_off.insert(id, cut_off)),
            None => self.leave_process(peer),
        }
    }

    /// Notes for the status that clients were turned away, refused something or cut off.
    fn count(&mut self, reason: &'static str, times: u64) {
        if times > 0 {
            *self.dropped.entry(reason).or_default() += times;
            self.is_news = true;
        }
    }

    /// How many clients there are, and what became of others.
    fn status(&self) -> ClientsStatus {
        let dropped = self.dropped.iter();
        let dropped = dropped.map(|(&why, &count)| (why.to_owned(), count));
        ClientsStatus {
            connected: self.clients.len() as u64,
            dropped: dropped.collect(),
            ..ClientsStatus::default()
        }
    }

    /// Serves nobody any more: streams end, by which the clients hear that their locks are lost.
    /// What runs under these comes back.
    pub(crate) fn close(self) -> Vec<Lifeline> {
        let of_clients = self
            .clients
            .into_values()
            .flat_map(Connection::into_commands);
        of_clients.chain(self.lifelines.into_all()).collect()
    }
}

/// Why a client is turned away.
#[derive(Clone, Copy, Debug, thiserror::Error)]
enum Refusal {
    #[error("user {0} may not use this agent")]
    User(u32),
    #[error("there are {MAX_CLIENTS} clients")]
    All,
    #[error("process {0} has {MAX_OF_ONE_PROCESS} clients")]
    Process(u32),
    #[error("few descriptors are left: raise the limit of open files, ulimit -n")]
    Descriptors,
}

impl Refusal {
    /// What the status counts it as.
    fn reason(self) -> &'static str {
        match self {
            Self::User(_) => "other-user",
            Self::All => "too-many",
            Self::Process(_) => "too-many-of-one-process",
            Self::Descriptors => FEW_DESCRIPTORS,
        }
    }
}

/// A socket that listens at `path`, for this process's user alone.
fn bind(path: &Path) -> Result<(Socket, SocketFile), BindError> {
    let address = || path.display().to_string();
    let failed = |source| BindError::io(address(), source);
    let socket = Socket::new(Domain::UNIX, Type::STREAM.cloexec(), None).map_err(failed)?;
    let file = socket_file::listen(&socket, path, Mode::S_IRUSR | Mode::S_IWUSR, BACKLOG).map_err(
        |error| match BindError::place(address(), error) {
            BindError::InUse { address: path, pid } => BindError::SocketInUse { path, pid },
            error => error,
        },
    )?;
    Ok((socket, file))
}

/// Errors that concern one connection, not the listener.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
    )
}
