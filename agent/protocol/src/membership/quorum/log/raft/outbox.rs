//! Holds back what rests on memory that is not durable yet.

use alloc::vec::Vec;
use core::mem;

use super::super::library::{Entry, Library, Position};
use super::super::{LogAction, VoterId};
use crate::time::Time;

/// From how many on what waits for the disk is thinned out.
const MAX_WAITING: usize = 256;

/// What is to be durable, short enough to be compared at every step: the views themselves follow
/// from their places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    term: u64,
    vote: Option<VoterId>,
    snapshot: Position,
    entries: Vec<Entry>,
}

impl Mark {
    pub(super) fn of(library: &impl Library) -> Self {
        let snapshot = library.snapshot();
        let entries = snapshot.index + 1..=library.last().index;
        Self {
            term: library.term(),
            vote: library.vote(),
            snapshot,
            entries: entries.filter_map(|at| library.entry_at(at)).collect(),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Outbox {
    /// What the last record has.
    saved: Option<Mark>,
    /// Since when that one is on its way to the disk, if it still is.
    saving: Option<Time>,
    /// The term that is durable.
    term: Option<u64>,
    /// What waits for it.
    held: Vec<LogAction>,
    /// What came after it, and may rest on newer memory.
    later: Vec<LogAction>,
}

impl Outbox {
    /// `saved` is what is durable already.
    pub(super) fn new(saved: Option<Mark>) -> Self {
        Self {
            term: saved.as_ref().map(|mark| mark.term),
            saved,
            saving: None,
            held: Vec::new(),
            later: Vec::new(),
        }
    }

    /// Whether this term, and so the vote that made a leader in it, is durable.
    pub(super) fn has_term(&self, term: u64) -> bool {
        self.term == Some(term)
    }

    /// Lets `actions` out as soon as `mark` is durable. Whether it is to be made so now.
    pub(super) fn put(
        &mut self,
        now: Time,
        mark: Mark,
        actions: Vec<LogAction>,
        out: &mut Vec<LogAction>,
    ) -> bool {
        let busy = self.saving.is_some();
        if busy {
            for action in actions {
                self.wait(action);
            }
        } else if self.saved.as_ref() == Some(&mark) {
            out.extend(actions);
        } else {
            self.saved = Some(mark);
            self.saving = Some(now);
            self.held = actions;
        }
        self.saving.is_some() && !busy
    }

    /// The last record is durable: lets out what waited for it, and returns since when it did, and what
    /// came later. `None` if there was none on its way.
    pub(super) fn persisted(&mut self, out: &mut Vec<LogAction>) -> Option<(Time, Vec<LogAction>)> {
        let since = self.saving.take()?;
        self.term = self.saved.as_ref().map(|mark| mark.term);
        out.append(&mut self.held);
        Some((since, mem::take(&mut self.later)))
    }

    /// Of a full queue the messages are lost, and of what else there is the last of each kind
    /// says it all: a view's chain has the names of those before it.
    fn wait(&mut self, action: LogAction) {
        if self.later.len() >= MAX_WAITING {
            if matches!(action, LogAction::Send(..)) {
                return;
            }
            let kind = mem::discriminant(&action);
            self.later.retain(|old| mem::discriminant(old) != kind);
        }
        self.later.push(action);
    }

    /// Lets nothing out that waits.
    pub(super) fn discard(&mut self) {
        self.held.clear();
        self.later.clear();
    }
}
