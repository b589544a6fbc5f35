//! Clients that the agent has cut off, and that may not know it yet.
//!
//! A client that is not understood, or does not read, is served no more. Its guards say that they are
//! valid until it reads the end of its stream, or the lease is over that it was told last. So what it
//! holds is its own until then: until it has closed its stream in turn, its process has ended, or that
//! lease is over, whichever is seen first. What it enters by itself, in memory that it shares with the agent,
//! is its own until it is gone: there it sees the lease as it moves.

use std::mem;
use std::net::Shutdown;

use mio::net::UnixStream;

use super::peer::Peer;
use crate::protocol::{Release, Ticket, Time};
use crate::runtime::os::fd_passing;
use crate::runtime::os::pidfd::Process;
use crate::runtime::shared::Shared;
use crate::runtime::shared::entry::ClientId;

/// Bytes thrown away in one turn.
const READ_LIMIT: usize = 64 << 10;

/// What a client that was cut off has as far as it knows.
#[derive(Debug)]
pub(super) struct Holds {
    /// What it was granted.
    pub(super) tickets: Vec<Ticket>,
    /// When the lease of that is over, as it was told.
    pub(super) until: Time,
    /// What it entered by itself before it had the agent know.
    pub(super) lasting: Vec<Ticket>,
    /// Whether it enters locks by itself: it reads the lease's end in the agent's memory, as that moves.
    pub(super) enters: bool,
}

impl Holds {
    /// Whether it is nothing.
    pub(super) fn is_over(&self) -> bool {
        self.tickets.is_empty() && self.lasting.is_empty() && !self.enters
    }
}

/// What is left of a client that was cut off.
#[derive(Debug)]
pub(super) struct CutOff {
    stream: UnixStream,
    process: Process,
    peer: Peer,
    holds: Holds,
    /// Whether the poll has told of its stream or of its process.
    is_noted: bool,
}

impl CutOff {
    /// Tells a client that it is cut off, by the end of its stream.
    pub(super) fn new(stream: UnixStream, process: Process, peer: Peer, holds: Holds) -> Self {
        // It fails only if the client has closed its end, of which the poll tells.
        let _ = stream.shutdown(Shutdown::Write);
        Self {
            stream,
            process,
            peer,
            holds,
            is_noted: true,
        }
    }

    pub(super) fn peer(&self) -> Peer {
        self.peer
    }

    /// Notes that the poll has told of its stream or of its process.
    pub(super) fn note(&mut self) {
        self.is_noted = true;
    }

    /// When to look though the poll does not tell.
    pub(super) fn due(&self) -> Option<Time> {
        if self.is_noted {
            Some(Time::ZERO)
        } else {
            let Holds { tickets, until, .. } = &self.holds;
            (!tickets.is_empty() && *until != Time::MAX).then_some(*until)
        }
    }

    /// Takes back what is void by `now`, as the client knows or could know; whether that is all.
    pub(super) fn end(&mut self, id: ClientId, now: Time, shared: &Shared) -> bool {
        let is_gone = self.is_noted && (self.process.has_ended() || self.has_closed());
        let is_void = now >= self.holds.until && !self.holds.tickets.is_empty();
        if is_gone || is_void {
            let mut core = shared.lock_core();
            let mut tickets = mem::take(&mut self.holds.tickets);
            if is_gone {
                tickets.append(&mut self.holds.lasting);
            }
            for ticket in tickets {
                core.withdraw(ticket, Release::Abandoned);
            }
            if is_gone {
                core.end_client_loans(id);
                self.holds.enters = false;
            }
            core.finish();
        }
        self.holds.is_over()
    }

    /// Whether it has closed its stream. What it says is thrown away: it may wait for room.
    fn has_closed(&mut self) -> bool {
        let mut chunk = [0; 4_096];
        let mut left = READ_LIMIT;
        while left > 0 {
            match fd_passing::receive(&self.stream, &mut chunk) {
                Ok(received) if received.len > 0 => left = left.saturating_sub(received.len),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    self.is_noted = false;
                    return false;
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => return true,
            }
        }
        false
    }
}
