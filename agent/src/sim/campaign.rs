//! One seed: a group lives through unrest, then through calm, and must come out of it right.
//!
//! In the unrest the network has its faults, members crash, leave and come back, callers cancel
//! and blunder. Then everything heals, all members run, and once more every member enters every
//! lock. That must come to an end within a bound, in which everybody is served; then all members
//! leave, which must come to an end too.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::checkers::{Process, Violation, violation};
use super::cluster::{Cluster, Turn};
use super::plan::{Plan, Rhythm};
pub use super::report::Report;
use super::rng::Rng;
use super::trace::{Sink, Trace};
use crate::protocol::{
    Algorithm, Command, ElectionAlgorithm, Epoch, Event, Mode, NodeId, Refusal, Release, Ticket,
    Time, Wait,
};

/// Runs `algorithm` as `seed` says. The trace goes to `sink`, if there is one. Returns what
/// happened, and the fingerprint of every byte that was sent and every grant that was given.
///
/// # Errors
/// The rule that was broken.
///
/// # Panics
/// The protocol core panicked.
pub fn run(
    algorithm: Algorithm,
    seed: u64,
    sink: Option<Sink>,
) -> Result<(Report, u64), Violation> {
    let plan = Plan::new(algorithm, seed);
    Campaign::new(plan, Rng::new(!seed), Trace::new(sink)).run()
}

/// The same where the silent are presumed gone.
///
/// # Errors
/// The rule that was broken.
///
/// # Panics
/// The protocol core panicked.
pub fn run_presuming(
    algorithm: Algorithm,
    seed: u64,
    sink: Option<Sink>,
) -> Result<(Report, u64), Violation> {
    let plan = Plan::presuming(algorithm, seed);
    Campaign::new(plan, Rng::new(!seed), Trace::new(sink)).run()
}

/// Runs elections by `algorithm` as `seed` says, in the same surroundings: most callers want to lead.
///
/// # Errors
/// The rule that was broken.
///
/// # Panics
/// The protocol core panicked.
pub fn run_elections(
    algorithm: ElectionAlgorithm,
    seed: u64,
    sink: Option<Sink>,
) -> Result<(Report, u64), Violation> {
    let plan = Plan::of_elections(algorithm, seed);
    Campaign::new(plan, Rng::new(!seed), Trace::new(sink)).run()
}

/// Grants after which the unrest ends.
const GRANTS: u64 = 60;
/// How many leases the unrest lasts at most.
const UNREST_LEASES: u32 = 20;
/// Within which everybody must be served once faults have stopped, besides two leases. Much longer
/// than it ever takes, since a run ends as soon as all is done.
const PATIENCE: Duration = Duration::from_secs(60);
/// Inputs of all nodes in one run; a hundred times what the longest of them needs.
const STEPS: u64 = 2_000_000;

#[derive(Clone, Copy, Debug)]
enum Act {
    Want(Caller),
    GiveUp(Process, Ticket),
    Exit(Process, Ticket),
    Blunder(Process, Ticket, Blunder),
    Crash,
    Leave,
    Start(NodeId),
    Part,
    Join,
}

/// A thread of a member, or one of its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Caller {
    node: NodeId,
    number: u16,
}

/// What careless callers do, and what must do nothing.
#[derive(Clone, Copy, Debug)]
enum Blunder {
    ReleaseAgain,
    CancelTooLate,
}

struct Campaign {
    plan: Plan,
    cluster: Cluster<Act>,
    rng: Rng,
    calm: bool,
    /// Whether members that leave stay away.
    closing: bool,
    tickets: u64,
    /// Who asked, until it has left again or was refused.
    asked: BTreeMap<(Process, Ticket), Caller>,
    /// Who of them wants to lead.
    campaigns: BTreeSet<(Process, Ticket)>,
    inside: BTreeSet<(Process, Ticket)>,
    leaving: BTreeSet<Process>,
    /// The epoch that is in force in each process.
    epochs: BTreeMap<Process, Epoch>,
    /// Who lost its record and has no view yet, and a process that knew its former life. That one
    /// must live until then: if all who knew it were gone, nobody could know.
    lost: Option<(NodeId, Process)>,
    report: Report,
}

impl Campaign {
    fn new(plan: Plan, mut rng: Rng, trace: Trace) -> Self {
        let (settings, surroundings) = (plan.settings.clone(), plan.surroundings.clone());
        let locks = plan
            .locks
            .iter()
            .map(|(name, spec)| (name.clone(), spec.permits))
            .collect();
        let mut cluster = Cluster::new(
            plan.members,
            settings,
            surroundings,
            locks,
            rng.fork(),
            trace,
        );
        cluster.limit_steps(STEPS);
        Self {
            plan,
            cluster,
            rng,
            calm: false,
            closing: false,
            tickets: 0,
            asked: BTreeMap::new(),
            campaigns: BTreeSet::new(),
            inside: BTreeSet::new(),
            leaving: BTreeSet::new(),
            epochs: BTreeMap::new(),
            lost: None,
            report: Report {
                runs: 1,
                ..Report::default()
            },
        }
    }

    fn run(mut self) -> Result<(Report, u64), Violation> {
        self.cluster.say(format_args!("{:#?}", self.plan));
        self.unrest()?;
        self.calm_down()?;
        self.last_round()?;
        self.everybody_leaves()?;
        self.report.steps = self.cluster.steps();
        self.report.weather = self.cluster.weather();
        if let Some(presumption) = self.cluster.checkers().presumption() {
            self.report.splits = presumption.splits;
            self.report.merges = presumption.merges;
            self.report.judged = presumption.judged;
            self.report.lost = presumption.lost;
        }
        self.report.simulated_ms = self.cluster.now().as_nanos() / 1_000_000;
        Ok((self.report, self.cluster.fingerprint()))
    }

    fn members(&self) -> Vec<NodeId> {
        self.cluster.members().collect()
    }

    // The phases of a run.

    fn unrest(&mut self) -> Result<(), Violation> {
        let lease = self.plan.settings.lease;
        for node in self.members() {
            // Hosts are not switched on at the same instant.
            let after = self.rng.duration(Duration::ZERO..=lease / 10);
            self.cluster.plan(after, Act::Start(node));
        }
        let misfortunes = self.plan.misfortunes;
        self.plan_next(misfortunes.crash, Act::Crash);
        self.plan_next(misfortunes.leave, Act::Leave);
        self.plan_next(misfortunes.partition, Act::Part);
        let end = self.cluster.now() + lease * UNREST_LEASES;
        while self.report.grants < GRANTS
            && let Some(turn) = self.cluster.next(end)?
        {
            self.take(turn)?;
        }
        Ok(())
    }

    /// Ends all faults: from now on everybody runs, and nothing more goes wrong.
    fn calm_down(&mut self) -> Result<(), Violation> {
        self.calm = true;
        self.cluster.say(format_args!("--- faults stop ---"));
        self.cluster.network().heal();
        for node in self.members() {
            if self.cluster.process(node).is_none() {
                self.start(node)?;
            }
        }
        Ok(())
    }

    /// Every member enters every lock once more, and everybody who waited is served.
    fn last_round(&mut self) -> Result<(), Violation> {
        let patience = PATIENCE + self.plan.settings.lease * 2;
        let end = self.cluster.now() + patience;
        // Members that were leaving when the faults stopped come back first.
        while self.cluster.members().any(|node| self.is_away(node)) {
            let Some(turn) = self.cluster.next(end)? else {
                return Err(self.late("a member that leaves has not come back"));
            };
            self.take(turn)?;
        }
        // Those who wait are served though nobody asks anew.
        self.settle(end)?;
        for node in self.members() {
            for lock in 0..self.plan.locks.len() {
                let caller = Caller {
                    node,
                    number: u16::MAX,
                };
                self.ask(caller, lock, Wait::Cancelled)?;
            }
        }
        self.settle(end)?;
        self.cluster.checkers().all_told(self.cluster.now())
    }

    /// Goes on until nobody waits, nobody is inside, and nobody is suspected.
    fn settle(&mut self, end: Time) -> Result<(), Violation> {
        while !self.is_settled() {
            let Some(turn) = self.cluster.next(end)? else {
                self.cluster.checkers().at_rest(self.cluster.now())?;
                return Err(self.late("somebody is still inside"));
            };
            self.take(turn)?;
        }
        Ok(())
    }

    fn everybody_leaves(&mut self) -> Result<(), Violation> {
        let end = self.cluster.now() + PATIENCE;
        self.closing = true;
        for node in self.members() {
            self.leave(node)?;
        }
        while !self.leaving.is_empty() {
            let Some(turn) = self.cluster.next(end)? else {
                return Err(self.late("members do not come to the end of leaving"));
            };
            self.take(turn)?;
        }
        Ok(())
    }

    fn is_away(&self, node: NodeId) -> bool {
        self.cluster
            .process(node)
            .is_none_or(|process| self.leaving.contains(&process))
    }

    /// Whether nothing is left to wait for.
    fn is_settled(&self) -> bool {
        self.asked.is_empty()
            && self.inside.is_empty()
            && self.cluster.checkers().at_rest(self.cluster.now()).is_ok()
    }

    fn late(&self, what: &str) -> Violation {
        violation!(
            self.cluster.now(),
            Progress,
            "{what}, long after the faults stopped"
        )
    }

    // What happens.

    fn take(&mut self, turn: Turn<Act>) -> Result<(), Violation> {
        match turn {
            Turn::Told(process, event) => self.told(process, &event),
            Turn::Act(Act::Want(caller)) => self.want(caller),
            Turn::Act(Act::GiveUp(process, ticket)) => self.give_up(process, ticket),
            Turn::Act(Act::Exit(process, ticket)) => self.exit(process, ticket),
            Turn::Act(Act::Blunder(process, ticket, blunder)) => {
                self.blunder(process, ticket, blunder)
            }
            Turn::Act(Act::Start(node)) => self.start(node),
            Turn::Act(Act::Crash) => self.crash_some(),
            Turn::Act(Act::Leave) => self.leave_one(),
            Turn::Act(Act::Part) => {
                self.part();
                Ok(())
            }
            Turn::Act(Act::Join) => {
                self.cluster.network().join();
                Ok(())
            }
        }
    }

    fn told(&mut self, process: Process, event: &Event) -> Result<(), Violation> {
        match event {
            Event::Granted {
                ticket, previous, ..
            } => {
                self.report.grants += 1;
                let leads = self.campaigns.remove(&(process, *ticket));
                self.report.led += u64::from(leads);
                self.report.abandoned += u64::from(previous.is_abandoned());
                // A turn ago the driver may have crashed what this was granted to.
                if self.cluster.process(process.node) == Some(process) {
                    self.enter(process, *ticket);
                }
            }
            Event::Ended { ticket, refusal } => {
                match refusal {
                    Refusal::Cancelled => self.report.cancelled += 1,
                    Refusal::Busy => self.report.busy += 1,
                    Refusal::NoQuorum { .. } => self.report.no_quorum += 1,
                    Refusal::WrongSpec { .. } => self.report.wrong_spec += 1,
                    _ => {}
                }
                if let Some(caller) = self.asked.remove(&(process, *ticket)) {
                    self.want_later(caller);
                }
            }
            Event::Lost { ticket } if self.inside.remove(&(process, *ticket)) => {
                if let Some(caller) = self.asked.remove(&(process, *ticket)) {
                    self.want_later(caller);
                }
            }
            Event::View { epoch, .. } => {
                self.report.views += 1;
                self.epochs.insert(process, *epoch);
                self.lost.take_if(|(node, _)| *node == process.node);
            }
            Event::Leader { leader, .. } => self.report.leaders_told += u64::from(leader.is_some()),
            Event::Suspect { .. } => self.report.suspicions += 1,
            Event::Left => {
                self.leaving.remove(&process);
                self.cluster.remove(process);
                if !self.closing {
                    self.plan_start(process.node);
                }
            }
            _ => {}
        }
        Ok(())
    }

    // Callers.

    fn want(&mut self, caller: Caller) -> Result<(), Violation> {
        if self.calm || self.is_away(caller.node) {
            return Ok(());
        }
        let lock = self.rng.index(self.plan.locks.len());
        let wait = if self.rng.chance(self.plan.callers.tries) {
            Wait::Try
        } else if self.rng.chance(500) {
            Wait::Lease
        } else {
            Wait::Cancelled
        };
        self.ask(caller, lock, wait)
    }

    fn ask(&mut self, caller: Caller, lock: usize, wait: Wait) -> Result<(), Violation> {
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
        let shares = self.rng.chance(self.plan.callers.shared) && can_share;
        let wishes = self.plan.wishes.get(&name);
        let wish = wishes.and_then(|wishes| {
            // In the last round nobody insists where others may have said something else.
            let insists = !self.calm || wishes.len() == 1;
            insists
                .then(|| wishes[self.rng.index(wishes.len())])
                .flatten()
        });
        self.asked.insert((process, ticket), caller);
        if !self.calm && self.rng.chance(self.plan.callers.cancels) {
            let after = self.rng.exponential(self.plan.callers.patience);
            self.cluster.plan(after, Act::GiveUp(process, ticket));
        }
        if self.rng.chance(self.plan.callers.notes) {
            self.send_note(caller.node)?;
        }
        let can_lead = self.plan.callers.campaigns > 0 && spec.permits.get() == 1 && !shares;
        let wish_to_lead = wish.unwrap_or(spec);
        if can_lead && agreed && self.rng.chance(self.plan.callers.campaigns) {
            self.report.campaigns += 1;
            self.campaigns.insert((process, ticket));
            let campaign = Command::Campaign {
                ticket,
                lock: name,
                spec: wish_to_lead,
                algorithm: self.rng.chance(500).then_some(self.plan.settings.election),
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
    fn send_note(&mut self, node: NodeId) -> Result<(), Violation> {
        let members = self.members();
        let to = members[self.rng.index(members.len())];
        if to != node {
            let filler = [0, 100, 4000][self.rng.index(3)];
            let mut bytes = self.tickets.to_be_bytes().to_vec();
            bytes.extend((0..filler).map(|_| self.rng.next_u64() as u8));
            self.cluster.command(node, &Command::Note { to, bytes })?;
            self.report.notes += 1;
        }
        Ok(())
    }

    fn enter(&mut self, process: Process, ticket: Ticket) {
        self.inside.insert((process, ticket));
        if !self.calm && self.rng.chance(self.plan.misfortunes.crash_inside) {
            self.crash(process.node);
        }
        if self.cluster.process(process.node) != Some(process) {
            return;
        }
        let stay = self.rng.exponential(self.plan.callers.stay);
        self.cluster.plan(stay, Act::Exit(process, ticket));
        self.plan_blunder(process, ticket, Blunder::CancelTooLate);
    }

    fn exit(&mut self, process: Process, ticket: Ticket) -> Result<(), Violation> {
        if !self.inside.remove(&(process, ticket)) {
            return Ok(());
        }
        let how = self.how_it_ends();
        self.cluster
            .command(process.node, &Command::Release { ticket, how })?;
        self.plan_blunder(process, ticket, Blunder::ReleaseAgain);
        if let Some(caller) = self.asked.remove(&(process, ticket)) {
            self.want_later(caller);
        }
        Ok(())
    }

    fn how_it_ends(&mut self) -> Release {
        if self.calm {
            return Release::Given;
        }
        if self.rng.chance(self.plan.callers.deaths) {
            self.report.deaths += 1;
            return Release::Abandoned;
        }
        if self.rng.chance(self.plan.callers.unaware) {
            Release::Unused
        } else {
            Release::Given
        }
    }

    fn give_up(&mut self, process: Process, ticket: Ticket) -> Result<(), Violation> {
        if !self.calm && self.cluster.process(process.node) == Some(process) {
            self.cluster
                .command(process.node, &Command::Cancel { ticket })?;
        }
        Ok(())
    }

    fn blunder(
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

    fn plan_blunder(&mut self, process: Process, ticket: Ticket, blunder: Blunder) {
        if self.rng.chance(self.plan.callers.blunders) {
            let after = self.rng.exponential(self.plan.callers.stay);
            self.cluster
                .plan(after, Act::Blunder(process, ticket, blunder));
        }
    }

    fn want_later(&mut self, caller: Caller) {
        let pause = match self.plan.callers.rhythm {
            Rhythm::ClosedLoop => Duration::ZERO,
            Rhythm::Paused(mean) => self.rng.exponential(mean),
            Rhythm::Bursts(every) => {
                let every = every.as_nanos() as u64;
                Duration::from_nanos(every - self.cluster.now().as_nanos() % every)
            }
        };
        self.cluster.plan(pause, Act::Want(caller));
    }

    // Misfortunes.

    fn start(&mut self, node: NodeId) -> Result<(), Violation> {
        if self.cluster.process(node).is_some() {
            return Ok(());
        }
        self.cluster.start(node)?;
        for number in 0..self.plan.callers.per_member {
            self.want_later(Caller { node, number });
        }
        Ok(())
    }

    fn crash_some(&mut self) -> Result<(), Violation> {
        if self.calm {
            return Ok(());
        }
        self.plan_next(self.plan.misfortunes.crash, Act::Crash);
        let members = self.members();
        let victims = if self.rng.chance(self.plan.misfortunes.crash_all) {
            members
        } else {
            vec![members[self.rng.index(members.len())]]
        };
        for node in victims {
            self.crash(node);
        }
        Ok(())
    }

    fn crash(&mut self, node: NodeId) {
        let Some(process) = self.cluster.process(node) else {
            return;
        };
        if self.is_witness(process) {
            return;
        }
        self.report.crashes += 1;
        let inside = self.inside.iter().any(|(whose, _)| *whose == process);
        self.report.crashes_inside += u64::from(inside);
        self.cluster.crash(node);
        if self.lost.is_none()
            && self.rng.chance(self.plan.misfortunes.lost_record)
            // The others take who said good-bye for one that ended in order. That it was alone in
            // knowing of an abandoned grant is on its disk only.
            && !self.leaving.contains(&process)
            && let Some(witness) = self.witness_of(process)
        {
            self.report.lost_records += 1;
            self.lost = Some((node, witness));
            self.cluster.lose_record(node);
        }
        self.forget(process);
        self.plan_start(node);
    }

    fn is_witness(&self, process: Process) -> bool {
        self.lost.is_some_and(|(_, witness)| witness == process)
    }

    /// Another process that was in a view with `process`, and runs.
    fn witness_of(&self, process: Process) -> Option<Process> {
        let epoch = self.epochs.get(&process)?;
        let running = self
            .cluster
            .members()
            .filter_map(|node| self.cluster.process(node));
        running
            .filter(|other| *other != process && !self.leaving.contains(other))
            .find(|other| self.epochs.get(other) == Some(epoch))
    }

    fn leave_one(&mut self) -> Result<(), Violation> {
        if self.calm {
            return Ok(());
        }
        self.plan_next(self.plan.misfortunes.leave, Act::Leave);
        let members = self.members();
        let node = members[self.rng.index(members.len())];
        self.leave(node)
    }

    fn leave(&mut self, node: NodeId) -> Result<(), Violation> {
        let Some(process) = self.cluster.process(node) else {
            return Ok(());
        };
        if !self.is_witness(process) && self.leaving.insert(process) {
            self.report.leaves += 1;
            // What is inside ends by leaving; what waits will be refused.
            let (asked, inside) = (&mut self.asked, &self.inside);
            asked.retain(|key, _| key.0 != process || !inside.contains(key));
            self.inside.retain(|(whose, _)| *whose != process);
            self.cluster.command(node, &Command::Leave)?;
        }
        Ok(())
    }

    /// What ended with `process`.
    fn forget(&mut self, process: Process) {
        self.leaving.remove(&process);
        self.epochs.remove(&process);
        self.asked.retain(|(whose, _), _| *whose != process);
        self.inside.retain(|(whose, _)| *whose != process);
        self.campaigns.retain(|(whose, _)| *whose != process);
    }

    fn part(&mut self) {
        if self.calm {
            return;
        }
        self.plan_next(self.plan.misfortunes.partition, Act::Part);
        let parted = self.rng.exponential(self.plan.misfortunes.parted);
        self.cluster.plan(parted, Act::Join);
        self.report.partitions += 1;
        let members = self.members();
        let (one, other): (Vec<NodeId>, Vec<NodeId>) =
            members.iter().partition(|_| self.rng.chance(500));
        // Both directions between the two sides, or one of them.
        let directions = self.rng.below(3);
        for (&a, &b) in one.iter().flat_map(|a| other.iter().map(move |b| (a, b))) {
            if directions != 1 {
                self.cluster.network().cut(a, b);
            }
            if directions != 2 {
                self.cluster.network().cut(b, a);
            }
        }
    }

    fn plan_start(&mut self, node: NodeId) {
        let away = self.rng.exponential(self.plan.misfortunes.away);
        self.cluster.plan(away, Act::Start(node));
    }

    fn plan_next(&mut self, mean: Option<Duration>, act: Act) {
        if let Some(mean) = mean {
            let after = self.rng.exponential(mean);
            self.cluster.plan(after, act);
        }
    }
}
