//! The steps of the nodes: what comes to one, and what it gives out.

use alloc::vec::Vec;
use core::time::Duration;

use super::{Cluster, Datagram, Turn};
use crate::checkers::{Process, Violation, violation};
use crate::dissect;
use crate::history::What;
use distlock_protocol::ids::Incarnation;
use distlock_protocol::wire::decode;
use distlock_protocol::{Epoch, Event, Input, Node, NodeId, Output, Record, Ticket};

/// More outputs than any input has: who gives out more goes on for ever.
const MOST_OUTPUTS: u32 = 100_000;

impl<A> Cluster<A> {
    pub(super) fn arrive(
        &mut self,
        process: Process,
        from: NodeId,
        Datagram { bytes, messages }: &Datagram,
    ) -> Result<(), Violation> {
        let (now, trace) = (self.now(), &mut self.hosts.trace);
        for message in messages.clone() {
            trace.record(now, process.node, What::Received { message });
        }
        if trace.is_read() {
            let words = dissect::in_words(&self.settings.group, bytes);
            trace.say(now, format_args!("{process} gets from {from}: {words}"));
        }
        self.input(process, Input::Datagram { from, bytes })
    }

    pub(super) fn written(&mut self, process: Process) -> Result<(), Violation> {
        if self.hosts.trace.is_read() {
            let record = self.disk(process.node).cloned();
            self.say(format_args!("{process} has on disk {record:?}"));
        }
        self.input(process, Input::Persisted)
    }

    /// One step of one node, and all that follows from it at once.
    pub(super) fn input(&mut self, process: Process, input: Input<'_>) -> Result<(), Violation> {
        self.hosts.count_step()?;
        if !self.handle(process, input) {
            return Ok(());
        }
        self.drain(process)?;
        if self.hosts.choices.chance(self.surroundings.early)
            && self.handle(process, Input::Timeout)
        {
            self.drain(process)?;
        }
        if self.tells_steps {
            self.turns.push_back(Turn::Stepped(process));
        }
        Ok(())
    }

    /// Gives an input to a process; whether that runs.
    fn handle(&mut self, process: Process, input: Input<'_>) -> bool {
        let local = self.hosts.clock(process.node).shows(self.now());
        let running = self.running(process);
        running.map(|node| node.handle(local, input)).is_some()
    }

    fn running(&mut self, process: Process) -> Option<&mut Node> {
        if !self.hosts.runs(process) {
            return None;
        }
        let member = self.hosts.actor_mut(process.node)?;
        Some(&mut member.node)
    }

    pub(super) fn drain(&mut self, process: Process) -> Result<(), Violation> {
        let mut outputs = 0;
        while let Some(output) = self.running(process).and_then(Node::poll_output) {
            outputs += 1;
            if outputs > MOST_OUTPUTS {
                let words = "does not come to the end of one input";
                return Err(violation!(self.now(), Restraint, "{process} {words}"));
            }
            match output {
                Output::Transmit { to, bytes } => self.transmit(process, to, bytes)?,
                Output::Event(event) => self.tell(process, event)?,
                Output::Persist(record) => self.persist(process, *record)?,
            }
        }
        self.checkers.settles(self.now())?;
        self.set_alarm(process);
        Ok(())
    }

    fn transmit(&mut self, process: Process, to: NodeId, bytes: Vec<u8>) -> Result<(), Violation> {
        let now = self.now();
        // What it passes on for others is theirs.
        let own = decode(self.group, &bytes)
            .ok()
            .filter(|(header, _)| header.from == process.node);
        let said = own.and_then(|(header, payload)| dissect::endorsement(&header, payload));
        self.overhear(process.node, to, &bytes);
        // Of what is forged anything may follow.
        if let Some((voter, endorsement)) = said.filter(|_| self.overheard.is_none()) {
            self.checkers
                .endorsements
                .endorses(now, voter, endorsement)?;
            let written = self.disk(process.node).and_then(|its| its.voter.as_ref());
            let written = written.and_then(|record| record.view_config());
            let written = written.map(|view_config| view_config.epoch);
            if written < Some(endorsement.epoch) {
                let epoch = endorsement.epoch;
                return Err(violation!(
                    now,
                    Durability,
                    "{process} says that it endorsed in epoch {epoch}, on disk is {written:?}"
                ));
            }
        }
        let durable = self.disk(process.node).map(|record| record.incarnation);
        if own.is_some_and(|(header, _)| Some(header.from_incarnation) > durable) {
            let early = "speaks before its new incarnation is on disk";
            return Err(violation!(now, Durability, "{process} {early}"));
        }
        if to == process.node || !self.hosts.has(to) {
            return Err(violation!(
                now,
                Restraint,
                "{process} sends to {to}, no peer of it"
            ));
        }
        let trace = &mut self.hosts.trace;
        if trace.is_read() {
            let words = dissect::in_words(&self.settings.group, &bytes);
            trace.say(now, format_args!("{process} sends to {to}: {words}"));
        }
        trace.mix_u64(now.as_nanos());
        trace.mix(&bytes);
        let messages = match &own {
            Some((header, payload)) => self.record_messages(header, payload),
            None => 0..0,
        };
        let datagram = Datagram { bytes, messages };
        self.hosts.send(process.node, to, &datagram);
        Ok(())
    }

    fn tell(&mut self, process: Process, event: Event) -> Result<(), Violation> {
        self.say(format_args!("{process} says {event:?}"));
        self.record_event(process.node, &event);
        if let Event::Granted {
            ticket: Ticket(ticket),
            fence,
            ..
        } = &event
        {
            self.hosts.trace.mix_u64(*ticket);
            self.hosts.trace.mix_u64(fence.as_u64());
        }
        if let Event::View { epoch, .. } = &event {
            let disk = self.disk(process.node);
            if disk.is_none_or(|record| record.epoch < *epoch) {
                return Err(violation!(
                    self.now(),
                    Durability,
                    "{process} takes part in epoch {epoch}, on disk is {disk:?}"
                ));
            }
        }
        let views = self.node(process.node).map(Node::view);
        if views == Some(None) {
            self.checkers.stops(process);
        }
        self.checkers.hears(self.now(), process, &event)?;
        self.turns.push_back(Turn::Told(process, event));
        Ok(())
    }

    fn persist(&mut self, process: Process, record: Record) -> Result<(), Violation> {
        let (now, disk) = (self.now(), self.surroundings.disk);
        let takes = self.hosts.choices.duration(Duration::ZERO..=disk);
        let trace = &mut self.hosts.trace;
        trace.mix(&record.affiliation.to_bytes());
        if let Some(voter) = &record.voter {
            trace.mix(&voter.to_bytes());
        }
        if let Some(before) = self.disk(process.node)
            && (record.incarnation < before.incarnation
                || record.epoch < before.epoch
                || endorsed(&record) < endorsed(before))
        {
            return Err(violation!(
                now,
                Durability,
                "{process} turns {before:?} into {record:?}"
            ));
        }
        self.hosts.write(process, record, takes)
    }

    fn set_alarm(&mut self, process: Process) {
        let latest = self.surroundings.lateness;
        let late = self.hosts.choices.duration(Duration::ZERO..=latest);
        let clock = self.hosts.clock(process.node);
        let Some(node) = self.running(process) else {
            return;
        };
        let due = node.poll_timeout().map(|local| clock.when(local));
        self.hosts.set_alarm(process, due, (late, latest));
    }
}

/// What a voter endorsed last. One that has lost its state, or is in another cluster, is another one,
/// born later. What it endorsed of a founding it may give up, and then counts that as a refusal.
fn endorsed(record: &Record) -> Option<(Incarnation, u32, Option<Epoch>)> {
    let voter = record.voter.as_ref()?;
    let view_config = voter.view_config();
    let view_config = view_config.filter(|its| Some(its.cluster) == record.affiliation.cluster());
    let epoch = view_config.map(|view_config| view_config.epoch);
    Some((record.affiliation.birth, record.affiliation.refusals, epoch))
}
