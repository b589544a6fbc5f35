//! One connection to a server, and the request that is under way on it.

use std::fmt;

use distlock_protocol::Time;
use distlock_protocol::ledger::{Host, StoreOutput, StreamId};

use super::http::{Fault, Piece, Reader};
use crate::tls::{Channel, Tls};

/// A reply is no longer than this. A page of the longest records, of which a queue may have 1,024 claims, is.
pub(super) const LONGEST_BODY: usize = 16 << 20;

/// Why a connection is of no use any more.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// For this reason.
    Because(String),
    /// A reply is too long to be kept.
    LongReply,
}

impl Broken {
    fn unasked() -> Self {
        Self::Because("the server says what it was not asked for".to_owned())
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Because(why) => f.write_str(why),
            Self::LongReply => f.write_str("a reply is longer than 16 MiB"),
        }
    }
}

impl From<Fault> for Broken {
    fn from(fault: Fault) -> Self {
        Self::Because(fault.to_string())
    }
}

/// Bytes to and from a server.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) stream: StreamId,
    /// Whether it was said that there is no connection any more.
    pub(super) is_gone: bool,
    channel: Channel,
    reader: Reader,
}

impl Wire {
    /// Will speak with `host` on `stream`.
    ///
    /// # Errors
    /// If no certificate can be for that host.
    pub(super) fn new(stream: StreamId, host: &Host, tls: Option<&Tls>) -> Result<Self, String> {
        let channel = match (tls, host) {
            (None, _) => Channel::Plain,
            (Some(tls), Host::Tcp { name, .. }) => Channel::sealed(tls, name)?,
            (Some(_), Host::Unix(path)) => {
                return Err(format!("no certificate can be for the socket {path}"));
            }
        };
        let reader = Reader::default();
        Ok(Self {
            stream,
            is_gone: false,
            channel,
            reader,
        })
    }

    /// Closes the connection, unless it is gone.
    pub(super) fn close(&self) -> Option<StoreOutput> {
        (!self.is_gone).then_some(StoreOutput::Close(self.stream))
    }

    /// Sends `bytes`; with none, begins to seal the connection.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<Option<StoreOutput>, Broken> {
        let mut wire = Vec::with_capacity(bytes.len());
        let sent = self.channel.send(bytes, &mut wire);
        sent.map_err(Broken::Because)?;
        Ok(self.output(wire))
    }

    /// These bytes have arrived. Then [`Wire::piece`] is called until there is none. What is to be sent is to
    /// be sent even if the connection is broken.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> (Option<StoreOutput>, Result<(), Broken>) {
        let (mut plain, mut wire) = (vec![], vec![]);
        let received = self.channel.receive(bytes, &mut plain, &mut wire);
        self.reader.arrived(&plain);
        (self.output(wire), received.map_err(Broken::Because))
    }

    /// The next piece of a reply.
    pub(super) fn piece(&mut self) -> Result<Option<Piece>, Broken> {
        Ok(self.reader.piece()?)
    }

    /// Whether nothing of a reply has arrived.
    pub(super) fn is_between(&self) -> bool {
        self.reader.is_between()
    }

    /// Whether the connection is yet to be sealed.
    pub(super) fn is_shaking_hands(&self) -> bool {
        self.channel.is_shaking_hands()
    }

    fn output(&self, wire: Vec<u8>) -> Option<StoreOutput> {
        (!wire.is_empty()).then_some(StoreOutput::Send(self.stream, wire))
    }
}

/// A connection for requests, one after the other.
///
/// Go's servers answer requests that come one behind the other on a connection in their order, and each only
/// when the one before is done: nothing is gained by sending more than one.
#[derive(Debug)]
pub(super) struct Connection<Job> {
    pub(super) wire: Wire,
    /// Whether there is a connection.
    pub(super) is_open: bool,
    /// Whether what answers there is known to be the store.
    pub(super) is_known: bool,
    /// What is under way, and until when a reply is waited for.
    pub(super) job: Option<(Job, Time)>,
    /// Since when it is as it is.
    pub(super) since: Time,
    status: u16,
    closes: bool,
    body: Vec<u8>,
}

/// A reply.
#[derive(Debug)]
pub(super) struct Answer<Job> {
    pub(super) job: Job,
    pub(super) status: u16,
    /// Whether the connection is over.
    pub(super) closes: bool,
    pub(super) body: Vec<u8>,
}

impl<Job> Connection<Job> {
    pub(super) fn new(now: Time, wire: Wire) -> Self {
        Self {
            wire,
            is_open: false,
            is_known: false,
            job: None,
            since: now,
            status: 0,
            closes: false,
            body: vec![],
        }
    }

    /// Whether a request can be sent.
    pub(super) fn is_idle(&self) -> bool {
        self.is_open && self.job.is_none()
    }

    /// The next answer, if it is complete.
    ///
    /// # Errors
    /// If what arrived is no reply, or was not asked for.
    pub(super) fn answer(&mut self, now: Time) -> Result<Option<Answer<Job>>, Broken> {
        if self.job.is_none() && !self.wire.is_between() {
            return Err(Broken::unasked());
        }
        while let Some(piece) = self.wire.piece()? {
            match piece {
                Piece::Head { status, closes } => {
                    (self.status, self.closes) = (status, closes);
                    self.body.clear();
                }
                Piece::Data(data) if self.body.len() + data.len() > LONGEST_BODY => {
                    return Err(Broken::LongReply);
                }
                Piece::Data(data) => self.body.extend_from_slice(&data),
                // It would be taken for the answer to the next request.
                Piece::End if !self.wire.is_between() => return Err(Broken::unasked()),
                Piece::End => {
                    self.since = now;
                    return Ok(self.job.take().map(|(job, _)| Answer {
                        job,
                        status: self.status,
                        closes: self.closes,
                        body: std::mem::take(&mut self.body),
                    }));
                }
            }
        }
        Ok(None)
    }
}
