//! A turn: one stay in the mutex that guards the protocol.
//!
//! Whoever has the turn steps the protocol and does what it says at once, so that datagrams leave
//! in the order in which they were made. Everything that may take long (waking threads, files,
//! streams) is put off until after it, the latter two for the agent thread.

mod leave;
mod news;
mod round;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crossbeam_channel::Receiver;

use super::agent::{Counters, Description};
use super::ask::{Caller, Purpose};
use super::clock;
use super::driven::Runner;
use super::error::{AcquireError, SessionEnd};
use super::event_loop::AgentThread;
use super::events::{AgentEvent, Leader, observe};
use super::frames::FromAgent;
use super::handoff::Shared;
use super::lease::Lease;
use super::lease_page::LeasePage;
use super::membership::Membership;
use super::offsets::Offsets;
use super::report::Reports;
use super::request::Request;
use super::seal::KeyId;
use super::session::Session;
use super::status::{ClientsStatus, MulticastStatus};
use super::sync::MutexGuard;
use super::trace::Tracer;
use super::transport::{Transport, TransportCounters};
use crate::protocol::election;
use crate::protocol::{
    Command, Event, Failure, Fence, Input, LockName, LockSpec, Mode, Node, NodeId, Output, Record,
    Refusal, Release, Ticket, Time, Wait,
};

/// How many requests an agent has at most, waiting and granted, of threads and clients: sixteen
/// clients' fill (`clients::connection`), and with command lines of 1 KiB less than 100 MB.
const MAX_REQUESTS: usize = 1 << 16;
/// How many notes wait for the agent thread, which reads one in each round; more are lost, as on the
/// way. A member has four under way, as long as it is heard in time: that it asks for the status and
/// the time, and what it answers to both; so there is room for those of 64 members. Of the longest, so
/// many take 64 MiB.
const MAX_NOTES: usize = 256;
/// The agent is not woken for a timer that is at most this much earlier than the one it sleeps
/// for: what such timers repair has taken longer already.
const SLACK: Duration = Duration::from_millis(1);
/// While threads come and go the agent sleeps no longer than this, so that the retransmission
/// timer of an ordinary request lies after its next wake-up.
const SHORT_SLEEP: Duration = Duration::from_millis(2);
/// How long after a thread's last step the agent still sleeps shortly.
const ACTIVE: Duration = Duration::from_millis(20);
/// How long a leaving agent waits until the others know.
const LEAVE_TIME: Duration = Duration::from_secs(1);

/// Names a connected client within an agent's life; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClientId(pub(crate) usize);
/// The protocol and what surrounds it, under the mutex.
#[derive(Debug)]
pub(crate) struct Core {
    pub(super) node: Node,
    /// `None` once the session is over.
    transport: Option<Transport>,
    last_counters: TransportCounters,
    buffer: Box<[u8]>,
    pub(super) requests: BTreeMap<Ticket, Entry>,
    next_ticket: u64,
    /// What is granted now is valid in it.
    pub(super) session: Arc<Session>,
    /// How many there were before it.
    pub(super) session_number: u64,
    pub(super) reports: Reports,
    pub(super) membership: Membership,
    pub(super) offsets: Offsets,
    phase: Phase,
    /// What callers ask for while commands of this agent's last life run; `None` once nothing does.
    pub(super) held_back: Option<VecDeque<(Ticket, Command)>>,
    /// What the core wants on disk. The agent thread has it written.
    persist: Option<Record>,
    /// What else is left for the agent thread.
    pub(super) tasks: VecDeque<Task>,
    /// What other agents sent and the agent thread has not read.
    notes: VecDeque<(NodeId, Vec<u8>)>,
    notes_lost: u64,
    /// Notes that could not be read.
    pub(super) notes_malformed: u64,
    /// Until when the agent thread sleeps; `None` while it is awake, and will look for itself.
    sleeps_until: Option<Time>,
    /// When an application's thread last stepped.
    active_at: Time,
    /// Notes what happens, if somebody wants to know.
    pub(super) tracer: Option<Tracer>,
    /// Who uses the service for clients, as it has last told.
    pub(super) clients: Option<ClientsStatus>,
}

/// A caller's request as the agent knows it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(super) lock: LockName,
    pub(super) caller: Caller,
    pub(super) asked: SystemTime,
    pub(super) held: Option<Held>,
    sink: Sink,
}

/// Since when, and with which fence, a request is inside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// `None` where the group gives none.
    pub(super) fence: Option<Fence>,
    pub(super) since: SystemTime,
}

/// Who is to hear what becomes of a request.
#[derive(Debug)]
pub(crate) enum Sink {
    /// A thread of this process.
    Thread(Arc<Request>),
    /// A client's request, by the client's own number.
    Client { client: ClientId, id: u64 },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// Clients are asked for what they hold.
    Draining {
        deadline: Time,
    },
    /// The group is being told.
    Leaving {
        deadline: Time,
    },
    Over(SessionEnd),
}

/// What a step left for the agent thread.
#[derive(Debug)]
pub(crate) enum Task {
    /// Tell a client.
    Tell {
        client: ClientId,
        message: FromAgent,
    },
    /// Give a client what its command inherits, before its grant.
    Hand {
        client: ClientId,
        id: u64,
        page: io::Result<Arc<LeasePage>>,
    },
    /// The lease of what clients are granted from now on, and were in the same session.
    Lease(Lease),
    /// Tell a client that a grant is void. Nobody else is let in before `limit`.
    Lost {
        client: ClientId,
        id: u64,
        limit: Time,
    },
    /// Tell all clients that listen.
    TellAll(AgentEvent),
}

/// One stay in the mutex.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    pub(super) shared: &'a Shared,
    pub(super) core: MutexGuard<'a, Core>,
    /// Whom to wake or to call afterwards.
    notify: Vec<Arc<Request>>,
    /// Whose waiters to wake.
    pub(super) ring: Vec<Arc<Session>>,
}

impl<'a> Turn<'a> {
    pub(super) fn new(shared: &'a Shared, core: MutexGuard<'a, Core>) -> Self {
        Self {
            shared,
            core,
            notify: Vec::new(),
            ring: Vec::new(),
        }
    }
}

impl Turn<'_> {
    /// The member's sockets; none once the session is over.
    pub(super) fn sockets(&self) -> impl Iterator<Item = RawFd> + use<> {
        let transport = self.core.transport.as_ref();
        transport.map(Transport::sockets).into_iter().flatten()
    }

    /// The members from whose addresses floods come.
    pub(super) fn flooded(&self) -> impl Iterator<Item = NodeId> {
        let transport = self.core.transport.as_ref();
        transport.map(Transport::flooded).into_iter().flatten()
    }

    /// What is wrong with all that comes from that member's address, if its key or its version
    /// differs from ours.
    pub(super) fn fault_of(&self, member: NodeId) -> Option<String> {
        let transport = self.core.transport.as_ref();
        let fault = transport.and_then(|transport| transport.fault_of(member));
        fault.map(|fault| format!("what comes from its address {fault}"))
    }

    /// What there is to tell of multicast.
    pub(super) fn multicast(&self) -> Option<MulticastStatus> {
        self.core.transport.as_ref()?.multicast()
    }

    /// The ids of the keys that open datagrams; the first one seals.
    pub(super) fn keys(&self) -> impl Iterator<Item = KeyId> {
        let transport = self.core.transport.iter();
        transport.flat_map(Transport::keys)
    }

    /// Notes who uses the service for clients, for the status.
    pub(crate) fn set_clients(&mut self, status: ClientsStatus) {
        self.core.clients = Some(status);
    }

    pub(crate) fn counters(&self) -> Counters {
        let core = &*self.core;
        let transport = core
            .transport
            .as_ref()
            .map_or(core.last_counters, Transport::counters);
        Counters {
            node: core.node.counters().clone(),
            transport,
            notes_lost: core.notes_lost,
            notes_malformed: core.notes_malformed,
        }
    }

    /// Why the session is over, if it is.
    pub(crate) fn end_of_session(&self) -> Option<&SessionEnd> {
        match &self.core.phase {
            Phase::Over(end) => Some(end),
            Phase::Running | Phase::Draining { .. } | Phase::Leaving { .. } => None,
        }
    }

    /// Makes a request. Its outcome comes to `sink`, perhaps at once.
    pub(crate) fn ask(
        &mut self,
        lock: LockName,
        spec: Option<LockSpec>,
        mode: Mode,
        wait: Wait,
        caller: Caller,
        sink: Sink,
    ) -> Result<Ticket, AcquireError> {
        match &self.core.phase {
            Phase::Running => {}
            Phase::Draining { .. } | Phase::Leaving { .. } => {
                return Err(AcquireError::Closed(SessionEnd::Closed));
            }
            Phase::Over(end) => return Err(AcquireError::Closed(end.clone())),
        }
        if self.core.requests.len() >= MAX_REQUESTS {
            return Err(AcquireError::Limit);
        }
        let ticket = Ticket(self.core.next_ticket);
        self.core.next_ticket += 1;
        let asked = SystemTime::now();
        let purpose = caller.purpose;
        let entry = Entry {
            lock: lock.clone(),
            caller,
            asked,
            held: None,
            sink,
        };
        self.core.requests.insert(ticket, entry);
        let command = match purpose {
            Purpose::Enter => Command::Acquire {
                ticket,
                lock,
                spec,
                mode,
                wait,
            },
            Purpose::Lead { algorithm } => Command::Campaign {
                ticket,
                spec: spec
                    .unwrap_or_else(|| Description::of(&lock, &self.shared.identity.settings).spec),
                lock,
                algorithm,
                wait,
            },
        };
        match &mut self.core.held_back {
            Some(_) if wait == Wait::Try => self.refused(ticket, AcquireError::Busy),
            Some(held_back) => held_back.push_back((ticket, command)),
            None => self.step(Input::Command(&command)),
        }
        Ok(ticket)
    }

    /// From now on callers wait before they ask, since commands of this agent's last life run.
    pub(crate) fn hold_back(&mut self) {
        self.core.held_back.get_or_insert_default();
    }

    /// Those commands have ended.
    pub(crate) fn let_in(&mut self) {
        for (_, command) in self.core.held_back.take().into_iter().flatten() {
            self.step(Input::Command(&command));
        }
    }

    /// Ends a request that waits; one that was granted stays.
    pub(crate) fn cancel(&mut self, ticket: Ticket) {
        if let Some(held_back) = &mut self.core.held_back {
            let before = held_back.len();
            held_back.retain(|(held_back, _)| *held_back != ticket);
            if held_back.len() < before {
                let refusal = Refusal::Cancelled;
                return self.tell(Event::Ended { ticket, refusal });
            }
        }
        self.step(Input::Command(&Command::Cancel { ticket }));
    }

    /// Ends a request, whatever it has come to, of one whom the outcome does not interest. `how`: if
    /// it was granted.
    pub(crate) fn withdraw(&mut self, ticket: Ticket, how: Release) {
        self.cancel(ticket);
        self.release(ticket, how);
    }

    /// Frees what `ticket` was granted.
    pub(super) fn release(&mut self, ticket: Ticket, how: Release) {
        if self.core.requests.remove(&ticket).is_some() {
            self.step(Input::Command(&Command::Release { ticket, how }));
            self.leave_if_drained();
        }
    }

    /// Whether the request is inside.
    pub(crate) fn is_held(&self, ticket: Ticket) -> bool {
        let entry = self.core.requests.get(&ticket);
        entry.is_some_and(|entry| entry.held.is_some())
    }

    /// Who leads, as far as is known here.
    pub(crate) fn leader(&self, lock: &LockName) -> Option<Leader> {
        let leader = self.core.node.leader(lock);
        leader.map(|leader| self.as_told(leader))
    }

    fn as_told(&self, leader: election::Leader) -> Leader {
        Leader::new(leader.node, self.told_fence(leader.fence))
    }

    /// A fence as callers are told it. Where the silent are presumed gone, two sides that go on
    /// without each other can both give the same number.
    fn told_fence(&self, fence: Fence) -> Option<Fence> {
        let is_alone = self.shared.identity.settings.failure != Failure::PresumeFailed;
        is_alone.then_some(fence)
    }

    /// Who leads, now and from now on.
    pub(crate) fn observe<T: Send + 'static>(
        &self,
        lock: &LockName,
        map: fn(Leader) -> T,
    ) -> Receiver<Option<T>> {
        // Under the mutex, so that nothing comes in between.
        observe(&self.shared.hub, lock, Some(self.leader(lock)), map)
    }

    pub(crate) fn set_command_pid(&mut self, ticket: Ticket, pid: u32) {
        if let Some(entry) = self.core.requests.get_mut(&ticket) {
            entry.caller.command_pid = Some(pid);
        }
    }

    /// Does what a new core says before its first input. What happens from now on is noted by
    /// `tracer`.
    pub(crate) fn begin(&mut self, tracer: Option<Tracer>) {
        self.core.tracer = tracer;
        self.run(None);
    }

    /// Steps the protocol at the present time, and does what it says.
    pub(crate) fn step(&mut self, input: Input<'_>) {
        self.run(Some(input));
    }

    fn run(&mut self, input: Option<Input<'_>>) {
        if self.end_of_session().is_some() {
            return;
        }
        self.guarded(|turn| {
            if let Some(input) = input {
                if let Some(tracer) = &mut turn.core.tracer {
                    tracer.note_input(&input);
                }
                // The clock is read under the mutex, so that time never goes back for the core.
                turn.core.node.handle(clock::now(), input);
            }
            while let Some(output) = turn.core.node.poll_output() {
                let core = &mut *turn.core;
                if let Some(tracer) = &mut core.tracer {
                    tracer.note_output(&output, &core.node);
                }
                turn.perform(output);
            }
            if let Some(transport) = &mut turn.core.transport {
                transport.flush();
            }
        });
    }

    /// Has the protocol say `event`.
    #[cfg(test)]
    pub(crate) fn pretend(&mut self, event: Event) {
        self.tell(event);
    }

    /// A panic inside ends the session: nobody knows what state the protocol is in.
    pub(super) fn guarded(&mut self, act: impl FnOnce(&mut Self)) {
        if catch_unwind(AssertUnwindSafe(|| act(self))).is_err() {
            self.end(SessionEnd::Panicked);
        }
    }

    fn perform(&mut self, output: Output) {
        if self.end_of_session().is_some() {
            return;
        }
        match output {
            Output::Transmit { to, bytes } => {
                if let Some(transport) = &mut self.core.transport {
                    transport.post(to, bytes);
                }
            }
            Output::Persist(record) => self.core.persist = Some(*record),
            Output::Event(event) => self.tell(event),
        }
    }

    /// Lets go of the mutex after an application's thread stepped, and wakes the agent thread if
    /// it would sleep too long.
    pub(crate) fn finish_as_application(mut self) {
        self.core.active_at = clock::now();
        let shared = self.shared;
        let mut wake = None;
        if self.core.must_wake() {
            match &shared.runner {
                Runner::Thread(thread) => {
                    self.core.sleeps_until = None;
                    wake = Some(thread);
                }
                Runner::Callers(driven) => self.plan_alarm(driven, None),
            }
        }
        self.finish();
        if let Some(Err(error)) = wake.map(AgentThread::wake) {
            tracing::error!("cannot wake the agent thread: {error}");
        }
    }

    /// Lets go of the mutex, then wakes whom the steps decided for.
    pub(crate) fn finish(self) {
        let Self {
            core, notify, ring, ..
        } = self;
        drop(core);
        for session in ring {
            session.ring();
        }
        for request in notify {
            request.notify();
        }
    }
}

impl Core {
    pub(super) fn new(
        node: Node,
        transport: Transport,
        membership: Membership,
        lease: Duration,
    ) -> Self {
        Self {
            node,
            transport: Some(transport),
            last_counters: TransportCounters::default(),
            buffer: vec![0; Transport::BUFFER].into_boxed_slice(),
            requests: BTreeMap::new(),
            next_ticket: 1,
            session: Session::new(lease),
            session_number: 0,
            reports: Reports::default(),
            membership,
            offsets: Offsets::default(),
            phase: Phase::Running,
            held_back: None,
            persist: None,
            tasks: VecDeque::new(),
            notes: VecDeque::new(),
            notes_lost: 0,
            notes_malformed: 0,
            sleeps_until: None,
            active_at: clock::now(),
            tracer: None,
            clients: None,
        }
    }

    /// Whether something is left that only the agent thread can do.
    fn has_work(&self) -> bool {
        let has_tasks = !self.tasks.is_empty() || !self.notes.is_empty();
        self.persist.is_some() || has_tasks || matches!(self.phase, Phase::Over(_))
    }

    /// The member's socket; `None` once the session is over.
    pub(super) fn transport(&mut self) -> Option<&mut Transport> {
        self.transport.as_mut()
    }

    fn next_deadline(&self) -> Option<Time> {
        let leaving = match self.phase {
            Phase::Draining { deadline } | Phase::Leaving { deadline } => Some(deadline),
            Phase::Running | Phase::Over(_) => None,
        };
        let deadlines = [
            self.node.poll_timeout(),
            self.reports.next_deadline(),
            self.membership.next_deadline(),
            self.offsets.next_deadline(),
            self.transport.as_ref().and_then(Transport::next_report),
            self.transport.as_ref().and_then(Transport::next_look),
            leaving,
        ];
        // As numbers: what the compiler makes of a minimum of options looks to valgrind, which C
        // programs are run under, as if it read what none of them has set.
        let earliest = deadlines
            .map(|at| at.map_or(u64::MAX, Time::as_nanos))
            .into_iter()
            .min()
            .filter(|at| *at != u64::MAX);
        earliest.map(Time::from_nanos)
    }

    /// Whether the agent thread sleeps, and longer than it now may.
    fn must_wake(&self) -> bool {
        self.sleeps_until.is_some_and(|until| {
            self.has_work()
                || self
                    .next_deadline()
                    .is_some_and(|next| next + SLACK < until)
        })
    }
}
