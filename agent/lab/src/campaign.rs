//! One seed: a group lives through unrest, then through calm, and must come out of it right.
//!
//! In the unrest the network has its faults, members crash, leave and come back, hosts stand still,
//! callers cancel and blunder. Then everything heals, all members run, and once more every member
//! enters every lock. That must come to an end within a bound, in which everybody is served, and all
//! are in one view; then all members leave, which must come to an end too.

mod callers;
mod directed;
mod faults;
mod loans;
mod operator;
mod phases;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use self::directed::{Aim, Exchange, Strike};
use self::faults::Lost;
use super::checkers::{Process, Violation};
use super::choices::Choices;
use super::cluster::{Cluster, Lies, Turn};
use super::plan::Plan;
pub use super::report::Report;
use super::trace::{Sink, Trace};
use distlock_protocol::lock::SharedLoan;
use distlock_protocol::{
    Algorithm, Change, ElectionAlgorithm, Epoch, Event, Failure, LockName, NodeId, Refusal, Ticket,
    Time,
};

/// Runs `algorithm` as `seed` says, where `failure` decides on views. The trace goes to `sink`, if
/// there is one. Returns what happened, and the fingerprint of every byte that was sent and every
/// grant that was given.
///
/// # Errors
/// The rule that was broken.
///
/// # Panics
/// The protocol core panicked.
pub fn run(
    algorithm: Algorithm,
    failure: Failure,
    seed: u64,
    sink: Option<Sink>,
) -> Result<(Report, u64), Violation> {
    play(algorithm, failure, seed, Choices::new(!seed), sink)
}

/// Runs `algorithm` as `seed` says under quorum views, on logs that decide twice in an epoch, forget
/// and repeat. Nothing need go on then, but nothing may go wrong either, which is all that is judged:
/// the run ends with its faults.
///
/// # Errors
/// The rule that was broken.
///
/// # Panics
/// The protocol core panicked.
pub fn run_on_lies(
    algorithm: Algorithm,
    seed: u64,
    sink: Option<Sink>,
) -> Result<(Report, u64), Violation> {
    let plan = Plan::new(algorithm, Failure::Quorum, seed);
    let mut choices = Choices::new(!seed);
    let lies = Lies::new(choices.fork());
    let mut campaign = Campaign::new(plan, choices, Trace::new(sink));
    campaign.cluster.set_lies(lies.clone());
    campaign.lies = Some(lies);
    campaign.run()
}

/// Runs `algorithm` as `seed` says under quorum views, with faults that are aimed.
///
/// # Errors
/// The rule that was broken.
///
/// # Panics
/// The protocol core panicked.
pub fn run_directed(
    algorithm: Algorithm,
    seed: u64,
    sink: Option<Sink>,
) -> Result<(Report, u64), Violation> {
    let plan = Plan::directed(algorithm, seed);
    let mut campaign = Campaign::new(plan, Choices::new(!seed), Trace::new(sink));
    campaign.cluster.plan(Duration::ZERO, Act::Aim(Aim::Next));
    campaign.run()
}

/// Runs what `choices` say, and no seed: a small group of any kind, for a short while. A fuzzer makes
/// them up; and where it says so, forges datagrams. What that breaks is broken by design, where
/// nothing is sealed: then no member may panic, or go on for ever, and every caller is answered once.
///
/// # Errors
/// The rule that was broken.
///
/// # Panics
/// The protocol core panicked.
pub fn run_chosen(mut choices: Choices, sink: Option<Sink>) -> Result<(Report, u64), Violation> {
    let plan = Plan::chosen(&mut choices);
    let mut campaign = Campaign::new(plan, choices, Trace::new(sink));
    campaign.cluster.limit_steps(CHOSEN_STEPS);
    campaign.run()
}

/// Runs a group of `members` as [`Plan::searched`] has it, and as `choices` say, which are those of a
/// [search](crate::choices::Search).
///
/// # Errors
/// The rule that was broken.
///
/// # Panics
/// The protocol core panicked.
pub fn run_searched(
    algorithm: Algorithm,
    failure: Failure,
    members: u16,
    choices: Choices,
    sink: Option<Sink>,
) -> Result<(Report, u64), Violation> {
    let plan = Plan::searched(algorithm, failure, members);
    let mut campaign = Campaign::new(plan, choices, Trace::new(sink));
    campaign.cluster.limit_steps(CHOSEN_STEPS);
    campaign.run()
}

/// Runs `algorithm` under `failure` as `seed` plans it, and as `choices` say what happens:
/// [`Choices::new`] of the seed's complement is [`run`], and what was recorded of that is the same
/// run.
///
/// # Errors
/// The rule that was broken.
///
/// # Panics
/// The protocol core panicked.
pub fn play(
    algorithm: Algorithm,
    failure: Failure,
    seed: u64,
    choices: Choices,
    sink: Option<Sink>,
) -> Result<(Report, u64), Violation> {
    let plan = Plan::new(algorithm, failure, seed);
    Campaign::new(plan, choices, Trace::new(sink)).run()
}

/// Runs elections by `algorithm` as `seed` says, where `failure` decides on views, in the same
/// surroundings: most callers want to lead.
///
/// # Errors
/// The rule that was broken.
///
/// # Panics
/// The protocol core panicked.
pub fn run_elections(
    algorithm: ElectionAlgorithm,
    failure: Failure,
    seed: u64,
    sink: Option<Sink>,
) -> Result<(Report, u64), Violation> {
    let plan = Plan::of_elections(algorithm, failure, seed);
    Campaign::new(plan, Choices::new(!seed), Trace::new(sink)).run()
}

/// For how long all must have been up before they found a cluster, with short leases.
const FOUNDING: Duration = Duration::from_millis(4500);
/// Inputs of all nodes in one run; a hundred times what the longest of them needs.
const STEPS: u64 = 2_000_000;
/// The same where the choices come from bytes or a search, and the run is short.
const CHOSEN_STEPS: u64 = 100_000;

#[derive(Clone, Copy, Debug)]
enum Act {
    Want(Caller),
    GiveUp(Process, Ticket),
    Exit(Process, Ticket),
    Blunder(Process, Ticket, Blunder),
    Crash,
    Leave,
    Pause,
    Resume(NodeId),
    Operate,
    Restart(NodeId),
    Recover,
    Elect,
    Forge,
    Start(NodeId),
    Part,
    Join,
    Aim(Aim),
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
    choices: Choices,
    /// Where what decides on views lies.
    lies: Option<Lies>,
    calm: bool,
    /// Whether members that leave stay away.
    closing: bool,
    tickets: u64,
    /// Who asked, until it has left again or was refused.
    asked: BTreeMap<(Process, Ticket), Caller>,
    /// Who of them wants to lead.
    campaigns: BTreeSet<(Process, Ticket)>,
    inside: BTreeSet<(Process, Ticket)>,
    /// By what callers of a process enter a lock without its node, and how the next that does is called.
    loans: BTreeMap<(Process, LockName), (Ticket, SharedLoan)>,
    leaving: BTreeSet<Process>,
    /// The epoch that is in force in each process.
    epochs: BTreeMap<Process, Epoch>,
    /// The highest of them all.
    newest: Epoch,
    /// Who lost its record, as long as that counts against others.
    lost: Vec<Lost>,
    /// What operators have commanded, and to which processes.
    wishes: BTreeMap<Process, Change>,
    /// When processes that an operator had told something ended: it may still be on its way.
    ended: BTreeMap<Process, Time>,
    /// Who was removed and has ended by that, until somebody starts it again.
    gone: BTreeSet<NodeId>,
    /// Who crashes when it is next let in.
    strike: Option<Strike>,
    /// Whom all files list since nobody remembers a cluster.
    anchor: Option<NodeId>,
    /// The exchange of voters in the midst of which one is to be lost.
    exchange: Option<Exchange>,
    /// That many voters there are by right, even if the newest view has fewer.
    vote_at_least: usize,
    report: Report,
}

impl Campaign {
    fn new(plan: Plan, mut choices: Choices, trace: Trace) -> Self {
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
            choices.fork(),
            trace,
        );
        cluster.limit_steps(STEPS);
        if plan.faults.forge.is_some() {
            cluster.allow_forgery();
        }
        if plan.faults.at_steps {
            cluster.tell_steps();
        }
        cluster.set_voters((1..=plan.voters).filter_map(NodeId::new).collect());
        Self {
            plan,
            cluster,
            choices,
            lies: None,
            calm: false,
            closing: false,
            tickets: 0,
            asked: BTreeMap::new(),
            campaigns: BTreeSet::new(),
            inside: BTreeSet::new(),
            loans: BTreeMap::new(),
            leaving: BTreeSet::new(),
            epochs: BTreeMap::new(),
            newest: Epoch::ZERO,
            lost: Vec::new(),
            anchor: None,
            wishes: BTreeMap::new(),
            ended: BTreeMap::new(),
            gone: BTreeSet::new(),
            strike: None,
            exchange: None,
            vote_at_least: 0,
            report: Report {
                runs: 1,
                ..Report::default()
            },
        }
    }

    fn run(mut self) -> Result<(Report, u64), Violation> {
        self.cluster.say(format_args!("{:#?}", self.plan));
        self.unrest()?;
        if self.lies.is_none() && self.plan.faults.forge.is_none() {
            self.calm_down()?;
            self.last_round()?;
            self.everybody_leaves()?;
        }
        self.report.steps = self.cluster.steps();
        self.report.network_stats = self.cluster.network_stats();
        if let Some(presumption) = self.cluster.checkers().presumption() {
            self.report.splits = presumption.splits;
            self.report.merges = presumption.merges;
            self.report.judged = presumption.judged;
            self.report.lost = presumption.lost;
        }
        self.report.simulated_ms = self.cluster.now().as_nanos() / 1_000_000;
        Ok((self.report, self.cluster.fingerprint()))
    }

    fn by_quorum(&self) -> bool {
        self.plan.settings.failure == Failure::Quorum
    }

    fn members(&self) -> Vec<NodeId> {
        self.cluster.members().collect()
    }

    fn take(&mut self, turn: Turn<Act>) -> Result<(), Violation> {
        match turn {
            Turn::Told(process, event) => self.told(process, &event),
            Turn::Stepped(process) => self.strike_after_step(process),
            Turn::Act(Act::Want(caller)) => self.want(caller),
            Turn::Act(Act::GiveUp(process, ticket)) => self.give_up(process, ticket),
            Turn::Act(Act::Exit(process, ticket)) => self.exit(process, ticket),
            Turn::Act(Act::Blunder(process, ticket, blunder)) => {
                self.blunder(process, ticket, blunder)
            }
            Turn::Act(Act::Start(node)) => self.start(node),
            Turn::Act(Act::Crash) => self.crash_some(),
            Turn::Act(Act::Leave) => self.leave_one(),
            Turn::Act(Act::Pause) => {
                self.pause_one();
                Ok(())
            }
            Turn::Act(Act::Resume(node)) => {
                self.cluster.resume(node);
                Ok(())
            }
            Turn::Act(Act::Operate) => self.operate(),
            Turn::Act(Act::Restart(_) | Act::Recover) if self.calm => Ok(()),
            Turn::Act(Act::Restart(node)) => self.restart(node),
            Turn::Act(Act::Recover) => self.recover().map(|_| ()),
            Turn::Act(Act::Elect) => {
                if let Some(lies) = &self.lies {
                    lies.elect();
                }
                self.cluster.plan(self.plan.settings.lease / 2, Act::Elect);
                Ok(())
            }
            Turn::Act(Act::Forge) => {
                self.forge();
                Ok(())
            }
            Turn::Act(Act::Part) => {
                self.part();
                Ok(())
            }
            Turn::Act(Act::Join) => {
                self.cluster.network().join();
                Ok(())
            }
            Turn::Act(Act::Aim(aim)) => self.aim(aim),
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
                    self.strike(process);
                }
            }
            Event::Ended { ticket, refusal } => {
                match refusal {
                    Refusal::Cancelled => self.report.cancelled += 1,
                    Refusal::NoAnswer { .. } => self.report.no_answer += 1,
                    Refusal::Busy => self.report.busy += 1,
                    Refusal::NoQuorum { .. } => self.report.no_quorum += 1,
                    Refusal::WrongSpec { .. } => self.report.wrong_spec += 1,
                    _ => {}
                }
                if let Some(caller) = self.asked.remove(&(process, *ticket)) {
                    self.want_later(caller);
                }
            }
            Event::View { epoch, .. } => {
                self.report.views += 1;
                self.epochs.insert(process, *epoch);
                self.note_found(process, *epoch);
                self.lose_amid_exchange(*epoch);
            }
            Event::Entered { .. } => self.report.recalled += 1,
            Event::Lost { ticket } => {
                self.lose(process, *ticket);
                self.end_loan(process, *ticket)?;
            }
            Event::Excluded { .. } => {
                self.report.exclusions += 1;
                self.epochs.remove(&process);
            }
            Event::Members { overrides } if overrides.removed.contains(&process.node) => {
                self.end_removed(process);
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
}
