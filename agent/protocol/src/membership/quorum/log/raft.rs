//! A log that is Raft: a library's core, and the rules that keep it live.
//!
//! Raft is Ongaro and Ousterhout, "In search of an understandable consensus algorithm" (2014); §
//! is Ongaro's thesis of the same year. The library brings elections, replication and joint
//! consensus. Here is what it leaves to others:
//!
//! - One voter comes or goes at a time, only when the log is committed to its end, and only when
//!   the last view is in force everywhere. A leader does not remove itself; one that finds itself
//!   removed commits nothing, but brings a voter that stays up to date and lets it lead. A library
//!   that lets nobody campaign outside of its newest voters, as this one, could stand still
//!   otherwise: the removed leader's log would be the longest.
//! - Whoever hears of a leader takes no part in elections (§4.2.3), unless the leader has asked
//!   for one; so a voter that hears nobody topples nobody.
//! - A leader that hears from no majority steps down (§6.2): nobody else would lead as long as
//!   its heartbeats arrive.
//! - Who asks for votes and has none itself any more is told so, instead of answered.
//! - All that is committed leaves the log at once. A voter that has missed it gets the snapshot,
//!   which is hardly longer than the entry.
//! - What no log can have sent is not shown to the library.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use super::entry::{LogEntry, Snapshot, check_size, views_of};
use super::library::{Call, Library, Noraft, Position, Role, Voters};
use super::message::{Body, LogMessage, MAX_LEAP};
use super::record::{BadRecord, LogRecord};
use super::{Decided, LogAction, NotNow, Proposal, ViewLog, VoterId};
use crate::chance::Chance;
use crate::ids::Epoch;
use crate::time::Time;

mod inbox;
mod outbox;
mod outcome;
mod timing;

use outbox::{Mark, Outbox};
pub use timing::Timing;

/// Uncommitted entries that double the wait before the next election. Every leader leaves one; so
/// leaders that can commit nothing, however many, do not fill the log.
const SLOWER_EVERY: u64 = 64;

/// A voter's log.
#[derive(Clone, Debug)]
pub struct RaftLog<L = Noraft> {
    me: VoterId,
    timing: Timing,
    /// Elections come at different times because of this, and of nothing else.
    chance: Chance,
    library: L,
    /// The views in the log, each by its index and with its term.
    views: BTreeMap<u64, (u64, Proposal)>,
    /// The last decided view, which is at or before the beginning of the log.
    decided: Option<Decided>,
    /// The view that is in force everywhere.
    installed: Option<Epoch>,
    deadline: Option<Time>,
    /// When that was set.
    wound_up: Time,
    /// The leader of a term, and when it was last heard of.
    leader: Option<(u64, VoterId, Time)>,
    leading: Option<Leading>,
    /// The term in which this voter campaigns because its leader has asked it to.
    asked: Option<u64>,
    /// Whom the layer above knows as the leader.
    told: Option<VoterId>,
    /// What follows from the present call.
    actions: Vec<LogAction>,
    outbox: Outbox,
    broken: bool,
}

/// What a leader knows besides.
#[derive(Clone, Debug)]
struct Leading {
    since: Time,
    /// When followers last answered.
    heard: BTreeMap<VoterId, Time>,
    /// Who shall lead instead, and until when that is tried.
    successor: Option<(VoterId, Time)>,
    /// Whether something was committed that followers do not know of.
    news: bool,
}

/// Making one.
impl<L: Library> RaftLog<L> {
    /// One of the first `voters` of a group that there has never been before. All of them begin
    /// alike, and only where it is certain that none of them has begun before.
    pub fn found(
        me: VoterId,
        voters: BTreeSet<VoterId>,
        timing: Timing,
        seed: u64,
        now: Time,
        out: &mut Vec<LogAction>,
    ) -> Self {
        // A voter that joins begins at index 0, and gets this as a snapshot.
        let position = Position { term: 0, index: 1 };
        let library = L::restore(me, 0, None, position, &Voters::only(voters), &[]);
        Self::begin(me, timing, seed, now, library, out)
    }

    /// A voter that is to be added to a group.
    pub fn join(
        me: VoterId,
        timing: Timing,
        seed: u64,
        now: Time,
        out: &mut Vec<LogAction>,
    ) -> Self {
        let nobody = Voters::default();
        let library = L::restore(me, 0, None, Position::default(), &nobody, &[]);
        Self::begin(me, timing, seed, now, library, out)
    }

    /// A voter that comes back, with what was durable.
    ///
    /// # Errors
    /// If no log can have left this record for `me`.
    pub fn restore(
        me: VoterId,
        record: LogRecord,
        timing: Timing,
        seed: u64,
        now: Time,
    ) -> Result<Self, BadRecord> {
        record.check(me)?;
        let LogRecord {
            term,
            vote,
            snapshot,
            entries,
            ..
        } = record;
        let shapes: Vec<_> = entries.iter().map(LogEntry::shape).collect();
        let position = snapshot.position;
        let library = L::restore(me, term, vote, position, &snapshot.voters, &shapes);
        let saved = Some(Mark::of(&library));
        let mut log = Self::new(me, timing, seed, library, saved);
        log.decided = snapshot.decided;
        log.keep_views(views_of(position, entries));
        log.wind_up(now);
        Ok(log)
    }

    fn begin(
        me: VoterId,
        timing: Timing,
        seed: u64,
        now: Time,
        library: L,
        out: &mut Vec<LogAction>,
    ) -> Self {
        let mut log = Self::new(me, timing, seed, library, None);
        log.settle(now, out);
        log
    }

    fn new(me: VoterId, timing: Timing, seed: u64, library: L, saved: Option<Mark>) -> Self {
        Self {
            me,
            timing,
            chance: Chance::new(seed),
            library,
            views: BTreeMap::new(),
            decided: None,
            installed: None,
            deadline: None,
            wound_up: Time::ZERO,
            leader: None,
            leading: None,
            asked: None,
            told: None,
            actions: Vec::new(),
            outbox: Outbox::new(saved),
            broken: false,
        }
    }
}

impl<L: Library> ViewLog for RaftLog<L> {
    fn receive(&mut self, now: Time, from: VoterId, message: LogMessage, out: &mut Vec<LogAction>) {
        let LogMessage { to, term, .. } = message;
        let leap = self.library.term().saturating_add(MAX_LEAP);
        let meant = to == self.me && from != self.me && term <= leap;
        if self.broken || !meant || !message.makes_sense() {
            return;
        }
        if let Some(answer) = self.answer_former(from, &message) {
            self.actions.push(LogAction::Send(from, answer));
            return self.settle(now, out);
        }
        match message.body {
            Body::Vote { last, handed_over } => self.on_vote(now, from, term, last, handed_over),
            Body::Voted { granted } => {
                if self.library.voters().contains(from) {
                    self.call(from, term, Call::Voted { granted });
                }
            }
            Body::Append {
                commit,
                prev,
                entries,
            } => self.on_append(now, from, term, commit, prev, entries),
            Body::Appended { last } => self.on_appended(now, from, term, last),
            Body::Install(snapshot) => self.on_install(now, from, term, *snapshot),
            Body::Retired(snapshot) => self.on_retired(from, term, *snapshot),
            Body::TakeOver => self.on_take_over(from, term),
        }
        self.settle(now, out);
    }

    fn answer_former(&self, from: VoterId, message: &LogMessage) -> Option<LogMessage> {
        let Body::Vote { last, .. } = message.body else {
            return None;
        };
        let knows = |voters: &Voters| voters.contains(from);
        let is_former = !knows(&self.snapshot_voters()) && !knows(&self.library.voters());
        // It has missed something that is committed, so it can win no election of its own either. Not to
        // take its term loses nothing.
        let is_meant = message.to == self.me && from != self.me && !self.broken;
        let is_retired = is_meant && is_former && last < self.library.snapshot();
        is_retired.then(|| LogMessage {
            to: from,
            term: self.library.term(),
            body: Body::Retired(Box::new(self.snapshot())),
        })
    }

    fn timeout(&mut self, now: Time, out: &mut Vec<LogAction>) {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        self.deadline = None;
        if self.leads() && !self.in_touch(now, self.timing.election * 2) {
            self.step_down();
        } else {
            self.library.timeout();
        }
        self.settle(now, out);
    }

    fn next_timeout(&self) -> Option<Time> {
        self.deadline
    }

    fn persisted(&mut self, now: Time, out: &mut Vec<LogAction>) {
        if self.broken {
            return;
        }
        if let Some((since, later)) = self.outbox.persisted(out) {
            self.actions = later;
            if let Some(deadline) = self.deadline.filter(|_| !self.leads()) {
                // Its vote, or its call for votes, goes out only now: the time on the disk is not the
                // election's. If it were, disks half as slow as an election would let nobody ever win.
                self.deadline = Some(deadline + now.since(since.max(self.wound_up)));
            }
            // A voter that is alone leads when that is durable.
            self.tell_leader();
            self.let_out(now, out);
        }
    }

    fn propose(
        &mut self,
        now: Time,
        proposal: Proposal,
        out: &mut Vec<LogAction>,
    ) -> Result<(), NotNow> {
        self.check_proposal(now, &proposal)?;
        let index = self.library.last().index + 1;
        self.views.insert(index, (self.library.term(), proposal));
        if !self.library.propose_view() {
            self.views.remove(&index);
            return Err(NotNow::Busy);
        }
        self.settle(now, out);
        Ok(())
    }

    fn installed(&mut self, epoch: Epoch) {
        self.installed = Some(epoch);
    }

    fn hand_over(
        &mut self,
        now: Time,
        to: VoterId,
        out: &mut Vec<LogAction>,
    ) -> Result<(), NotNow> {
        let voters = self.library.voters();
        let stays = if voters.moving() {
            voters.next.contains(&to)
        } else {
            voters.now.contains(&to)
        };
        let leading = self.leading.as_mut().ok_or(NotNow::NotLeader)?;
        if to == self.me || !stays {
            return Err(NotNow::NotVoter);
        }
        leading.successor = Some((to, now + self.timing.election));
        // Its answer to the heartbeat tells whether it has all that is here.
        self.library.timeout();
        self.settle(now, out);
        Ok(())
    }

    fn leader(&self) -> Option<VoterId> {
        match self.library.role() {
            _ if self.broken => None,
            Role::Leader => self.is_leader().then_some(self.me),
            Role::Candidate => None,
            Role::Follower => self
                .leader
                .filter(|(term, _, _)| *term == self.library.term())
                .map(|(_, leader, _)| leader),
        }
    }

    fn is_leader(&self) -> bool {
        // What leads in memory alone may have led in vain.
        self.leads() && self.outbox.has_term(self.library.term())
    }

    fn term(&self) -> u64 {
        self.library.term()
    }

    fn decided(&self) -> Option<&Decided> {
        self.decided.as_ref()
    }

    fn retired(&self) -> bool {
        // A voter that joins is in the view before it is among those who vote.
        let decided = self.decided.as_ref();
        decided.is_some_and(|decided| !decided.proposal.voters.contains(&self.me))
            && !self.snapshot_voters().contains(self.me)
            && !self.library.voters().contains(self.me)
    }
}

/// What is the case.
impl<L: Library> RaftLog<L> {
    fn check_proposal(&self, now: Time, proposal: &Proposal) -> Result<(), NotNow> {
        let Some(leading) = self.leading.as_ref().filter(|_| self.is_leader()) else {
            return Err(NotNow::NotLeader);
        };
        check_size(proposal)?;
        let decided = self.decided_epoch();
        if proposal.epoch <= decided {
            return Err(NotNow::OldEpoch { decided });
        }
        let voters = self.library.voters();
        let wanted = self.wanted(&voters);
        let handing_over = leading.successor.is_some_and(|(_, until)| now < until);
        if self.busy() || handing_over || voters.moving() || voters.now != wanted {
            return Err(NotNow::Busy);
        }
        if proposal.voters != wanted {
            if self.decided.is_none() || self.installed != Some(decided) {
                return Err(NotNow::NotInstalled);
            }
            if proposal.voters.symmetric_difference(&wanted).count() > 1 {
                return Err(NotNow::TooManyChanges);
            }
            if !proposal.voters.contains(&self.me) {
                return Err(NotNow::RemovesLeader);
            }
        }
        Ok(())
    }

    fn leads(&self) -> bool {
        !self.broken && self.library.role() == Role::Leader
    }

    /// Whether the log has entries that are not committed.
    fn busy(&self) -> bool {
        self.library.last() != self.library.snapshot()
    }

    /// Who shall vote in the end.
    fn wanted(&self, voters: &Voters) -> BTreeSet<VoterId> {
        match &self.decided {
            _ if voters.moving() => voters.next.clone(),
            Some(decided) => decided.proposal.voters.clone(),
            None => voters.now.clone(),
        }
    }

    /// Whether `voter` is to lead instead of this leader.
    fn succeeds(&self, now: Time, voter: VoterId, voters: &Voters) -> bool {
        let asked = self.leading.as_ref().and_then(|leading| leading.successor);
        let wanted = self.wanted(voters);
        asked.is_some_and(|(to, until)| to == voter && now < until)
            || (!wanted.contains(&self.me) && wanted.contains(&voter))
    }

    fn decided_epoch(&self) -> Epoch {
        self.decided
            .as_ref()
            .map_or(Epoch::ZERO, |decided| decided.proposal.epoch)
    }

    /// Whether an election would topple a leader that is well, as far as can be seen here.
    fn hears_of_leader(&self, now: Time) -> bool {
        match self.library.role() {
            Role::Leader => self.in_touch(now, self.timing.election),
            Role::Candidate => false,
            Role::Follower => self
                .leader
                .is_some_and(|(_, _, heard)| now.since(heard) < self.timing.election),
        }
    }

    /// Whether this leader has heard from a majority within `span`. It had its votes at first.
    fn in_touch(&self, now: Time, span: Duration) -> bool {
        let Some(leading) = &self.leading else {
            return true;
        };
        self.library.voters().majority(|voter| {
            let heard = leading.heard.get(&voter).unwrap_or(&leading.since);
            voter == self.me || now.since(*heard) < span
        })
    }

    /// Leaves the lead, as if another had begun a new term.
    fn step_down(&mut self) {
        let other = self.library.voters().all().find(|voter| *voter != self.me);
        if let Some(other) = other {
            let term = self.library.term() + 1;
            self.call(other, term, Call::Voted { granted: false });
        }
    }

    /// Sets the time of the next heartbeat or election.
    fn wind_up(&mut self, now: Time) {
        self.wound_up = now;
        let Timing {
            heartbeat,
            election,
        } = self.timing;
        let uncommitted = self.library.last().index - self.library.snapshot().index;
        let slower = u32::try_from(1 + uncommitted / SLOWER_EVERY).unwrap_or(u32::MAX);
        let voters = self.library.voters();
        let alone = voters.all().all(|voter| voter == self.me);
        self.deadline = match self.library.role() {
            Role::Leader => Some(now + heartbeat),
            _ if !voters.contains(self.me) => None,
            // Nobody to disturb.
            _ if alone => Some(now),
            _ => {
                let wait = election.saturating_mul(slower);
                Some(now + wait + self.chance.below(wait))
            }
        };
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            position: self.library.snapshot(),
            voters: self.snapshot_voters(),
            decided: self.decided.clone(),
        }
    }

    fn snapshot_voters(&self) -> Voters {
        let index = self.library.snapshot().index;
        self.library.voters_at(index).unwrap_or_default()
    }

    fn record(&self) -> LogRecord {
        let snapshot = self.snapshot();
        let entries = snapshot.position.index + 1..=self.library.last().index;
        let entries = entries.filter_map(|index| {
            let entry = self.library.entry_at(index)?;
            self.with_view(index, entry)
        });
        LogRecord {
            voter: self.me,
            term: self.library.term(),
            vote: self.library.vote(),
            entries: entries.collect(),
            snapshot,
        }
    }
}
