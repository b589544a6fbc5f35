//! The steps of the nodes: what comes to one, and what it gives out.

use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;

use super::{Cluster, Happening, Turn};
use crate::checkers::{Process, Violation, violation};
use crate::dissect;
use crate::history::What;
use distlock_protocol::ids::Incarnation;
use distlock_protocol::wire::decode;
use distlock_protocol::{Epoch, Event, Input, Node, NodeId, Output, Record, Ticket, Time};

/// More outputs than any input has: who gives out more goes on for ever.
const MOST_OUTPUTS: u32 = 100_000;

impl<A> Cluster<A> {
    pub(super) fn arrive(
        &mut self,
        from: NodeId,
        to: NodeId,
        bytes: &[u8],
        messages: Range<u64>,
    ) -> Result<(), Violation> {
        let Some(process) = self.process(to) else {
            return Ok(());
        };
        for message in messages {
            self.trace.record(self.now, to, What::Received { message });
        }
        if self.trace.is_read() {
            let words = dissect::in_words(&self.settings.group, bytes);
            self.trace.say(
                self.now,
                format_args!("{process} gets from {from}: {words}"),
            );
        }
        self.input(process, Input::Datagram { from, bytes })
    }

    pub(super) fn ring(&mut self, process: Process, at: Time) -> Result<(), Violation> {
        match self.running(process) {
            Some((running, _)) if running.alarm == Some(at) => running.alarm = None,
            _ => return Ok(()),
        }
        self.input(process, Input::Timeout)
    }

    pub(super) fn written(&mut self, process: Process) -> Result<(), Violation> {
        let Some((running, _)) = self.running(process) else {
            return Ok(());
        };
        let record = running.writing.take();
        self.trace
            .say(self.now, format_args!("{process} has on disk {record:?}"));
        let seat = self.seats.get_mut(&process.node).expect("it runs");
        seat.disk = record;
        self.input(process, Input::Persisted)
    }

    /// One step of one node, and all that follows from it at once.
    pub(super) fn input(&mut self, process: Process, input: Input<'_>) -> Result<(), Violation> {
        self.steps += 1;
        if self.steps > self.step_limit {
            let limit = self.step_limit;
            return Err(violation!(
                self.now,
                Restraint,
                "this run takes more than {limit} steps"
            ));
        }
        let now = self.now;
        let Some((running, clock)) = self.running(process) else {
            return Ok(());
        };
        running.node.handle(clock.shows(now), input);
        self.drain(process)?;
        if self.choices.chance(self.surroundings.early)
            && let Some((running, clock)) = self.running(process)
        {
            running.node.handle(clock.shows(now), Input::Timeout);
            self.drain(process)?;
        }
        Ok(())
    }

    pub(super) fn drain(&mut self, process: Process) -> Result<(), Violation> {
        let mut outputs = 0;
        while let Some((running, _)) = self.running(process)
            && let Some(output) = running.node.poll_output()
        {
            outputs += 1;
            if outputs > MOST_OUTPUTS {
                let words = "does not come to the end of one input";
                return Err(violation!(self.now, Restraint, "{process} {words}"));
            }
            match output {
                Output::Transmit { to, bytes } => self.transmit(process, to, bytes)?,
                Output::Event(event) => self.tell(process, event)?,
                Output::Persist(record) => self.persist(process, *record)?,
            }
        }
        self.checkers.settles(self.now)?;
        self.set_alarm(process);
        Ok(())
    }

    fn transmit(&mut self, process: Process, to: NodeId, bytes: Vec<u8>) -> Result<(), Violation> {
        let now = self.now;
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
        if to == process.node || !self.seats.contains_key(&to) {
            return Err(violation!(
                now,
                Restraint,
                "{process} sends to {to}, no peer of it"
            ));
        }
        if self.trace.is_read() {
            let words = dissect::in_words(&self.settings.group, &bytes);
            self.trace
                .say(now, format_args!("{process} sends to {to}: {words}"));
        }
        self.trace.mix_u64(now.as_nanos());
        self.trace.mix(&bytes);
        let from = process.node;
        let messages = match &own {
            Some((header, payload)) => self.record_messages(header, payload),
            None => 0..0,
        };
        for arrival in self.network.send(now, from, to) {
            let (mut bytes, mut messages) = (bytes.clone(), messages.clone());
            if arrival.corrupted {
                self.network.corrupt(&mut bytes);
                messages = 0..0;
            }
            let arrive = Happening::Arrival {
                from,
                to,
                bytes,
                messages,
            };
            self.queue.plan(arrival.at, arrive);
        }
        Ok(())
    }

    fn tell(&mut self, process: Process, event: Event) -> Result<(), Violation> {
        self.trace
            .say(self.now, format_args!("{process} says {event:?}"));
        self.record_event(process.node, &event);
        if let Event::Granted {
            ticket: Ticket(ticket),
            fence,
            ..
        } = &event
        {
            self.trace.mix_u64(*ticket);
            self.trace.mix_u64(fence.as_u64());
        }
        if let Event::View { epoch, .. } = &event {
            let seat = &self.seats[&process.node];
            let disk = &seat.disk;
            if disk.as_ref().is_none_or(|record| record.epoch < *epoch) {
                return Err(violation!(
                    self.now,
                    Durability,
                    "{process} takes part in epoch {epoch}, on disk is {disk:?}"
                ));
            }
        }
        let views = self.node(process.node).map(Node::view);
        if views == Some(None) {
            self.checkers.stops(process);
        }
        self.checkers.hears(self.now, process, &event)?;
        self.turns.push_back(Turn::Told(process, event));
        Ok(())
    }

    fn persist(&mut self, process: Process, record: Record) -> Result<(), Violation> {
        let (now, disk) = (self.now, self.surroundings.disk);
        let after = self.choices.duration(Duration::ZERO..=disk);
        self.trace.mix(&record.affiliation.to_bytes());
        if let Some(voter) = &record.voter {
            self.trace.mix(&voter.to_bytes());
        }
        let before = self.seats[&process.node].disk.clone();
        let Some((running, _)) = self.running(process) else {
            return Ok(());
        };
        if let Some(before) = before
            && (record.incarnation < before.incarnation
                || record.epoch < before.epoch
                || endorsed(&record) < endorsed(&before))
        {
            return Err(violation!(
                now,
                Durability,
                "{process} turns {before:?} into {record:?}"
            ));
        }
        if running.writing.replace(record).is_some() {
            return Err(violation!(
                now,
                Durability,
                "{process} persists twice at a time"
            ));
        }
        self.queue.plan(now + after, Happening::Written { process });
        Ok(())
    }

    fn set_alarm(&mut self, process: Process) {
        let (now, lateness) = (self.now, self.surroundings.lateness);
        let late = self.choices.duration(Duration::ZERO..=lateness);
        let Some((running, clock)) = self.running(process) else {
            return;
        };
        let due = running
            .node
            .poll_timeout()
            .map(|local| clock.when(local).max(now));
        match (due, running.alarm) {
            (None, _) => running.alarm = None,
            // What is set rings no earlier than asked for, and not much later.
            (Some(due), Some(set)) if due <= set && set <= due + lateness => {}
            (Some(due), _) => {
                let at = due + late;
                running.alarm = Some(at);
                self.queue.plan(at, Happening::Alarm { process, at });
            }
        }
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
