//! How processes and hosts of a simulated cluster begin, stand still and end.

use alloc::vec::Vec;
use core::time::Duration;

use super::{Cluster, Running, WALL};
use crate::checkers::{Process, Violation};
use crate::clock::quarantine;
use crate::history::What;
use distlock_protocol::{Boot, Failure, Node, NodeConfig, NodeId, Record, Time};

const HOUR: Duration = Duration::from_secs(3600);

/// Whether it names a cluster.
fn knows(disk: &Record) -> bool {
    disk.affiliation.cluster_id().is_some()
}

impl<A> Cluster<A> {
    /// Starts a process in this member's place, which must be empty, from what its disk holds.
    ///
    /// # Errors
    /// A rule was broken.
    pub fn start(&mut self, node: NodeId) -> Result<(), Violation> {
        let now = self.now;
        let seat = self.seats.get_mut(&node).expect("only members are started");
        assert!(seat.running.is_none(), "one process a member");
        seat.incarnation += 1;
        let process = Process {
            node,
            incarnation: seat.incarnation,
        };
        let config = NodeConfig {
            me: node,
            members: self.listed.iter().copied().chain([node]).collect(),
            voters: self.voters.clone(),
            cluster: self.named,
            settings: self.settings.clone(),
        };
        let seat = self.seats.get_mut(&node).expect("as above");
        // Where voters have lost their states, the wall clock is all that tells how high fences were.
        let by_quorum = self.settings.failure == Failure::Quorum;
        let tells = |disk: &Record| !by_quorum || knows(disk);
        let back = self.choices.chance(self.surroundings.wall_back)
            && seat.disk.as_ref().is_some_and(tells);
        let wall = WALL + now.since(Time::ZERO);
        let boot = Boot {
            record: seat.disk.clone(),
            wall: if back { wall - HOUR } else { wall },
            seed: u64::from(node.as_u16()) << 32 | u64::from(seat.incarnation),
        };
        self.trace
            .say(now, format_args!("{process} starts with {:?}", boot.record));
        let local = seat.clock.shows(now);
        let node = match self.lies.clone() {
            None => Node::new(config, boot, local),
            Some(lies) => Node::with_logs(config, boot, local, |_, lease| lies.logs(lease)),
        };
        let running = Running {
            node,
            file: (
                self.settings.lease,
                self.listed.clone(),
                self.voters.clone(),
            ),
            alarm: None,
            writing: None,
        };
        seat.running = Some(running);
        let waited = seat
            .clock
            .when(seat.clock.shows(now) + quarantine(self.settings.lease));
        self.checkers.begins(process, waited);
        self.drain(process)
    }

    /// Ends this member's process without a word.
    pub fn crash(&mut self, node: NodeId) {
        let Some(process) = self.process(node) else {
            return;
        };
        let seat = self.seats.get_mut(&node).expect("it runs");
        seat.paused = None;
        if let Some(Running {
            writing: Some(record),
            ..
        }) = seat.running.take()
            && self.choices.chance(500)
        {
            seat.disk = Some(record);
        }
        self.trace.say(
            self.now,
            format_args!("{process} crashes, on disk: {:?}", seat.disk),
        );
        self.trace.record(self.now, node, What::Crashed);
        self.checkers.crashes(process);
    }

    /// Stops this member's host, if a process runs there and it is not stopped yet; whether it was.
    pub fn pause(&mut self, node: NodeId) -> bool {
        let Some(process) = self.process(node).filter(|_| !self.is_paused(node)) else {
            return false;
        };
        self.trace
            .say(self.now, format_args!("{process} stands still"));
        let seat = self.seats.get_mut(&node).expect("it runs");
        seat.paused = Some(Vec::new());
        true
    }

    /// Lets this member's host go on, if it stands still: what came meanwhile happens now.
    pub fn resume(&mut self, node: NodeId) {
        let seat = self.seats.get_mut(&node).expect("it was a member");
        if let Some(paused) = seat.paused.take() {
            self.trace
                .say(self.now, format_args!("member {node} goes on"));
            for happening in paused {
                self.queue.plan(self.now, happening);
            }
        }
    }

    /// Takes the record from this member's disk.
    pub fn lose_record(&mut self, node: NodeId) {
        let seat = self.seats.get_mut(&node).expect("it was a member");
        let knew = seat.disk.take().is_some_and(|disk| knows(&disk));
        self.checkers.forgets(node);
        let mut disks = self.seats.values().filter_map(|seat| seat.disk.as_ref());
        if knew && self.settings.failure == Failure::Quorum && !disks.any(knows) {
            self.checkers.forgets_all();
        }
        self.trace.say(
            self.now,
            format_args!("the record of member {node} is lost"),
        );
    }

    /// Takes away a process that has said [`Event::Left`](distlock_protocol::Event::Left).
    pub fn remove(&mut self, process: Process) {
        let seat = self.seats.get_mut(&process.node).expect("it was a member");
        if seat.incarnation == process.incarnation {
            seat.running = None;
            self.checkers.crashes(process);
        }
    }
}
