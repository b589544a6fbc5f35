//! Schedules for what orders the views: voters' logs alone, with everything that may befall them.
//!
//! A schedule is what one seed makes of 1 to 7 voters, their network and their disks: messages are
//! lost, doubled, overtake each other and come seconds late; links are cut one way or both; voters
//! stand still, or crash, alone or most of them at once, with a record half-way to the disk or not, and
//! come back with nothing but what is durable, at times right after they have voted; disks take half as
//! long as an election; voters are added, removed and replaced, the leader among them, and the removed
//! ones go on asking for votes for a while. Then network and disks heal, but for one voter at times that
//! is not needed, and stays dead, deaf or mute; the others must decide something new.
//!
//! The library is a parameter, so that the same schedules show what they find in a release that is
//! known to be wrong.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use super::checkers::{Decisions, Process, Violation, violation};
use super::choices::{Choices, Permille};
use super::clock::Clock;
use super::hosts::{Actor, Happened, Hosts};
use super::network::Network;
use super::trace::{Sink, Trace};
use distlock_protocol::membership::quorum::log::library::{Library, Voters};
use distlock_protocol::membership::quorum::log::{
    Body, LogAction, LogEntry, LogMessage, LogRecord, RaftLog, Timing, ViewLog, VoterId,
};
use distlock_protocol::{Epoch, NodeId, Time};

mod above;
mod plan;
mod report;

use plan::{Plan, USUAL_DISK};
pub use report::Report;

const HEARTBEAT: Duration = Duration::from_millis(50);
const ELECTION: Duration = Duration::from_millis(250);
/// How long a healed group may take for something new. An election with seven voters takes some
/// rounds at times; a group that stands still does so for ever.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a voter takes, in the mean, that crashes and comes back at once.
const AT_ONCE: Duration = Duration::from_millis(1);
/// How many voters there are at most in a schedule, one after the other.
const MOST_VOTERS: u64 = 14;

/// Plays the schedule of `seed` on the logs that have `L` inside. The trace goes to `sink`, if
/// there is one. Returns what happened, and a fingerprint of it.
///
/// # Errors
/// The rule that was broken.
///
/// # Panics
/// A log panicked.
pub fn run<L: Library>(seed: u64, sink: Option<Sink>) -> Result<(Report, u64), Violation> {
    let mut group = Group::<L>::new(seed, Trace::new(sink));
    group.unrest()?;
    group.heal()?;
    group.report.schedules = 1;
    group.report.network_stats = group.hosts.network.network_stats();
    Ok((group.report, group.hosts.trace.fingerprint()))
}

#[derive(Debug)]
enum Act {
    Crash,
    Restart(VoterId),
    Pause,
    Resume(VoterId),
    Cut,
    Mend,
    /// Some leader is given something to do.
    Work,
}

/// The process of a voter.
struct Voter<L> {
    log: RaftLog<L>,
    /// The last epoch told in this incarnation.
    told: Option<Epoch>,
    /// The term and the vote that are durable.
    voted: Option<(u64, Option<VoterId>)>,
}

impl<L: Library> Actor for Voter<L> {
    type Message = LogMessage;
    type Record = LogRecord;
}

struct Group<L: Library> {
    hosts: Hosts<Voter<L>, Act>,
    plan: Plan,
    report: Report,
    founders: BTreeSet<VoterId>,
    /// Those that have stopped for good: they were removed, or were not needed.
    stopped: BTreeSet<VoterId>,
    healed: bool,
    proposals: u64,
    checker: Decisions,
}

/// The host of a voter.
fn host(voter: VoterId) -> NodeId {
    let node = u16::try_from(voter.0).ok().and_then(NodeId::new);
    node.expect("there are few")
}

/// The voter of a host.
fn voter(node: NodeId) -> VoterId {
    VoterId(node.as_u16().into())
}

impl<L: Library> Group<L> {
    fn new(seed: u64, trace: Trace) -> Self {
        let mut choices = Choices::new(seed);
        let plan = Plan::new(&mut choices);
        // Few voters more often: what goes wrong with many goes wrong with few. But of one or two
        // no second leader is elected, and they have no minority that could fall behind.
        let size = choices.within(1..=7).min(choices.within(3..=7));
        let founders: BTreeSet<_> = (1..=size).map(VoterId).collect();
        let network = Network::new(plan.surroundings.conditions, choices.fork());
        let mut group = Self {
            hosts: Hosts::new(network, choices, trace),
            plan,
            report: Report::default(),
            founders: founders.clone(),
            stopped: BTreeSet::new(),
            healed: false,
            proposals: 0,
            checker: Decisions::default(),
        };
        for voter in founders {
            group.add(voter);
        }
        group
    }

    fn add(&mut self, voter: VoterId) {
        self.hosts.add(host(voter), Clock::default());
        self.hosts.plan(Duration::ZERO, Act::Restart(voter));
    }

    fn unrest(&mut self) -> Result<(), Violation> {
        let end = self.hosts.now() + self.plan.unrest;
        let faults = self.plan.faults;
        self.hosts.plan_around(Some(self.plan.work), Act::Work);
        self.hosts.plan_around(faults.crash, Act::Crash);
        self.hosts.plan_around(faults.partition, Act::Cut);
        self.hosts.plan_around(faults.pause, Act::Pause);
        while let Some(happened) = self.hosts.next(end) {
            self.step(happened)?;
        }
        Ok(())
    }

    /// Ends all faults, and demands something new of the voters that are needed.
    fn heal(&mut self) -> Result<(), Violation> {
        self.healed = true;
        self.hosts.network.heal();
        let surroundings = &mut self.plan.surroundings;
        surroundings.disk = surroundings.disk.min(USUAL_DISK);
        self.plan.flaps = 0;
        self.plan.voter_flaps = 0;
        self.plan.hand_overs = 0;
        let spare = self.spare();
        let dead = spare.filter(|spare| !self.keep_half(*spare));
        self.hosts
            .say(format_args!("healed, without {spare:?}, dead: {dead:?}"));
        if let Some(dead) = dead {
            self.crash(dead);
            self.stopped.insert(dead);
        }
        self.report.spared += u64::from(spare.is_some());
        for voter in self.voters() {
            if self.hosts.process(host(voter)).is_none() {
                self.hosts.plan(Duration::ZERO, Act::Restart(voter));
            }
        }
        let before = self.checker.last();
        let end = self.hosts.now() + PATIENCE;
        loop {
            if let Some(done) = self.checker.decided_since(before)
                && self.caught_up(done, spare)
            {
                self.report.healed_ms = self.hosts.now().since(end - PATIENCE).as_millis() as u64;
                self.report.slowest_ms = self.report.healed_ms;
                return Ok(());
            }
            let Some(happened) = self.hosts.next(end) else {
                return Err(self.checker.stall(end, PATIENCE, before));
            };
            self.step(happened)?;
        }
    }

    /// Leaves of a voter that is not needed, sometimes, what it hears or what it says. Whether it
    /// did; else nothing is left of it.
    fn keep_half(&mut self, spare: VoterId) -> bool {
        let all: Vec<NodeId> = self.hosts.nodes().collect();
        let directions = match self.hosts.choices.below(3) {
            0 => 1,
            1 => 2,
            _ => return false,
        };
        self.hosts.network.part(&[host(spare)], &all, directions);
        true
    }

    /// Whether all voters of the last view but `spare` know of it, and vote alone.
    fn caught_up(&self, last: Epoch, spare: Option<VoterId>) -> bool {
        let voters = self.checker.voters(last);
        voters
            .iter()
            .filter(|voter| Some(**voter) != spare)
            .all(|voter| {
                let log = self.log(*voter);
                let decided = log.and_then(RaftLog::decided);
                decided.is_some_and(|decided| decided.proposal.epoch == last)
            })
    }

    /// A voter without which all sets of voters that anybody knows of still have a majority: some
    /// schedules heal without one, if there is one.
    fn spare(&mut self) -> Option<VoterId> {
        let spare = self.any_voter();
        let wanted = self.hosts.choices.chance(500);
        let records = self.hosts.records();
        let mut sets = records.flat_map(sets_of).chain([self.founders.clone()]);
        let counts = |voter: VoterId| voter != spare && !self.stopped.contains(&voter);
        let enough = sets.all(|set| set.is_empty() || Voters::only(set).majority(counts));
        (wanted && enough).then_some(spare)
    }

    fn step(&mut self, happened: Happened<LogMessage, Act>) -> Result<(), Violation> {
        self.report.steps += 1;
        match happened {
            Happened::Arrival {
                process,
                from,
                message,
            } => self.with_log(process, |log, now, out| {
                log.receive(now, voter(from), message, out);
            }),
            Happened::Alarm(process) => {
                self.with_log(process, |log, now, out| log.timeout(now, out))
            }
            Happened::Written(process) => self.durable(process),
            Happened::Act(act) => self.befalls(act),
        }
    }

    fn befalls(&mut self, act: Act) -> Result<(), Violation> {
        let faults = self.plan.faults;
        match act {
            Act::Restart(voter) => return self.restart(voter),
            Act::Work => {
                self.hosts.plan_around(Some(self.plan.work), Act::Work);
                return self.work();
            }
            Act::Resume(voter) => self.hosts.resume(host(voter)),
            Act::Crash if !self.healed => {
                for voter in self.who_crash() {
                    self.crash(voter);
                    self.come_back(voter, faults.away);
                }
                self.hosts.plan_around(faults.crash, Act::Crash);
            }
            Act::Pause if !self.healed => {
                let voter = self.any_voter();
                if self.hosts.pause(host(voter)).is_some() {
                    self.report.pauses += 1;
                    let lasts = Some(faults.paused);
                    self.hosts.plan_around(lasts, Act::Resume(voter));
                }
                self.hosts.plan_around(faults.pause, Act::Pause);
            }
            Act::Cut if !self.healed => {
                self.cut();
                self.hosts.plan_around(Some(faults.parted), Act::Mend);
                self.hosts.plan_around(faults.partition, Act::Cut);
            }
            Act::Mend if !self.healed => self.hosts.network.join(),
            Act::Crash | Act::Cut | Act::Pause | Act::Mend => {}
        }
        Ok(())
    }

    fn voters(&self) -> Vec<VoterId> {
        self.hosts.nodes().map(voter).collect()
    }

    fn any_voter(&mut self) -> VoterId {
        let voters = self.voters();
        voters[self.hosts.choices.index(voters.len())]
    }

    /// Any voter, or where power fails most of them.
    fn who_crash(&mut self) -> Vec<VoterId> {
        if !self.hosts.choices.chance(self.plan.faults.crash_all) {
            return vec![self.any_voter()];
        }
        self.report.blackouts += 1;
        let mut voters = self.voters();
        voters.retain(|_| self.hosts.choices.chance(700));
        voters
    }

    /// Cuts some voters off: from all others or from some, both ways or one.
    fn cut(&mut self) {
        self.report.cuts += 1;
        let all: Vec<NodeId> = self.hosts.nodes().collect();
        let choices = &mut self.hosts.choices;
        let (far, near): (Vec<_>, Vec<_>) = all.iter().partition(|_| choices.chance(400));
        let some = choices.within(300..=1500).min(1000) as Permille;
        let directions = [0, 0, 0, 1, 2][choices.index(5)];
        for (&one, &other) in far.iter().flat_map(|a| near.iter().map(move |b| (a, b))) {
            if choices.chance(some) {
                self.hosts.network.part(&[one], &[other], directions);
            }
        }
        self.hosts.say(format_args!("cut: {far:?}, {directions}"));
    }

    fn come_back(&mut self, voter: VoterId, mean: Duration) {
        self.hosts.plan_around(Some(mean), Act::Restart(voter));
    }
}

/// Voters and their disks.
impl<L: Library> Group<L> {
    /// The log of a voter that runs.
    fn log(&self, voter: VoterId) -> Option<&RaftLog<L>> {
        self.hosts.actor(host(voter)).map(|voter| &voter.log)
    }

    /// Lets a log do something, and does what it wants done.
    fn with_log(
        &mut self,
        process: Process,
        act: impl FnOnce(&mut RaftLog<L>, Time, &mut Vec<LogAction>),
    ) -> Result<(), Violation> {
        let now = self.hosts.now();
        let Some(voter) = self.hosts.actor_mut(process.node) else {
            return Ok(());
        };
        let mut out = Vec::new();
        act(&mut voter.log, now, &mut out);
        self.act(process, out)
    }

    fn act(&mut self, process: Process, out: Vec<LogAction>) -> Result<(), Violation> {
        let (now, me) = (self.hosts.now(), voter(process.node));
        for action in out {
            self.hosts.say(format_args!("{me}: {action:?}"));
            match action {
                LogAction::Send(to, message) => self.send(me, to, &message),
                LogAction::Persist(record) => {
                    let takes = self.plan.surroundings.disk;
                    let takes = self.hosts.choices.exponential(takes);
                    self.hosts.write(process, record, takes)?;
                }
                LogAction::Decided(decided) => {
                    let epoch = decided.proposal.epoch;
                    let told = &mut self.hosts.actor_mut(process.node).expect("it acts").told;
                    let before = told.replace(epoch);
                    let trace = &mut self.hosts.trace;
                    trace.mix_u64(me.0 << 32 | u64::from(epoch.as_u32()));
                    self.report.told += 1;
                    self.checker.told(now, me, before, &decided)?;
                }
                LogAction::LeaderChanged => {}
                LogAction::Broken(why) => {
                    return Err(violation!(now, Restraint, "voter {me} is broken: {why}"));
                }
            }
        }
        let Some(log) = self.log(me) else {
            return Ok(());
        };
        if log.is_leader() {
            self.checker.leads(now, me, log.term())?;
        }
        let at_once = (Duration::ZERO, Duration::ZERO);
        let due = self.log(me).and_then(RaftLog::next_timeout);
        self.hosts.set_alarm(process, due, at_once);
        Ok(())
    }

    fn send(&mut self, from: VoterId, to: VoterId, message: &LogMessage) {
        match message.body {
            Body::Install(_) => self.report.snapshots += 1,
            Body::Retired(_) => self.report.retired += 1,
            Body::TakeOver => self.report.take_overs += 1,
            _ => {}
        }
        self.hosts.trace.mix_u64(from.0 << 32 | to.0);
        self.hosts.trace.mix_u64(message.term);
        self.hosts.send(host(from), host(to), message);
    }

    fn durable(&mut self, process: Process) -> Result<(), Violation> {
        let me = voter(process.node);
        let record = self.hosts.disk(process.node);
        let vote = record.map(|record| (record.term, record.vote));
        let Some(voter) = self.hosts.actor_mut(process.node) else {
            return Ok(());
        };
        let before = core::mem::replace(&mut voter.voted, vote);
        let voted = vote.and_then(|(_, voted)| voted);
        let votes = voted.is_some_and(|voted| voted != me) && before != vote;
        self.with_log(process, |log, now, out| log.persisted(now, out))?;
        let flaps = if votes {
            self.plan.flaps.max(self.plan.voter_flaps)
        } else {
            self.plan.flaps
        };
        if self.hosts.choices.chance(flaps) {
            self.report.voter_flaps += u64::from(votes);
            self.crash(me);
            self.come_back(me, AT_ONCE);
        }
        Ok(())
    }

    /// Only what is durable is left; what was on its way may be, or not.
    fn crash(&mut self, voter: VoterId) {
        self.hosts.say(format_args!("{voter} crashes"));
        if let Some((_, was_writing)) = self.hosts.crash(host(voter)) {
            self.report.crashes += 1;
            self.report.torn += u64::from(was_writing);
        }
    }

    fn restart(&mut self, voter: VoterId) -> Result<(), Violation> {
        let seed = self.hosts.choices.next_u64();
        let timing = Timing::new(HEARTBEAT, ELECTION);
        let (node, now) = (host(voter), self.hosts.now());
        if self.hosts.process(node).is_some() || self.stopped.contains(&voter) {
            return Ok(());
        }
        let mut out = Vec::new();
        let record = self.hosts.disk(node).cloned();
        let voted = record.as_ref().map(|record| (record.term, record.vote));
        let log = if let Some(record) = record {
            let log = RaftLog::restore(voter, record, timing, seed, now);
            log.expect("what a log made durable is a good record")
        } else if self.founders.contains(&voter) {
            let founders = self.founders.clone();
            RaftLog::found(voter, founders, timing, seed, now, &mut out)
        } else {
            RaftLog::join(voter, timing, seed, now, &mut out)
        };
        let told = log.decided().map(|decided| decided.proposal.epoch);
        let process = self.hosts.start(node, Voter { log, told, voted });
        self.hosts.say(format_args!("{voter} starts"));
        self.act(process, out)
    }
}

/// The sets of voters that a voter with this record may count majorities of.
fn sets_of(record: &LogRecord) -> Vec<BTreeSet<VoterId>> {
    let snapshot = &record.snapshot;
    let mut sets = vec![snapshot.voters.now.clone(), snapshot.voters.next.clone()];
    let decided = snapshot.decided.as_ref();
    sets.extend(decided.map(|decided| decided.proposal.voters.clone()));
    for entry in &record.entries {
        match entry {
            LogEntry::Term(_) => {}
            LogEntry::Voters(voters) => sets.extend([voters.now.clone(), voters.next.clone()]),
            LogEntry::View(proposal) => sets.push(proposal.voters.clone()),
        }
    }
    sets
}

impl<L> fmt::Debug for Voter<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Voter {{ told: {:?}, voted: {:?} }}",
            self.told, self.voted
        )
    }
}
