//! What goes into processes, what comes out of them, and what their callers do.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use super::channels::{Parcel, Way};
use super::lock::Caller;
use super::logs::Logs;
use super::world::{Happening, World};
use crate::checkers::{Process, Violation, violation};
use distlock_protocol::membership::quorum::{Quorum, QuorumMessage, VoterRecord};
use distlock_protocol::membership::{Action, ViewMessage};
use distlock_protocol::{Epoch, NodeId, Time};

/// Inputs of all processes in one run; many times what the longest of them needs.
const STEPS: u64 = 5_000_000;

impl World {
    pub(super) fn arrive(
        &mut self,
        from: NodeId,
        to: NodeId,
        message: QuorumMessage,
    ) -> Result<(), Violation> {
        let Some(process) = self.process(to) else {
            return Ok(());
        };
        self.trace.say(
            self.now,
            format_args!("{process} gets from {from}: {message:?}"),
        );
        self.greet(process, from)?;
        self.input(process, |quorum, now| quorum.receive(now, from, message))
    }

    /// The first message of each life of a peer is greeted, as links do.
    fn greet(&mut self, process: Process, peer: NodeId) -> Result<(), Violation> {
        let life = self.hosts[&peer].life;
        let Some((running, _)) = self.running(process) else {
            return Ok(());
        };
        if peer == process.node || running.met.insert(peer, life) == Some(life) {
            return Ok(());
        }
        self.input(process, |quorum, now| quorum.meet(now, peer))
    }

    /// What an engine said arrives at its host.
    pub(super) fn carry(&mut self, way: Way, parcel: Parcel) -> Result<(), Violation> {
        let (number, epoch, message) = parcel;
        if !self.channels.arrives(way, number) {
            return Ok(());
        }
        self.dispatch(way);
        let (from, to) = way;
        let Some(process) = self.process(to) else {
            return Ok(());
        };
        self.trace.say(
            self.now,
            format_args!("{process} gets from {from}: {message:?}"),
        );
        if let Some((running, _)) = self.running(process) {
            running.lock.receive(from.node, epoch, message);
        }
        self.follow(process)
    }

    /// Sends what is first on its way; what gets lost is sent again.
    pub(super) fn dispatch(&mut self, way: Way) {
        let Some(parcel) = self.channels.first(way).cloned() else {
            return;
        };
        let (from, to) = way;
        for arrival in self.network.send(self.now, from.node, to) {
            let carried = Happening::Carried(way, parcel.clone());
            self.queue.plan(arrival.at, carried);
        }
        self.plan_in(self.plan.lease / 20, Happening::Resend(way, parcel.0));
    }

    /// Number `number` was sent a while ago.
    pub(super) fn resend(&mut self, way: Way, number: u64) {
        if self
            .channels
            .first(way)
            .is_some_and(|first| first.0 == number)
        {
            self.dispatch(way);
        }
    }

    pub(super) fn hop(&mut self, process: Process, number: u64) -> Result<(), Violation> {
        if let Some((running, _)) = self.running(process) {
            running.lock.hop(number);
        }
        self.follow(process)
    }

    pub(super) fn ring(&mut self, process: Process, at: Time) -> Result<(), Violation> {
        match self.running(process) {
            Some((running, _)) if running.alarm == Some(at) => running.alarm = None,
            _ => return Ok(()),
        }
        self.input(process, |quorum, now| quorum.timeout(now))
    }

    pub(super) fn voter_written(&mut self, process: Process) -> Result<(), Violation> {
        let Some((running, _)) = self.running(process) else {
            return Ok(());
        };
        let record = running.writing.take();
        self.hosts.get_mut(&process.node).expect("a host").disk = record;
        self.input(process, |quorum, now| quorum.voter_persisted(now))
    }

    pub(super) fn input(
        &mut self,
        process: Process,
        give: impl FnOnce(&mut Quorum<Logs>, Time) -> Vec<Action>,
    ) -> Result<(), Violation> {
        self.explored.steps += 1;
        if self.explored.steps > STEPS {
            return Err(violation!(
                self.now,
                Restraint,
                "this run takes too many steps"
            ));
        }
        let now = self.now;
        let Some((running, clock)) = self.running(process) else {
            return Ok(());
        };
        let mut actions = VecDeque::from(give(&mut running.quorum, clock.shows(now)));
        while let Some(action) = actions.pop_front() {
            if let Some(more) = self.act(process, action)? {
                actions.extend(more);
            }
        }
        self.follow(process)?;
        self.set_alarm(process);
        Ok(())
    }

    pub(super) fn act(
        &mut self,
        process: Process,
        action: Action,
    ) -> Result<Option<Vec<Action>>, Violation> {
        let now = self.now;
        let disk = self.plan.disk;
        match &action {
            Action::Send(..) => {}
            other => self.trace.say(now, format_args!("{process}: {other:?}")),
        }
        let after = self.choices.duration(Duration::ZERO..=disk);
        let Some((running, clock)) = self.running(process) else {
            return Ok(None);
        };
        match action {
            Action::Send(to, message) => {
                let ViewMessage::Quorum(message) = message else {
                    unreachable!("quorum views say nothing else");
                };
                if let QuorumMessage::Status(status) = &*message
                    && let Some(endorsement) = status.endorsed
                {
                    self.checker
                        .endorsements
                        .endorses(now, status.voter, endorsement)?;
                }
                self.send(process.node, to, *message);
            }
            Action::Freeze => running.lock.freeze(),
            Action::Persist(_) => self.plan_in(after, Happening::EpochWritten(process)),
            Action::PersistVoter(record) => {
                if running.writing.replace(*record).is_some() {
                    return Err(violation!(
                        now,
                        Durability,
                        "{process} persists twice at a time"
                    ));
                }
                self.plan_in(after, Happening::VoterWritten(process));
            }
            // Members write it and what follows it in one order.
            Action::PersistAffiliation(affiliation) => {
                let local = clock.shows(now);
                let more = running.quorum.affiliation_persisted(local);
                let host = self.hosts.get_mut(&process.node).expect("a host");
                host.affiliation = Some(*affiliation);
                return Ok(Some(more));
            }
            Action::Summarise(unclean) => {
                let summary = running.lock.summary(&unclean);
                let local = clock.shows(now);
                return Ok(Some(running.quorum.summarised(local, summary)));
            }
            Action::Install(view, table) => {
                running.lock.install(view.clone(), &table);
                self.trace.mix_u64(u64::from(view.epoch.as_u32()));
                self.checker.installs(now, process, &view, &table)?;
                self.note_epoch(process, view.epoch);
            }
            Action::Lease(until) => {
                running.lapsed = false;
                self.checker.extends(now, process, until)?;
            }
            Action::Excluded(epoch) => {
                self.explored.exclusions += 1;
                self.checker.leaves(process);
                self.trace
                    .say(now, format_args!("{process} is excluded by epoch {epoch}"));
                self.crash(process.node, "begins anew");
                self.plan_in(Duration::ZERO, Happening::Start(process.node));
            }
            Action::Members(_) => {}
            Action::Stranger { peer, .. } => {
                return Err(violation!(
                    now,
                    Views,
                    "{process} takes {peer} to be in another cluster, but there is none"
                ));
            }
            Action::Broken(why) => {
                return Err(violation!(
                    now,
                    Views,
                    "{process}: the log is broken: {why}"
                ));
            }
        }
        Ok(None)
    }

    /// Notes that a view is in force, and what it tells about voters.
    pub(super) fn note_epoch(&mut self, process: Process, epoch: Epoch) {
        if self.epochs.contains_key(&epoch) {
            return;
        }
        let records = self.hosts.values().filter_map(|host| host.disk.as_ref());
        let view_config = records
            .filter_map(VoterRecord::view_config)
            .find(|view_config| view_config.epoch == epoch);
        let Some(view_config) = view_config else {
            return;
        };
        let _ = process;
        let before = self
            .epochs
            .last_key_value()
            .map(|(_, voters)| voters.clone());
        self.explored.views += 1;
        self.explored.new_voters += u64::from(before.is_some_and(|it| it != view_config.voters));
        if let Some(node) = self.reborn
            && let Some(record) = &self.hosts[&node].disk
            && view_config.voters.contains(&record.voter(node))
        {
            self.reborn = None;
        }
        self.epochs.insert(epoch, view_config.voters.clone());
    }

    pub(super) fn send(&mut self, from: NodeId, to: NodeId, message: QuorumMessage) {
        self.trace.mix_u64(self.now.as_nanos());
        if !self.hosts.contains_key(&to) {
            return;
        }
        for arrival in self.network.send(self.now, from, to) {
            let message = message.clone();
            let arrival_of = Happening::Arrival { from, to, message };
            self.queue.plan(arrival.at, arrival_of);
        }
    }

    pub(super) fn beat(&mut self, process: Process) -> Result<(), Violation> {
        let (now, calm) = (self.now, self.calm);
        let wants = self.choices.chance(300);
        let wishes = self.choices.chance(self.plan.wishes) && !calm;
        let entered = self.entered.contains(&process.node);
        let Some((running, clock)) = self.running(process) else {
            return Ok(());
        };
        if (wants && !calm || calm && !entered) && !running.leaves {
            running.lock.want(clock.shows(now));
        }
        let wishes = wishes || core::mem::take(&mut running.lock.wants_view);
        self.plan_in(self.plan.lease / 20, Happening::Beat(process));
        if wishes {
            return self.input(process, |quorum, now| quorum.want_view(now));
        }
        self.follow(process)
    }

    pub(super) fn exit(&mut self, process: Process) -> Result<(), Violation> {
        self.checker.leaves(process);
        if let Some((running, _)) = self.running(process) {
            running.lock.exit();
        }
        self.follow(process)
    }

    /// Sends what the lock has to send, and lets its caller in if it may.
    pub(super) fn follow(&mut self, process: Process) -> Result<(), Violation> {
        let now = self.now;
        let Some((running, _)) = self.running(process) else {
            return Ok(());
        };
        let said = core::mem::take(&mut running.lock.out);
        if let Some((stay, number)) = running.lock.hop_in.take() {
            self.plan_in(stay, Happening::Hop(process, number));
        }
        for (to, epoch, message) in said {
            let way = (process, to);
            if self.channels.push(way, epoch, message) {
                self.dispatch(way);
            }
        }
        let Some((running, clock)) = self.running(process) else {
            return Ok(());
        };
        let until = running.quorum.lease_ends();
        let is_valid = clock.shows(now) < until;
        match running.lock.caller() {
            Caller::Granted(_, fence) if is_valid && !running.leaves => {
                running.lock.enter();
                self.explored.entries += 1;
                self.trace.mix_u64(fence.as_u64());
                self.trace
                    .say(now, format_args!("{process} enters with fence {fence}"));
                if self.calm {
                    self.entered.insert(process.node);
                }
                let stay = self.choices.exponential(self.plan.stay);
                self.plan_in(stay, Happening::Exit(process));
                self.checker.enters(now, process, (clock, until), fence)
            }
            Caller::Inside(_) if !is_valid && !running.lapsed => {
                running.lapsed = true;
                self.explored.lapses += 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    pub(super) fn set_alarm(&mut self, process: Process) {
        let (now, lateness) = (self.now, self.plan.lateness);
        let late = self.choices.duration(Duration::ZERO..=lateness);
        let Some((running, clock)) = self.running(process) else {
            return;
        };
        let due = running.quorum.next_timeout(clock.shows(now));
        let due = due.map(|local| clock.when(local).max(now));
        match (due, running.alarm) {
            (None, _) => running.alarm = None,
            (Some(due), Some(set)) if due <= set && set <= due + lateness => {}
            (Some(due), _) => {
                let at = due + late;
                running.alarm = Some(at);
                self.queue.plan(at, Happening::Alarm(process, at));
            }
        }
    }
}
