//! The connections to a store: streams that nobody waits for.
//!
//! What is sent is kept until the kernel takes it. A host's name is looked up by a thread of its own,
//! because getaddrinfo(3) can block for as long as servers of names are silent.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};

use crate::protocol::ledger::{Host, Store, StreamId};
use crate::runtime::os::clock;
use crate::runtime::os::socket_set::SocketSet;
use crate::runtime::os::thread;

/// How much is read at once.
const READ: usize = 64 * 1024;
/// How often one stream is read in a row, before others are looked at.
const READS: usize = 4;
/// After so long without a word the kernel asks whether the other end is still there, so that a
/// connection on which only hints come is not waited on for ever.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Looks up names: calls what it is given, sooner or later and on any thread, with what it found.
pub(crate) type Resolve = dyn Fn(StreamId, Vec<SocketAddr>, String) + Send + Sync;

/// All connections of one client of a store.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    streams: BTreeMap<StreamId, Stream>,
}

#[derive(Debug)]
enum Stream {
    /// Its host's name is being looked up. What is sent meanwhile is sent then.
    Resolving(Vec<u8>),
    Connecting {
        socket: Socket,
        /// Where it is tried if this fails.
        others: Vec<SockAddr>,
        unsent: Vec<u8>,
    },
    Open {
        socket: Socket,
        unsent: Vec<u8>,
        /// Whether the kernel has no room for more.
        is_full: bool,
    },
}

/// What a look at a stream tells.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    Connected(StreamId),
    Received(StreamId, Vec<u8>),
    Ended(StreamId, String),
}

/// Tells a client what a look at its streams has told, each at the time that it is told.
pub(crate) fn tell(client: &mut dyn Store, arrivals: Vec<Arrival>) {
    for arrival in arrivals {
        // Read anew: the client may know of nothing earlier than it has happened.
        let now = clock::now();
        match arrival {
            Arrival::Connected(id) => client.connected(now, id),
            Arrival::Received(id, bytes) => client.received(now, id, &bytes),
            Arrival::Ended(id, why) => client.disconnected(now, id, &why),
        }
    }
}

impl Streams {
    /// Begins to connect.
    pub(crate) fn connect(
        &mut self,
        set: &SocketSet,
        id: StreamId,
        host: &Host,
        resolve: &Arc<Resolve>,
    ) -> Result<(), String> {
        let stream = match host {
            Host::Unix(path) => {
                let address = SockAddr::unix(path).map_err(|error| format!("{path}: {error}"))?;
                begin(set, vec![address]).map_err(|error| format!("{host}: {error}"))?
            }
            Host::Tcp { name, port } => match name.parse::<IpAddr>() {
                Ok(ip) => begin(set, vec![SocketAddr::new(ip, *port).into()])
                    .map_err(|error| format!("{host}: {error}"))?,
                Err(_) => {
                    look_up(id, name.clone(), *port, Arc::clone(resolve))
                        .map_err(|error| format!("{host}: no thread to look it up: {error}"))?;
                    Stream::Resolving(Vec::new())
                }
            },
        };
        self.streams.insert(id, stream);
        Ok(())
    }

    /// A host's name was looked up; why no connection comes of that, if none does.
    pub(crate) fn resolved(
        &mut self,
        set: &SocketSet,
        id: StreamId,
        found: Vec<SocketAddr>,
        why: String,
    ) -> Result<(), String> {
        let Some(stream @ Stream::Resolving(_)) = self.streams.get_mut(&id) else {
            return Ok(());
        };
        if found.is_empty() {
            self.streams.remove(&id);
            return Err(why);
        }
        // The last is tried first.
        let addresses = found.into_iter().rev().map(SockAddr::from).collect();
        match begin(set, addresses) {
            Ok(mut begun) => {
                if let (Stream::Resolving(early), Stream::Connecting { unsent, .. }) =
                    (&mut *stream, &mut begun)
                {
                    unsent.append(early);
                }
                *stream = begun;
                Ok(())
            }
            Err(error) => {
                self.streams.remove(&id);
                Err(error.to_string())
            }
        }
    }

    /// Sends, now or when the kernel has room.
    pub(crate) fn send(&mut self, id: StreamId, bytes: &[u8]) {
        match self.streams.get_mut(&id) {
            Some(
                Stream::Resolving(unsent)
                | Stream::Connecting { unsent, .. }
                | Stream::Open { unsent, .. },
            ) => unsent.extend_from_slice(bytes),
            None => {}
        }
    }

    /// Closes a connection, or gives it up. A forked child may have a copy of the socket, so that closing
    /// ours tells the other end nothing, and the kernel nothing either.
    pub(crate) fn close(&mut self, set: &SocketSet, id: StreamId) {
        match self.streams.remove(&id) {
            Some(Stream::Connecting { socket, .. }) => end(set, &socket),
            Some(Stream::Open {
                socket,
                mut unsent,
                mut is_full,
            }) => {
                // A farewell, such as an alert of TLS, goes out if there is room for it.
                let _ = write(set, &socket, &mut unsent, &mut is_full);
                end(set, &socket);
            }
            Some(Stream::Resolving(_)) | None => {}
        }
    }

    /// Closes all.
    pub(crate) fn close_all(&mut self, set: &SocketSet) {
        while let Some((&id, _)) = self.streams.first_key_value() {
            self.close(set, id);
        }
    }

    /// Gives the kernel what it has room for.
    pub(crate) fn flush(&mut self, set: &SocketSet, arrivals: &mut Vec<Arrival>) {
        let mut ended = Vec::new();
        for (&id, stream) in &mut self.streams {
            if let Stream::Open {
                socket,
                unsent,
                is_full,
            } = stream
                && !unsent.is_empty()
                && let Err(error) = write(set, socket, unsent, is_full)
            {
                ended.push((id, error.to_string()));
            }
        }
        self.end(set, ended, arrivals);
    }

    /// Looks at all; whether more may be there.
    pub(crate) fn look(&mut self, set: &SocketSet, arrivals: &mut Vec<Arrival>) -> bool {
        let mut ended = Vec::new();
        let mut connected = Vec::new();
        let mut is_more = false;
        let mut buffer = Vec::new();
        for (&id, stream) in &mut self.streams {
            match stream {
                Stream::Resolving(_) => {}
                Stream::Connecting {
                    socket,
                    others,
                    unsent,
                } => match is_connected(socket) {
                    Ok(false) => {}
                    Ok(true) => match watch(set, socket, false) {
                        Ok(()) => connected.push(id),
                        Err(error) => ended.push((id, error.to_string())),
                    },
                    Err(error) if others.is_empty() => ended.push((id, error.to_string())),
                    Err(_) => {
                        end(set, socket);
                        let (others, unsent) = (others.split_off(0), unsent.split_off(0));
                        match begin(set, others) {
                            Ok(Stream::Connecting { socket, others, .. }) => {
                                *stream = Stream::Connecting {
                                    socket,
                                    others,
                                    unsent,
                                };
                            }
                            Ok(_) => {}
                            Err(error) => ended.push((id, error.to_string())),
                        }
                    }
                },
                Stream::Open {
                    socket,
                    unsent,
                    is_full,
                } => {
                    if *is_full && let Err(error) = write(set, socket, unsent, is_full) {
                        ended.push((id, error.to_string()));
                        continue;
                    }
                    buffer.resize(READ, 0);
                    for reads in 0.. {
                        if reads == READS {
                            is_more = true;
                            break;
                        }
                        match (&*socket).read(&mut buffer) {
                            Ok(0) => {
                                let why = "the server has closed the connection".to_owned();
                                ended.push((id, why));
                                break;
                            }
                            Ok(len) => {
                                arrivals.push(Arrival::Received(id, buffer[..len].to_vec()));
                                if len < READ {
                                    break;
                                }
                            }
                            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                            Err(error) if error.kind() == ErrorKind::Interrupted => {}
                            Err(error) => {
                                ended.push((id, error.to_string()));
                                break;
                            }
                        }
                    }
                }
            }
        }
        for id in connected {
            if let Some(Stream::Connecting { socket, unsent, .. }) = self.streams.remove(&id) {
                let is_full = false;
                let open = Stream::Open {
                    socket,
                    unsent,
                    is_full,
                };
                self.streams.insert(id, open);
                arrivals.push(Arrival::Connected(id));
            }
        }
        self.end(set, ended, arrivals);
        is_more
    }

    fn end(
        &mut self,
        set: &SocketSet,
        ended: Vec<(StreamId, String)>,
        arrivals: &mut Vec<Arrival>,
    ) {
        for (id, why) in ended {
            self.close(set, id);
            arrivals.push(Arrival::Ended(id, why));
        }
    }
}

/// Begins to connect to the last of these addresses.
fn begin(set: &SocketSet, mut addresses: Vec<SockAddr>) -> io::Result<Stream> {
    let mut failure = io::Error::from(ErrorKind::AddrNotAvailable);
    while let Some(address) = addresses.pop() {
        match try_one(set, &address) {
            Ok(socket) => {
                return Ok(Stream::Connecting {
                    socket,
                    others: addresses,
                    unsent: Vec::new(),
                });
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn try_one(set: &SocketSet, address: &SockAddr) -> io::Result<Socket> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let is_unix = address.domain() == Domain::UNIX;
    let protocol = (!is_unix).then_some(Protocol::TCP);
    let socket = Socket::new(address.domain(), kind, protocol)?;
    if !is_unix {
        socket.set_tcp_nodelay(true)?;
        let keepalive = TcpKeepalive::new()
            .with_time(KEEPALIVE)
            .with_interval(KEEPALIVE / 3)
            .with_retries(3);
        socket.set_tcp_keepalive(&keepalive)?;
    }
    match socket.connect(address) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        Err(error) => return Err(error),
    }
    set.add(socket.as_fd(), true)?;
    Ok(socket)
}

/// Whether the connection is there by now.
fn is_connected(socket: &Socket) -> io::Result<bool> {
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    match socket.peer_addr() {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => Ok(false),
        Err(error) => Err(error),
    }
}

fn write(
    set: &SocketSet,
    socket: &Socket,
    unsent: &mut Vec<u8>,
    is_full: &mut bool,
) -> io::Result<()> {
    let mut sent = 0;
    let mut outcome = Ok(());
    while sent < unsent.len() {
        match (&*socket).write(&unsent[sent..]) {
            Ok(len) => sent += len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                outcome = Err(error);
                break;
            }
        }
    }
    unsent.drain(..sent);
    outcome?;
    if unsent.is_empty() == *is_full {
        *is_full = !unsent.is_empty();
        watch(set, socket, *is_full)?;
    }
    Ok(())
}

fn watch(set: &SocketSet, socket: &Socket, is_full: bool) -> io::Result<()> {
    set.modify(socket.as_fd(), is_full)
}

fn end(set: &SocketSet, socket: &Socket) {
    // Of a connection that was never there both fail.
    let _ = set.remove(socket.as_fd());
    let _ = socket.shutdown(std::net::Shutdown::Both);
}

fn look_up(id: StreamId, name: String, port: u16, resolve: Arc<Resolve>) -> io::Result<()> {
    let thread = thread::spawn("distlock-names", move || {
        let found = (name.as_str(), port).to_socket_addrs();
        let (found, why) = match found {
            Ok(found) => (found.collect(), format!("{name} has no address")),
            Err(error) => (Vec::new(), format!("{name}: {error}")),
        };
        resolve(id, found, why);
    });
    thread.map(drop)
}
