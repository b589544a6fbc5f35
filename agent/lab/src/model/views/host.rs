//! A host: its disk, its clock, and the process that runs there.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use super::log::{Deciding, Logs};
use crate::checkers::Process;
use crate::clock::Clock;
use crate::model::locks::Seat;
use crate::model::member;
use crate::model::pool::Shared;
use distlock_protocol::membership::Action;
use distlock_protocol::membership::quorum::log::Body;
use distlock_protocol::membership::quorum::{
    Affiliation, Quorum, QuorumConfig, QuorumMessage, RecoveredState, VoterRecord,
};
use distlock_protocol::{Algorithm, Fence, NodeId, Time};

/// How long leases are.
pub(super) const LEASE: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, Hash)]
pub(super) struct Host {
    pub(super) process: Process,
    pub(super) clock: Clock,
    /// What is on disk of the voter.
    pub(super) disk: Option<VoterRecord>,
    /// What is on disk of its cluster.
    pub(super) affiliation: Option<Affiliation>,
    pub(super) running: Option<Running>,
}

#[derive(Clone, Debug, Hash)]
pub(super) struct Running {
    pub(super) quorum: Quorum<Logs>,
    pub(super) seat: Seat,
    /// What is on its way to the disk.
    pub(super) writing: Option<Box<VoterRecord>>,
    pub(super) caller: Caller,
    /// Whether it has said that it leaves.
    pub(super) departs: bool,
}

/// A caller that its lock has let in is inside only as long as there is a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Caller {
    Outside,
    /// It may enter when there is a lease.
    Granted(Fence),
    Inside,
}

impl Host {
    pub(super) fn node(&self) -> NodeId {
        self.process.node
    }

    /// Begins the next incarnation with what is on disk.
    pub(super) fn start(
        &mut self,
        now: Time,
        hosts: u16,
        algorithm: Algorithm,
        deciding: Deciding,
    ) -> Vec<Action> {
        self.process.incarnation += 1;
        let me = member(self.process);
        let all: BTreeSet<NodeId> = (1..=hosts).filter_map(NodeId::new).collect();
        let config = QuorumConfig {
            group: String::from("model"),
            lease: LEASE,
            members: all.clone(),
            voters: all,
            cluster: None,
            wall: Duration::ZERO,
            lock_delay: Duration::ZERO,
        };
        let before = RecoveredState {
            voter: self.disk.clone(),
            ..RecoveredState::default()
        };
        let local = self.clock.shows(now);
        let new = || Affiliation::new(me.incarnation);
        let affiliation = self.affiliation.get_or_insert_with(new).clone();
        let logs = Logs {
            deciding,
            node: me.node,
        };
        let mut quorum = Quorum::new((me, affiliation), config, before, logs, local);
        let actions = quorum.timeout(local);
        self.running = Some(Running {
            quorum,
            seat: Seat::new(me, algorithm),
            writing: None,
            caller: Caller::Outside,
            departs: false,
        });
        actions
    }

    /// When the lease of this process ends, in real time.
    pub(super) fn lease_ends(&self) -> Option<Time> {
        let until = self.running.as_ref()?.quorum.lease_ends();
        (until > Time::ZERO).then(|| self.clock.when(until))
    }

    /// Whether something is due.
    pub(super) fn is_due(&self, now: Time) -> bool {
        let local = self.clock.shows(now);
        let running = self.running.as_ref();
        let due = running.and_then(|running| running.quorum.next_timeout(local));
        due.is_some_and(|due| due <= local)
    }
}

/// The newest message of each kind that is on its way from one host to another. All of them say how
/// things stand: a network that loses the older one of two loses what it may, and a state has fewer
/// of them.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Air(BTreeMap<Flight, Shared<QuorumMessage>>);

/// From whom, to whom, and of which kind.
pub(super) type Flight = (NodeId, NodeId, u8);

impl Air {
    pub(super) fn push(&mut self, from: NodeId, to: NodeId, message: Shared<QuorumMessage>) {
        let kind = match &*message {
            QuorumMessage::Renew(_) => 0,
            QuorumMessage::Renewed { .. } => 1,
            QuorumMessage::Refused { .. } => 2,
            QuorumMessage::Status(_) => 3,
            QuorumMessage::Decided(_) => 4,
            QuorumMessage::Flush(_) => 5,
            QuorumMessage::Summary { .. } => 6,
            QuorumMessage::Install { .. } => 7,
            QuorumMessage::Log { message, .. } => match message.body {
                Body::Vote { .. } => 8,
                Body::Voted { .. } => 13,
                Body::Append { .. } => 14,
                Body::Appended { .. } => 15,
                Body::Install(_) => 16,
                Body::Retired(_) => 17,
                Body::TakeOver => 18,
            },
            QuorumMessage::Cluster(_) => 9,
            QuorumMessage::Founding(_) => 10,
            QuorumMessage::Found(_) => 11,
            QuorumMessage::Lift { .. } => 12,
        };
        self.0.insert((from, to, kind), message);
    }

    pub(super) fn flights(&self) -> impl Iterator<Item = Flight> + '_ {
        self.0.keys().copied()
    }

    pub(super) fn message(&self, flight: Flight) -> &Shared<QuorumMessage> {
        &self.0[&flight]
    }

    pub(super) fn remove(&mut self, flight: Flight) {
        self.0.remove(&flight);
    }
}
