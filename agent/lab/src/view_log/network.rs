//! What becomes of the messages between voters.

use alloc::vec::Vec;

use super::checker::Violation;
use super::{ELECTION, Event, Group};
use crate::choices::Permille;
use distlock_protocol::membership::quorum::log::library::Library;
use distlock_protocol::membership::quorum::log::{Body, LogMessage, ViewLog, VoterId};

impl<L: Library> Group<L> {
    pub(super) fn send(&mut self, from: VoterId, to: VoterId, message: LogMessage) {
        self.report.sent += 1;
        match message.body {
            Body::Install(_) => self.report.snapshots += 1,
            Body::Retired(_) => self.report.retired += 1,
            Body::TakeOver => self.report.take_overs += 1,
            _ => {}
        }
        self.trace.mix_u64(from.0 << 32 | to.0);
        self.trace.mix_u64(message.term);
        if self.choices.chance(self.plan.loss) || self.cut.contains(&(from, to)) {
            self.report.lost += 1;
            return;
        }
        if self.choices.chance(self.plan.doubled) {
            self.report.doubled += 1;
            self.on_the_way(from, message.clone());
        }
        self.on_the_way(from, message);
    }

    fn on_the_way(&mut self, from: VoterId, message: LogMessage) {
        let mut delay = self.choices.exponential(self.plan.delay);
        if self.choices.chance(self.plan.late) {
            self.report.late += 1;
            delay += self.choices.exponential(ELECTION * 4);
        }
        self.queue
            .plan(self.now + delay, Event::Deliver { from, message });
    }

    pub(super) fn deliver(&mut self, from: VoterId, message: LogMessage) -> Result<(), Violation> {
        let to = message.to;
        if !self.nodes.contains_key(&to) || self.cut.contains(&(from, to)) {
            return Ok(());
        }
        self.with_log(to, |log, now, out| log.receive(now, from, message, out))
    }

    /// Cuts some voters off: from all others or from some, both ways or one.
    pub(super) fn cut(&mut self) {
        self.report.cuts += 1;
        let voters: Vec<_> = self.nodes.keys().copied().collect();
        let far: Vec<_> = voters.iter().filter(|_| self.choices.chance(400)).collect();
        let (some, hears, speaks) = (
            self.choices.within(300..=1500) as Permille,
            self.choices.chance(200),
            self.choices.chance(200),
        );
        for &&one in &far {
            for &other in voters.iter().filter(|voter| !far.contains(voter)) {
                if self.choices.chance(some.min(1000)) {
                    if !hears || speaks {
                        self.cut.insert((other, one));
                    }
                    if !speaks || hears {
                        self.cut.insert((one, other));
                    }
                }
            }
        }
        self.trace
            .say(self.now, format_args!("cut: {:?}", self.cut));
        let mend = self.now + self.choices.exponential(ELECTION * 2);
        self.queue.plan(mend, Event::Mend);
    }
}
