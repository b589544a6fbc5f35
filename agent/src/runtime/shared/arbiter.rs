//! What decides about locks in an agent: the members of a group among themselves, or a ledger that is kept
//! in a store.

use std::collections::VecDeque;

use crate::protocol::{Input, Node, NodeId, Output, Record, Time};
use crate::runtime::net::transport::{Transport, TransportCounters};
use crate::runtime::os::clock;
use crate::runtime::os::socket_set::SocketSet;
use crate::runtime::shared::core_guard::CoreGuard;
use crate::runtime::shared::membership::Membership;
use crate::runtime::shared::peer_clocks::PeerClocks;
#[cfg(feature = "store")]
use crate::runtime::shared::store::StoreSide;

/// How many notes wait for the agent thread, which reads one in each round; more are lost, as on the
/// way. A member has four under way, as long as it is heard in time: that it asks for the status and
/// the time, and what it answers to both; so there is room for those of 64 members. Of the longest,
/// so many take 64 MiB.
const MAX_NOTES: usize = 256;

/// What decides about locks.
#[derive(Debug)]
pub(crate) enum Arbiter {
    /// This agent is a member, and the members of its group agree.
    Members(Box<Members>),
    /// A ledger in a store.
    #[cfg(feature = "store")]
    Store(Box<StoreSide>),
}

impl Arbiter {
    pub(super) fn members(&self) -> Option<&Members> {
        match self {
            Self::Members(members) => Some(members),
            #[cfg(feature = "store")]
            Self::Store(_) => None,
        }
    }

    pub(super) fn members_mut(&mut self) -> Option<&mut Members> {
        match self {
            Self::Members(members) => Some(members),
            #[cfg(feature = "store")]
            Self::Store(_) => None,
        }
    }

    /// When what decides wants to be told the time.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        match self {
            Self::Members(members) => members.node.poll_timeout(),
            #[cfg(feature = "store")]
            Self::Store(store) => store.poll_timeout(),
        }
    }

    /// When something is due, in nanoseconds; [`u64::MAX`] if nothing is.
    pub(super) fn next_deadline(&self) -> u64 {
        match self {
            Self::Members(members) => members.next_deadline(),
            #[cfg(feature = "store")]
            Self::Store(store) => store.poll_timeout().map_or(u64::MAX, Time::as_nanos),
        }
    }

    /// The session is over: nothing more is sent, nobody more is answered.
    /// `set` has the sockets.
    pub(super) fn end(&mut self, set: &SocketSet) {
        #[cfg(not(feature = "store"))]
        let _ = set;
        match self {
            Self::Members(members) => members.end(),
            #[cfg(feature = "store")]
            Self::Store(store) => store.end(set),
        }
    }

    /// Whether something is left that only the agent thread can do.
    pub(super) fn has_work(&self) -> bool {
        match self {
            Self::Members(members) => members.has_work(),
            #[cfg(feature = "store")]
            Self::Store(_) => false,
        }
    }
}

/// This agent's part among the members of a group.
#[derive(Debug)]
pub(crate) struct Members {
    pub(crate) node: Node,
    /// `None` once the session is over.
    pub(in crate::runtime::shared) transport: Option<Transport>,
    pub(super) last_counters: TransportCounters,
    pub(super) buffer: Box<[u8]>,
    pub(crate) membership: Membership,
    pub(crate) peer_clocks: PeerClocks,
    /// What the node wants on disk. The agent thread has it written.
    pub(super) persist: Option<Record>,
    /// What other agents sent and the agent thread has not read.
    pub(super) notes: VecDeque<(NodeId, Vec<u8>)>,
    pub(super) notes_lost: u64,
    /// Notes that could not be read.
    pub(crate) notes_malformed: u64,
}

impl Members {
    pub(crate) fn new(node: Node, transport: Transport, membership: Membership) -> Self {
        Self {
            node,
            transport: Some(transport),
            last_counters: TransportCounters::default(),
            buffer: vec![0; Transport::BUFFER].into_boxed_slice(),
            membership,
            peer_clocks: PeerClocks::default(),
            persist: None,
            notes: VecDeque::new(),
            notes_lost: 0,
            notes_malformed: 0,
        }
    }

    /// The member's sockets; `None` once the session is over.
    pub(super) fn transport(&mut self) -> Option<&mut Transport> {
        self.transport.as_mut()
    }

    fn next_deadline(&self) -> u64 {
        let deadlines = [
            self.node.poll_timeout(),
            self.membership.next_deadline(),
            self.peer_clocks.next_deadline(),
            self.transport.as_ref().and_then(Transport::next_report),
            self.transport.as_ref().and_then(Transport::next_look),
        ];
        // As numbers: what the compiler makes of a minimum of options looks to valgrind, which C
        // programs are run under, as if it read what none of them has set.
        let numbers = deadlines.map(|at| at.map_or(u64::MAX, Time::as_nanos));
        numbers.into_iter().min().unwrap_or(u64::MAX)
    }

    /// Another agent sent something that is not the protocol's.
    pub(super) fn note(&mut self, from: NodeId, bytes: Vec<u8>) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push_back((from, bytes));
        } else {
            self.notes_lost += 1;
        }
    }

    fn end(&mut self) {
        self.persist = None;
        if let Some(transport) = self.transport.take() {
            self.last_counters = transport.counters();
        }
    }

    /// Whether something is left that only the agent thread can do.
    fn has_work(&self) -> bool {
        self.persist.is_some() || !self.notes.is_empty()
    }
}

impl CoreGuard<'_> {
    /// Steps the member's protocol, and does what it says.
    pub(super) fn run_members(&mut self, input: Option<Input<'_>>) {
        let core = &mut *self.core;
        if let (Some(input), Some(members)) = (input, core.arbiter.members_mut()) {
            if let Some(tracer) = &mut core.tracer {
                tracer.note_input(&input);
            }
            // The clock is read under the mutex, so that time never goes back for the core.
            members.node.handle(clock::now(), input);
        }
        while let Some(output) = self.next_of_members() {
            self.perform(output);
        }
        let core = &mut *self.core;
        if let Some(members) = core.arbiter.members_mut() {
            let has_view = members.node.view().is_some();
            core.measured.has_view(has_view, clock::now);
            members.transport.iter_mut().for_each(Transport::flush);
        }
    }

    fn next_of_members(&mut self) -> Option<Output> {
        let core = &mut *self.core;
        let members = core.arbiter.members_mut()?;
        let output = members.node.poll_output()?;
        if let Some(tracer) = &mut core.tracer {
            let requests = &core.requests;
            let pid_of = |ticket| requests.get(&ticket).map(|entry| entry.caller.pid);
            tracer.note_output(&output, &members.node, pid_of);
        }
        Some(output)
    }

    fn perform(&mut self, output: Output) {
        if self.end_of_session().is_some() {
            return;
        }
        match (output, self.core.members_mut()) {
            (Output::Transmit { to, bytes }, Some(members)) => {
                if let Some(transport) = &mut members.transport {
                    transport.post(to, bytes);
                }
            }
            (Output::Persist(record), Some(members)) => members.persist = Some(*record),
            (Output::Event(event), _) => self.tell(event),
            (_, None) => {}
        }
    }
}
