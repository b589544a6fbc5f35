//! The members, the time, and what befalls them.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use super::member::{Datagram, Member};
use super::views::Views;
use super::{DELAY, Explored, Plan};
use crate::checkers::{Deliveries, Payload, Process, Violation, violation};
use crate::choices::Choices;
use crate::clock::Clock;
use crate::hosts::{Happened, Hosts};
use crate::network::Network;
use crate::trace::Trace;
use distlock_protocol::multicast::{Install, Message, MulticastError, TotalOrder, Undelivered};
use distlock_protocol::{Epoch, NodeId, Time};

/// Once faults stop all must be done within this: far more than links take to try again.
const PATIENCE: Duration = Duration::from_secs(60);
/// No run takes as many steps.
const MAX_STEPS: u64 = 3_000_000;

#[derive(Debug)]
enum Act {
    Say(NodeId),
    Acknowledge(NodeId),
    Crash,
    Change,
    Freeze(Epoch, NodeId),
    Heard(Epoch, NodeId, Undelivered<Payload>),
    Install(NodeId, Install<Payload>),
}

pub(super) struct World {
    plan: Plan,
    hosts: Hosts<Member, Act>,
    views: Views,
    /// Those that live, and that the others have removed.
    removed: BTreeSet<NodeId>,
    next_id: u16,
    calm: bool,
    checker: Deliveries,
    explored: Explored,
}

impl World {
    pub(super) fn new(plan: Plan, mut choices: Choices, trace: Trace) -> Self {
        let network = Network::new(plan.conditions, choices.fork());
        let mut hosts = Hosts::new(network, choices, trace);
        hosts.limit_steps(MAX_STEPS);
        Self {
            plan,
            hosts,
            views: Views::new(),
            removed: BTreeSet::new(),
            next_id: 0,
            calm: false,
            checker: Deliveries::default(),
            explored: Explored::default(),
        }
    }

    pub(super) fn run(mut self) -> Result<(Explored, u64), Violation> {
        let first = (0..self.plan.size).map(|_| self.start()).collect();
        self.change_to(Vec::new(), first);
        self.hosts.plan_around(self.plan.change, Act::Change);
        self.hosts.plan_around(self.plan.faults.crash, Act::Crash);
        self.go_on(Time::ZERO + self.plan.unrest, |_| false)?;
        self.calm = true;
        self.hosts.network.heal();
        let end = self.hosts.now() + PATIENCE;
        self.go_on(end, |world| world.views.is_settled())?;
        // Those who crashed must go before the others can deliver everything.
        let members = self.views.members().iter().copied();
        let alive: Vec<NodeId> = members.filter(|node| self.lives(*node)).collect();
        if alive.len() < self.views.members().len() {
            self.change_to(alive, Vec::new());
        }
        self.go_on(end, Self::is_done)?;
        self.checker.ends(self.hosts.now(), self.views.members())?;
        self.explored.lost_with_sender = self.checker.lost();
        self.explored.network_stats = self.hosts.network.network_stats();
        Ok((self.explored, self.hosts.trace.fingerprint()))
    }

    fn is_done(&self) -> bool {
        let members = self.views.members().iter();
        let mut members = members.filter_map(|node| self.hosts.actor(*node));
        self.views.is_settled() && members.all(|member| member.order.backlog() == 0)
    }

    /// Goes on until `is_over`, or `end`.
    fn go_on(&mut self, end: Time, is_over: impl Fn(&Self) -> bool) -> Result<(), Violation> {
        while !is_over(self)
            && let Some(happened) = self.hosts.next(end)
        {
            self.hosts.count_step()?;
            self.take(happened)?;
        }
        Ok(())
    }

    fn take(&mut self, happened: Happened<Datagram, Act>) -> Result<(), Violation> {
        match happened {
            Happened::Arrival {
                process,
                from,
                message,
            } => self.arrive(process, from, message),
            Happened::Alarm(process) => {
                let now = self.hosts.now();
                if let Some(member) = self.hosts.actor_mut(process.node) {
                    member.wake(now);
                }
                self.transmit(process.node);
                Ok(())
            }
            Happened::Written(_) => Ok(()),
            Happened::Act(act) => self.befalls(act),
        }
    }

    fn befalls(&mut self, act: Act) -> Result<(), Violation> {
        match act {
            Act::Say(node) => self.say(node),
            Act::Acknowledge(node) => self.acknowledge(node),
            Act::Crash => {
                self.hosts.plan_around(self.plan.faults.crash, Act::Crash);
                self.crash();
                Ok(())
            }
            Act::Change => {
                self.hosts.plan_around(self.plan.change, Act::Change);
                self.change();
                Ok(())
            }
            Act::Freeze(epoch, node) => {
                // What is late, of a view that was given up, stops nobody.
                let order = self.order(node);
                if let Some(Ok(said)) = order.map(|order| order.freeze(epoch)) {
                    self.plan_soon(Act::Heard(epoch, node, said));
                }
                Ok(())
            }
            Act::Heard(epoch, node, said) => self.hear(epoch, node, said),
            Act::Install(node, install) => self.install(node, &install),
        }
    }

    fn lives(&self, node: NodeId) -> bool {
        self.hosts.process(node).is_some()
    }

    fn order(&mut self, node: NodeId) -> Option<&mut TotalOrder<Payload>> {
        self.hosts.actor_mut(node).map(|member| &mut member.order)
    }

    /// A new member, without a view.
    fn start(&mut self) -> NodeId {
        self.next_id += 1;
        let node = NodeId::new(self.next_id).expect("runs are short");
        self.hosts.add(node, Clock::default());
        self.hosts.start(node, Member::new(node, self.plan.window));
        self.hosts.plan_around(Some(self.plan.pace), Act::Say(node));
        node
    }

    fn say(&mut self, node: NodeId) -> Result<(), Violation> {
        if self.calm || !self.lives(node) {
            return Ok(());
        }
        let payload = self.checker.says(node);
        let said = self.order(node).expect(ALIVE).multicast(payload);
        self.hosts.plan_around(Some(self.plan.pace), Act::Say(node));
        match said {
            Ok(message) => {
                self.explored.multicasts += 1;
                self.hosts.say(format_args!(
                    "member {node} multicasts {payload:?}: {message:?}"
                ));
                self.send(node, &message);
                self.deliver(node)
            }
            Err(error) => {
                self.checker.is_not_said(payload);
                self.explored.full += u64::from(matches!(error, MulticastError::Full(_)));
                Ok(())
            }
        }
    }

    fn acknowledge(&mut self, node: NodeId) -> Result<(), Violation> {
        let message = self.order(node).and_then(TotalOrder::acknowledge);
        if let Some(message) = message {
            self.explored.acknowledgements += 1;
            self.send(node, &message);
        }
        Ok(())
    }

    fn send(&mut self, from: NodeId, message: &Message<Payload>) {
        let bytes = postcard::to_allocvec(message).expect("a message can be written");
        let prompt = message.kind() == "ACK";
        let now = self.hosts.now();
        let member = self.hosts.actor_mut(from).expect(ALIVE);
        // A member that was removed goes on with those that it knows.
        let peers: Vec<NodeId> = member.order.peers().collect();
        for to in peers {
            member.send(now, to, &bytes, prompt);
        }
        self.transmit(from);
    }

    /// Sends what a member's links want sent.
    fn transmit(&mut self, node: NodeId) {
        let now = self.hosts.now();
        let Some(process) = self.hosts.process(node) else {
            return;
        };
        let member = self.hosts.actor_mut(node).expect(ALIVE);
        let out = member.transmit(now);
        let due = member.next_timeout();
        for (to, datagram) in out {
            self.hosts.send(node, to, &datagram);
        }
        let at_once = (Duration::ZERO, Duration::ZERO);
        self.hosts.set_alarm(process, due, at_once);
    }

    fn arrive(
        &mut self,
        Process { node: to, .. }: Process,
        from: NodeId,
        datagram: Datagram,
    ) -> Result<(), Violation> {
        let now = self.hosts.now();
        let member = self.hosts.actor_mut(to).expect(ALIVE);
        let bodies = member.receive(now, from, datagram);
        self.transmit(to);
        for bytes in bodies {
            let message = postcard::from_bytes(&bytes).expect("links deliver what was sent");
            let order = self.order(to).expect(ALIVE);
            if let Err(error) = order.receive(from, message) {
                return Err(violation!(
                    now,
                    Order,
                    "member {to} does not take what {from} says: {error}"
                ));
            }
            if self.plan.patience == Duration::ZERO {
                self.acknowledge(to)?;
            } else {
                let patience = Some(self.plan.patience);
                self.hosts.plan_around(patience, Act::Acknowledge(to));
            }
            self.deliver(to)?;
        }
        Ok(())
    }

    fn deliver(&mut self, node: NodeId) -> Result<(), Violation> {
        let now = self.hosts.now();
        while let Some(delivery) = self.order(node).and_then(TotalOrder::deliver) {
            self.explored.deliveries += 1;
            let payload = delivery.payload;
            self.hosts.trace.mix_u64(now.as_nanos());
            self.hosts.trace.mix_u64(payload.1);
            self.hosts.say(format_args!(
                "member {node} delivers {payload:?} ({:?})",
                delivery.stamp
            ));
            if delivery.stamp.node != payload.0 {
                return Err(violation!(
                    now,
                    Order,
                    "{payload:?} is delivered as if from {}",
                    delivery.stamp.node
                ));
            }
            self.checker.delivers(now, node, payload)?;
        }
        Ok(())
    }

    /// Somebody crashes, unless nobody else would be left.
    fn crash(&mut self) {
        let alive = |node: &&NodeId| self.lives(**node);
        let bearers = self.views.bearers().iter().filter(alive).count();
        if self.calm || bearers < 2 {
            return;
        }
        let nodes: Vec<NodeId> = self.hosts.actors().map(|(node, _)| node).collect();
        let node = nodes[self.hosts.choices.index(nodes.len())];
        self.hosts.say(format_args!("member {node} crashes"));
        self.explored.crashes += 1;
        self.hosts.crash(node);
        if let Some((survivors, newcomers)) = self.views.crashed(node) {
            self.explored.given_up += 1;
            self.change_to(survivors, newcomers);
        }
    }

    /// Removes those who have crashed, and some others; and lets some in.
    fn change(&mut self) {
        if self.calm || !self.views.is_settled() {
            return;
        }
        let members = self.views.members().iter();
        let mut alive: Vec<NodeId> = members.copied().filter(|node| self.lives(*node)).collect();
        if alive.len() > 1 && self.hosts.choices.chance(self.plan.mistakes) {
            let mistaken = alive.swap_remove(self.hosts.choices.index(alive.len()));
            self.removed.insert(mistaken);
            self.explored.removed += 1;
        }
        let joins = self.hosts.choices.chance(self.plan.newcomers) && alive.len() < 6;
        let newcomers: Vec<NodeId> = (0..u8::from(joins)).map(|_| self.start()).collect();
        self.explored.joined += newcomers.len() as u64;
        self.change_to(alive, newcomers);
    }

    fn change_to(&mut self, survivors: Vec<NodeId>, newcomers: Vec<NodeId>) {
        let all: Vec<NodeId> = survivors.iter().chain(&newcomers).copied().collect();
        let epoch = self.views.change(survivors, newcomers);
        self.hosts
            .say(format_args!("epoch {epoch} is tried, with {all:?}"));
        for node in all {
            self.plan_soon(Act::Freeze(epoch, node));
        }
    }

    fn hear(
        &mut self,
        epoch: Epoch,
        node: NodeId,
        said: Undelivered<Payload>,
    ) -> Result<(), Violation> {
        let Some(decided) = self.views.hear(epoch, node, said) else {
            return Ok(());
        };
        self.explored.views += 1;
        let settled: Vec<Payload> = decided
            .install
            .undelivered()
            .map(|(_, payload)| *payload)
            .collect();
        self.explored.settled += settled.len() as u64;
        self.hosts
            .say(format_args!("epoch {epoch} is decided, after {settled:?}"));
        let who = (&decided.survivors[..], &decided.newcomers[..]);
        self.checker
            .decides(self.hosts.now(), decided.epoch, who, &settled)?;
        for node in decided.install.members() {
            self.plan_soon(Act::Install(*node, decided.install.clone()));
        }
        Ok(())
    }

    fn install(&mut self, node: NodeId, install: &Install<Payload>) -> Result<(), Violation> {
        let now = self.hosts.now();
        let Some(member) = self.hosts.actor_mut(node) else {
            return Ok(());
        };
        let before: Vec<NodeId> = member.order.peers().collect();
        if let Err(error) = member.order.install(install) {
            return Err(violation!(
                now,
                Views,
                "member {node} does not install the next view: {error}"
            ));
        }
        for peer in before {
            if !install.members().contains(&peer) {
                member.close(peer);
            }
        }
        self.views.is_installed(node);
        self.acknowledge(node)?;
        self.deliver(node)
    }

    fn plan_soon(&mut self, act: Act) {
        self.hosts.plan_around(Some(DELAY), act);
    }
}

/// What acts lives.
const ALIVE: &str = "it lives";
