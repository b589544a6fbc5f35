//! Holds back what rests on memory that is not durable yet.

use alloc::vec::Vec;
use core::mem;

use super::super::library::{Entry, Library, Position};
use super::super::record::LogRecord;
use super::super::{LogAction, VoterId};

/// How many messages wait for the disk at most; later ones are lost, as on the way.
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

#[derive(Debug)]
pub(super) struct Outbox {
    /// What the last record has.
    saved: Option<Mark>,
    /// Whether that one is still on its way to the disk.
    saving: bool,
    /// What waits for it.
    held: Vec<LogAction>,
    /// What came after it, and may rest on newer memory.
    later: Vec<LogAction>,
}

impl Outbox {
    /// `saved` is what is durable already.
    pub(super) const fn new(saved: Option<Mark>) -> Self {
        Self {
            saved,
            saving: false,
            held: Vec::new(),
            later: Vec::new(),
        }
    }

    /// Lets `actions` out as soon as `mark` is durable.
    pub(super) fn put(
        &mut self,
        mark: Mark,
        record: impl FnOnce() -> LogRecord,
        actions: Vec<LogAction>,
        out: &mut Vec<LogAction>,
    ) {
        if self.saving {
            for action in actions {
                let message = matches!(action, LogAction::Send(..));
                if !message || self.later.len() < MAX_WAITING {
                    self.later.push(action);
                }
            }
        } else if self.saved.as_ref() == Some(&mark) {
            out.extend(actions);
        } else {
            out.push(LogAction::Persist(record()));
            self.saved = Some(mark);
            self.saving = true;
            self.held = actions;
        }
    }

    /// The last record is durable; memory is at `mark` meanwhile.
    pub(super) fn persisted(
        &mut self,
        mark: Mark,
        record: impl FnOnce() -> LogRecord,
        out: &mut Vec<LogAction>,
    ) {
        if mem::take(&mut self.saving) {
            out.append(&mut self.held);
            let later = mem::take(&mut self.later);
            self.put(mark, record, later, out);
        }
    }

    /// Lets nothing out that waits.
    pub(super) fn discard(&mut self) {
        self.held.clear();
        self.later.clear();
    }
}
