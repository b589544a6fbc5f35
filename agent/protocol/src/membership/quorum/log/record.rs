//! What a voter's log must not forget.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::VoterId;
use super::entry::{
    LogEntry, Snapshot, decided_makes_sense, entries_make_sense, follows, voters_make_sense,
};
use super::library::{Position, Voters};
use crate::ids::Epoch;

/// All that a voter's log must not forget. It is small: the log is cut short at every decision.
///
/// Whoever keeps it takes care that it comes back as it was, or not at all: forgetting a vote can
/// make two leaders of one term.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LogRecord {
    /// Whose it is.
    pub voter: VoterId,
    /// The term.
    pub term: u64,
    /// Whom the voter voted for in it.
    pub vote: Option<VoterId>,
    /// What is decided.
    pub snapshot: Snapshot,
    /// What may become so.
    pub entries: Vec<LogEntry>,
}

impl LogRecord {
    /// Whether a decision may take `voter`'s word, as far as this log goes.
    pub fn counts_on(&self, voter: VoterId) -> bool {
        let entries = self.entries.iter().filter_map(|entry| match entry {
            LogEntry::Voters(voters) => Some(voters),
            _ => None,
        });
        let mut all = entries.chain([&self.snapshot.voters]);
        all.any(|voters| voters.now.contains(&voter) || voters.next.contains(&voter))
    }

    /// How many decide here, where nothing about that is changing.
    pub fn deciding(&self) -> Option<usize> {
        let is_view = |entry: &LogEntry| !matches!(entry, LogEntry::Voters(_));
        let Voters { now, next } = &self.snapshot.voters;
        (next.is_empty() && self.entries.iter().all(is_view)).then_some(now.len())
    }

    /// # Errors
    /// If no log can have left this record for `voter`.
    pub(super) fn check(&self, voter: VoterId) -> Result<(), BadRecord> {
        let Snapshot {
            position,
            voters,
            decided,
        } = &self.snapshot;
        let epoch = decided
            .as_ref()
            .map_or(Epoch::ZERO, |decided| decided.proposal.epoch);
        // A voter that joins knows none before the leader's first message.
        let joins = *position == Position::default() && *voters == Voters::default();
        if self.voter != voter {
            Err(BadRecord::OtherVoter { voter: self.voter })
        } else if !follows(*position, self.term)
            || !(joins || voters_make_sense(voters))
            || !decided_makes_sense(decided.as_ref())
        {
            Err(BadRecord::Snapshot)
        } else if !entries_make_sense(*position, self.term, epoch, &self.entries) {
            Err(BadRecord::Entries)
        } else {
            Ok(())
        }
    }
}

/// Why a [`LogRecord`] is refused: start the voter anew, under another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadRecord {
    /// It is another voter's.
    #[error("the record is that of voter {voter}")]
    OtherVoter {
        /// Whose.
        voter: VoterId,
    },
    /// What it says to be decided cannot be.
    #[error("the record's snapshot contradicts itself")]
    Snapshot,
    /// The log behind it cannot be.
    #[error("the record's log contradicts itself")]
    Entries,
}
