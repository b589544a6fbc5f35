//! How processes and hosts of a simulated cluster begin, stand still and end.

use core::time::Duration;

use super::{Cluster, Member, WALL};
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
        let now = self.now();
        let process = self.hosts.next_process(node);
        let mut settings = self.settings.clone();
        if self.surroundings.odd_file == Some(node) {
            settings.lock_delay += settings.lease;
        }
        let config = NodeConfig {
            me: node,
            members: self.listed.iter().copied().chain([node]).collect(),
            voters: self.voters.clone(),
            cluster: self.named,
            settings,
        };
        // Where voters have lost their states, the wall clock is all that tells how high fences were.
        let by_quorum = self.settings.failure == Failure::Quorum;
        let tells = |disk: &Record| !by_quorum || knows(disk);
        let back = self.hosts.choices.chance(self.surroundings.wall_back)
            && self.disk(node).is_some_and(tells);
        let wall = WALL + now.since(Time::ZERO);
        let boot = Boot {
            record: self.disk(node).cloned(),
            wall: if back { wall - HOUR } else { wall },
            seed: u64::from(node.as_u16()) << 32 | u64::from(process.incarnation),
        };
        self.say(format_args!("{process} starts with {:?}", boot.record));
        let clock = self.hosts.clock(node);
        let local = clock.shows(now);
        let running = match self.lies.clone() {
            None => Node::new(config, boot, local),
            Some(lies) => Node::with_logs(config, boot, local, |_, lease| lies.logs(lease)),
        };
        let member = Member {
            node: running,
            file: (
                self.settings.lease,
                self.listed.clone(),
                self.voters.clone(),
            ),
        };
        self.hosts.start(node, member);
        let waited = clock.when(local + quarantine(self.settings.lease));
        self.checkers.begins(process, waited);
        self.drain(process)
    }

    /// Ends this member's process without a word.
    pub fn crash(&mut self, node: NodeId) {
        let Some((process, _)) = self.hosts.crash(node) else {
            return;
        };
        let (now, disk) = (self.now(), self.hosts.disk(node).cloned());
        let trace = &mut self.hosts.trace;
        trace.say(now, format_args!("{process} crashes, on disk: {disk:?}"));
        trace.record(now, node, What::Crashed);
        self.checkers.crashes(process);
    }

    /// Stops this member's host, if a process runs there and it is not stopped yet; whether it was.
    pub fn pause(&mut self, node: NodeId) -> bool {
        self.hosts.pause(node).is_some()
    }

    /// Lets this member's host go on, if it stands still: what came meanwhile happens now.
    pub fn resume(&mut self, node: NodeId) {
        self.hosts.resume(node);
    }

    /// Takes the record from this member's disk.
    pub fn lose_record(&mut self, node: NodeId) {
        let lost = self.hosts.disk_mut(node).take();
        let knew = lost.is_some_and(|disk| knows(&disk));
        self.checkers.forgets(node);
        let does = |node| self.disk(node).is_some_and(knows);
        let some_does = self.members().any(does);
        if knew && self.settings.failure == Failure::Quorum && !some_does {
            self.checkers.forgets_all();
        }
        self.say(format_args!("the record of member {node} is lost"));
    }

    /// Takes away a process that has said [`Event::Left`](distlock_protocol::Event::Left).
    pub fn remove(&mut self, process: Process) {
        if self.hosts.runs(process) {
            self.hosts.stop(process.node);
            self.checkers.crashes(process);
        }
    }
}
