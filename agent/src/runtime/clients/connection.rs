//! One client: what it says, what it has, and its stream.

mod asked;
mod ended;
mod output;
mod requests;
mod subscriptions;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::mem;
use std::sync::Arc;

use mio::Registry;
use mio::event::Event;
use mio::net::UnixStream;

pub(super) use self::ended::Ended;
pub(super) use self::subscriptions::Heard;

use self::asked::Asked;
use self::ended::{UNWANTED, is_end};
use self::output::{Output, With};
use self::subscriptions::Subscriptions;
use crate::protocol::{LockName, Mode};
use crate::runtime::api::caller::{Caller, Purpose};
use crate::runtime::api::description::Description;
use crate::runtime::api::events::AgentEvent;
use crate::runtime::clients::lifeline::{Lifeline, Lifelines};
use crate::runtime::clients::limits::{TOO_MANY_QUESTIONS, TURN_LIMIT, UNREAD_LIMIT};
use crate::runtime::clients::peer::Peer;
use crate::runtime::frames::{self, FromAgent, MAX_FROM_AGENT, MAX_TO_AGENT, ToAgent};
use crate::runtime::os::fd_passing;
use crate::runtime::os::pidfd::Process;
use crate::runtime::request::lease_page::LeasePage;
use crate::runtime::shared::Shared;
use crate::runtime::shared::core_guard::CoreGuard;
use crate::runtime::shared::entry::{Asker, ClientId, Lease};

/// Bytes taken from one client in one turn, when no whole message of it is left: at least one, of
/// the longest there are, and so little that thousands of clients together fill no memory.
const READ_LIMIT: usize = 2 * MAX_TO_AGENT;
/// A client that leaves more than this unread is cut off: it can have asked for one status of the
/// greatest length, and gets the next before it has read it all.
const MAX_UNREAD: usize = 2 * MAX_FROM_AGENT;
/// How many bytes are still heard of a client that has ended: more than a stream can have left (the
/// kernel's own bound is a twentieth of it), and an end to what a child of its says in its name for
/// ever.
const LAST_BYTES: usize = 4 << 20;

/// A client's stream, and its requests.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    peer: Peer,
    /// Whether its end is certain: its process has ended, or its stream is closed at its end.
    has_ended: bool,
    process: Process,
    input: Vec<u8>,
    /// Whether the first message in `input` may be there as a whole.
    has_message: bool,
    /// Whether there may be more to read.
    readable: bool,
    output: Output,
    subscriptions: Subscriptions,
    requests: BTreeMap<u64, Asked>,
    /// What it was told of the lease.
    lease: Option<Lease>,
    /// What it was refused since the last look, by reason.
    refused: BTreeMap<&'static str, u64>,
    /// Whether it has the memory in which clients enter by themselves.
    has_loan_page: bool,
    /// Whether it gave something back since. It may wait for the next word of the lease, to know
    /// whether that was lost.
    has_released: bool,
    /// What it counts for among what all clients take ([`Self::taken`]).
    pub(super) counted: usize,
}

impl Connection {
    pub(super) fn new(stream: UnixStream, peer: Peer, process: Process) -> Self {
        Self {
            stream,
            peer,
            has_ended: false,
            process,
            input: Vec::new(),
            has_message: false,
            readable: true,
            output: Output::default(),
            subscriptions: Subscriptions::default(),
            requests: BTreeMap::new(),
            lease: None,
            refused: BTreeMap::new(),
            has_loan_page: false,
            has_released: false,
            counted: 0,
        }
    }

    /// What it was refused since the last look, by what the status counts it as.
    pub(super) fn take_refused(&mut self) -> BTreeMap<&'static str, u64> {
        mem::take(&mut self.refused)
    }

    fn count_refused(&mut self, reason: &'static str) {
        *self.refused.entry(reason).or_default() += 1;
    }

    pub(super) fn peer(&self) -> Peer {
        self.peer
    }

    /// Notes what the poll says of the stream.
    pub(super) fn note(&mut self, event: &Event) {
        self.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        // In both directions: nothing more comes, and nobody reads.
        self.has_ended |= event.is_read_closed() && event.is_write_closed();
    }

    /// Notes that the process is gone.
    pub(super) fn note_end_of_process(&mut self) {
        self.has_ended = true;
    }

    /// Whether there is something to do though no event tells.
    pub(super) fn wants_a_turn(&self) -> bool {
        self.has_to_hear() || self.subscriptions.can_catch_up(&self.output)
    }

    fn has_to_hear(&self) -> bool {
        self.wants_more() || self.has_ended
    }

    /// Reads, answers and writes what is possible, for at most so many messages; how many they were.
    /// A status, for which all locks are looked at once in a round, counts for all of a turn.
    pub(super) fn work(
        &mut self,
        id: ClientId,
        most: usize,
        shared: &Shared,
        lifelines: &mut Lifelines,
        registry: &Registry,
    ) -> Result<usize, Ended> {
        if self.has_ended {
            return Err(self.hear_out(id, shared, lifelines, registry));
        }
        let (mut is_open, mut obeyed) = (true, 0);
        let unread_before = self.unread();
        if self.has_to_hear() {
            if !self.has_message {
                is_open = self.fill()?;
            }
            obeyed = self.obey(id, most, shared, lifelines, registry)?;
        }
        if self.subscriptions.can_catch_up(&self.output) {
            let core = shared.lock_core();
            let leader = |lock: &LockName| core.leader(lock);
            self.subscriptions.catch_up(leader, &mut self.output);
        }
        debug_assert!(
            unread_before < UNREAD_LIMIT || self.unread() <= unread_before,
            "a client that does not read is answered"
        );
        match self.flush() {
            Ok(()) => {}
            // Of which the poll has perhaps not told yet.
            Err(error) if is_end(&error) => {
                return Err(self.hear_out(id, shared, lifelines, registry));
            }
            // It is there, and may believe that it holds what it was granted.
            Err(error) => return Err(Ended::Stream(error)),
        }
        if self.unread() > MAX_UNREAD {
            return Err(Ended::Unread);
        }
        if is_open || self.has_message {
            Ok(obeyed)
        } else {
            self.has_ended = true;
            Err(Ended::Stream(io::ErrorKind::UnexpectedEof.into()))
        }
    }

    /// Whether there is more to hear from it. A client that does not read its answers is not asked
    /// for more questions; when it has read them, the poll says that its stream can be written to.
    fn wants_more(&self) -> bool {
        (self.readable || self.has_message) && self.unread() < UNREAD_LIMIT
    }

    /// Reads what has come; whether the stream is open.
    fn fill(&mut self) -> Result<bool, Ended> {
        let mut chunk = [0; READ_LIMIT];
        let mut taken = 0;
        let mut is_open = true;
        while is_open && taken < READ_LIMIT {
            match fd_passing::receive(&self.stream, &mut chunk[taken..]) {
                Ok(received) if received.is_cut && received.fds.is_empty() => {
                    return Err(Ended::Descriptors);
                }
                Ok(received) if !received.fds.is_empty() => return Err(UNWANTED),
                Ok(received) => {
                    taken += received.len;
                    is_open = received.len > 0;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Of one that has left something unread the kernel says so when all that it had said
                // is read, and that counts.
                Err(error) if is_end(&error) => is_open = false,
                Err(error) => return Err(Ended::Stream(error)),
            }
        }
        self.hear(&chunk[..taken]);
        Ok(is_open)
    }

    fn hear(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        self.has_message |= !bytes.is_empty();
    }

    /// Hears what a client that has ended had said last, all at once: what it gave back is given
    /// back, and which command it had started is known. What else it had asked for is void: nobody
    /// is left to be answered, and its locks are not to wait for that. Returns how it ended.
    fn hear_out(
        &mut self,
        id: ClientId,
        shared: &Shared,
        lifelines: &mut Lifelines,
        registry: &Registry,
    ) -> Ended {
        self.has_ended = true;
        let mut chunk = [0; READ_LIMIT];
        let mut left = LAST_BYTES;
        loop {
            if let Err(ended) = self.obey_last(id, shared, lifelines, registry) {
                return ended;
            }
            // What comes along is for requests that are void.
            match fd_passing::receive(&self.stream, &mut chunk) {
                Ok(received) if received.len > 0 && received.len <= left => {
                    left -= received.len;
                    self.hear(&chunk[..received.len]);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => break,
            }
        }
        if self.process.has_ended() {
            Ended::Process
        } else {
            Ended::Stream(io::ErrorKind::UnexpectedEof.into())
        }
    }

    /// Obeys what counts of the whole messages that are there.
    fn obey_last(
        &mut self,
        id: ClientId,
        shared: &Shared,
        lifelines: &mut Lifelines,
        registry: &Registry,
    ) -> Result<(), Ended> {
        let input = mem::take(&mut self.input);
        let mut done = 0;
        while let Some((message, len)) =
            frames::take(&input[done..], MAX_TO_AGENT).map_err(Ended::Malformed)?
        {
            done += len;
            if let ToAgent::Release { .. } | ToAgent::Leave { .. } | ToAgent::CommandPid { .. } =
                message
            {
                self.obey_one(id, message, shared, lifelines, registry)?;
            }
        }
        self.input.extend_from_slice(&input[done..]);
        self.has_message = false;
        Ok(())
    }

    fn obey(
        &mut self,
        id: ClientId,
        most: usize,
        shared: &Shared,
        lifelines: &mut Lifelines,
        registry: &Registry,
    ) -> Result<usize, Ended> {
        let input = mem::take(&mut self.input);
        let (mut done, mut obeyed) = (0, 0);
        while self.has_message && obeyed < most {
            match frames::take(&input[done..], MAX_TO_AGENT).map_err(Ended::Malformed)? {
                None => self.has_message = false,
                Some((message, len)) => {
                    done += len;
                    obeyed += match message {
                        ToAgent::Status { .. } => TURN_LIMIT,
                        _ => 1,
                    };
                    self.obey_one(id, message, shared, lifelines, registry)?;
                }
            }
        }
        self.input.extend_from_slice(&input[done..]);
        Ok(obeyed)
    }

    fn obey_one(
        &mut self,
        client: ClientId,
        message: ToAgent,
        shared: &Shared,
        lifelines: &mut Lifelines,
        registry: &Registry,
    ) -> Result<(), Ended> {
        // Before the mutex is taken, which files must not delay.
        let made = match &message {
            ToAgent::Acquire { lifeline: true, .. } | ToAgent::Campaign { lifeline: true, .. } => {
                Some(lifelines.make(self.peer.uid))
            }
            _ => None,
        };
        let mut core = shared.lock_core();
        match message {
            ToAgent::Acquire {
                id,
                lock,
                spec,
                mode,
                patience,
                command,
                lifeline,
                waits_by_loan,
            } => {
                let caller = Caller {
                    has_lifeline: lifeline,
                    waits_by_loan,
                    ..self.caller(&command)
                };
                let wish = (lock, spec, mode, patience);
                self.ask(&mut core, (client, id), wish, caller, made)?;
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
                let caller = Caller {
                    has_lifeline: lifeline,
                    purpose: Purpose::Lead { algorithm },
                    ..self.caller(&command)
                };
                let wish = (lock, spec, Mode::Exclusive, patience);
                self.ask(&mut core, (client, id), wish, caller, made)?;
            }
            ToAgent::Cancel { id } => {
                if let Some(asked) = self.requests.get(&id) {
                    core.cancel(asked.ticket);
                }
            }
            ToAgent::Release { id, how } => {
                self.release(&mut core, (client, id), how, lifelines, registry);
            }
            ToAgent::CommandPid { id, pid } => {
                if let Some(asked) = self.requests.get_mut(&id) {
                    core.set_command_pid(asked.ticket, pid);
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
                if core.ask_status(Asker::Client { client, id }).is_err() {
                    self.count_refused(TOO_MANY_QUESTIONS);
                    self.tell(&FromAgent::StatusRefused { id });
                }
            }
            ToAgent::Change { id, change } => {
                core.ask_change(change, self.caller(""), Asker::Client { client, id });
            }
            ToAgent::Listen => self.subscriptions.listens = true,
            ToAgent::Observe { lock } => self.observe(&mut core, lock)?,
            ToAgent::Borrow { lock, command } => {
                self.lend(&mut core, client, lock, &command);
            }
            ToAgent::Return { slot } => core.return_slot(client, slot),
            ToAgent::Leave { slot, how } => core.leave_loan(client, slot, how),
            ToAgent::KnowEntry { id, slot } => self.know_entry(&mut core, (client, id), slot)?,
            ToAgent::Describe { id, lock } => {
                let description = Description::of(&lock, &shared.identity);
                self.tell(&FromAgent::Described { id, description });
            }
            ToAgent::Metrics { id } => self.tell_metrics(&core, id),
        }
        core.finish();
        Ok(())
    }

    fn observe(&mut self, core: &mut CoreGuard<'_>, lock: LockName) -> Result<(), Ended> {
        if self.subscriptions.is_full() {
            return Err(Ended::Breach("it observes too many elections"));
        }
        let leader = core.known_leader(&lock);
        core.begin_to_observe(&lock);
        self.subscriptions.observe(lock, leader, &mut self.output);
        Ok(())
    }

    /// Tells it `event`, if it wants to know; whether it missed it, as it leaves too much unread.
    pub(super) fn tell_event(&mut self, event: &AgentEvent) -> Option<Heard> {
        self.subscriptions.tell(event, &mut self.output)
    }

    /// Gives it what its command inherits, before its grant.
    pub(super) fn hand(&mut self, id: u64, page: Arc<LeasePage>) {
        let lifeline = self
            .requests
            .get(&id)
            .and_then(|asked| asked.lifeline.as_ref());
        let Some((writer, reader)) = lifeline.and_then(Lifeline::ends) else {
            return;
        };
        self.output.attach(With::Lifeline(writer, reader, page));
        self.tell(&FromAgent::Lifeline { id });
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
        self.output.put(message);
    }

    /// Tells it a status as [`frames::encode_status`] has written it down.
    pub(super) fn tell_status(&mut self, id: u64, status: &[u8]) {
        self.output.put_status(id, status);
    }

    /// Whether it may leave so much more unread: statuses of the greatest length can be the answers
    /// to eight questions at once.
    pub(super) fn has_room(&self, len: usize) -> bool {
        // What is short has room even then.
        self.unread() + len <= MAX_UNREAD - UNREAD_LIMIT
    }

    /// What it takes of the memory that all clients share: what it has not read, and the names of
    /// what it observes. Its requests are counted among those of all. What it has said and was not
    /// obeyed yet is bounded where it is read: [`READ_LIMIT`] and a part of a message before that
    /// are 24 KiB, and 96 MiB of as many clients as there may be. It is not counted here: nobody is
    /// to be cut off for a message that is coming.
    pub(super) fn taken(&self) -> usize {
        self.output.len() + self.subscriptions.len()
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
        self.output.unread()
    }

    /// Writes as much as the stream takes.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.output.flush(&self.stream)
    }
}
