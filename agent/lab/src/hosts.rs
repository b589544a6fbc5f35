//! The simulated cluster that every world is: hosts, a process on each, and the network between.
//!
//! A host has a clock and a disk. Its process is an [`Actor`]: a whole node ([`cluster`]), the
//! engine of one lock ([`bare`]), a voter's log ([`view_log`]), an order of messages
//! ([`multicast`]), a candidate or a token's place ([`networks`]). It ends with all that it knows:
//! a record that was being written is kept or lost, as chance has it. A host can stand still: then
//! nothing happens there but that its clock goes on, and all that comes waits. Time passes from one
//! happening to the next; what is planned for the same instant happens in the order in which it was
//! planned.
//!
//! What an actor does about a happening is for the world to ask of it; hosts carry messages, wake,
//! write and wait, and know nothing else of it.
//!
//! [`cluster`]: super::cluster
//! [`bare`]: super::bare
//! [`view_log`]: super::view_log
//! [`multicast`]: super::multicast
//! [`networks`]: super::networks

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use super::checkers::{Process, Violation, violation};
use super::choices::Choices;
use super::clock::Clock;
use super::network::Network;
use super::queue::Queue;
use super::trace::Trace;
use distlock_protocol::{NodeId, Time};

/// What runs in a process.
pub(super) trait Actor: fmt::Debug {
    /// What goes from host to host.
    type Message: Clone + fmt::Debug;
    /// What a process leaves on its host's disk; `()` if nothing.
    type Record: Clone + fmt::Debug;

    /// Changes a message as a bad line does. Only what has bytes can be changed so.
    fn corrupt(message: Self::Message, _: &mut Network) -> Self::Message {
        message
    }
}

/// What happens to the process on a host, or was planned.
#[derive(Debug)]
pub(super) enum Happened<M, A> {
    /// A message for a process.
    Arrival {
        process: Process,
        from: NodeId,
        message: M,
    },
    /// The time has come at which a process wanted to be woken.
    Alarm(Process),
    /// The record of a process is on its host's disk.
    Written(Process),
    /// What the world planned for this time.
    Act(A),
}

/// Hosts, and what passes between them. `A` is what the world plans for itself.
#[derive(Debug)]
pub(super) struct Hosts<P: Actor, A> {
    now: Time,
    queue: Queue<Planned<P::Message, A>>,
    hosts: BTreeMap<NodeId, Host<P, A>>,
    pub(super) network: Network,
    pub(super) choices: Choices,
    pub(super) trace: Trace,
    steps: u64,
    step_limit: u64,
}

#[derive(Debug)]
enum Planned<M, A> {
    Arrival {
        from: NodeId,
        to: NodeId,
        message: M,
    },
    Alarm {
        process: Process,
        at: Time,
    },
    Written {
        process: Process,
    },
    Act {
        /// On whose host it is done, if on one.
        at: Option<NodeId>,
        act: A,
    },
}

impl<M, A> Planned<M, A> {
    /// On whose host it happens.
    const fn place(&self) -> Option<NodeId> {
        match self {
            Self::Arrival { to, .. } => Some(*to),
            Self::Alarm { process, .. } | Self::Written { process } => Some(process.node),
            Self::Act { at, .. } => *at,
        }
    }
}

#[derive(Debug)]
struct Host<P: Actor, A> {
    clock: Clock,
    disk: Option<P::Record>,
    incarnation: u32,
    running: Option<Running<P>>,
    /// While the host stands still: what waits until it goes on.
    paused: Option<Vec<Planned<P::Message, A>>>,
}

#[derive(Debug)]
struct Running<P: Actor> {
    actor: P,
    /// When it is to be woken, in the simulation's time.
    alarm: Option<Time>,
    /// What is on its way to the disk.
    writing: Option<P::Record>,
}

impl<P: Actor, A> Hosts<P, A> {
    /// No host yet, and a network between those that come.
    pub(super) const fn new(network: Network, choices: Choices, trace: Trace) -> Self {
        Self {
            now: Time::ZERO,
            queue: Queue::new(),
            hosts: BTreeMap::new(),
            network,
            choices,
            trace,
            steps: 0,
            step_limit: u64::MAX,
        }
    }

    /// One more host, with nothing on its disk, on which nothing runs.
    pub(super) fn add(&mut self, node: NodeId, clock: Clock) {
        let host = Host {
            clock,
            disk: None,
            incarnation: 0,
            running: None,
            paused: None,
        };
        self.hosts.insert(node, host);
    }

    /// Takes more than `limit` steps for a breach of [`Rule::Restraint`].
    ///
    /// [`Rule::Restraint`]: super::checkers::Rule::Restraint
    pub(super) const fn limit_steps(&mut self, limit: u64) {
        self.step_limit = limit;
    }

    /// One step more of some actor.
    pub(super) fn count_step(&mut self) -> Result<(), Violation> {
        self.steps += 1;
        if self.steps > self.step_limit {
            let limit = self.step_limit;
            let words = "this run takes more than";
            return Err(violation!(self.now, Restraint, "{words} {limit} steps"));
        }
        Ok(())
    }

    pub(super) const fn steps(&self) -> u64 {
        self.steps
    }

    pub(super) const fn now(&self) -> Time {
        self.now
    }

    /// Writes `words` into the trace.
    pub(super) fn say(&mut self, words: fmt::Arguments<'_>) {
        self.trace.say(self.now, words);
    }

    /// All hosts.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.hosts.keys().copied()
    }

    pub(super) fn has(&self, node: NodeId) -> bool {
        self.hosts.contains_key(&node)
    }

    /// What runs, and on which hosts.
    pub(super) fn actors(&self) -> impl Iterator<Item = (NodeId, &P)> {
        let hosts = self.hosts.iter();
        hosts.filter_map(|(node, host)| Some((*node, &host.running.as_ref()?.actor)))
    }

    /// What runs on this host.
    pub(super) fn actor(&self, node: NodeId) -> Option<&P> {
        let running = self.hosts.get(&node)?.running.as_ref()?;
        Some(&running.actor)
    }

    pub(super) fn actor_mut(&mut self, node: NodeId) -> Option<&mut P> {
        let running = self.hosts.get_mut(&node)?.running.as_mut()?;
        Some(&mut running.actor)
    }

    /// The process that runs on this host.
    pub(super) fn process(&self, node: NodeId) -> Option<Process> {
        let host = self.hosts.get(&node)?;
        let incarnation = host.incarnation;
        host.running.as_ref()?;
        Some(Process { node, incarnation })
    }

    /// Whether this process runs still.
    pub(super) fn runs(&self, process: Process) -> bool {
        self.process(process.node) == Some(process)
    }

    /// The process that will run next on this host.
    pub(super) fn next_process(&self, node: NodeId) -> Process {
        let incarnation = self.hosts[&node].incarnation + 1;
        Process { node, incarnation }
    }

    pub(super) fn clock(&self, node: NodeId) -> Clock {
        self.hosts[&node].clock
    }

    /// What is on this host's disk.
    pub(super) fn disk(&self, node: NodeId) -> Option<&P::Record> {
        self.hosts.get(&node)?.disk.as_ref()
    }

    /// The same, to change it from outside.
    pub(super) fn disk_mut(&mut self, node: NodeId) -> &mut Option<P::Record> {
        &mut self.host(node).disk
    }

    /// What is on disks, and what is on its way there.
    pub(super) fn records(&self) -> impl Iterator<Item = &P::Record> {
        self.hosts.values().flat_map(|host| {
            let writing = host.running.as_ref().and_then(|its| its.writing.as_ref());
            host.disk.iter().chain(writing)
        })
    }

    /// Starts a process on a host on which none runs.
    pub(super) fn start(&mut self, node: NodeId, actor: P) -> Process {
        let process = self.next_process(node);
        let host = self.host(node);
        assert!(host.running.is_none(), "one process a host");
        host.incarnation = process.incarnation;
        host.running = Some(Running {
            actor,
            alarm: None,
            writing: None,
        });
        process
    }

    /// Ends the process on this host, without a word: a record that was being written is kept or
    /// lost. Returns the process, if there was one, and whether it was writing.
    pub(super) fn crash(&mut self, node: NodeId) -> Option<(Process, bool)> {
        let process = self.process(node)?;
        let host = self.hosts.get_mut(&node).expect("a process runs on it");
        host.paused = None;
        let writing = host.running.take().and_then(|running| running.writing);
        let was_writing = writing.is_some();
        if let Some(record) = writing
            && self.choices.chance(500)
        {
            host.disk = Some(record);
        }
        Some((process, was_writing))
    }

    /// Ends the process on this host, in order; what ran in it.
    pub(super) fn stop(&mut self, node: NodeId) -> Option<P> {
        self.host(node).running.take().map(|running| running.actor)
    }

    /// Stops this host, if a process runs there and it is not stopped yet; the process.
    pub(super) fn pause(&mut self, node: NodeId) -> Option<Process> {
        let process = self.process(node).filter(|_| !self.is_paused(node))?;
        self.say(format_args!("{process} stands still"));
        self.host(node).paused = Some(Vec::new());
        Some(process)
    }

    /// Lets this host go on, if it stands still: what came meanwhile happens now.
    pub(super) fn resume(&mut self, node: NodeId) {
        if let Some(paused) = self.host(node).paused.take() {
            self.say(format_args!("member {node} goes on"));
            for planned in paused {
                self.queue.plan(self.now, planned);
            }
        }
    }

    pub(super) fn is_paused(&self, node: NodeId) -> bool {
        self.hosts[&node].paused.is_some()
    }

    /// Sends a message; how many copies of it are under way then.
    pub(super) fn send(&mut self, from: NodeId, to: NodeId, message: &P::Message) -> usize {
        let mut copies = 0;
        for arrival in self.network.send(self.now, from, to) {
            let mut message = message.clone();
            if arrival.corrupted {
                message = P::corrupt(message, &mut self.network);
            }
            copies += 1;
            let arrival_of = Planned::Arrival { from, to, message };
            self.queue.plan(arrival.at, arrival_of);
        }
        copies
    }

    /// A message that nobody sent arrives now.
    pub(super) fn slip_in(&mut self, from: NodeId, to: NodeId, message: P::Message) {
        let arrival = Planned::Arrival { from, to, message };
        self.queue.plan(self.now, arrival);
    }

    /// Has a record of this process on its disk after `takes`.
    ///
    /// # Errors
    /// Another one is on its way.
    pub(super) fn write(
        &mut self,
        process: Process,
        record: P::Record,
        takes: Duration,
    ) -> Result<(), Violation> {
        let now = self.now;
        let Some(running) = self.running(process) else {
            return Ok(());
        };
        if running.writing.replace(record).is_some() {
            let words = "writes two records at a time";
            return Err(violation!(now, Durability, "{process} {words}"));
        }
        self.queue.plan(now + takes, Planned::Written { process });
        Ok(())
    }

    /// Wakes this process when it is `due`, or `late` later; only that once.
    pub(super) fn set_alarm(
        &mut self,
        process: Process,
        due: Option<Time>,
        (late, latest): (Duration, Duration),
    ) {
        let now = self.now;
        let Some(running) = self.running(process) else {
            return;
        };
        let due = due.map(|due| due.max(now));
        match (due, running.alarm) {
            (None, _) => running.alarm = None,
            // What is set rings no earlier than asked for, and not much later.
            (Some(due), Some(set)) if due <= set && set <= due + latest => {}
            (Some(due), _) => {
                let at = due + late;
                running.alarm = Some(at);
                self.queue.plan(at, Planned::Alarm { process, at });
            }
        }
    }

    /// Plans `act` for `delay` from now.
    pub(super) fn plan(&mut self, delay: Duration, act: A) {
        let planned = Planned::Act { at: None, act };
        self.queue.plan(self.now + delay, planned);
    }

    /// The same for what is done on this host, and not while that stands still.
    pub(super) fn plan_at(&mut self, node: NodeId, delay: Duration, act: A) {
        let planned = Planned::Act {
            at: Some(node),
            act,
        };
        self.queue.plan(self.now + delay, planned);
    }

    /// Plans `act` for a time around `mean` from now, if that is ever.
    pub(super) fn plan_around(&mut self, mean: Option<Duration>, act: A) {
        if let Some(mean) = mean {
            let after = self.choices.exponential(mean);
            self.plan(after, act);
        }
    }

    /// The next that happens, if anything does by `end`; then it is `end`.
    pub(super) fn next(&mut self, end: Time) -> Option<Happened<P::Message, A>> {
        while let Some((at, planned)) = self.queue.pop_by(end) {
            self.now = at;
            if let Some(node) = planned.place()
                && let Some(host) = self.hosts.get_mut(&node)
                && let Some(paused) = &mut host.paused
            {
                paused.push(planned);
            } else if let Some(happened) = self.happens(planned) {
                return Some(happened);
            }
        }
        self.now = self.now.max(end);
        None
    }

    /// What is for a process that has ended does not happen.
    fn happens(&mut self, planned: Planned<P::Message, A>) -> Option<Happened<P::Message, A>> {
        match planned {
            Planned::Act { act, .. } => Some(Happened::Act(act)),
            Planned::Arrival { from, to, message } => Some(Happened::Arrival {
                process: self.process(to)?,
                from,
                message,
            }),
            Planned::Alarm { process, at } => {
                let running = self.running(process)?;
                running.alarm.take_if(|set| *set == at)?;
                Some(Happened::Alarm(process))
            }
            Planned::Written { process } => {
                let record = self.running(process)?.writing.take();
                self.host(process.node).disk = record;
                Some(Happened::Written(process))
            }
        }
    }

    fn running(&mut self, process: Process) -> Option<&mut Running<P>> {
        if !self.runs(process) {
            return None;
        }
        self.host(process.node).running.as_mut()
    }

    fn host(&mut self, node: NodeId) -> &mut Host<P, A> {
        self.hosts.get_mut(&node).expect("a host that was added")
    }
}
