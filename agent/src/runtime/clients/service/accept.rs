//! Connections that come: accepted, or turned away.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use mio::net::UnixStream;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::unistd::geteuid;

use crate::protocol::Time;
use crate::runtime::clients::connection::Connection;
use crate::runtime::clients::limits::{
    FEW_DESCRIPTORS, MAX_CLIENTS, MAX_OF_ONE_PROCESS, PROCESSES,
};
use crate::runtime::clients::peer::{Peer, tell_only};
use crate::runtime::clients::service::Service;
use crate::runtime::frames::FromAgent;
use crate::runtime::os::clock::Reading;
use crate::runtime::os::pidfd::Process;
use crate::runtime::os::{clock, descriptors};
use crate::runtime::shared::core_guard::Shared;
use crate::runtime::shared::entry::ClientId;

/// Connections accepted in one turn: each takes some ten system calls, so that they are together as
/// much work as the messages of a turn.
const ACCEPT_LIMIT: usize = 64;
/// After a failed accept (no descriptors left) the next try comes so much later.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl Service {
    pub(super) fn accept(&mut self, shared: &Shared, registry: &Registry) {
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
                        tracing::warn!(event = "accept-failed", "cannot accept clients: {error}");
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
                    tracing::warn!(event = "accept-failed", "cannot accept clients: {error}");
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
        self.is_news = true;
        if let Some((why, answer)) = self.refusal(&stream, peer) {
            self.count(why.reason(), 1);
            // It is the first message, for which there is room; who is gone does not miss it.
            let _ = tell_only(&stream, &answer);
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

/// Errors that concern one connection, not the listener.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
    )
}
