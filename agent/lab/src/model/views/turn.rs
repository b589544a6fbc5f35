//! One step from a state to the next.

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::checker::Checker;
use super::host::{Air, Running};
use super::{
    ANOTHER_LEADS, Action, CRASHED_INSIDE, Caller, Change, DEPARTED, ENDORSED_REBORN, ENTERED,
    EXCLUDED, Flight, Host, LAPSED, LEASE, NEXT_VIEW, OTHER_VOTERS, Plans, REPLACED, RIVALS, State,
    TAKEN_OVER, ViewModel, WAITED,
};
use crate::checkers::{Process, Violation, violation};
use crate::clock::Clock;
use crate::model::locks::{Letter, Network, Post, Said};
use crate::model::pool::Shared;
use crate::model::{Goal, Seen, member, nodes, place};
use distlock_protocol::membership::quorum::{QuorumMessage, ViewChange, ViewConfig, Voter};
use distlock_protocol::membership::{Action as Effect, Member, View, ViewMessage};
use distlock_protocol::{Event, NodeId, Release, Time};

type Checked = Result<(), Violation>;

/// How much a clock gains or loses at most, in millionths; W allows for 100,000.
const DRIFT: i32 = 99_999;

/// The first view is in force everywhere, with a lease everywhere.
pub(super) fn begin(model: &ViewModel) -> State {
    let pool = &model.pool;
    let drifts = [DRIFT, -DRIFT, 0];
    let hosts = nodes(model.hosts).zip(drifts).map(|(node, drift_ppm)| {
        pool.hosts.share(Host {
            process: Process {
                node,
                incarnation: 0,
            },
            clock: Clock {
                drift_ppm,
                ..Clock::default()
            },
            disk: None,
            affiliation: None,
            running: None,
        })
    });
    let mut state = State {
        now: Time::ZERO + LEASE,
        hosts: hosts.collect(),
        air: pool.airs.share(Air::default()),
        post: pool.posts.share(Post::default()),
        plans: pool.plans.share(Plans::default()),
        left: model.bounds,
        checker: pool.checkers.share(Checker::default()),
        broken: None,
        seen: Seen::default(),
    };
    let step = |state: &State, action| Turn::new(model, state).finish(|turn| turn.play(action));
    state.left.restarts = u8::MAX;
    for node in nodes(model.hosts) {
        state = step(&state, Action::Restart(node));
    }
    // Everything happens at once, and then time passes.
    for _ in 0..200 {
        for _ in 0..10_000 {
            let written = nodes(model.hosts).find(|node| {
                let running = state.host(*node).running.as_ref();
                running.is_some_and(|running| running.writing.is_some())
            });
            let arrives = state.air.flights().next();
            let next = written.map(Action::Written);
            let arrive = |(from, to, kind)| Action::Arrive(from, to, kind, false);
            let Some(next) = next.or(arrives.map(arrive)) else {
                break;
            };
            state = step(&state, next);
        }
        assert!(state.broken.is_none(), "{:?}", state.broken);
        let is_ready = |host: &Host| {
            let view = host.running.as_ref().and_then(|it| it.quorum.view());
            view.is_some_and(|view| view.members.len() == state.hosts.len())
                && host.lease_ends().is_some_and(|at| at > state.now)
                && host
                    .running
                    .as_ref()
                    .is_some_and(|it| it.quorum.certified().is_some())
        };
        if state.hosts.iter().all(|host| is_ready(host)) {
            state.left = model.bounds;
            state.seen = Seen::default();
            let running = state.hosts[0].running.as_ref();
            let certified = running.and_then(|it| it.quorum.certified());
            let first = certified.expect("it is ready").view_config.clone();
            model.first.set(first).expect("there is one beginning");
            return state;
        }
        state.now = state.now + LEASE / 20;
        for node in nodes(model.hosts) {
            state = step(&state, Action::Wake(node));
        }
    }
    unreachable!("a group without faults comes to a view")
}

/// A state that is being changed.
pub(super) struct Turn<'a> {
    model: &'a ViewModel,
    state: State,
    checker: Checker,
}

impl<'a> Turn<'a> {
    pub(super) fn new(model: &'a ViewModel, state: &State) -> Self {
        Self {
            model,
            checker: (*state.checker).clone(),
            state: state.clone(),
        }
    }

    pub(super) fn finish(mut self, step: impl FnOnce(&mut Self) -> Checked) -> State {
        self.state.broken = step(&mut self).err().map(Box::new);
        self.tidy();
        self.state.checker = self.model.pool.checkers.share(self.checker);
        self.state
    }

    fn note(&mut self, goal: Goal) {
        self.state.seen.note(goal);
    }

    pub(super) fn play(&mut self, action: Action) -> Checked {
        let now = self.state.now;
        match action {
            Action::Crash(node, kept) => {
                self.crash(node, kept);
                Ok(())
            }
            Action::Restart(node) => self.restart(node),
            Action::Lose(node) => {
                self.state.left.losses -= 1;
                let mut host = self.take(node);
                (host.disk, host.affiliation) = (None, None);
                self.put(host);
                self.restart(node)
            }
            Action::Depart(node) => {
                self.state.left.departures -= 1;
                self.input(node, |running, local| {
                    running.departs = true;
                    running.quorum.leave(local)
                })
            }
            Action::Revote(node, voter) => self.revote(node, voter),
            Action::Quarter => self.pass(now + LEASE / 4),
            Action::Leap => {
                let next = self.state.next_moment();
                self.pass(next.unwrap_or(now))
            }
            Action::Propose(node, change) => {
                self.propose(node, change);
                Ok(())
            }
            Action::Decide(node, at) => {
                let mut plans = (*self.state.plans).clone();
                plans.0[at].1.insert(node);
                let step = plans.0[at].0.clone();
                self.state.plans = self.model.pool.plans.share(plans);
                let decided = QuorumMessage::Decided(Box::new(step));
                self.input(node, |running, local| {
                    running.quorum.receive(local, node, decided)
                })
            }
            Action::Written(node) => {
                let mut host = self.take(node);
                let written = host.running.as_mut().and_then(|it| it.writing.take());
                host.disk = written.map(|record| *record);
                self.put(host);
                self.input(node, |running, local| running.quorum.voter_persisted(local))
            }
            Action::Wake(node) => self.input(node, |running, local| running.quorum.timeout(local)),
            Action::Want(node) => {
                let mut host = self.take(node);
                let said = host.running.as_mut().map(|running| running.seat.ask());
                self.put(host);
                self.said(node, said.unwrap_or_default())
            }
            Action::Leave(node) => {
                self.checker.leaves(self.state.host(node).process);
                let mut host = self.take(node);
                let said = host.running.as_mut().map(|running| {
                    running.caller = Caller::Outside;
                    running.seat.leave(Release::Given)
                });
                self.put(host);
                self.said(node, said.unwrap_or_default())
            }
            Action::Arrive(from, to, kind, again) => self.arrive((from, to, kind), again),
            Action::Carry(from, to) => {
                let mut post = (*self.state.post).clone();
                let message = post.letter(from, to, 0).message.clone();
                post.remove(from, to, 0);
                self.state.post = self.model.pool.posts.share(post);
                let mut host = self.take(to);
                let running = host.running.as_mut();
                let said = running.map(|running| running.seat.receive(from, message));
                self.put(host);
                self.said(to, said.unwrap_or_default())
            }
        }
    }

    fn take(&self, node: NodeId) -> Host {
        (**self.state.host(node)).clone()
    }

    fn put(&mut self, host: Host) {
        let node = host.node();
        self.state.hosts[place(node)] = self.model.pool.hosts.share(host);
    }

    fn crash(&mut self, node: NodeId, kept: bool) {
        self.state.left.crashes -= 1;
        let mut host = self.take(node);
        if let Some(running) = host.running.take() {
            if let Some(record) = running.writing.filter(|_| kept) {
                host.disk = Some(*record);
            }
            // Its clients go on as long as they have a lease; the checker remembers them.
            if running.caller == Caller::Inside {
                self.note(CRASHED_INSIDE);
            }
        }
        self.put(host);
    }

    fn restart(&mut self, node: NodeId) -> Checked {
        self.state.left.restarts -= 1;
        // What the former incarnation said is of no link of this one.
        let mut post = (*self.state.post).clone();
        post.retain(|from, _, _| from != node);
        self.state.post = self.model.pool.posts.share(post);
        let mut host = self.take(node);
        let ViewModel {
            hosts,
            algorithm,
            deciding,
            ..
        } = *self.model;
        let effects = host.start(self.state.now, hosts, algorithm, deciding);
        self.put(host);
        self.carry_out(node, effects)
    }

    /// As `distlock members voters`: all that are to vote are named.
    fn revote(&mut self, node: NodeId, voter: NodeId) -> Checked {
        self.state.left.revotes -= 1;
        self.input(node, |running, local| {
            let certified = running.quorum.certified();
            let wanted = certified.map(|it| it.view_config.overrides.voters.clone());
            let Some(mut voters) = wanted else {
                return Vec::new();
            };
            if !voters.remove(&voter) {
                voters.insert(voter);
            }
            if voters.is_empty() {
                return Vec::new();
            }
            running
                .quorum
                .change(local, distlock_protocol::Change::Voters(voters))
        })
    }

    fn pass(&mut self, until: Time) -> Checked {
        self.state.left.leaps -= 1;
        self.state.now = until;
        let lapsed = self.state.hosts.iter().any(|host| {
            let inside = host
                .running
                .as_ref()
                .is_some_and(|it| it.caller == Caller::Inside);
            inside && host.lease_ends().is_none_or(|at| at <= until)
        });
        if lapsed {
            self.note(LAPSED);
        }
        Ok(())
    }

    /// As [`Proposer`](distlock_protocol::membership::quorum) would, but for no reason at all.
    fn propose(&mut self, node: NodeId, change: Change) {
        self.state.left.proposals -= 1;
        let host = self.state.host(node);
        let certified = host.running.as_ref().and_then(|it| it.quorum.certified());
        let parent = &certified.expect("it is certified").view_config;
        let members: Vec<Member> = match change {
            Change::Nothing => parent.members.clone(),
            Change::Without(other) => {
                let members = parent.members.iter().copied();
                members.filter(|its| its.node != other).collect()
            }
            Change::Present => {
                let present = self.state.hosts.iter().filter(|it| it.running.is_some());
                present.map(|it| member(it.process)).collect()
            }
        };
        let epoch = parent.epoch.next().expect("few views");
        let lost = parent.members.iter().filter(|its| !members.contains(its));
        let unclean: BTreeSet<NodeId> = lost.map(|its| its.node).collect();
        // Whether the parent has come into force everywhere nobody asks here: more may be lost than
        // was, never less.
        let unclean = unclean.into_iter().chain(parent.unclean.iter().copied());
        let unclean: BTreeSet<NodeId> = unclean.collect();
        let since = members.iter().map(|its| parent.member_since(*its));
        let view_config = ViewConfig {
            cluster: parent.cluster,
            epoch,
            parent: parent.digest(),
            since: since.map(|since| since.unwrap_or(epoch)).collect(),
            members,
            voters: parent.voters.clone(),
            coordinator: member(host.process),
            unclean: unclean.into_iter().collect(),
            overrides: parent.overrides.clone(),
            abandons: parent.abandons.clone(),
        };
        let step = ViewChange {
            parent: Some(parent.clone()),
            view_config,
        };
        let mut plans = (*self.state.plans).clone();
        if plans.0.iter().all(|(known, _)| *known != step) {
            plans.0.push((step, BTreeSet::new()));
        }
        self.state.plans = self.model.pool.plans.share(plans);
    }

    fn arrive(&mut self, flight: Flight, again: bool) -> Checked {
        let message = (**self.state.air.message(flight)).clone();
        if again {
            self.state.left.twice -= 1;
        } else {
            let mut air = (*self.state.air).clone();
            air.remove(flight);
            self.state.air = self.model.pool.airs.share(air);
        }
        let (from, to, _) = flight;
        self.input(to, |running, local| {
            running.quorum.receive(local, from, message)
        })
    }

    fn input(
        &mut self,
        node: NodeId,
        give: impl FnOnce(&mut Running, Time) -> Vec<Effect>,
    ) -> Checked {
        let mut host = self.take(node);
        let local = host.clock.shows(self.state.now);
        let Some(running) = &mut host.running else {
            return Ok(());
        };
        let effects = give(running, local);
        let waits = running.quorum.waits_until(local);
        self.put(host);
        let is_gone = |process: &Process| {
            let host = self.state.host(process.node);
            host.process != *process || host.running.is_none()
        };
        if waits.is_some_and(|until| until > local)
            && self.checker.is_inside(self.state.now, is_gone)
        {
            self.note(WAITED);
        }
        self.carry_out(node, effects)
    }

    fn carry_out(&mut self, node: NodeId, effects: Vec<Effect>) -> Checked {
        let mut effects = VecDeque::from(effects);
        while let Some(effect) = effects.pop_front() {
            effects.extend(self.effect(node, effect)?);
        }
        self.enter(node)
    }

    fn effect(&mut self, node: NodeId, effect: Effect) -> Result<Vec<Effect>, Violation> {
        let now = self.state.now;
        let mut host = self.take(node);
        let (process, local) = (host.process, host.clock.shows(now));
        let Some(running) = &mut host.running else {
            return Ok(Vec::new());
        };
        let (mut more, mut said) = (Vec::new(), Said::default());
        match effect {
            Effect::Send(to, ViewMessage::Quorum(message)) => {
                self.send(process, to, *message)?;
            }
            Effect::Send(_, other) => unreachable!("quorum views do not say {other:?}"),
            Effect::Freeze => said = running.seat.freeze(),
            Effect::Persist(_) => more = running.quorum.persisted(local),
            Effect::PersistAffiliation(affiliation) => {
                host.affiliation = Some(*affiliation);
                more = running.quorum.affiliation_persisted(local);
            }
            Effect::PersistVoter(record) => {
                if running.writing.replace(record).is_some() {
                    return Err(violation!(
                        now,
                        Durability,
                        "{process} writes twice at a time"
                    ));
                }
            }
            Effect::Summarise(next) => {
                let summary = running.seat.summary(&next);
                more = running.quorum.summarised(local, summary);
            }
            Effect::Install(view, table) => {
                self.checker.installs(now, process, &view, &table)?;
                said = running.seat.install(&view, &table);
                let certified = running.quorum.certified().map(|it| it.view_config.clone());
                self.note_view(&view, certified);
            }
            Effect::Lift => said = running.seat.lift(),
            Effect::Lease(until) => self.checker.extends(now, process, until)?,
            Effect::Excluded(_) => {
                self.note(EXCLUDED);
                self.checker.leaves(process);
                host.running = None;
            }
            Effect::Members(_) => {}
            Effect::Stranger { peer, .. } => {
                return Err(violation!(
                    now,
                    Views,
                    "{process} takes {peer} to be in another cluster, but there is none"
                ));
            }
            Effect::Broken(why) => {
                return Err(violation!(
                    now,
                    Views,
                    "{process}: the log is broken: {why}"
                ));
            }
        }
        self.put(host);
        self.said(node, said)?;
        Ok(more)
    }

    /// A view has come into force; `certified`: the newest that is known to be certified there.
    fn note_view(&mut self, view: &View, certified: Option<ViewConfig>) {
        let Some(first) = self.model.first.get() else {
            return;
        };
        if view.epoch <= first.epoch {
            return;
        }
        self.note(NEXT_VIEW);
        let departs = |host: &Host| host.running.as_ref().is_some_and(|it| it.departs);
        let has_departed =
            |host: &Shared<Host>| departs(host) && !view.nodes().any(|node| node == host.node());
        if self.state.hosts.iter().any(has_departed) {
            self.note(DEPARTED);
        }
        let Some(config) = certified.filter(|config| config.epoch == view.epoch) else {
            return;
        };
        if config.coordinator.node != first.coordinator.node {
            self.note(ANOTHER_LEADS);
        }
        let voters = |config: &ViewConfig| -> BTreeSet<NodeId> {
            config.voters.iter().map(|voter| voter.node).collect()
        };
        if voters(&config) != voters(first) {
            self.note(OTHER_VOTERS);
        }
        let is_new = |voter: &Voter| voter.birth.0 > 1;
        if config.voters.iter().any(is_new) {
            self.note(REPLACED);
        }
    }

    fn send(&mut self, process: Process, to: NodeId, message: QuorumMessage) -> Checked {
        if let QuorumMessage::Status(status) = &message
            && let Some(endorsement) = status.endorsed
        {
            let checker = &mut self.checker;
            checker
                .endorsements
                .endorses(self.state.now, status.voter, endorsement)?;
            if checker.endorsements.has_rivals(endorsement.epoch) {
                self.note(RIVALS);
            }
            let first = self.model.first.get();
            let is_later = first.is_some_and(|first| endorsement.epoch > first.epoch);
            if process.incarnation > 1 && is_later {
                self.note(ENDORSED_REBORN);
            }
        }
        let message = self.model.pool.messages.share(message);
        let mut air = (*self.state.air).clone();
        air.push(process.node, to, message);
        self.state.air = self.model.pool.airs.share(air);
        Ok(())
    }

    /// What the engine said goes on its way, and its caller goes in if it may.
    fn said(&mut self, node: NodeId, said: Said) -> Checked {
        let mut host = self.take(node);
        let Some(running) = &mut host.running else {
            return Ok(());
        };
        for event in said.events {
            if let Event::Granted { fence, .. } = event {
                running.caller = Caller::Granted(fence);
            }
        }
        let epoch = running.seat.epoch();
        self.put(host);
        for (to, message) in said.sends {
            let epoch = epoch.expect("engines speak in views");
            let letter = self.model.pool.letters.share(Letter { epoch, message });
            let mut post = (*self.state.post).clone();
            for &to in &*to {
                post.push(node, to, letter.clone(), Network::Links);
            }
            self.state.post = self.model.pool.posts.share(post);
        }
        self.enter(node)
    }

    fn enter(&mut self, node: NodeId) -> Checked {
        let now = self.state.now;
        let mut host = self.take(node);
        let (process, clock) = (host.process, host.clock);
        let Some(running) = &mut host.running else {
            return Ok(());
        };
        let until = running.quorum.lease_ends();
        let Caller::Granted(fence) = running.caller else {
            return Ok(());
        };
        if clock.shows(now) >= until {
            return Ok(());
        }
        running.caller = Caller::Inside;
        self.put(host);
        self.note(ENTERED);
        if self.state.seen.has(CRASHED_INSIDE) {
            self.note(TAKEN_OVER);
        }
        self.checker.enters(now, process, (clock, until), fence)
    }

    /// Takes away what nobody will ever take in, so that states do not differ by it.
    fn tidy(&mut self) {
        let state = &self.state;
        let mut post = (*state.post).clone();
        post.retain(|_, to, letter| {
            let running = state.host(to).running.as_ref();
            running.is_some_and(|running| !running.seat.is_past(letter.epoch))
        });
        self.state.post = self.model.pool.posts.share(post);
    }
}
