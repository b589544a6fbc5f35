//! What the machine allows: a datagram there and back, with nothing but mio around it.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command};

use mio::net::{UdpSocket, UnixDatagram};
use mio::{Events, Interest, Poll, Token};
use tempfile::TempDir;

use crate::ROLE;
use crate::place::{self, Place, Transport};

/// As long as a request or a reply.
const DATAGRAM_BYTES: usize = 64;

/// What the echoing process is told: its core, and where the measured process listens.
const CORE: &str = "DISTLOCK_BENCH_CORE";
const ADDRESS: &str = "DISTLOCK_BENCH_ADDRESS";

/// The role of the other process: sends back what it gets, until it is killed.
pub(crate) fn echo() {
    let variable = |name| std::env::var(name).expect("the parent says it");
    place::pin(variable(CORE).parse().expect("a number"));
    let address = variable(ADDRESS);
    let socket = match address.parse::<SocketAddr>() {
        Ok(address) => {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
            socket.connect(address).expect("loopback");
            Socket::Udp(socket)
        }
        Err(_) => {
            let socket = UnixDatagram::bind(format!("{address}.echo")).expect("a new path");
            socket.connect(&address).expect("the parent listens");
            Socket::Unix(socket)
        }
    };
    let mut end = End::new(socket);
    // The first datagram tells the parent where we are.
    end.send(&[0; DATAGRAM_BYTES]);
    loop {
        let datagram = end.receive();
        end.send(&datagram);
    }
}

/// The measured end, and the process at the other.
pub(crate) struct Echo {
    end: End,
    child: Child,
    _directory: TempDir,
}

impl Echo {
    pub(crate) fn start(transport: Transport, place: Place) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("floor");
        let (socket, address) = match transport {
            Transport::Udp => {
                let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
                let address = socket.local_addr().expect("it is bound").to_string();
                (Socket::Udp(socket), address)
            }
            Transport::Unix => {
                let socket = UnixDatagram::bind(&path).expect("a new path");
                (
                    Socket::Unix(socket),
                    path.to_str().expect("tempdir is UTF-8").to_owned(),
                )
            }
        };
        let child = Command::new(std::env::current_exe().expect("we have a path"))
            .env(ROLE, "echo")
            .env(CORE, place.other_core().to_string())
            .env(ADDRESS, &address)
            .spawn()
            .expect("we can be run again");
        let mut end = End::new(socket);
        end.connect_to_first_sender(&address);
        Self {
            end,
            child,
            _directory: directory,
        }
    }

    pub(crate) fn round_trip(&mut self) {
        self.end.send(&[1; DATAGRAM_BYTES]);
        self.end.receive();
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        // It ends in no other way; both fail only where there is nothing left to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

enum Socket {
    Udp(UdpSocket),
    Unix(UnixDatagram),
}

/// One end: a socket, and the poll that waits for it.
struct End {
    socket: Socket,
    poll: Poll,
    events: Events,
}

impl End {
    fn new(mut socket: Socket) -> Self {
        let poll = Poll::new().expect("epoll");
        let registry = poll.registry();
        match &mut socket {
            Socket::Udp(socket) => registry.register(socket, Token(0), Interest::READABLE),
            Socket::Unix(socket) => registry.register(socket, Token(0), Interest::READABLE),
        }
        .expect("a socket can be polled");
        Self {
            socket,
            poll,
            events: Events::with_capacity(4),
        }
    }

    fn connect_to_first_sender(&mut self, address: &str) {
        self.wait();
        let mut datagram = [0; DATAGRAM_BYTES];
        match &self.socket {
            Socket::Udp(socket) => {
                let (_, sender) = socket.recv_from(&mut datagram).expect("it is readable");
                socket.connect(sender)
            }
            Socket::Unix(socket) => {
                socket.recv(&mut datagram).expect("it is readable");
                socket.connect(format!("{address}.echo"))
            }
        }
        .expect("the other end is there");
    }

    fn send(&self, datagram: &[u8]) {
        let sent = match &self.socket {
            Socket::Udp(socket) => socket.send(datagram),
            Socket::Unix(socket) => socket.send(datagram),
        };
        assert_eq!(sent.expect("one datagram fits"), datagram.len());
    }

    /// Polls first, as an agent does that does not know when something comes.
    fn receive(&mut self) -> [u8; DATAGRAM_BYTES] {
        let mut datagram = [0; DATAGRAM_BYTES];
        loop {
            self.wait();
            let received = match &self.socket {
                Socket::Udp(socket) => socket.recv(&mut datagram),
                Socket::Unix(socket) => socket.recv(&mut datagram),
            };
            match received {
                Ok(_) => return datagram,
                // The edge may be that of a datagram that was taken already.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => panic!("the socket: {error}"),
            }
        }
    }

    fn wait(&mut self) {
        loop {
            match self.poll.poll(&mut self.events, None) {
                Ok(()) => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("epoll: {error}"),
            }
        }
    }
}
