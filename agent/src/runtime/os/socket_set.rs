//! A member's sockets as one descriptor, for whichever thread waits for them: an epoll instance of its
//! own (epoll(7), "Questions and answers", on nested instances).
//!
//! It is level-triggered: what one thread leaves at a socket, the next one that waits is told of. So the
//! event loop, which watches the whole set by one descriptor, can leave it to another thread and take it
//! back by one system call each. A socket that is closed leaves the set by itself, also while a thread
//! waits, which poll(2) would keep open meanwhile.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

/// What the kernel tells of the bell; it tells [`SOCKET`] of all sockets.
const BELL: u64 = 0;
const SOCKET: u64 = 1;
/// Events taken at once: of two sockets and the bell.
const EVENTS: usize = 3;

/// The sockets, a bell for the thread that waits for them, and the poll of the event loop, which watches
/// them while no other thread does.
#[derive(Debug)]
pub(crate) struct SocketSet {
    set: Epoll,
    bell: EventFd,
    poll: Registry,
    token: Token,
}

impl SocketSet {
    /// Of these sockets, which are open. `poll` watches them as `token` from now on.
    ///
    /// # Errors
    /// If no descriptor is left.
    pub(crate) fn of(
        sockets: impl Iterator<Item = RawFd>,
        poll: &Registry,
        token: Token,
    ) -> io::Result<Self> {
        let set = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let readable = |data| EpollEvent::new(EpollFlags::EPOLLIN, data);
        for socket in sockets {
            #[expect(unsafe_code, reason = "a raw descriptor may be closed")]
            // SAFETY: the caller has it open.
            let socket = unsafe { BorrowedFd::borrow_raw(socket) };
            set.add(socket, readable(SOCKET))?;
        }
        set.add(&bell, readable(BELL))?;
        let poll = poll.try_clone()?;
        let new = Self {
            set,
            bell,
            poll,
            token,
        };
        new.watch()?;
        Ok(new)
    }

    /// Watches one more, also until there is room to write if `is_full`.
    ///
    /// # Errors
    /// If the kernel has no memory.
    #[cfg(feature = "store")]
    pub(crate) fn add(&self, socket: BorrowedFd<'_>, is_full: bool) -> io::Result<()> {
        Ok(self.set.add(socket, events(is_full))?)
    }

    /// Watches one of them until there is room to write, or not any more.
    ///
    /// # Errors
    /// If the kernel has no memory, or does not know it.
    #[cfg(feature = "store")]
    pub(crate) fn modify(&self, socket: BorrowedFd<'_>, is_full: bool) -> io::Result<()> {
        Ok(self.set.modify(socket, &mut events(is_full))?)
    }

    /// Watches one less. One that a forked child has a copy of does not leave by being closed.
    ///
    /// # Errors
    /// If the kernel does not know it.
    #[cfg(feature = "store")]
    pub(crate) fn remove(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        Ok(self.set.delete(socket)?)
    }

    /// Has the poll watch the sockets. What has arrived already is an event of it now.
    ///
    /// # Errors
    /// If the kernel has no memory.
    pub(crate) fn watch(&self) -> io::Result<()> {
        let fd = self.fd();
        self.poll
            .register(&mut SourceFd(&fd), self.token, Interest::READABLE)
    }

    /// Has the poll not watch the sockets any more.
    ///
    /// # Errors
    /// If it does not watch them.
    pub(crate) fn unwatch(&self) -> io::Result<()> {
        self.poll.deregister(&mut SourceFd(&self.fd()))
    }

    /// The poll.
    pub(crate) fn poll(&self) -> &Registry {
        &self.poll
    }

    /// Waits until something has arrived at a socket, the bell has rung, a signal has come, or
    /// `timeout` is over.
    ///
    /// # Errors
    /// Only if the kernel refuses what is open, which it has no reason to.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout.map_or(EpollTimeout::NONE, |timeout| {
            EpollTimeout::try_from(timeout).unwrap_or(EpollTimeout::MAX)
        });
        let mut events = [EpollEvent::empty(); EVENTS];
        let count = match self.set.wait(&mut events, timeout) {
            Err(Errno::EINTR) => 0,
            told => told?,
        };
        if events[..count].iter().any(|event| event.data() == BELL) {
            // It fails only where another has read it.
            let _ = self.bell.read();
        }
        Ok(())
    }

    /// Wakes the thread that waits, or the next one that does.
    pub(crate) fn ring(&self) {
        // It fails only at 2^64 - 2, and then it is readable.
        let _ = self.bell.write(1);
    }

    fn fd(&self) -> RawFd {
        self.set.0.as_raw_fd()
    }
}

#[cfg(feature = "store")]
fn events(is_full: bool) -> EpollEvent {
    let mut flags = EpollFlags::EPOLLIN;
    flags.set(EpollFlags::EPOLLOUT, is_full);
    EpollEvent::new(flags, SOCKET)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use mio::{Events, Poll};

    use super::*;
    use crate::runtime::os::clock;

    const LONG: Duration = Duration::from_secs(60);

    fn set_of(socket: &UdpSocket) -> (SocketSet, Poll) {
        let poll = Poll::new().unwrap();
        let sockets = [socket.as_raw_fd()].into_iter();
        let set = SocketSet::of(sockets, poll.registry(), Token(0)).unwrap();
        (set, poll)
    }

    /// Whether the poll has something to tell.
    fn tells(poll: &mut Poll) -> bool {
        let mut events = Events::with_capacity(1);
        poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        !events.is_empty()
    }

    #[test]
    fn a_datagram_that_is_left_is_told_of_again() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (set, mut poll) = set_of(&socket);
        set.unwatch().unwrap();
        let address = socket.local_addr().unwrap();
        socket.send_to(b"x", address).unwrap();
        set.wait(Some(LONG)).unwrap();
        set.wait(Some(LONG)).unwrap();
        assert!(!tells(&mut poll));
        set.watch().unwrap();
        assert!(tells(&mut poll), "it was left to the poll");
        socket.recv(&mut [0; 1]).unwrap();
        assert!(!tells(&mut poll));
        socket.send_to(b"x", address).unwrap();
        assert!(tells(&mut poll), "the next one");
    }

    /// A ring that came late concerns the next that waits, once.
    #[test]
    fn a_ring_wakes_once() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (set, _poll) = set_of(&socket);
        let moment = Duration::from_millis(20);
        set.ring();
        set.ring();
        set.wait(Some(LONG)).unwrap();
        let before = clock::now();
        set.wait(Some(moment)).unwrap();
        assert!(clock::now().since(before) >= moment);
    }

    /// Whoever opens the address again must not wait for a thread that waits.
    #[test]
    fn a_socket_can_be_closed_meanwhile() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let (set, _poll) = set_of(&socket);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| set.wait(None).unwrap());
            drop(socket);
            UdpSocket::bind(address).unwrap();
            set.ring();
            waiter.join().unwrap();
        });
    }
}
