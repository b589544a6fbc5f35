//! What callers do: they ask, enter, leave, give up and blunder.

use core::time::Duration;

use super::{Act, Blunder, Caller, Campaign};
use crate::checkers::{Process, Violation};
use crate::plan::Rhythm;
use distlock_protocol::{Algorithm, Command, LockSpec, Mode, NodeId, Release, Ticket, Wait};

impl Campaign {
    pub(super) fn want(&mut self, caller: Caller) -> Result<(), Violation> {
        if self.calm || self.is_away(caller.node) {
            return Ok(());
        }
        let lock = self.choices.index(self.plan.locks.len());
        let wait = if self.choices.chance(self.plan.callers.tries) {
            Wait::Try
        } else if self.choices.chance(500) {
            Wait::Lease
        } else {
            Wait::Cancelled
        };
        self.ask(caller, lock, wait)
    }

    pub(super) fn ask(&mut self, caller: Caller, lock: usize, wait: Wait) -> Result<(), Violation> {
        let Some(process) = self.cluster.process(caller.node) else {
            return Ok(());
        };
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let (name, spec) = self.plan.locks[lock].clone();
        let agreed = self
            .plan
            .wishes
            .get(&name)
            .is_none_or(|wishes| wishes.len() == 1);
        let can_share = agreed && spec.can_serve(Mode::Shared);
        let shares = self.choices.chance(self.plan.callers.shared) && can_share;
        let may_borrow = agreed && !shares && spec == LockSpec::exclusive(Algorithm::Manager);
        if may_borrow && self.enter_by_loan(caller, process, &name)? {
            return Ok(());
        }
        let wishes = self.plan.wishes.get(&name);
        let wish = wishes.and_then(|wishes| {
            // In the last round nobody insists where others may have said something else.
            let insists = !self.calm || wishes.len() == 1;
            insists
                .then(|| wishes[self.choices.index(wishes.len())])
                .flatten()
        });
        self.asked.insert((process, ticket), caller);
        if !self.calm && self.choices.chance(self.plan.callers.cancels) {
            let after = self.choices.exponential(self.plan.callers.patience);
            self.cluster
                .plan_at(caller.node, after, Act::GiveUp(process, ticket));
        }
        if self.choices.chance(self.plan.callers.notes) {
            self.send_note(caller.node)?;
        }
        let can_lead = self.plan.callers.campaigns > 0 && spec.permits.get() == 1 && !shares;
        let wish_to_lead = wish.unwrap_or(spec);
        if can_lead && agreed && self.choices.chance(self.plan.callers.campaigns) {
            self.report.campaigns += 1;
            self.campaigns.insert((process, ticket));
            let campaign = Command::Campaign {
                ticket,
                lock: name,
                spec: wish_to_lead,
                algorithm: self
                    .choices
                    .chance(500)
                    .then_some(self.plan.settings.election),
                wait,
            };
            self.cluster.command(caller.node, &campaign)?;
            return Ok(());
        }
        let acquire = Command::Acquire {
            ticket,
            lock: name,
            spec: wish,
            mode: if shares {
                Mode::Shared
            } else {
                Mode::Exclusive
            },
            wait,
        };
        self.cluster.command(caller.node, &acquire)?;
        Ok(())
    }

    /// A note to some member, long enough for some datagrams now and then, and like no other.
    pub(super) fn send_note(&mut self, node: NodeId) -> Result<(), Violation> {
        let members = self.members();
        let to = members[self.choices.index(members.len())];
        if to != node {
            let filler = [0, 100, 4000][self.choices.index(3)];
            let mut bytes = self.tickets.to_be_bytes().to_vec();
            bytes.extend(self.choices.filler(filler));
            self.cluster.command(node, &Command::Note { to, bytes })?;
            self.report.notes += 1;
        }
        Ok(())
    }

    pub(super) fn enter(&mut self, process: Process, ticket: Ticket) {
        self.inside.insert((process, ticket));
        if !self.calm && self.choices.chance(self.plan.faults.crash_inside) {
            self.crash(process.node);
        }
        if self.cluster.process(process.node) != Some(process) {
            return;
        }
        let stay = self.choices.exponential(self.plan.callers.stay);
        self.cluster
            .plan_at(process.node, stay, Act::Exit(process, ticket));
        self.plan_blunder(process, ticket, Blunder::CancelTooLate);
    }

    pub(super) fn exit(&mut self, process: Process, ticket: Ticket) -> Result<(), Violation> {
        if !self.inside.remove(&(process, ticket)) {
            return Ok(());
        }
        let how = self.how_it_ends();
        if self.leave_by_loan(process, ticket, how)? {
            if let Some(caller) = self.asked.remove(&(process, ticket)) {
                self.want_later(caller);
            }
            return Ok(());
        }
        self.cluster
            .command(process.node, &Command::Release { ticket, how })?;
        self.plan_blunder(process, ticket, Blunder::ReleaseAgain);
        if let Some(caller) = self.asked.remove(&(process, ticket)) {
            self.want_later(caller);
        }
        Ok(())
    }

    pub(super) fn how_it_ends(&mut self) -> Release {
        if self.calm {
            return Release::Given;
        }
        if self.choices.chance(self.plan.callers.deaths) {
            self.report.deaths += 1;
            return Release::Abandoned;
        }
        if self.choices.chance(self.plan.callers.unaware) {
            Release::Unused
        } else {
            Release::Given
        }
    }

    /// A view has gone on without the member: its callers are not inside any more, and know.
    pub(super) fn lose(&mut self, process: Process, ticket: Ticket) {
        if self.inside.remove(&(process, ticket)) {
            self.report.lost += 1;
        }
        if let Some(caller) = self.asked.remove(&(process, ticket)) {
            self.want_later(caller);
        }
    }

    pub(super) fn give_up(&mut self, process: Process, ticket: Ticket) -> Result<(), Violation> {
        if !self.calm && self.cluster.process(process.node) == Some(process) {
            self.cluster
                .command(process.node, &Command::Cancel { ticket })?;
        }
        Ok(())
    }

    pub(super) fn blunder(
        &mut self,
        process: Process,
        ticket: Ticket,
        blunder: Blunder,
    ) -> Result<(), Violation> {
        if self.cluster.process(process.node) != Some(process) {
            return Ok(());
        }
        let command = match blunder {
            Blunder::ReleaseAgain => Command::Release {
                ticket,
                how: Release::Abandoned,
            },
            Blunder::CancelTooLate => Command::Cancel { ticket },
        };
        self.cluster.command(process.node, &command)?;
        Ok(())
    }

    pub(super) fn plan_blunder(&mut self, process: Process, ticket: Ticket, blunder: Blunder) {
        if self.choices.chance(self.plan.callers.blunders) {
            let after = self.choices.exponential(self.plan.callers.stay);
            self.cluster
                .plan_at(process.node, after, Act::Blunder(process, ticket, blunder));
        }
    }

    pub(super) fn want_later(&mut self, caller: Caller) {
        let pause = match self.plan.callers.rhythm {
            Rhythm::ClosedLoop => Duration::ZERO,
            Rhythm::Paused(mean) => self.choices.exponential(mean),
            Rhythm::Bursts(every) => {
                let every = every.as_nanos() as u64;
                Duration::from_nanos(every - self.cluster.now().as_nanos() % every)
            }
        };
        self.cluster.plan_at(caller.node, pause, Act::Want(caller));
    }
}
