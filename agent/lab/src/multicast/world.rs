//! The members, the time, and what befalls them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use super::super::checkers::{Violation, violation};
use super::super::choices::Choices;
use super::super::network::Network;
use super::super::queue::Queue;
use super::super::trace::Trace;
use super::checker::{Checker, Payload};
use super::post::{Datagram, Letter, Planned, Post};
use super::views::Views;
use super::{DELAY, Explored, Plan};
use distlock_protocol::multicast::{Install, Message, MulticastError, TotalOrder, Undelivered};
use distlock_protocol::{Epoch, NodeId, Time};

/// Once faults stop all must be done within this: far more than links take to try again.
const PATIENCE: Duration = Duration::from_secs(60);
/// No run takes as many steps.
const MAX_STEPS: u64 = 3_000_000;

#[derive(Debug)]
enum Happening {
    Arrival(Datagram),
    Wake(NodeId, NodeId),
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
    choices: Choices,
    now: Time,
    queue: Queue<Happening>,
    post: Post,
    views: Views,
    /// Those that live.
    members: BTreeMap<NodeId, TotalOrder<Payload>>,
    /// Those that live, and that the others have removed.
    removed: BTreeSet<NodeId>,
    next_id: u16,
    calm: bool,
    checker: Checker,
    explored: Explored,
    trace: Trace,
}

impl World {
    pub(super) fn new(plan: Plan, mut choices: Choices, trace: Trace) -> Self {
        let network = Network::new(plan.conditions, choices.fork());
        Self {
            plan,
            choices,
            now: Time::ZERO,
            queue: Queue::new(),
            post: Post::new(network),
            views: Views::new(),
            members: BTreeMap::new(),
            removed: BTreeSet::new(),
            next_id: 0,
            calm: false,
            checker: Checker::default(),
            explored: Explored::default(),
            trace,
        }
    }

    pub(super) fn run(mut self) -> Result<(Explored, u64), Violation> {
        let first = (0..self.plan.size).map(|_| self.start()).collect();
        self.change_to(Vec::new(), first);
        self.plan_next(self.plan.change, Happening::Change);
        self.plan_next(self.plan.crash, Happening::Crash);
        self.go_on(Time::ZERO + self.plan.unrest, |_| false)?;
        self.calm = true;
        self.post.heal();
        let end = self.now + PATIENCE;
        self.go_on(end, |world| world.views.is_settled())?;
        // Those who crashed must go before the others can deliver everything.
        let members = self.views.members();
        if members.iter().any(|node| !self.members.contains_key(node)) {
            let alive = members
                .iter()
                .filter(|node| self.members.contains_key(node));
            let alive = alive.copied().collect();
            self.change_to(alive, Vec::new());
        }
        self.go_on(end, Self::is_done)?;
        self.checker.ends(self.now, self.views.members())?;
        self.explored.lost_with_sender = self.checker.lost();
        self.explored.network_stats = self.post.network_stats();
        Ok((self.explored, self.trace.fingerprint()))
    }

    fn is_done(&self) -> bool {
        let members = self.views.members().iter();
        let mut orders = members.filter_map(|node| self.members.get(node));
        self.views.is_settled() && orders.all(|order| order.backlog() == 0)
    }

    /// Goes on until `is_over`, or `end`.
    fn go_on(&mut self, end: Time, is_over: impl Fn(&Self) -> bool) -> Result<(), Violation> {
        for _ in 0..MAX_STEPS {
            if is_over(self) {
                return Ok(());
            }
            let Some((at, happening)) = self.queue.pop_by(end) else {
                self.now = end;
                return Ok(());
            };
            self.now = at;
            self.take(happening)?;
        }
        Err(violation!(self.now, Restraint, "the run does not end"))
    }

    fn take(&mut self, happening: Happening) -> Result<(), Violation> {
        match happening {
            Happening::Arrival(datagram) => self.arrive(datagram),
            Happening::Wake(me, peer) => {
                let planned = self.post.wake(self.now, me, peer);
                self.plan_all(planned);
                Ok(())
            }
            Happening::Say(node) => self.say(node),
            Happening::Acknowledge(node) => self.acknowledge(node),
            Happening::Crash => {
                self.plan_next(self.plan.crash, Happening::Crash);
                self.crash();
                Ok(())
            }
            Happening::Change => {
                self.plan_next(self.plan.change, Happening::Change);
                self.change();
                Ok(())
            }
            Happening::Freeze(epoch, node) => {
                // What is late, of a view that was given up, stops nobody.
                let order = self.members.get_mut(&node);
                if let Some(Ok(said)) = order.map(|order| order.freeze(epoch)) {
                    self.plan_soon(Happening::Heard(epoch, node, said));
                }
                Ok(())
            }
            Happening::Heard(epoch, node, said) => self.hear(epoch, node, said),
            Happening::Install(node, install) => self.install(node, &install),
        }
    }

    /// A new member, without a view.
    fn start(&mut self) -> NodeId {
        self.next_id += 1;
        let node = NodeId::new(self.next_id).expect("runs are short");
        self.members
            .insert(node, TotalOrder::new(node, self.plan.window));
        self.plan_next(Some(self.plan.pace), Happening::Say(node));
        node
    }

    fn say(&mut self, node: NodeId) -> Result<(), Violation> {
        let Some(order) = self.members.get_mut(&node).filter(|_| !self.calm) else {
            return Ok(());
        };
        let payload = self.checker.says(node);
        let said = order.multicast(payload);
        self.plan_next(Some(self.plan.pace), Happening::Say(node));
        match said {
            Ok(message) => {
                self.explored.multicasts += 1;
                self.trace.say(
                    self.now,
                    format_args!("member {node} multicasts {payload:?}: {message:?}"),
                );
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
        let message = self
            .members
            .get_mut(&node)
            .and_then(TotalOrder::acknowledge);
        if let Some(message) = message {
            self.explored.acknowledgements += 1;
            self.send(node, &message);
        }
        Ok(())
    }

    fn send(&mut self, from: NodeId, message: &Message<Payload>) {
        let bytes = postcard::to_allocvec(message).expect("a message can be written");
        let prompt = message.kind() == "ACK";
        // A member that was removed goes on with those that it knows.
        let peers: Vec<NodeId> = self.members[&from].peers().collect();
        for to in peers {
            let planned = self.post.send(self.now, (from, to), &bytes, prompt);
            self.plan_all(planned);
        }
    }

    fn arrive(&mut self, datagram: Datagram) -> Result<(), Violation> {
        if !self.members.contains_key(&datagram.to()) {
            return Ok(());
        }
        let (letters, planned) = self.post.receive(self.now, datagram);
        self.plan_all(planned);
        for Letter { from, to, bytes } in letters {
            let message = postcard::from_bytes(&bytes).expect("links deliver what was sent");
            let order = self.members.get_mut(&to).expect("it lives");
            if let Err(error) = order.receive(from, message) {
                return Err(violation!(
                    self.now,
                    Order,
                    "member {to} does not take what {from} says: {error}"
                ));
            }
            if self.plan.patience == Duration::ZERO {
                self.acknowledge(to)?;
            } else {
                self.plan_next(Some(self.plan.patience), Happening::Acknowledge(to));
            }
            self.deliver(to)?;
        }
        Ok(())
    }

    fn deliver(&mut self, node: NodeId) -> Result<(), Violation> {
        let order = self.members.get_mut(&node).expect("it lives");
        while let Some(delivery) = order.deliver() {
            self.explored.deliveries += 1;
            let payload = delivery.payload;
            self.trace.mix_u64(self.now.as_nanos());
            self.trace.mix_u64(payload.1);
            self.trace.say(
                self.now,
                format_args!("member {node} delivers {payload:?} ({:?})", delivery.stamp),
            );
            if delivery.stamp.node != payload.0 {
                return Err(violation!(
                    self.now,
                    Order,
                    "{payload:?} is delivered as if from {}",
                    delivery.stamp.node
                ));
            }
            self.checker.delivers(self.now, node, payload)?;
        }
        Ok(())
    }

    /// Somebody crashes, unless nobody else would be left.
    fn crash(&mut self) {
        let alive = |node: &&NodeId| self.members.contains_key(node);
        let bearers = self.views.bearers().iter().filter(alive).count();
        let nodes: Vec<NodeId> = self.members.keys().copied().collect();
        if self.calm || bearers < 2 {
            return;
        }
        let node = nodes[self.choices.index(nodes.len())];
        self.trace
            .say(self.now, format_args!("member {node} crashes"));
        self.explored.crashes += 1;
        self.members.remove(&node);
        for peer in nodes {
            self.post.close(node, peer);
        }
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
        let mut alive: Vec<NodeId> = members
            .copied()
            .filter(|node| self.members.contains_key(node))
            .collect();
        if alive.len() > 1 && self.choices.chance(self.plan.mistakes) {
            let mistaken = alive.swap_remove(self.choices.index(alive.len()));
            self.removed.insert(mistaken);
            self.explored.removed += 1;
        }
        let joins = self.choices.chance(self.plan.newcomers) && alive.len() < 6;
        let newcomers: Vec<NodeId> = (0..u8::from(joins)).map(|_| self.start()).collect();
        self.explored.joined += newcomers.len() as u64;
        self.change_to(alive, newcomers);
    }

    fn change_to(&mut self, survivors: Vec<NodeId>, newcomers: Vec<NodeId>) {
        let all: Vec<NodeId> = survivors.iter().chain(&newcomers).copied().collect();
        let epoch = self.views.change(survivors, newcomers);
        self.trace.say(
            self.now,
            format_args!("epoch {epoch} is tried, with {all:?}"),
        );
        for node in all {
            self.plan_soon(Happening::Freeze(epoch, node));
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
        self.trace.say(
            self.now,
            format_args!("epoch {epoch} is decided, after {settled:?}"),
        );
        let who = (&decided.survivors[..], &decided.newcomers[..]);
        self.checker
            .decides(self.now, decided.epoch, who, &settled)?;
        for node in decided.install.members() {
            self.plan_soon(Happening::Install(*node, decided.install.clone()));
        }
        Ok(())
    }

    fn install(&mut self, node: NodeId, install: &Install<Payload>) -> Result<(), Violation> {
        let Some(order) = self.members.get_mut(&node) else {
            return Ok(());
        };
        let before: Vec<NodeId> = order.peers().collect();
        if let Err(error) = order.install(install) {
            return Err(violation!(
                self.now,
                Views,
                "member {node} does not install the next view: {error}"
            ));
        }
        for peer in before {
            if !install.members().contains(&peer) {
                self.post.close(node, peer);
            }
        }
        self.views.is_installed(node);
        self.acknowledge(node)?;
        self.deliver(node)
    }

    fn plan_all(&mut self, planned: Vec<(Time, Planned)>) {
        for (at, planned) in planned {
            let happening = match planned {
                Planned::Arrival(datagram) => Happening::Arrival(datagram),
                Planned::Wake(me, peer) => Happening::Wake(me, peer),
            };
            self.queue.plan(at, happening);
        }
    }

    fn plan_soon(&mut self, happening: Happening) {
        self.plan_next(Some(DELAY), happening);
    }

    fn plan_next(&mut self, mean: Option<Duration>, happening: Happening) {
        if let Some(mean) = mean {
            let after = self.choices.exponential(mean);
            self.queue.plan(self.now + after, happening);
        }
    }
}
