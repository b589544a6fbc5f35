//! One step from a state to the next.

mod beginning;
mod goals;

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

pub(super) use self::beginning::begin;
use super::checker::Checker;
use super::host::Running;
use super::{
    Action, CRASHED_INSIDE, Caller, Change, ENDORSED_REBORN, ENTERED, EXCLUDED, Flight, Host,
    LAPSED, LEASE, RIVALS, State, TAKEN_OVER, ViewModel,
};
use crate::checkers::{Process, Violation, violation};
use crate::model::locks::{Letter, Network, Said};
use crate::model::{Goal, member, place};
use distlock_protocol::membership::quorum::{QuorumMessage, ViewChange, ViewConfig};
use distlock_protocol::membership::{Action as Effect, Member, ViewMessage};
use distlock_protocol::{Event, NodeId, Release, Time};

type Checked = Result<(), Violation>;

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
                .change(local, distlock_protocol::Change::Voters(voters), Time::MAX)
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
        if waits.is_some_and(|until| until > local) {
            self.note_wait();
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
            Effect::Unlisted(members) => {
                unreachable!("quorum views know all members: {members:?}")
            }
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
