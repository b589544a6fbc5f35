//! What comes in, and what of it the library gets to see.

use alloc::vec::Vec;

use super::super::entry::{LogEntry, Snapshot, entries_make_sense, views_of};
use super::super::library::{Call, Entry, Library, Position, Role};
use super::super::message::Body;
use super::super::{LogAction, Proposal, ViewLog, VoterId};
use super::RaftLog;
use crate::ids::Epoch;
use crate::time::Time;

impl<L: Library> RaftLog<L> {
    pub(super) fn call(&mut self, from: VoterId, term: u64, call: Call) {
        if self.library.receive(from, term, call).is_err() {
            self.fail("the library finds its log in contradiction with the leader's");
        }
    }

    pub(super) fn on_vote(
        &mut self,
        now: Time,
        from: VoterId,
        term: u64,
        last: Position,
        handed_over: bool,
    ) {
        if handed_over || term <= self.library.term() || !self.hears_of_leader(now) {
            self.call(from, term, Call::Vote { last });
        }
    }

    pub(super) fn on_append(
        &mut self,
        now: Time,
        from: VoterId,
        term: u64,
        commit: u64,
        prev: Position,
        entries: Vec<LogEntry>,
    ) {
        if self.contradicts_committed(prev, term, &entries) {
            return;
        }
        let shapes = entries.iter().map(LogEntry::shape).collect();
        let call = Call::Append {
            commit,
            prev,
            entries: shapes,
        };
        self.call(from, term, call);
        self.keep_views(views_of(prev, entries));
        if self.library.term() == term && self.library.role() == Role::Follower {
            self.leader = Some((term, from, now));
        }
    }

    /// Whether a leader's entries differ from what is committed, and so gone from the log.
    fn contradicts_committed(&self, prev: Position, term: u64, entries: &[LogEntry]) -> bool {
        let snapshot = self.library.snapshot();
        if prev.index > snapshot.index {
            return false;
        }
        let known = usize::try_from(snapshot.index - prev.index).unwrap_or(usize::MAX);
        let Some((known, new)) = entries.split_at_checked(known) else {
            // They end before the log begins.
            return false;
        };
        let at = known.iter().rev().find_map(|entry| match entry {
            LogEntry::Term(term) => Some(*term),
            _ => None,
        });
        at.unwrap_or(prev.term) != snapshot.term
            || !entries_make_sense(snapshot, term, self.decided_epoch(), new)
    }

    pub(super) fn on_appended(&mut self, now: Time, from: VoterId, term: u64, last: Position) {
        let voters = self.library.voters();
        if self.leads() && term == self.library.term() && voters.contains(from) {
            let level = last == self.library.last();
            let stays = level && self.succeeds(now, from, &voters);
            if let Some(leading) = &mut self.leading {
                leading.heard.insert(from, now);
            }
            if stays {
                self.send(from, Body::TakeOver);
            }
            if level && voters.moving() && !voters.next.contains(&self.me) {
                // This answer may be the one that commits, and then the library would go on to
                // the voters without this one, which is not to lead them.
                return;
            }
        }
        self.call(from, term, Call::Appended { last });
    }

    pub(super) fn on_install(&mut self, now: Time, from: VoterId, term: u64, snapshot: Snapshot) {
        let position = snapshot.position;
        let at = |log: &mut Self| {
            log.on_append(now, from, term, position.index, position, Vec::new());
        };
        // The first says who leads, and removes what differs; the second answers where the log
        // stands then.
        at(self);
        self.deliver();
        let follows = self.leader == Some((term, from, now));
        if follows && !self.broken && self.adopt(snapshot) {
            at(self);
        }
    }

    pub(super) fn on_retired(&mut self, from: VoterId, term: u64, snapshot: Snapshot) {
        if snapshot.voters.contains(self.me) || self.leads() {
            return;
        }
        // A new term ends a candidacy, whose votes count no more.
        let term = term.max(self.library.term() + 1);
        self.call(from, term, Call::Voted { granted: false });
        self.adopt(snapshot);
    }

    pub(super) fn on_take_over(&mut self, from: VoterId, term: u64) {
        let led = self.leader().is_some_and(|leader| leader == from);
        let votes = self.library.voters().contains(self.me);
        if led && votes && term == self.library.term() {
            self.library.timeout();
            self.asked = Some(self.library.term());
        }
    }

    /// Begins the log behind `snapshot`, if that is ahead. Whether it is now.
    fn adopt(&mut self, snapshot: Snapshot) -> bool {
        let Snapshot {
            position,
            voters,
            decided,
        } = snapshot;
        let epoch = decided
            .as_ref()
            .map_or(Epoch::ZERO, |decided| decided.proposal.epoch);
        if position.index <= self.library.committed()
            || epoch < self.decided_epoch()
            || !self.library.compact(position, &voters)
        {
            return false;
        }
        if epoch > self.decided_epoch()
            && let Some(decided) = decided
        {
            self.decided = Some(decided.clone());
            self.actions.push(LogAction::Decided(decided));
        }
        true
    }

    /// Keeps those views whose entries are in the log. What is there of the same term stays.
    pub(super) fn keep_views(&mut self, views: Vec<(Position, Proposal)>) {
        for (Position { term, index }, proposal) in views {
            let there = self.views.get(&index).is_some_and(|(old, _)| *old == term);
            if !there
                && self.library.term_at(index) == Some(term)
                && self.library.entry_at(index) == Some(Entry::View)
            {
                self.views.insert(index, (term, proposal));
            }
        }
    }
}
