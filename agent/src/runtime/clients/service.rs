//! The listening socket, the clients, and whose turn it is.

mod accept;
mod commands;
mod ended;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{io, mem};

use mio::event::Event;
use mio::net::{UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use nix::sys::stat::Mode;
use socket2::{Domain, Socket, Type};

use crate::protocol::Time;
use crate::runtime::api::events::AgentEvent;
use crate::runtime::api::status::{ClientsStatus, Status};
use crate::runtime::clients::connection::{Connection, Heard};
use crate::runtime::clients::cut_off::CutOff;
use crate::runtime::clients::endpoint::Endpoint;
use crate::runtime::clients::lifeline::{LIFELINES, Lifeline, LifelineDir, Lifelines};
use crate::runtime::clients::limits::{
    MAX_WITH_STATUS, MISSED_EVENT, PROCESSES, TOO_MUCH, TURN_LIMIT, UNREAD_LIMIT,
};
use crate::runtime::frames;
use crate::runtime::frames::FromAgent;
use crate::runtime::net::transport::socket_file::SocketFile;
use crate::runtime::net::transport::{BindError, socket_file};
use crate::runtime::os::clock;
use crate::runtime::request::lease_page::LeasePage;
use crate::runtime::shared::core_guard::Shared;
use crate::runtime::shared::entry::{ClientId, Lease};

/// How often the log tells of clients that are turned away or cut off.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// How many connections the kernel keeps that are not accepted yet: as many as one process may have.
/// Whoever comes when there are so many waits in connect(2) until some are accepted.
const BACKLOG: i32 = 1_024;

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

    /// Tells clients how the group is, by the numbers of their questions. It is written down once.
    /// For whom there is no room is refused.
    pub(crate) fn tell_status(&mut self, status: &Status, askers: &[(ClientId, u64)]) {
        let encoded = frames::encode_status(status);
        if let Err(error) = &encoded {
            tracing::error!(
                event = "client-not-told",
                "a status cannot be written: {error}"
            );
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

    /// Whether a client may leave so much more unread. Nobody is cut off for it: others may be
    /// about to read what they were told; and so it leaves room for what is short, which is told
    /// even so. If then there is too much, who has the most is cut off.
    fn has_room(&self, client: ClientId, len: usize) -> bool {
        self.clients.get(&client).is_none_or(|connection| {
            let is_short = connection.taken() + len <= UNREAD_LIMIT;
            is_short || (connection.has_room(len) && self.taken + len <= MAX_WITH_STATUS)
        })
    }

    /// Notes what a client has come to take.
    fn recount(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(&id) {
            self.taken = self.taken - client.counted + client.taken();
            client.counted = client.taken();
        }
    }

    /// Tells all clients that listen. A client that leaves too much unread misses it, and is told so
    /// when it has read.
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

    /// Tells the log, but not of each of thousands.
    fn tell_log(&mut self, what: &str) {
        let now = clock::now();
        if self.tell_at <= now {
            self.tell_at = now + TELL_EVERY;
            tracing::warn!(event = "clients-refused", "{what}; the status counts them");
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
