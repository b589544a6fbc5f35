//! What is worth an entry: looks at all that goes into the core and comes out of it, under the
//! mutex, and waits for nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crossbeam_channel::{Sender, TrySendError, bounded};

use super::writer::{TraceWriter, Writer};
use super::{Entry, What};
use crate::protocol::clock::Estimate;
use crate::protocol::dissect::engine_messages;
use crate::protocol::wire::{self, GroupId, Header, Route};
use crate::protocol::{
    Command, Epoch, Event, Failure, Fence, Incarnation, Input, Node, NodeId, Output, Settings,
    Ticket, Time,
};
use crate::runtime::api::error::SessionEnd;
use crate::runtime::os::clock;

/// How many entries wait for the disk at most.
const QUEUE: usize = 1 << 14;

/// Opens the trace of member `me` in the directory `dir`: what notes, and what writes. That is a thread
/// where the agent `has_thread` itself.
///
/// `None` if that is not possible, which was told: an agent works as well without.
pub(crate) fn open(
    dir: &Path,
    me: NodeId,
    settings: &Settings,
    host: &str,
    incarnation: Incarnation,
    has_thread: bool,
) -> Option<(Tracer, Writer)> {
    let (sender, receiver) = bounded(QUEUE);
    let writer = match TraceWriter::open(dir, &settings.group, me, host, receiver) {
        Ok(writer) => writer,
        Err(error) => {
            tracing::warn!(
                event = "trace-failed",
                "cannot write a trace below {}: {error}; this agent runs without; to trace it, \
                 name another directory and start it again",
                dir.display()
            );
            return None;
        }
    };
    let mut tracer = Tracer {
        me,
        group: GroupId::of(&settings.group),
        has_fences: settings.failure != Failure::PresumeFailed,
        incarnation,
        count: 0,
        locks: BTreeMap::new(),
        heard: BTreeMap::new(),
        lease_end: None,
        sender: Some(sender),
    };
    tracer.log(What::Began);
    if !has_thread {
        return Some((tracer, Writer::in_loop(writer)));
    }
    match Writer::thread(writer) {
        Ok(writer) => Some((tracer, writer)),
        Err(error) => {
            tracing::warn!(
                event = "trace-failed",
                "there is no trace: its thread cannot be started ({error}); the agent goes on without"
            );
            None
        }
    }
}

/// Notes what happens.
#[derive(Debug)]
pub(crate) struct Tracer {
    me: NodeId,
    group: GroupId,
    has_fences: bool,
    incarnation: Incarnation,
    /// How many events this incarnation has had.
    count: u64,
    /// What the requests that are open are for.
    locks: BTreeMap<Ticket, Arc<str>>,
    /// When something last came from each member.
    heard: BTreeMap<NodeId, Time>,
    /// When what is granted ends to be valid, as the core said last.
    lease_end: Option<Time>,
    /// `None` once nobody writes any more.
    sender: Option<Sender<Entry>>,
}

impl Tracer {
    /// Something is about to go into the core.
    pub(crate) fn note_input(&mut self, input: &Input<'_>) {
        match input {
            Input::Datagram { bytes, .. } => self.note_arrival(bytes),
            Input::Command(
                Command::Acquire { ticket, lock, .. } | Command::Campaign { ticket, lock, .. },
            ) => {
                let name: Arc<str> = lock.to_string().into();
                self.locks.insert(*ticket, Arc::clone(&name));
                self.log(What::Asked {
                    request: ticket.0,
                    lock: name.as_ref().into(),
                });
            }
            Input::Command(Command::Release { ticket, .. }) => {
                self.note_request(*ticket, true, |request, lock| What::Left { request, lock });
            }
            Input::Command(_) | Input::Timeout | Input::Persisted => {}
        }
    }

    /// Something came out of the core. `node` is how it is now; `pid_of` the process of a request.
    pub(crate) fn note_output(
        &mut self,
        output: &Output,
        node: &Node,
        pid_of: impl Fn(Ticket) -> Option<u32>,
    ) {
        match output {
            Output::Transmit { bytes, .. } => self.note_departure(bytes),
            Output::Event(event) => self.note_event(event, node, pid_of),
            Output::Persist(_) => {}
        }
    }

    /// What a request was granted is lost.
    pub(crate) fn note_lost(&mut self, ticket: Ticket) {
        // One that is yet to come is not why: the agent ends, say.
        let lease_end = self.lease_end.filter(|end| *end <= clock::now());
        let lease_end = lease_end.map(Time::as_nanos);
        self.note_request(ticket, true, |request, lock| What::Lost {
            request,
            lock,
            lease_end,
        });
    }

    /// How far another member's clock is ahead is believed to be known.
    pub(crate) fn note_clock(&mut self, member: NodeId, incarnation: u64, estimate: &Estimate) {
        self.log(What::Compared {
            member: member.as_u16(),
            incarnation,
            measured: estimate.at.as_nanos(),
            ahead_ns: estimate.offset_ns,
            error_ns: u64::try_from(estimate.error.as_nanos()).unwrap_or(u64::MAX),
        });
    }

    /// The session is over.
    pub(crate) fn note_end(&mut self, end: &SessionEnd) {
        let why = (*end != SessionEnd::Closed).then(|| end.to_string());
        self.log(What::Closed { why });
    }

    fn note_event(&mut self, event: &Event, node: &Node, pid_of: impl Fn(Ticket) -> Option<u32>) {
        match event {
            Event::Granted { ticket, fence, .. } => {
                let fence = self.has_fences.then(|| Fence::as_u64(*fence));
                let pid = pid_of(*ticket);
                self.note_request(*ticket, false, |request, lock| What::Entered {
                    request,
                    lock,
                    fence,
                    pid,
                });
            }
            Event::Ended { ticket, .. } => {
                self.note_request(*ticket, true, |request, lock| What::Ended { request, lock });
            }
            Event::Lost { ticket } => self.note_lost(*ticket),
            Event::Lease { until } => self.lease_end = Some(*until).filter(|end| *end < Time::MAX),
            Event::View { epoch, members } => self.log(What::View {
                epoch: Epoch::as_u32(*epoch),
                members: members.iter().map(|member| member.as_u16()).collect(),
            }),
            Event::Suspect { peer } => self.log(What::Suspects {
                member: peer.as_u16(),
                heard: self.heard.get(peer).map(|at| at.as_nanos()),
            }),
            Event::Excluded { .. } => {
                self.log(What::Excluded);
                self.incarnation = node.incarnation();
                self.count = 0;
                self.log(What::Began);
            }
            _ => {}
        }
    }

    /// `ends`: this is the request's last event.
    fn note_request(&mut self, ticket: Ticket, ends: bool, what: impl FnOnce(u64, String) -> What) {
        let lock = if ends {
            self.locks.remove(&ticket)
        } else {
            self.locks.get(&ticket).cloned()
        };
        if let Some(lock) = lock {
            self.log(what(ticket.0, lock.as_ref().into()));
        }
    }

    /// What this member says itself, once: not what goes by way of others besides, nor what it
    /// passes on.
    fn note_departure(&mut self, bytes: &[u8]) {
        let Ok((header, payload)) = wire::decode(self.group, bytes) else {
            return;
        };
        if header.from != self.me || header.route != Route::Direct {
            return;
        }
        for message in engine_messages(&header, payload) {
            self.log(What::Sent {
                to: header.to.as_u16(),
                to_incarnation: header.to_incarnation.0,
                number: message.number,
                kind: message.kind.into(),
                lock: message.lock.to_string(),
            });
        }
    }

    /// What is for this incarnation, whichever way it took.
    fn note_arrival(&mut self, bytes: &[u8]) {
        let Ok((header, payload)) = wire::decode(self.group, bytes) else {
            return;
        };
        if !self.is_for_me(&header) {
            return;
        }
        self.heard.insert(header.from, clock::now());
        if header.to_incarnation != self.incarnation {
            return;
        }
        for message in engine_messages(&header, payload) {
            self.log(What::Received {
                from: header.from.as_u16(),
                from_incarnation: header.from_incarnation.0,
                number: message.number,
                kind: message.kind.into(),
                lock: message.lock.to_string(),
            });
        }
    }

    fn is_for_me(&self, header: &Header) -> bool {
        header.to == self.me && header.from != self.me && header.route != Route::PassOn
    }

    fn log(&mut self, what: What) {
        let Some(sender) = &self.sender else { return };
        self.count += 1;
        let entry = Entry {
            incarnation: self.incarnation.0,
            n: self.count,
            at: clock::now().as_nanos(),
            what,
        };
        // What finds no room is missed by its number.
        if let Err(TrySendError::Disconnected(_)) = sender.try_send(entry) {
            self.sender = None;
        }
    }
}
