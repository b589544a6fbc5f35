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

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use super::choices::Choices;
use super::queue::Queue;
use super::trace::{Sink, Trace};
use distlock_protocol::membership::quorum::log::library::{Library, Voters};
use distlock_protocol::membership::quorum::log::{
    LogAction, LogEntry, LogMessage, LogRecord, RaftLog, Timing, ViewLog, VoterId,
};
use distlock_protocol::{Epoch, Time};

mod above;
mod checker;
mod network;
mod plan;
mod report;

use checker::Checker;
pub use checker::Violation;
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
    Ok((group.report, group.trace.fingerprint()))
}

#[derive(Debug)]
enum Event {
    Deliver {
        from: VoterId,
        message: LogMessage,
    },
    /// A record is durable, if its incarnation still lasts.
    Durable {
        voter: VoterId,
        incarnation: u64,
    },
    Wake {
        voter: VoterId,
    },
    Crash,
    Restart {
        voter: VoterId,
    },
    Pause,
    Cut,
    Mend,
    /// Some leader is given something to do.
    Work,
}

struct Node<L> {
    /// `None` while it is down.
    log: Option<RaftLog<L>>,
    /// Which incarnation; none has anything of the one before but `disk`.
    incarnation: u64,
    disk: Option<LogRecord>,
    /// What is on its way there.
    saving: Option<LogRecord>,
    /// The last epoch told in this incarnation.
    told: Option<Epoch>,
    wake: Option<Time>,
    /// It stands still until then: what comes in waits.
    paused: Time,
    /// It is removed, and has stopped for good.
    stopped: bool,
}

struct Group<L> {
    choices: Choices,
    plan: Plan,
    trace: Trace,
    report: Report,
    now: Time,
    queue: Queue<Event>,
    founders: BTreeSet<VoterId>,
    nodes: BTreeMap<VoterId, Node<L>>,
    cut: BTreeSet<(VoterId, VoterId)>,
    healed: bool,
    proposals: u64,
    checker: Checker,
}

impl<L: Library> Group<L> {
    fn new(seed: u64, trace: Trace) -> Self {
        let mut choices = Choices::new(seed);
        let plan = Plan::new(&mut choices);
        // Few voters more often: what goes wrong with many goes wrong with few. But of one or two
        // no second leader is elected, and they have no minority that could fall behind.
        let size = choices.within(1..=7).min(choices.within(3..=7));
        let founders: BTreeSet<_> = (1..=size).map(VoterId).collect();
        let mut group = Self {
            choices,
            plan,
            trace,
            report: Report::default(),
            now: Time::ZERO,
            queue: Queue::new(),
            nodes: BTreeMap::new(),
            founders: founders.clone(),
            cut: BTreeSet::new(),
            healed: false,
            proposals: 0,
            checker: Checker::default(),
        };
        for voter in founders {
            group.add(voter);
        }
        group
    }

    fn add(&mut self, voter: VoterId) {
        self.nodes.insert(
            voter,
            Node {
                log: None,
                incarnation: 0,
                disk: None,
                saving: None,
                told: None,
                wake: None,
                paused: Time::ZERO,
                stopped: false,
            },
        );
        self.queue.plan(self.now, Event::Restart { voter });
    }

    fn unrest(&mut self) -> Result<(), Violation> {
        let end = self.now + self.plan.unrest;
        self.plan_next(Event::Work, Some(self.plan.work));
        self.plan_next(Event::Crash, self.plan.crashes);
        self.plan_next(Event::Cut, self.plan.cuts);
        self.plan_next(Event::Pause, self.plan.pauses);
        while let Some((at, event)) = self.queue.pop_by(end) {
            self.step(at, event)?;
        }
        Ok(())
    }

    /// Ends all faults, and demands something new of the voters that are needed.
    fn heal(&mut self) -> Result<(), Violation> {
        self.healed = true;
        self.cut.clear();
        self.plan.disk = self.plan.disk.min(USUAL_DISK);
        self.plan.loss = 0;
        self.plan.late = 0;
        self.plan.flaps = 0;
        self.plan.voter_flaps = 0;
        self.plan.hand_overs = 0;
        let spare = self.spare();
        let dead = spare.filter(|spare| !self.keep_half(*spare));
        self.say(format_args!("healed, without {spare:?}, dead: {dead:?}"));
        if let Some(dead) = dead {
            self.crash(dead);
            self.nodes
                .entry(dead)
                .and_modify(|node| node.stopped = true);
        }
        self.report.spared += u64::from(spare.is_some());
        let down = self.nodes.iter().filter(|(_, node)| node.log.is_none());
        let down: Vec<_> = down.map(|(voter, _)| *voter).collect();
        for voter in down {
            self.queue.plan(self.now, Event::Restart { voter });
        }
        let before = self.checker.last();
        let end = self.now + PATIENCE;
        loop {
            if let Some(done) = self.checker.decided_since(before)
                && self.caught_up(done, spare)
            {
                self.report.healed_ms = self.now.since(end - PATIENCE).as_millis() as u64;
                self.report.slowest_ms = self.report.healed_ms;
                return Ok(());
            }
            let Some((at, event)) = self.queue.pop_by(end) else {
                return Err(self.checker.stall(PATIENCE, before));
            };
            self.step(at, event)?;
        }
    }

    /// Leaves of a voter that is not needed, sometimes, what it hears or what it says. Whether it
    /// did; else nothing is left of it.
    fn keep_half(&mut self, spare: VoterId) -> bool {
        let half = self.choices.below(3);
        for &voter in self.nodes.keys() {
            match half {
                0 => self.cut.insert((voter, spare)),
                1 => self.cut.insert((spare, voter)),
                _ => return false,
            };
        }
        true
    }

    /// Whether all voters of the last view but `spare` know of it, and vote alone.
    fn caught_up(&self, last: Epoch, spare: Option<VoterId>) -> bool {
        let voters = self.checker.voters(last);
        voters
            .iter()
            .filter(|voter| Some(**voter) != spare)
            .all(|voter| {
                let log = self.nodes[voter].log.as_ref();
                let decided = log.and_then(RaftLog::decided);
                decided.is_some_and(|decided| decided.proposal.epoch == last)
            })
    }

    /// A voter without which all sets of voters that anybody knows of still have a majority: some
    /// schedules heal without one, if there is one.
    fn spare(&mut self) -> Option<VoterId> {
        let voters: Vec<_> = self.nodes.keys().copied().collect();
        let spare = voters[self.choices.index(voters.len())];
        let wanted = self.choices.chance(500);
        let records = self.nodes.values();
        let records = records.flat_map(|node| node.disk.iter().chain(&node.saving));
        let mut sets = records.flat_map(sets_of).chain([self.founders.clone()]);
        let incarnations = |voter: VoterId| {
            let stopped = self.nodes.get(&voter).is_some_and(|node| node.stopped);
            voter != spare && !stopped
        };
        let enough = sets.all(|set| set.is_empty() || Voters::only(set).majority(incarnations));
        (wanted && enough).then_some(spare)
    }

    fn step(&mut self, at: Time, event: Event) -> Result<(), Violation> {
        self.now = at;
        self.report.steps += 1;
        if let Some(until) = self.waits(&event) {
            self.queue.plan(until, event);
            return Ok(());
        }
        match event {
            Event::Deliver { from, message } => self.deliver(from, message),
            Event::Durable { voter, incarnation } => self.durable(voter, incarnation),
            Event::Wake { voter } => self.with_log(voter, |log, now, out| log.timeout(now, out)),
            Event::Restart { voter } => self.restart(voter),
            Event::Crash if !self.healed => {
                for voter in self.who_crash() {
                    self.crash(voter);
                    self.come_back(voter, self.plan.away);
                }
                self.plan_next(Event::Crash, self.plan.crashes);
                Ok(())
            }
            Event::Pause if !self.healed => {
                let voter = self.any_voter();
                let until = self.now + self.choices.exponential(ELECTION);
                self.report.pauses += 1;
                self.say(format_args!("{voter} pauses until {until:?}"));
                self.nodes
                    .entry(voter)
                    .and_modify(|node| node.paused = until);
                self.plan_next(Event::Pause, self.plan.pauses);
                Ok(())
            }
            Event::Cut if !self.healed => {
                self.cut();
                self.plan_next(Event::Cut, self.plan.cuts);
                Ok(())
            }
            Event::Mend if !self.healed => {
                self.cut.clear();
                Ok(())
            }
            Event::Work => {
                self.plan_next(Event::Work, Some(self.plan.work));
                self.work()
            }
            Event::Crash | Event::Cut | Event::Pause | Event::Mend => Ok(()),
        }
    }

    /// Until when an event must wait because it comes to a voter that stands still.
    fn waits(&self, event: &Event) -> Option<Time> {
        let (Event::Deliver {
            message: LogMessage { to: voter, .. },
            ..
        }
        | Event::Durable { voter, .. }
        | Event::Wake { voter }) = event
        else {
            return None;
        };
        let until = self.nodes.get(voter)?.paused;
        (until > self.now).then_some(until)
    }

    fn plan_next(&mut self, event: Event, mean: Option<Duration>) {
        if let Some(mean) = mean {
            let at = self.now + self.choices.exponential(mean);
            self.queue.plan(at, event);
        }
    }

    fn any_voter(&mut self) -> VoterId {
        let index = self.choices.index(self.nodes.len());
        let (voter, _) = self.nodes.iter().nth(index).expect("an index of a node");
        *voter
    }

    /// Any voter, or where power fails most of them.
    fn who_crash(&mut self) -> Vec<VoterId> {
        if !self.choices.chance(self.plan.blackouts) {
            return vec![self.any_voter()];
        }
        self.report.blackouts += 1;
        let mut voters: Vec<_> = self.nodes.keys().copied().collect();
        voters.retain(|_| self.choices.chance(700));
        voters
    }

    fn come_back(&mut self, voter: VoterId, mean: Duration) {
        let away = self.choices.exponential(mean);
        self.queue.plan(self.now + away, Event::Restart { voter });
    }

    fn say(&mut self, what: fmt::Arguments<'_>) {
        self.trace.say(self.now, what);
    }
}

/// Voters and their disks.
impl<L: Library> Group<L> {
    /// Lets a log do something, and does what it wants done.
    fn with_log(
        &mut self,
        voter: VoterId,
        act: impl FnOnce(&mut RaftLog<L>, Time, &mut Vec<LogAction>),
    ) -> Result<(), Violation> {
        let node = self.nodes.get_mut(&voter).expect("a voter that was added");
        let Some(log) = &mut node.log else {
            return Ok(());
        };
        let mut out = Vec::new();
        act(log, self.now, &mut out);
        self.act(voter, out)
    }

    fn act(&mut self, voter: VoterId, out: Vec<LogAction>) -> Result<(), Violation> {
        for action in out {
            if self.trace.is_read() {
                self.trace
                    .say(self.now, format_args!("{voter}: {action:?}"));
            }
            let node = self.nodes.get_mut(&voter).expect("a voter that was added");
            match action {
                LogAction::Send(to, message) => self.send(voter, to, message),
                LogAction::Persist(record) => {
                    if node.saving.replace(record).is_some() {
                        return Err(self.checker.broken(voter, "two records on their way"));
                    }
                    let incarnation = node.incarnation;
                    let at = self.now + self.choices.exponential(self.plan.disk);
                    self.queue.plan(at, Event::Durable { voter, incarnation });
                }
                LogAction::Decided(decided) => {
                    let epoch = decided.proposal.epoch;
                    let before = node.told.replace(epoch);
                    self.trace
                        .mix_u64(voter.0 << 32 | u64::from(epoch.as_u32()));
                    self.report.told += 1;
                    self.checker.told(voter, before, &decided)?;
                }
                LogAction::LeaderChanged => {}
                LogAction::Broken(why) => return Err(self.checker.broken(voter, why)),
            }
        }
        let node = self.nodes.get_mut(&voter).expect("a voter that was added");
        let Some(log) = &node.log else {
            return Ok(());
        };
        if log.is_leader() {
            self.checker.leads(voter, log.term())?;
        }
        let wake = log.next_timeout();
        if wake.is_some() && wake != node.wake {
            node.wake = wake;
            let at = wake.unwrap_or(self.now).max(self.now);
            self.queue.plan(at, Event::Wake { voter });
        }
        Ok(())
    }

    fn durable(&mut self, voter: VoterId, incarnation: u64) -> Result<(), Violation> {
        let node = self.nodes.get_mut(&voter).expect("a voter that was added");
        if node.incarnation != incarnation || node.log.is_none() {
            return Ok(());
        }
        let vote = |record: &LogRecord| (record.term, record.vote);
        let before = node.disk.as_ref().map(vote);
        node.disk = node.saving.take();
        let votes = node.disk.as_ref().map(vote).is_some_and(|(term, voted)| {
            voted.is_some_and(|voted| voted != voter) && before != Some((term, voted))
        });
        self.with_log(voter, |log, now, out| log.persisted(now, out))?;
        let flaps = if votes {
            self.plan.flaps.max(self.plan.voter_flaps)
        } else {
            self.plan.flaps
        };
        if self.choices.chance(flaps) {
            self.report.voter_flaps += u64::from(votes);
            self.crash(voter);
            self.come_back(voter, AT_ONCE);
        }
        Ok(())
    }

    /// Only what is durable is left; what was on its way may be, or not.
    fn crash(&mut self, voter: VoterId) {
        self.say(format_args!("{voter} crashes"));
        let arrived = self.choices.chance(500);
        let node = self.nodes.get_mut(&voter).expect("a voter that was added");
        self.report.crashes += u64::from(node.log.is_some());
        node.log = None;
        node.wake = None;
        if let Some(record) = node.saving.take() {
            self.report.torn += 1;
            if arrived {
                node.disk = Some(record);
            }
        }
    }

    fn restart(&mut self, voter: VoterId) -> Result<(), Violation> {
        let seed = self.choices.next_u64();
        let timing = Timing::new(HEARTBEAT, ELECTION);
        let node = self.nodes.get_mut(&voter).expect("a voter that was added");
        if node.log.is_some() || node.stopped {
            return Ok(());
        }
        node.incarnation += 1;
        node.told = None;
        let mut out = Vec::new();
        let log = if let Some(record) = node.disk.clone() {
            let log = RaftLog::restore(voter, record, timing, seed, self.now);
            log.expect("what a log made durable is a good record")
        } else if self.founders.contains(&voter) {
            let founders = self.founders.clone();
            RaftLog::found(voter, founders, timing, seed, self.now, &mut out)
        } else {
            RaftLog::join(voter, timing, seed, self.now, &mut out)
        };
        node.told = log.decided().map(|decided| decided.proposal.epoch);
        node.log = Some(log);
        self.say(format_args!("{voter} starts"));
        self.act(voter, out)
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

impl<L> fmt::Debug for Node<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            incarnation,
            stopped,
            ..
        } = self;
        write!(
            f,
            "Node {{ incarnation: {incarnation}, stopped: {stopped} }}"
        )
    }
}
