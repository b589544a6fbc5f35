//! A store that is asked one thing after another, by a program that waits for each answer.

use std::fmt;
use std::iter;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, unbounded};
use mio::{Poll, Token};

use crate::protocol::Time;
use crate::protocol::ledger::{
    Op, OpId, Reply, Store, StoreEvent, StoreFacts, StoreOutput, StreamId,
};
use crate::runtime::net::streams::{self, Resolve, Streams};
use crate::runtime::os::clock;
use crate::runtime::os::socket_set::SocketSet;

/// How long it waits at most before it looks whether a name was looked up.
const LOOK: Duration = Duration::from_millis(20);

/// A store that is asked one thing after another.
pub struct StoreConsole {
    client: Box<dyn Store>,
    streams: Streams,
    set: SocketSet,
    resolve: Arc<Resolve>,
    resolved: Receiver<(StreamId, Vec<SocketAddr>, String)>,
    facts: Option<StoreFacts>,
    reason: String,
    last: u64,
    reply: Option<(OpId, Reply)>,
    _poll: Poll,
}

impl StoreConsole {
    /// Connects to the store that `client` speaks to; it may take `time`.
    ///
    /// # Errors
    /// Why there is no connection.
    pub fn connect(client: Box<dyn Store>, time: Duration) -> Result<Self, String> {
        let in_words = |error: std::io::Error| format!("no descriptor is left: {error}");
        let poll = Poll::new().map_err(in_words)?;
        let set = SocketSet::of(iter::empty(), poll.registry(), Token(0)).map_err(in_words)?;
        let (sender, resolved) = unbounded();
        let resolve = move |id, found, why| drop(sender.send((id, found, why)));
        let mut console = Self {
            client,
            streams: Streams::default(),
            set,
            resolve: Arc::new(resolve),
            resolved,
            facts: None,
            reason: "it does not answer".to_owned(),
            last: 0,
            reply: None,
            _poll: poll,
        };
        let deadline = clock::now() + time;
        console.client.timeout(clock::now());
        console.drive(deadline, |console| console.facts.is_some());
        match console.facts {
            Some(_) => Ok(console),
            None => Err(console.reason.clone()),
        }
    }

    /// What the store is.
    pub fn facts(&self) -> &StoreFacts {
        self.facts.as_ref().expect("it is connected")
    }

    /// Asks for one thing; the answer may take `time`.
    ///
    /// # Errors
    /// If there is no answer, or it is [`Reply::Unknown`] or [`Reply::Refused`].
    pub fn ask(&mut self, op: Op, time: Duration) -> Result<Reply, String> {
        self.last += 1;
        let id = OpId(self.last);
        self.reply = None;
        self.client.submit(clock::now(), id, op);
        self.drive(clock::now() + time, |console| {
            console.reply.as_ref().is_some_and(|(its, _)| *its == id)
        });
        match self.reply.take() {
            Some((_, Reply::Refused(why))) => Err(why),
            Some((_, Reply::Unknown)) | None => Err(self.reason.clone()),
            Some((_, reply)) => Ok(reply),
        }
    }

    fn drive(&mut self, deadline: Time, is_done: impl Fn(&Self) -> bool) {
        loop {
            self.go_around();
            let now = clock::now();
            if is_done(self) || now >= deadline {
                return;
            }
            let timeout = self.client.poll_timeout();
            let until = timeout.map_or(deadline, |at| at.min(deadline));
            // It fails only where what is open is refused.
            let _ = self.set.wait(Some(until.since(now).min(LOOK)));
            let now = clock::now();
            if timeout.is_some_and(|at| at <= now) {
                self.client.timeout(now);
            }
            let mut arrivals = Vec::new();
            self.streams.look(&self.set, &mut arrivals);
            streams::tell(&mut *self.client, arrivals);
            while let Ok((id, found, why)) = self.resolved.try_recv() {
                if let Err(why) = self.streams.resolved(&self.set, id, found, why) {
                    self.client.disconnected(clock::now(), id, &why);
                }
            }
        }
    }

    fn go_around(&mut self) {
        while let Some(output) = self.client.poll_output() {
            match output {
                StoreOutput::Connect(id, host) => {
                    let connected = self.streams.connect(&self.set, id, &host, &self.resolve);
                    if let Err(why) = connected {
                        self.client.disconnected(clock::now(), id, &why);
                    }
                }
                StoreOutput::Send(id, bytes) => {
                    self.streams.send(id, &bytes);
                    let mut arrivals = Vec::new();
                    self.streams.flush(&self.set, &mut arrivals);
                    streams::tell(&mut *self.client, arrivals);
                }
                StoreOutput::Close(id) => self.streams.close(&self.set, id),
                StoreOutput::Event(StoreEvent::Up(facts)) => self.facts = Some(facts),
                StoreOutput::Event(StoreEvent::Down(reason)) => {
                    self.reason = reason;
                    // What was asked is not answered any more.
                    self.reply = Some((OpId(self.last), Reply::Unknown));
                }
                StoreOutput::Event(StoreEvent::Reply(id, reply)) => self.reply = Some((id, reply)),
                StoreOutput::Event(StoreEvent::Changed(..) | StoreEvent::Missed) => {}
            }
        }
    }
}

impl Drop for StoreConsole {
    fn drop(&mut self) {
        self.streams.close_all(&self.set);
    }
}

impl fmt::Debug for StoreConsole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreConsole")
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}
