//! What a client's threads and its reader share: the stream, and what is asked and not answered.

use std::io;
use std::mem;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, ThreadId};
use std::time::Duration;

use crossbeam_channel::bounded;

use super::gate::{self, Entered, Gate};
use super::reader::Reader;
use super::table::{Answer, Table};
use crate::protocol::{
    Fence, LockName, LockSpec, Missing, Mode, NodeId, Previous, Release, Ticket, Time,
};
use crate::runtime::api::caller::{Caller, Purpose};
use crate::runtime::api::error::{AcquireError, ReleaseError, SessionEnd, StatusError};
use crate::runtime::api::events::{AgentEvent, Hub};
use crate::runtime::api::patience::Patience;
use crate::runtime::frames::{self, FromAgent, LIFELINE_FDS, MAX_TO_AGENT, ToAgent};
use crate::runtime::os::clock::{self, Shift};
use crate::runtime::os::fd_passing;
use crate::runtime::os::fork::ForkStamp;
use crate::runtime::os::spin::Spin;
use crate::runtime::os::sync::Mutex;
use crate::runtime::request::announcer::Announcer;
use crate::runtime::request::lease_page::LeaseWatch;
use crate::runtime::request::loan_page::{LoanPage, OF_LOAN};
use crate::runtime::request::{Granted, Handed, Limit, Owner, Request, Waiting};

/// How long an agent may take to accept a connection and for its first message, for a message it does
/// not read, and for a status, where the caller does not say. A longer one stands still.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// What the threads and the reader share.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) stamp: ForkStamp,
    pub(super) group: String,
    pub(super) member: NodeId,
    pub(super) lease: Duration,
    pub(super) shift: Shift,
    pub(super) stream: UnixStream,
    /// One frame at a time.
    pub(super) writing: Gate,
    /// Until when everything has to be answered that is asked before it, where the caller said so.
    pub(super) opening: Option<Time>,
    pub(super) table: Mutex<Table>,
    /// Set before anything else happens when the connection ends.
    pub(super) has_ended: AtomicBool,
    /// Whether locks can be entered in memory that is shared with the agent: only with one of the same user,
    /// and by the same clock.
    pub(super) can_borrow: bool,
    /// The thread that reads what the agent says.
    pub(super) reader: OnceLock<ThreadId>,
    /// That memory, once it has come.
    pub(super) loan_page: OnceLock<Arc<LoanPage>>,
    pub(super) hub: Hub,
    pub(super) spin: Spin,
}

impl Link {
    pub(super) fn begin(
        self: &Arc<Self>,
        lock: &LockName,
        spec: Option<LockSpec>,
        mode: Mode,
        patience: Patience,
        caller: Caller,
    ) -> Result<Waiting, AcquireError> {
        if self.stamp.is_child() {
            return Err(AcquireError::Forked);
        }
        let mut limit = Limit::new(patience);
        if let Some(end) = self.opening_end() {
            limit = limit.within(end);
        }
        let request = Request::new();
        let id = {
            let mut table = self.table.lock();
            if let Some(end) = &table.ended {
                return Err(AcquireError::Closed(end.clone()));
            }
            let id = table.next_id();
            table.requests.insert(id, request.clone());
            if caller.has_lifeline {
                table.wanting.insert(id);
            }
            id
        };
        let command = frames::cut_command(&caller.command).to_owned();
        let (lock, lifeline) = (lock.clone(), caller.has_lifeline);
        let waits_by_loan = caller.waits_by_loan;
        let message = match caller.purpose {
            Purpose::Enter => ToAgent::Acquire {
                id,
                lock,
                spec,
                mode,
                patience,
                command,
                lifeline,
                waits_by_loan,
            },
            Purpose::Lead { algorithm } => ToAgent::Campaign {
                id,
                lock,
                spec,
                algorithm,
                patience,
                command,
                lifeline,
            },
        };
        if !self.say_by(limit.end(), &message) && self.forget(id, &request) {
            return Err(AcquireError::NoAnswer { silent: Vec::new() });
        }
        if let Some(pid) = caller.command_pid {
            self.say_or_end(&ToAgent::CommandPid { id, pid });
        }
        // The outcome is in the request, wherever it is seen first.
        if let Some(spinner) = self.spin.start() {
            spinner.until(|| request.is_decided());
        }
        Ok(Waiting::new(self.clone(), Ticket(id), request, limit, None))
    }

    /// Whether the connection has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    pub(super) fn is_child(&self) -> bool {
        self.stamp.is_child()
    }

    /// Until when everything has to be answered that is asked now, where the caller said so.
    fn opening_end(&self) -> Option<Time> {
        self.opening.filter(|&end| clock::now() < end)
    }

    /// Drops a request that the agent was not told of; whether it was still undecided.
    fn forget(&self, id: u64, request: &Request) -> bool {
        let mut table = self.table.lock();
        let is_undecided = !request.is_decided();
        if is_undecided {
            table.requests.remove(&id);
            table.wanting.remove(&id);
        }
        is_undecided
    }

    /// Waits no longer for an agent that stands still; whether the request is still undecided.
    fn abandon(&self, id: u64, request: &Request) -> bool {
        let mut table = self.table.lock();
        if request.is_decided() {
            return false;
        }
        table.requests.remove(&id);
        table.wanting.remove(&id);
        table.abandoned.insert(id);
        true
    }

    pub(super) fn ask(&self, question: impl FnOnce(u64) -> ToAgent) -> Result<Answer, StatusError> {
        self.ask_for(PATIENCE, question)
    }

    /// The same, of what may take so long.
    pub(super) fn ask_for(
        &self,
        patience: Duration,
        question: impl FnOnce(u64) -> ToAgent,
    ) -> Result<Answer, StatusError> {
        if self.stamp.is_child() {
            return Err(StatusError::Forked);
        }
        let (sender, receiver) = bounded(1);
        let id = {
            let mut table = self.table.lock();
            if let Some(end) = &table.ended {
                return Err(StatusError::Closed(end.clone()));
            }
            let id = table.next_id();
            table.questions.insert(id, sender);
            id
        };
        let end = clock::now() + patience;
        let end = self.opening_end().map_or(end, |opening| end.min(opening));
        self.say_by(Some(end), &question(id));
        let left = end.since(clock::now());
        receiver.recv_timeout(left).unwrap_or_else(|_| {
            let mut table = self.table.lock();
            table.questions.remove(&id);
            Err(table
                .ended
                .clone()
                .map_or(StatusError::TimedOut, StatusError::Closed))
        })
    }

    /// Sends a message whole, or ends the connection.
    pub(super) fn say_or_end(&self, message: &ToAgent) {
        self.say_by(None, message);
    }

    /// Sends a message whole or not at all. If there is no room for it by
    /// `end`, it is not sent, and false is returned; without an `end` the connection ends then.
    fn say_by(&self, end: Option<Time>, message: &ToAgent) -> bool {
        let mut frame = Vec::new();
        let put = frames::put(&mut frame, message, MAX_TO_AGENT);
        let limit = end.unwrap_or_else(|| clock::now() + PATIENCE);
        let error = match put.and_then(|()| self.send(&frame, limit)) {
            Ok(true) => return true,
            Ok(false) if end.is_some() => return false,
            Ok(false) => io::ErrorKind::TimedOut.into(),
            Err(error) => error,
        };
        tracing::debug!("the connection to the agent broke: {error}");
        self.end(SessionEnd::Disconnected);
        true
    }

    /// Whether there was room for the frame by `end`. One that was begun is sent whole, or the
    /// connection is of no use any more.
    fn send(&self, frame: &[u8], end: Time) -> io::Result<bool> {
        let Some(turn) = self.writing.enter(end) else {
            return Ok(false);
        };
        let sent = self.write(&turn, frame, end);
        drop(turn);
        self.say_cancels();
        sent
    }

    /// The same, in the writer's turn.
    pub(super) fn write(&self, _: &Entered<'_>, frame: &[u8], end: Time) -> io::Result<bool> {
        let mut sent = 0;
        while sent < frame.len() {
            match fd_passing::send(self.stream.as_fd(), &frame[sent..], &[]) {
                Ok(len) => sent += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !gate::has_room(self.stream.as_fd(), end) {
                        let is_whole = sent == 0;
                        let broken = || io::ErrorKind::TimedOut.into();
                        return if is_whole { Ok(false) } else { Err(broken()) };
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Reads answers until the stream ends.
    pub(super) fn listen(&self, mut reader: Reader) {
        // It listens once.
        let _ = self.reader.set(thread::current().id());
        loop {
            match reader.next() {
                Ok(Some(FromAgent::Lifeline { id })) => {
                    if let Err(error) = self.take_lifeline(id, &mut reader) {
                        tracing::debug!("a lifeline cannot be used: {error}");
                    }
                }
                Ok(Some(FromAgent::LoanPage)) => {
                    if let Err(error) = self.take_loan_page(&mut reader) {
                        tracing::debug!(
                            "no memory to enter locks in, so that the agent is asked for each: {error}"
                        );
                    }
                }
                Ok(Some(message)) => self.hear(message),
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!("the connection to the agent broke: {error}");
                    break;
                }
            }
        }
        self.end(SessionEnd::Disconnected);
    }

    /// Takes what came for the request `id`. If it cannot be used, its grant goes back.
    fn take_lifeline(&self, id: u64, reader: &mut Reader) -> io::Result<()> {
        let came = reader.fds.pop_front().unwrap_or_default();
        let [lifeline, end, page] = <[_; LIFELINE_FDS]>::try_from(came)
            .map_err(|_| io::Error::other("no descriptor is left for it: ulimit -n"))?;
        let watch = LeaseWatch::new(page, self.shift, Some(end))?;
        let request = self.table.lock().requests.get(&id).cloned();
        if let Some(request) = request {
            request.hand(Handed { lifeline, watch });
        }
        Ok(())
    }

    fn hear(&self, message: FromAgent) {
        let mut table = self.table.lock();
        match message {
            FromAgent::Granted {
                id,
                fence,
                abandoned,
            } => {
                let fence = match fence {
                    0 => None,
                    number => match Fence::new(number) {
                        Some(fence) => Some(fence),
                        None => {
                            drop(table);
                            return self.end(SessionEnd::Disconnected);
                        }
                    },
                };
                let previous = Previous::after(abandoned);
                let request = table.requests.get(&id).cloned();
                let lacks = table.wanting.remove(&id)
                    && request.as_ref().is_some_and(|request| !request.is_handed());
                if lacks {
                    let request = table.requests.remove(&id);
                    drop(table);
                    let how = Release::Unused;
                    self.say_or_end(&ToAgent::Release { id, how });
                    if let Some(request) = request {
                        request.refuse(AcquireError::Limit);
                        request.notify();
                    }
                } else if let Some(request) = request {
                    request.grant(Granted {
                        fence,
                        previous,
                        session: Arc::clone(&table.session.1),
                    });
                    drop(table);
                    request.notify();
                } else if table.abandoned.remove(&id) {
                    drop(table);
                    let how = Release::Unused;
                    self.say_or_end(&ToAgent::Release { id, how });
                }
            }
            FromAgent::Refused { id, why } => {
                table.abandoned.remove(&id);
                table.wanting.remove(&id);
                let request = table.requests.remove(&id);
                drop(table);
                if let Some(request) = request {
                    // Its agent leaves: to us that is the end of the connection.
                    let why = match why {
                        AcquireError::Closed(_) => AcquireError::Closed(SessionEnd::Disconnected),
                        why => why,
                    };
                    request.refuse(why);
                    request.notify();
                }
            }
            FromAgent::Lost { id } if id & OF_LOAN != 0 => {
                let (index, counter) = ((id >> 32) as u16, id as u32);
                let loans = table.open_loans();
                drop(table);
                if let Some(loan) = loans.iter().find(|loan| loan.is_at(index)) {
                    loan.lose(counter);
                }
            }
            FromAgent::Lost { id } => {
                let request = table.requests.remove(&id);
                drop(table);
                if let Some(request) = request {
                    request.lose();
                    request.notify();
                }
            }
            FromAgent::Lease { session, until } => {
                let until = self.shift.ours(until);
                let changed = table.lease(session, until, self.lease);
                drop(table);
                changed.iter().for_each(|session| session.ring());
            }
            FromAgent::Status { id, status } => table.answer(id, Ok(Answer::Status(status))),
            FromAgent::StatusRefused { id } => table.answer(id, Err(StatusError::Limit)),
            FromAgent::StatusTooLong { id } => table.answer(id, Err(StatusError::TooLong)),
            FromAgent::Described { id, description } => {
                table.answer(id, Ok(Answer::Description(description)));
            }
            FromAgent::Leader { lock, leader } => {
                self.hub.publish(&AgentEvent::Leader { lock, leader });
            }
            FromAgent::Lent { lock, entry } => {
                drop(table);
                if let Some(entry) = entry {
                    self.take_lent(&lock, entry);
                }
            }
            FromAgent::Metrics { id, metrics } => table.answer(id, Ok(Answer::Metrics(metrics))),
            FromAgent::Changed { id, outcome } => table.answer(id, Ok(Answer::Changed(outcome))),
            FromAgent::Event(event) => self.hub.publish(&event),
            FromAgent::Welcome { .. }
            | FromAgent::TooMany
            | FromAgent::Forbidden
            | FromAgent::Lifeline { .. }
            | FromAgent::LoanPage => {}
        }
    }

    /// Ends the connection: whoever waits is refused, whoever is inside has lost.
    pub(super) fn end(&self, end: SessionEnd) {
        self.has_ended.store(true, Ordering::SeqCst);
        let (requests, loans, session) = {
            let mut table = self.table.lock();
            if table.ended.is_some() {
                return;
            }
            table.ended = Some(end.clone());
            table.questions.clear();
            table.abandoned.clear();
            table.wanting.clear();
            let requests = mem::take(&mut table.requests);
            table.session.1.end();
            for request in requests.values() {
                if request.is_decided() {
                    request.lose();
                } else {
                    request.refuse(AcquireError::Closed(end.clone()));
                }
            }
            let loans = table.open_loans();
            (requests, loans, Arc::clone(&table.session.1))
        };
        loans.iter().for_each(|loan| loan.send_away());
        // What the connection's own end takes from a thread it gives back.
        if end == SessionEnd::Closed {
            loans.iter().for_each(|loan| loan.give_back());
        }
        // The reader is woken by this, and the agent sees the end. The stream may have ended.
        let _ = self.stream.shutdown(Shutdown::Both);
        session.ring();
        requests.values().for_each(|request| {
            request.notify();
        });
        self.hub.end(&end);
    }
}

impl Owner for Link {
    fn release(&self, ticket: Ticket, request: &Request, how: Release) -> Result<(), ReleaseError> {
        let release = ToAgent::Release { id: ticket.0, how };
        {
            let mut table = self.table.lock();
            let is_held = request.release();
            table.requests.remove(&ticket.0);
            drop(table);
            if !is_held {
                // An agent that leaves waits for this word, though the lock was lost.
                self.say_or_end(&release);
                return Err(ReleaseError::Lost);
            }
        }
        self.say_or_end(&release);
        // If the agent is gone, so was the lock, for who knows how long.
        match self.table.lock().ended {
            Some(SessionEnd::Disconnected) => Err(ReleaseError::Lost),
            _ => Ok(()),
        }
    }

    fn cancel(&self, ticket: Ticket, request: &Request, end: Time) -> Result<(), AcquireError> {
        // The answer is a refusal, or the grant that came at this very moment. If there was no room to
        // ask for it, the grant goes back when it comes.
        self.say_by(Some(end), &ToAgent::Cancel { id: ticket.0 });
        if !request.wait(Some(end)) && self.abandon(ticket.0, request) {
            return Err(AcquireError::NoAnswer { silent: Vec::new() });
        }
        Ok(())
    }

    fn ask_to_cancel(&self, ticket: Ticket, _: &Request) {
        self.cancel_soon(ticket.0);
    }

    fn withdraw(&self, ticket: Ticket, request: &Request) {
        if self.abandon(ticket.0, request) {
            self.say_or_end(&ToAgent::Cancel { id: ticket.0 });
        } else {
            // What was lost in the meantime is as good as given back.
            let _ = self.release(ticket, request, Release::Unused);
        }
    }

    fn set_command_pid(&self, ticket: Ticket, pid: u32) {
        self.say_or_end(&ToAgent::CommandPid { id: ticket.0, pid });
    }

    fn announcer(&self, ticket: Ticket) -> io::Result<Option<Announcer>> {
        let stream = self.stream.try_clone()?;
        Ok(Some(Announcer::new(stream.into(), ticket.0)))
    }

    fn missing(&self) -> Vec<Missing> {
        // The agent knows. It is not asked: it may be what stands still.
        Vec::new()
    }

    fn is_child(&self) -> bool {
        self.stamp.is_child()
    }
}
