//! One client: what it says, what it is told, and what it has.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::OwnedFd;

use mio::Registry;
use mio::event::Event;
use mio::net::UnixStream;
use nix::sys::socket::{getsockopt, sockopt};
use socket2::SockRef;

use crate::protocol::{LockName, LockSpec, Mode, Release, Ticket};
use crate::runtime::agent::Description;
use crate::runtime::ancillary;
use crate::runtime::ask::{Caller, Patience, Purpose};
use crate::runtime::error::AcquireError;
use crate::runtime::events::AgentEvent;
use crate::runtime::frames::{self, FromAgent, MAX_FROM_AGENT, MAX_TO_AGENT, ToAgent};
use crate::runtime::handoff::Shared;
use crate::runtime::lease::Lease;
use crate::runtime::lifeline::{Lifeline, Lifelines};
use crate::runtime::process::Process;
use crate::runtime::report::Asker;
use crate::runtime::turn::{ClientId, Sink, Turn};

/// Requests of one client, waiting and granted.
const MAX_REQUESTS: usize = 4_096;
/// Bytes taken from one client in one turn.
pub(super) const READ_LIMIT: usize = 64 * 1024;
/// A client that leaves more than this unread is cut off.
const MAX_UNREAD: usize = 2 * MAX_FROM_AGENT;
/// Descriptors of one client whose messages have not come yet.
const MAX_DESCRIPTORS: usize = 16;
/// How much is still heard of a client whose process has ended: more than a stream can have left.
const LAST_TURNS: u32 = 64;

/// A client's stream, and its requests.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    peer: Peer,
    /// How often it is still read from once its process has ended: what it had said is heard,
    /// and not what is said in its name for ever.
    last_turns: Option<u32>,
    _process: Process,
    input: Vec<u8>,
    /// What came with the bytes, and belongs to messages in their order.
    descriptors: VecDeque<OwnedFd>,
    /// Whether there may be more to read.
    readable: bool,
    output: Vec<u8>,
    /// How many bytes of `output` are sent.
    sent: usize,
    requests: BTreeMap<u64, Asked>,
    /// What it was told of the lease.
    lease: Option<Lease>,
    /// Whether it gave something back since. It may wait for the next word of the lease, to know
    /// whether that was lost.
    has_released: bool,
    listens: bool,
    /// The elections of which it wants to know who leads.
    observed: BTreeSet<LockName>,
}

/// A request of a client.
#[derive(Debug)]
struct Asked {
    ticket: Ticket,
    lifeline: Option<Lifeline>,
    /// Whether it was told that it is inside.
    is_granted: bool,
}

impl Asked {
    /// How a grant ends that its client did not release.
    fn end(&self) -> Release {
        if self.is_granted {
            Release::Abandoned
        } else {
            Release::Unused
        }
    }
}

/// Who is at the other end, as the kernel says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) pid: u32,
    pub(super) uid: u32,
}

impl Peer {
    pub(super) fn of(stream: &UnixStream) -> io::Result<Self> {
        let credentials = getsockopt(stream, sockopt::PeerCredentials)?;
        let pid = u32::try_from(credentials.pid()).unwrap_or(0);
        Ok(Self {
            pid,
            uid: credentials.uid(),
        })
    }
}

impl Connection {
    pub(super) fn new(stream: UnixStream, peer: Peer, process: Process) -> Self {
        Self {
            stream,
            peer,
            last_turns: None,
            _process: process,
            input: Vec::new(),
            descriptors: VecDeque::new(),
            readable: true,
            output: Vec::new(),
            sent: 0,
            requests: BTreeMap::new(),
            lease: None,
            has_released: false,
            listens: false,
            observed: BTreeSet::new(),
        }
    }

    pub(super) fn peer(&self) -> Peer {
        self.peer
    }

    /// Notes what the poll says of the stream.
    pub(super) fn note(&mut self, event: &Event) {
        self.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
    }

    /// Notes that the process is gone; what it had said is still to be heard.
    pub(super) fn note_end_of_process(&mut self) {
        self.last_turns.get_or_insert(LAST_TURNS);
        self.readable = true;
    }

    /// Whether there is something to do though no event tells.
    pub(super) fn wants_a_turn(&self) -> bool {
        self.wants_more() || self.last_turns.is_some()
    }

    /// Reads, answers and writes what is possible. An error ends the client.
    pub(super) fn work(
        &mut self,
        id: ClientId,
        shared: &Shared,
        lifelines: &mut Lifelines,
        registry: &Registry,
    ) -> io::Result<()> {
        let mut open = true;
        if self.wants_a_turn() {
            open = self.fill()?;
            self.obey(id, shared, lifelines, registry)?;
        }
        if let Some(turns) = &mut self.last_turns {
            *turns -= 1;
            if !self.readable || *turns == 0 {
                return Err(io::Error::other("its process has ended"));
            }
        }
        self.flush()?;
        if self.unread() > MAX_UNREAD {
            return Err(io::Error::other("it does not read its answers"));
        }
        if open {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    /// Whether there is more to read from it. Who does not read its answers is not asked for more
    /// questions; when it has read them, the poll says that its stream can be written to.
    fn wants_more(&self) -> bool {
        self.readable && self.unread() < READ_LIMIT
    }

    /// Reads what has come; whether the stream is open.
    fn fill(&mut self) -> io::Result<bool> {
        let mut chunk = [0; 16 * 1024];
        let mut taken = 0;
        while taken < READ_LIMIT {
            match ancillary::receive(&self.stream, &mut chunk, &mut self.descriptors) {
                Ok(0) => return Ok(false),
                Ok(len) => {
                    self.input.extend_from_slice(&chunk[..len]);
                    taken += len;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn obey(
        &mut self,
        id: ClientId,
        shared: &Shared,
        lifelines: &mut Lifelines,
        registry: &Registry,
    ) -> io::Result<()> {
        let input = std::mem::take(&mut self.input);
        let mut done = 0;
        while let Some((message, len)) = frames::take(&input[done..], MAX_TO_AGENT)? {
            done += len;
            self.obey_one(id, message, shared, lifelines, registry)?;
        }
        if self.descriptors.len() > MAX_DESCRIPTORS {
            return Err(io::Error::other("it sent descriptors that nobody wants"));
        }
        self.input.extend_from_slice(&input[done..]);
        Ok(())
    }

    fn obey_one(
        &mut self,
        client: ClientId,
        message: ToAgent,
        shared: &Shared,
        lifelines: &mut Lifelines,
        registry: &Registry,
    ) -> io::Result<()> {
        let mut turn = shared.turn();
        match message {
            ToAgent::Acquire {
                id,
                lock,
                spec,
                mode,
                patience,
                command,
                lifeline,
            } => {
                let lifeline = self.take_lifeline_if(lifeline)?;
                let caller = self.caller(&command, lifeline.is_some(), Purpose::Enter);
                let wish = (lock, spec, mode, patience);
                self.ask(&mut turn, (client, id), wish, caller, lifeline)?;
            }
            ToAgent::Campaign {
                id,
                lock,
                spec,
                algorithm,
                patience,
                command,
                lifeline,
            } => {
                let lifeline = self.take_lifeline_if(lifeline)?;
                let purpose = Purpose::Lead { algorithm };
                let caller = self.caller(&command, lifeline.is_some(), purpose);
                let wish = (lock, spec, Mode::Exclusive, patience);
                self.ask(&mut turn, (client, id), wish, caller, lifeline)?;
            }
            ToAgent::Cancel { id } => {
                if let Some(asked) = self.requests.get(&id) {
                    turn.cancel(asked.ticket);
                }
            }
            ToAgent::Release { id, how } => {
                self.has_released = true;
                if let Some(Asked {
                    ticket, lifeline, ..
                }) = self.requests.remove(&id)
                {
                    match lifeline.filter(|lifeline| !lifeline.has_ended()) {
                        Some(lifeline) => {
                            let owner = (client, id);
                            lifelines.wait_for(lifeline, (ticket, how), owner, registry);
                        }
                        None => turn.withdraw(ticket, how),
                    }
                }
            }
            ToAgent::CommandPid { id, pid } => {
                if let Some(asked) = self.requests.get_mut(&id) {
                    turn.set_command_pid(asked.ticket, pid);
                    if let Some(lifeline) = &mut asked.lifeline {
                        lifeline.set_command(pid, self.peer.pid);
                        lifelines.note_command();
                    }
                } else {
                    // Its lock was lost while it was started.
                    lifelines.set_command((client, id), pid, self.peer.pid);
                }
            }
            ToAgent::Status { id } => {
                if turn.ask_status(Asker::Client { client, id }).is_err() {
                    self.tell(&FromAgent::StatusRefused { id });
                }
            }
            ToAgent::Change { id, change } => {
                turn.ask_change(change, Asker::Client { client, id });
            }
            ToAgent::Listen => self.listens = true,
            ToAgent::Observe { lock } => self.observe(&turn, lock)?,
            ToAgent::Describe { id, lock } => {
                let description = Description::of(&lock, &shared.identity.settings);
                self.tell(&FromAgent::Described { id, description });
            }
        }
        turn.finish();
        Ok(())
    }

    fn caller(&self, command: &str, has_lifeline: bool, purpose: Purpose) -> Caller {
        Caller {
            pid: self.peer.pid,
            command: frames::cut_command(command).into(),
            command_pid: None,
            has_lifeline,
            purpose,
        }
    }

    /// Makes a request of the client, whose number must be new.
    fn ask(
        &mut self,
        turn: &mut Turn<'_>,
        (client, id): (ClientId, u64),
        (lock, spec, mode, patience): (LockName, Option<LockSpec>, Mode, Patience),
        caller: Caller,
        lifeline: Option<Lifeline>,
    ) -> io::Result<()> {
        if self.requests.contains_key(&id) {
            return Err(io::Error::other("it used a request's number twice"));
        }
        let sink = Sink::Client { client, id };
        let asked = if self.requests.len() < MAX_REQUESTS {
            turn.ask(lock, spec, mode, patience.wait(), caller, sink)
        } else {
            Err(AcquireError::Limit)
        };
        match asked {
            Ok(ticket) => {
                let asked = Asked {
                    ticket,
                    lifeline,
                    is_granted: false,
                };
                self.requests.insert(id, asked);
            }
            Err(why) => self.tell(&FromAgent::Refused { id, why }),
        }
        Ok(())
    }

    /// Tells who leads, and from now on whenever that changes.
    fn observe(&mut self, turn: &Turn<'_>, lock: LockName) -> io::Result<()> {
        if self.observed.len() >= MAX_REQUESTS {
            return Err(io::Error::other("it observes too many elections"));
        }
        let leader = turn.leader(&lock);
        self.observed.insert(lock.clone());
        self.tell(&FromAgent::Leader { lock, leader });
        Ok(())
    }

    /// Whether it wants to be told `event`, and how it is.
    pub(super) fn heard_as(&self, event: &AgentEvent) -> Option<FromAgent> {
        match event {
            AgentEvent::Leader { lock, leader } => {
                let (lock, leader) = (lock.clone(), *leader);
                let observes = self.observed.contains(&lock);
                observes.then_some(FromAgent::Leader { lock, leader })
            }
            event => self.listens.then(|| FromAgent::Event(event.clone())),
        }
    }

    fn take_lifeline_if(&mut self, comes: bool) -> io::Result<Option<Lifeline>> {
        comes.then(|| self.take_lifeline()).transpose()
    }

    pub(super) fn tell(&mut self, message: &FromAgent) {
        match message {
            FromAgent::Granted { id, .. } => {
                let asked = self.requests.get_mut(id).into_iter();
                asked.for_each(|asked| asked.is_granted = true);
            }
            // What is lost stays on the list: it is the client's until it releases it or is gone.
            FromAgent::Refused { id, .. } => drop(self.requests.remove(id)),
            _ => {}
        }
        if let Err(error) = frames::put(&mut self.output, message, MAX_FROM_AGENT) {
            tracing::error!("a message to a client cannot be written: {error}");
            if let FromAgent::Status { id, .. } = message {
                self.tell(&FromAgent::StatusTooLong { id: *id });
            }
        }
    }

    /// Tells it the lease, unless it knows.
    pub(super) fn tell_lease(&mut self, lease: Lease) {
        if self.lease != Some(lease) {
            self.lease = Some(lease);
            self.has_released = false;
            self.tell(&FromAgent::Lease {
                session: lease.session,
                until: lease.until.as_nanos(),
            });
        }
    }

    /// Whether it has, or may wait for, what the lease is about.
    pub(super) fn is_concerned(&self) -> bool {
        !self.requests.is_empty() || self.has_released
    }

    pub(super) fn unread(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Writes as much as the stream takes.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        while self.unread() > 0 {
            // A client that is gone must not end the agent by SIGPIPE.
            let socket = SockRef::from(&self.stream);
            match socket.send_with_flags(&self.output[self.sent..], libc::MSG_NOSIGNAL) {
                Ok(len) => self.sent += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.sent = 0;
        Ok(())
    }

    /// The client's numbers of the grants under which a command runs.
    pub(super) fn commands(&self) -> impl Iterator<Item = u64> {
        let is_command = |asked: &Asked| {
            let lifeline = asked.lifeline.as_ref();
            asked.is_granted && lifeline.is_some_and(Lifeline::has_command)
        };
        let asked = self.requests.iter();
        asked
            .filter(move |(_, asked)| is_command(asked))
            .map(|(&id, _)| id)
    }

    /// What runs under a lock, if it is known by a lifeline: from now on it is not the client's.
    pub(super) fn take_command(&mut self, id: u64) -> Option<(Ticket, Lifeline)> {
        let asked = self.requests.get_mut(&id)?;
        let taken = (asked.ticket, asked.lifeline.take()?);
        self.requests.remove(&id);
        Some(taken)
    }

    /// The descriptor that came with a message.
    fn take_lifeline(&mut self) -> io::Result<Lifeline> {
        let none = || io::Error::other("its lifeline did not come with its request");
        Lifeline::new(self.descriptors.pop_front().ok_or_else(none)?)
    }

    /// What runs under its locks, when there is nobody any more to give them back to.
    pub(super) fn into_commands(self) -> impl Iterator<Item = Lifeline> {
        let asked = self.requests.into_values();
        asked
            .filter(|asked| asked.is_granted)
            .filter_map(|asked| asked.lifeline)
    }

    /// Takes back everything the client has and waits for.
    pub(super) fn end(
        self,
        client: ClientId,
        shared: &Shared,
        lifelines: &mut Lifelines,
        registry: &Registry,
    ) {
        let mut turn = shared.turn();
        for (id, asked) in self.requests {
            let (ticket, how) = (asked.ticket, asked.end());
            match asked.lifeline {
                Some(lifeline) if asked.is_granted || turn.is_held(ticket) => {
                    let owner = (client, id);
                    lifelines.wait_for(lifeline, (ticket, how), owner, registry);
                    lifelines.kill(owner);
                }
                _ => turn.withdraw(ticket, how),
            }
        }
        turn.finish();
    }
}
