//! Has a store's client speak with a real server, in the test's own thread.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::net::ToSocketAddrs;
use std::time::{Duration, Instant};

use distlock_protocol::Time;
use distlock_protocol::ledger::{
    Host, Key, Op, OpId, Reply, Store, StoreEvent, StoreFacts, StoreOutput, StreamId,
};
use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Events, Interest, Poll, Token};

/// Longer than anything takes here, on a host that does other things too.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A client with its sockets.
pub(crate) struct Driver {
    store: Box<dyn Store>,
    begun: Instant,
    poll: Poll,
    streams: BTreeMap<StreamId, Stream>,
    /// What was said and nobody has asked for yet.
    events: Vec<StoreEvent>,
    last_op: u64,
}

struct Stream {
    socket: Socket,
    is_connected: bool,
    unsent: Vec<u8>,
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn open(host: &Host) -> io::Result<Self> {
        match host {
            Host::Tcp { name, port } => {
                let address = (name.as_str(), *port).to_socket_addrs()?.next();
                let address = address.ok_or(io::ErrorKind::NotFound)?;
                let socket = TcpStream::connect(address)?;
                socket.set_nodelay(true)?;
                Ok(Self::Tcp(socket))
            }
            Host::Unix(path) => Ok(Self::Unix(UnixStream::connect(path)?)),
        }
    }

    fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Tcp(socket) => socket,
            Self::Unix(socket) => socket,
        }
    }

    /// Whether there is a connection.
    fn connected(&self) -> io::Result<bool> {
        let (error, peer) = match self {
            Self::Tcp(socket) => (socket.take_error()?, socket.peer_addr().map(drop)),
            Self::Unix(socket) => (socket.take_error()?, socket.peer_addr().map(drop)),
        };
        match (error, peer) {
            (Some(error), _) => Err(error),
            (None, Ok(())) => Ok(true),
            (None, Err(error)) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            (None, Err(error)) => Err(error),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.read(bytes),
            Self::Unix(socket) => socket.read(bytes),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.write(bytes),
            Self::Unix(socket) => socket.write(bytes),
        }
    }
}

impl Driver {
    /// Begins to connect in the first [`Driver::turn`].
    pub(crate) fn new(store: Box<dyn Store>) -> Self {
        Self {
            store,
            begun: now(),
            poll: Poll::new().unwrap(),
            streams: BTreeMap::new(),
            events: vec![],
            last_op: 0,
        }
    }

    /// The time as the client sees it.
    pub(crate) fn time(&self) -> Time {
        Time::ZERO + self.begun.elapsed() + Duration::from_secs(1)
    }

    /// Waits until there is a connection.
    pub(crate) fn up(&mut self) -> StoreFacts {
        self.until("Up", |event| match event {
            StoreEvent::Up(facts) => Some(facts.clone()),
            _ => None,
        })
    }

    /// Waits until there is none, and says why.
    pub(crate) fn down(&mut self) -> String {
        self.until("Down", |event| match event {
            StoreEvent::Down(why) => Some(why.clone()),
            _ => None,
        })
    }

    /// Begins an operation.
    pub(crate) fn submit(&mut self, op: Op) -> OpId {
        self.last_op += 1;
        let id = OpId(self.last_op);
        self.store.submit(self.time(), id, op);
        self.turn(Duration::ZERO);
        id
    }

    /// Waits for the answer to an operation.
    pub(crate) fn reply(&mut self, id: OpId) -> Reply {
        self.until("a reply", |event| match event {
            StoreEvent::Reply(of, reply) if *of == id => Some(reply.clone()),
            _ => None,
        })
    }

    /// Does an operation.
    pub(crate) fn run(&mut self, op: Op) -> Reply {
        let id = self.submit(op);
        self.reply(id)
    }

    /// From now on the changes of these registers are worth a hint.
    pub(crate) fn interest(&mut self, keys: &[Key]) {
        let keys: BTreeSet<Key> = keys.iter().cloned().collect();
        self.store.interest(self.time(), &keys);
        self.turn(Duration::ZERO);
    }

    /// Waits until something was said of which `found` makes something, and takes it out of
    /// [`Driver::events`].
    #[track_caller]
    pub(crate) fn until<T>(&mut self, what: &str, found: impl Fn(&StoreEvent) -> Option<T>) -> T {
        let begun = now();
        loop {
            let mut events = self.events.iter().enumerate();
            if let Some((at, result)) = events.find_map(|(at, event)| Some((at, found(event)?))) {
                self.events.remove(at);
                return result;
            }
            assert!(
                begun.elapsed() < LONG,
                "waited too long for {what}; {:?} says {:?}",
                self.store,
                self.events
            );
            self.turn(Duration::from_millis(100));
        }
    }

    /// Lets so much time pass.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = now() + time;
        while let Some(left) = end
            .checked_duration_since(now())
            .filter(|left| !left.is_zero())
        {
            self.turn(left);
        }
    }

    /// What was said, and not waited for.
    pub(crate) fn events(&mut self) -> Vec<StoreEvent> {
        std::mem::take(&mut self.events)
    }

    /// Does what there is to do, after waiting for it for at most so long.
    pub(crate) fn turn(&mut self, longest: Duration) {
        self.outputs();
        let mut wait = longest;
        match self.store.poll_timeout() {
            // The client connects by itself at the first call.
            None if self.streams.is_empty() => wait = Duration::ZERO,
            // Rounded up, as `epoll` counts whole milliseconds.
            Some(time) => wait = wait.min(time.since(self.time()) + Duration::from_millis(1)),
            None => {}
        }
        let mut ready = Events::with_capacity(64);
        match self.poll.poll(&mut ready, Some(wait)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => outcome.unwrap(),
        }
        for event in &ready {
            self.ready(StreamId(event.token().0 as u64));
        }
        let now = self.time();
        if self.store.poll_timeout().is_none_or(|time| time <= now) {
            self.store.timeout(now);
            self.outputs();
        }
    }

    fn outputs(&mut self) {
        while let Some(output) = self.store.poll_output() {
            match output {
                StoreOutput::Event(event) => self.events.push(event),
                StoreOutput::Close(id) => {
                    // What was to be sent before is sent if it can be.
                    self.flush(id);
                    self.streams.remove(&id);
                }
                StoreOutput::Send(id, bytes) => {
                    if let Some(stream) = self.streams.get_mut(&id) {
                        stream.unsent.extend_from_slice(&bytes);
                        self.flush(id);
                    }
                }
                StoreOutput::Connect(id, host) => match self.open(id, &host) {
                    Ok(stream) => {
                        let before = self.streams.insert(id, stream);
                        assert!(before.is_none(), "{id:?} was used before");
                    }
                    Err(error) => {
                        let now = self.time();
                        self.store.disconnected(now, id, &error.to_string());
                    }
                },
            }
        }
    }

    fn open(&self, id: StreamId, host: &Host) -> io::Result<Stream> {
        let mut socket = Socket::open(host)?;
        let registry = self.poll.registry();
        let both = Interest::READABLE | Interest::WRITABLE;
        let token = Token(usize::try_from(id.0).unwrap());
        registry.register(socket.source(), token, both)?;
        Ok(Stream {
            socket,
            is_connected: false,
            unsent: vec![],
        })
    }

    fn flush(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        while stream.is_connected && !stream.unsent.is_empty() {
            match stream.socket.write(&stream.unsent) {
                Ok(sent) => drop(stream.unsent.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // Reading finds out, too, and says so.
                Err(_) => break,
            }
        }
    }

    fn ready(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if !stream.is_connected {
            match stream.socket.connected() {
                Ok(false) => return,
                Ok(true) => {
                    stream.is_connected = true;
                    let now = self.time();
                    self.store.connected(now, id);
                    self.outputs();
                }
                Err(error) => return self.end(id, &error.to_string()),
            }
        }
        self.flush(id);
        let mut bytes = [0; 16384];
        while let Some(stream) = self.streams.get_mut(&id) {
            match stream.socket.read(&mut bytes) {
                Ok(0) => self.end(id, "the server closed the connection"),
                Ok(count) => {
                    let now = self.time();
                    self.store.received(now, id, &bytes[..count]);
                    self.outputs();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => self.end(id, &error.to_string()),
            }
        }
    }

    fn end(&mut self, id: StreamId, why: &str) {
        self.streams.remove(&id);
        let now = self.time();
        self.store.disconnected(now, id, why);
        self.outputs();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the host is not suspended while a test runs"
)]
fn now() -> Instant {
    Instant::now()
}
