//! What must hold of quorum views and leases, judged by real time.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::checkers::{Endorsements, Process, Violation, violation};
use crate::clock::Clock;
use distlock_protocol::lock::Summary;
use distlock_protocol::membership::View;
use distlock_protocol::{Epoch, Fence, Time};

/// No two are inside at one instant of real time, each with a lease that is valid on its own clock;
/// fences rise with every entry, in the order of real time; an epoch is installed alike wherever it
/// is, and epochs rise at every process; no voter says in all its incarnations that it has endorsed
/// two views of one epoch.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Checker {
    inside: BTreeMap<Process, Inside>,
    last: Option<(Fence, Process)>,
    installs: BTreeMap<Epoch, (View, Summary)>,
    epochs: BTreeMap<Process, Epoch>,
    pub(super) endorsements: Endorsements,
}

/// Somebody who believes to be inside: as long as its own clock shows less than the end of its
/// lease. That is all that clients of a crashed process know, too.
#[derive(Clone, Debug, Hash)]
struct Inside {
    clock: Clock,
    until: Time,
}

impl Checker {
    pub(super) fn enters(
        &mut self,
        now: Time,
        process: Process,
        (clock, until): (Clock, Time),
        fence: Fence,
    ) -> Result<(), Violation> {
        if let Some((last, whose)) = self.last
            && fence <= last
        {
            return Err(violation!(
                now,
                Fences,
                "{process} enters with fence {fence}, after {whose} had {last}"
            ));
        }
        self.last = Some((fence, process));
        self.inside.insert(process, Inside { clock, until });
        self.check(now)
    }

    pub(super) fn leaves(&mut self, process: Process) {
        self.inside.remove(&process);
    }

    /// The lease of `process` runs until its clock shows `until`.
    pub(super) fn extends(
        &mut self,
        now: Time,
        process: Process,
        until: Time,
    ) -> Result<(), Violation> {
        if let Some(inside) = self.inside.get_mut(&process) {
            inside.until = until;
        }
        self.check(now)
    }

    /// Whether one of these is inside.
    pub(super) fn is_inside(&self, now: Time, which: impl Fn(&Process) -> bool) -> bool {
        let mut inside = self.inside.iter();
        inside.any(|(process, it)| which(process) && it.clock.shows(now) < it.until)
    }

    fn check(&mut self, now: Time) -> Result<(), Violation> {
        let valid = |inside: &Inside| inside.clock.shows(now) < inside.until;
        let names: Vec<String> = self
            .inside
            .iter()
            .filter(|(_, inside)| valid(inside))
            .map(|(process, inside)| {
                let end = inside.clock.when(inside.until).since(Time::ZERO);
                format!("{process} until {end:?}")
            })
            .collect();
        if names.len() > 1 {
            let names = names.join(" and ");
            return Err(violation!(now, Exclusion, "inside are: {names}"));
        }
        Ok(())
    }

    pub(super) fn installs(
        &mut self,
        now: Time,
        process: Process,
        view: &View,
        table: &Summary,
    ) -> Result<(), Violation> {
        let before = self.epochs.insert(process, view.epoch);
        if before >= Some(view.epoch) {
            let epoch = view.epoch;
            return Err(violation!(
                now,
                Views,
                "{process} installs epoch {epoch} after {before:?}"
            ));
        }
        // A member that installs late may get the table with the quarantine lifted.
        let mut table = table.clone();
        table.lift();
        let known = self
            .installs
            .entry(view.epoch)
            .or_insert_with(|| (view.clone(), table.clone()));
        if (&known.0, &known.1) != (view, &table) {
            return Err(violation!(
                now,
                Views,
                "{process} installs {view:?} with {table:?}, where others have {known:?}"
            ));
        }
        Ok(())
    }
}
